"""The Java clients of a pair that moves, `Migration.java`: commands to them, what they report, and the judgement."""

import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from tests.pace import slowness

LANES = ("client", "individual", "transacted")
"""Named after what confirms the receipt; in the last one a commit confirms the sends, too."""

PATIENCE_SECONDS = 60.0
KEPT, LEFT = ("kept", "kept-undone"), ("left", "left-undone")
"""XA branches that are prepared before a failover: those whose connection lives on, and those that recovery finds. Of
each, the first is committed, and the second is rolled back."""

DUE_MILLIS = (4_000, 4_500, 6_000)
"""Messages that are scheduled so long before a kill are due when the next master serves, or soon afterwards."""

REPORT_NANOSECONDS = 50_000_000
"""How late the Java client may report an interruption: it forgets what it was to acknowledge first. An acknowledgement
that returns in between has sent nothing. A slow machine is allowed for as in `tests.pace`."""

Span = tuple[int, int]
"""Two times, in the nanoseconds of the clock that Java's `nanoTime` reads, too."""


@dataclass
class LaneRecord:
    """Events of a lane, by the number of the message."""

    confirmed: dict[int, Span] = field(default_factory=dict[int, Span])
    """Messages whose send has returned, with when the confirmation before this one came, and this one."""
    doubtful: list[range] = field(default_factory=list[range])
    received: dict[int, list[tuple[int, bool]]] = field(default_factory=lambda: defaultdict(list))
    """Times of receipt, and if the message was marked as redelivered."""
    acknowledged: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    dead: set[int] = field(default_factory=set[int])
    """Messages that were among the dead letters at the end. Where a client has sent an acknowledgement and gets the
    message again after a failover, it has the broker make a dead letter of it: "Suppressing duplicate delivery"."""
    beats: dict[str, list[int]] = field(default_factory=lambda: {"producer": [0], "consumer": [0]})
    """Times of confirmations to the producer and to the consumer."""

    def missing(self) -> set[int]:
        return self.confirmed.keys() - self.received.keys()

    def record(self, moment: int, word: str, rest: Sequence[str]) -> None:
        match word, rest:
            case "confirmed", [first, last]:
                since = self.beats["producer"][-1]
                self.confirmed.update(dict.fromkeys(range(int(first), int(last) + 1), (since, moment)))
                self.beats["producer"].append(moment)
            case "doubt", [first, last]:
                self.doubtful.append(range(int(first), int(last) + 1))
                self.beats["producer"].append(moment)
            case "received", [number, is_redelivered]:
                self.received[int(number)].append((moment, is_redelivered == "true"))
            case "acknowledged", [number]:
                self.acknowledged[int(number)].append(moment)
                self.beats["consumer"].append(moment)
            case _:
                assert (word, len(rest)) == ("again", 1), (word, rest)

    def faults(
        self, outages: "dict[str, list[Span]]", unmarked: Sequence[Span], report: int = REPORT_NANOSECONDS
    ) -> Iterator[str]:
        """Yield what must not have happened.

        Args:
            outages: when the transports of the producer and of the consumer were away.
            unmarked: when brokers took over that do not know what the former master had delivered.
            report: how late an interruption may be reported, in nanoseconds.
        """
        if missing := self.missing():
            yield f"lost: {sorted(missing)}"
        first_seen = list(self.received)
        yield from (f"{late} came after {early}" for early, late in pairwise(first_seen) if late < early)
        for group in self.doubtful:
            if 0 < len(self.received.keys() & group) < len(group):
                yield f"a part of a transaction: {self.received.keys() & group} of {group}"
        for number, deliveries in self.received.items():
            if number in self.confirmed and _overlap(self.confirmed[number], outages["producer"]):
                continue  # its client sent it twice, and what was delivered in between may be known to none
            yield from self._doubled(number, deliveries, outages["consumer"], unmarked, report)

    def _doubled(
        self,
        number: int,
        deliveries: list[tuple[int, bool]],
        outages: list[Span],
        unmarked: Sequence[Span],
        report: int,
    ) -> Iterator[str]:
        for (early, _), (late, is_marked) in pairwise(deliveries):
            confirmations = [each for each in self.acknowledged[number] if early < each < late]
            if confirmations and not _overlap((early, confirmations[0] + report), outages):
                yield (
                    f"{number} came again, after its acknowledgement was confirmed: first at {early} ns, "
                    f"confirmed at {confirmations}, again at {late}; outages: {outages}"
                )
            if not is_marked and not _overlap((early, late), unmarked):
                yield f"{number} came again, unmarked"


@dataclass
class StepTimes:
    """How long a step took, and the longest time without a confirmation in it, in seconds.

    Attributes:
        name: of the step.
        began: when it began, in nanoseconds.
        step: until its commands were done.
        producers: the longest time between two confirmations to a producer, until all clients worked again.
        consumers: the same of the consumers' acknowledgements.
    """

    name: str
    began: int
    step: float = 0.0
    producers: float = 0.0
    consumers: float = 0.0

    @property
    def longest(self) -> float:
        return max(self.producers, self.consumers)


class MovingClients:
    """The program at work.

    Args:
        command: starts it.
        log: a file for what it prints to standard error.
    """

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self.lanes = {name: LaneRecord() for name in LANES}
        self.steps: list[StepTimes] = []
        self._began = time.monotonic()
        self.sent_by_branches: list[str] = []
        self.taken_back: list[str] = []
        self._unmarked: list[Span] = []
        self._outages: dict[str, list[Span]] = defaultdict(list)
        self._told: dict[str, list[tuple[int, str]]] = defaultdict(list)
        self._jobs: list[str] = []
        self._log = log
        self._changed = threading.Condition()
        with log.open("wb") as errors:
            pipe = subprocess.PIPE
            self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=errors, text=True)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input, self._output = self._process.stdin, self._process.stdout
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    # ------------------------------------------------------------ commands

    def command(self, line: str) -> None:
        """Have them do something, and wait until it is done."""
        count = len(self._told["done"])
        self._input.write(f"{line}\n")
        self._input.flush()
        self.wait_for(lambda: len(self._told["done"]) > count, line)

    def publish(self, *texts: str) -> None:
        """Publish to the topic whose durable subscriber is away."""
        for text in texts:
            self.command(f"publish {text}")

    def read_news(self, *texts: str, is_last: bool = True) -> None:
        """Have the durable subscriber come, and require that these are its next messages, or all that there are."""
        known = len(self._told["news"])
        self.command(f"news {len(texts)} {'last' if is_last else 'first'}")
        assert [each.split()[0] for _, each in self._told["news"]][known:] == list(texts)

    def prepare(self, name: str, *branches: str) -> None:
        """Leave prepared branches to the next master."""
        for role in branches:
            self.command(f"prepare {name}-{role}")
            assert self._told["prepared"][-1][1] == f"{name}-{role} 0"
            if role in LEFT:
                self.command(f"leave {name}-{role}")

    def schedule(self, name: str) -> None:
        """Leave scheduled messages to the next master."""
        for millis in DUE_MILLIS:
            self.command(f"schedule {name}-{millis} {millis}")
            self._jobs.append(f"{name}-{millis}")

    def decide(self, name: str, *branches: str) -> None:
        """End the branches, those without a connection last."""
        known = len(self._told["recovered"])
        for role in branches:
            outcome = "rollback" if role.endswith("undone") else "commit"
            self.command(f"{outcome} {name}-{role}")
            {"commit": self.sent_by_branches, "rollback": self.taken_back}[outcome].append(f"{name}-{role}")
        recovered = [each for _, each in self._told["recovered"][known:]]
        assert recovered == [f"{name}-left", f"{name}-left-undone", f"{name}-left-undone"]

    def await_jobs(self) -> None:
        """Wait for the scheduled messages, and require that none came before the last step."""
        self.wait_for(lambda: len(self._told["job"]) >= len(self._jobs), "jobs")
        assert all(moment > self.steps[-1].began for moment, _ in self._told["job"][-len(DUE_MILLIS) :])

    def left(self, queue: str) -> list[str]:
        """Return what is left in a queue, in order of the texts."""
        return sorted(text for _, text in self._drained(queue))

    def end(self) -> None:
        """Have the producers stop, wait for everything, and stop the consumers."""
        self.command("stop")
        self.wait_for(lambda: not any(each.missing() for each in self.lanes.values()), "the rest")
        self.command("end")
        for queue, number in self._drained("DLQ.JAVA.>"):
            self.lanes[queue.rpartition(".")[2]].dead.add(int(number))

    def close(self) -> None:
        """Leave nothing running."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for stream in (self._input, self._output):
            stream.close()

    # ------------------------------------------------------------ times

    def wait_for(self, condition: Callable[[], bool], reason: str) -> None:
        """Wait for an event, or fail with what has happened."""
        with self._changed:
            is_met = self._changed.wait_for(lambda: condition() or bool(self._told["broken"]), PATIENCE_SECONDS)
        assert not self._told["broken"], f"{self._told['broken']}\n{self._log.read_text()[-2000:]}"
        assert is_met, f"{reason}: {self.summary()}"

    def go_on(self) -> None:
        """Wait until each client has had something confirmed from now on."""
        now = time.monotonic_ns()
        self.wait_for(lambda: all(times[-1] > now for _, times in self._beats()), "all clients work")

    @contextmanager
    def measured(self, name: str, *, is_marked: bool = True) -> Generator[StepTimes]:
        """Measure a step, until all clients work again.

        Args:
            name: of the step.
            is_marked: if a broker takes over, it marks what may have been delivered before.
        """
        times = StepTimes(name, time.monotonic_ns())
        yield times
        times.step = (time.monotonic_ns() - times.began) / 1e9
        self.go_on()
        times.producers, times.consumers = (
            max(_longest(beats, times.began) for kind, beats in self._beats() if kind == role)
            for role in ("producer", "consumer")
        )
        self.steps.append(times)
        if not is_marked:
            self._unmarked.append((times.began, time.monotonic_ns()))

    def table(self) -> str:
        """Return the steps with their times."""
        rows = [f"{'step':<28}{'took':>8}{'producers waited':>20}{'consumers waited':>20}"]
        for each in self.steps:
            rows.append(f"{each.name:<28}{each.step:>6.2f} s{each.producers:>18.2f} s{each.consumers:>18.2f} s")
        return "\n".join(["", *rows])

    # ------------------------------------------------------------ judgement

    def judge(self) -> None:
        """Require that nothing is lost or out of order, and nothing doubled that may not be."""
        report = round(REPORT_NANOSECONDS * slowness(time.monotonic() - self._began))
        faults = {
            name: list(lane.faults(self._outages_of(name), self._unmarked, report)) for name, lane in self.lanes.items()
        }
        assert not any(faults.values()), faults
        assert [each.split()[0] for _, each in self._told["job"]] == self._jobs

    def summary(self) -> str:
        """Return what was counted."""
        return "\n".join(map(self._counted, self.lanes))

    def _counted(self, name: str) -> str:
        lane = self.lanes[name]
        again = [marked for each in lane.received.values() for _, marked in each[1:]]
        unmarked = again.count(False)
        return (
            f"{name}: {len(lane.confirmed)} confirmed, {len(lane.missing())} lost, {len(again)} came again, "
            f"{unmarked} of them unmarked, {len(lane.doubtful)} commits in doubt, {len(lane.dead)} dead letters"
        )

    # ------------------------------------------------------------ reports

    def _drained(self, queue: str) -> list[tuple[str, str]]:
        """Return the queues and texts of the messages that are in a queue, or in some."""
        known = len(self._told["left"])
        self.command(f"drain {queue}")
        lines = [each.split(" ") for _, each in self._told["left"][known:]]
        return [(name, text) for name, text in lines]

    def _beats(self) -> Iterator[tuple[str, list[int]]]:
        return (item for lane in self.lanes.values() for item in lane.beats.items())

    def _outages_of(self, lane: str) -> dict[str, list[Span]]:
        return {role: self._outages[f"{lane}-{role}"] for role in ("producer", "consumer")}

    def _read(self) -> None:
        for line in self._output:
            moment, word, *rest = line.rstrip("\n").split(" ")
            with self._changed:
                self._record(int(moment), word, rest)
                self._changed.notify_all()

    def _record(self, moment: int, word: str, rest: list[str]) -> None:
        if rest and rest[0] in self.lanes:
            self.lanes[rest[0]].record(moment, word, rest[1:])
        elif word == "interrupted":
            self._outages[rest[0]].append((moment, 1 << 63))
        elif word == "resumed":
            if self._outages[rest[0]]:  # also reported at the first connection
                began, _ = self._outages[rest[0]].pop()
                self._outages[rest[0]].append((began, moment))
        else:
            self._told[word].append((moment, " ".join(rest)))


def _overlap(span: Span, others: Iterable[Span]) -> bool:
    return any(span[0] <= end and begin <= span[1] for begin, end in others)


def _longest(times: list[int], since: int) -> float:
    """Return the longest time without a confirmation since a moment, in seconds."""
    before = max(index for index, each in enumerate(times) if each < since)
    return max((late - early for early, late in pairwise(times[before:])), default=0) / 1e9
