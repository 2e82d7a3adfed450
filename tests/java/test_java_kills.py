# mypy: disable-error-code="call-overload, union-attr"
"""The promise to Java clients with a `failover:` address: the master is killed again and again while they work.

Nothing that was acknowledged is lost: each message whose send or commit was answered is received. A commit that was
answered has happened: its sends are all there, and what it received never comes again. A commit whose answer got lost
raises `TransactionRolledBackException`, and its sends are there wholly or not at all. What was sent and rolled back is
gone; what was received and rolled back is received again, with nothing left behind. A message comes unmarked at most
once, and once more for each kill between its send and the answer. `PYBROKER_KILLS` and `PYBROKER_SEED` change the
number of kills and repeat a run.
"""

import contextlib
import os
import random
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.stomp_client import StompClient
from tests.java.checks import Programs
from tests.java.installations import RECONNECT, Pybroker
from tests.soundness import assert_sound

KILLS = int(os.environ.get("PYBROKER_KILLS", "10"))
SEED = int(os.environ.get("PYBROKER_SEED", str(random.SystemRandom().randrange(1 << 32))))
PRODUCERS, CONSUMERS, TRANSACTED = 2, 2, 2
ACCEPTED_BETWEEN_KILLS = 60
KILLS_BETWEEN_DRAINS = 20
QUIET_SECONDS = 60

pytestmark = [pytest.mark.component("activemq"), pytest.mark.timeout(600 + 20 * KILLS)]

Key = tuple[str, int]


class Ledger:
    """Promised and received messages as `Load.java` reports them; the thread that reads its lines adds them."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.accepted: set[Key] = set()
        self.received: set[Key] = set()
        self.aborted: set[Key] = set()
        self.doubtful: list[list[Key]] = []
        self.wrong: list[str] = []
        self.kills: list[tuple[int, int]] = []
        """Times before and after each kill, in the nanoseconds of the clock that Java's `nanoTime` reads, too."""
        self._answered: dict[str, int] = {}
        self._on_the_way: dict[Key, tuple[int, int]] = {}
        self._unmarked: Counter[Key] = Counter()
        self._committed: dict[str, int] = {}
        """The times of the commits of transactions that received a message."""
        self.late = 0
        """Messages that were reported after a commit with a later delivery of the same one."""
        self.words: Counter[str] = Counter()

    def record(self, line: str) -> None:
        with self._changed:
            self._record(line)
            self._changed.notify_all()

    def wait_for(self, condition: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, QUIET_SECONDS), f"nothing moves any more: {self.words}"

    def receive(
        self, consumer: str, key: Key, message_id: str, is_redelivered: bool, arrived: int, is_certain: bool
    ) -> None:
        # What is in doubt came before the kill, but is reported only when the commit has failed. What a consumer
        # acknowledges automatically is reported when that is sent, which may have to wait for the next broker.
        if is_certain and message_id in self._committed:
            self.late += 1
            if consumer.startswith("t") or arrived > self._committed[message_id]:
                self.wrong.append(f"{key} came again, to {consumer}, after the commit that received it")
        self._unmarked[key] += not is_redelivered

    def came_unmarked_again(self) -> list[Key]:
        """Return the accepted messages that came unmarked more often than they may, once all is received.

        What was delivered and not yet accepted when the master was killed may be unknown to the next one. Then the
        producer's client sends it again, as new. Deliveries are only counted: a client may report one of the last
        master when the next one serves already.
        """
        return [
            key
            for key, (sent, accepted) in self._on_the_way.items()
            if self._unmarked[key] > 1 + sum(sent <= after and before <= accepted for before, after in self.kills)
        ]

    def _accept(self, moment: int, *keys: Key) -> None:
        producer = keys[0][0]  # it sends its next message when the last one is answered
        self._on_the_way.update(dict.fromkeys(keys, (self._answered.get(producer, 0), moment)))
        self._answered[producer] = moment
        self.accepted.update(keys)

    def _record(self, line: str) -> None:
        moment, word, *rest = line.split(" ")
        self.words[word] += 1
        match word, rest:
            case "sent", [producer, sequence]:
                self._accept(int(moment), (producer, int(sequence)))
            case "committed", [producer, first, last]:
                self._accept(int(moment), *_keys(producer, first, last))
            case "doubt", [producer, first, last]:
                self.doubtful.append(_keys(producer, first, last))
            case "aborted", [producer, first, last]:
                self.aborted.update(_keys(producer, first, last))
            case (("received" | "unsure" | "undone"), [consumer, producer, sequence, message_id, redelivered, arrived]):
                key = producer, int(sequence)
                self.receive(consumer, key, message_id, redelivered == "true", int(arrived), word == "received")
                if word != "undone":
                    self.received.add(key)
                if consumer.startswith("t") and word == "received":
                    self._committed[message_id] = int(moment)
            case "idle", []:
                pass
            case _:
                self.wrong.append(line)


def _keys(producer: str, first: str, last: str) -> list[Key]:
    return [(producer, sequence) for sequence in range(int(first), int(last) + 1)]


def test_random_kills_lose_nothing_that_was_acknowledged(programs: Programs, tmp_path: Path) -> None:
    print(f"seed {SEED}")
    ledger, chooser, pybroker = Ledger(), random.Random(SEED), Pybroker(tmp_path / "store")
    outages: list[float] = []
    dead = 0
    errors = tmp_path / "load.log"
    try:
        pybroker.master_port()
        with errors.open("wb") as log, _load(programs, pybroker.ports, log) as load:
            try:
                reader = threading.Thread(target=_read, args=(load, ledger))
                reader.start()
                for number in range(1, KILLS + 1):
                    outages.append(_kill(pybroker, ledger, chooser))
                    if number % KILLS_BETWEEN_DRAINS == 0:  # a few dead letters in each keep all data files
                        dead += len(_drain(pybroker, "/queue/ActiveMQ.DLQ", ledger))
                _command(load, ledger, "stop")
                _wait_until_empty(pybroker, "/queue/KILLS")
                _command(load, ledger, "end")
            finally:
                load.kill()
            reader.join(QUIET_SECONDS)
        left = _drain(pybroker, "/queue/KILLS", ledger)
        dead += len(_drain(pybroker, "/queue/ActiveMQ.DLQ", ledger))
    finally:
        pybroker.close()
    outages.sort()
    missing = ledger.accepted - ledger.received
    print(
        f"{KILLS} kills, {len(ledger.accepted)} accepted, {len(missing)} lost, {len(left)} left over, {dead} only "
        f"among the dead letters; of transactions {ledger.words['doubt']} with sends in doubt, "
        f"{ledger.words['unsure']} receives in doubt, {ledger.words['undone']} undone; {ledger.late} received late; "
        "accepted again after a kill: "
        f"median {outages[len(outages) // 2] * 1000:.0f} ms, max {outages[-1] * 1000:.0f} ms"
    )
    assert not ledger.wrong, f"seed {SEED}: {ledger.wrong[:5]}\n{errors.read_text()[-3000:]}"
    assert not ledger.came_unmarked_again(), f"seed {SEED}: {ledger.came_unmarked_again()[:10]}"
    assert not missing, f"seed {SEED}: {sorted(missing)[:10]}"
    assert not left, f"seed {SEED}: no one got what waited in the queue; accepted of these: {left & ledger.accepted}"
    assert not ledger.aborted & ledger.received, f"seed {SEED}: rolled back, and yet there"
    assert [group for group in ledger.doubtful if 0 < len(ledger.received.intersection(group)) < len(group)] == []
    assert_sound(tmp_path / "store")


def _load(programs: Programs, ports: list[int], log: object) -> "subprocess.Popen[str]":
    uri = f"failover:({','.join(f'tcp://127.0.0.1:{port}' for port in ports)})?{RECONNECT}"
    arguments = (uri, str(SEED), str(PRODUCERS), str(CONSUMERS), str(TRANSACTED))
    pipe = subprocess.PIPE
    return subprocess.Popen(programs.command("Load", *arguments), stdin=pipe, stdout=pipe, stderr=log, text=True)


def _read(load: "subprocess.Popen[str]", ledger: Ledger) -> None:
    for line in load.stdout:
        ledger.record(line.rstrip("\n"))


def _command(load: "subprocess.Popen[str]", ledger: Ledger, command: str) -> None:
    """Send a command and wait until it is done."""
    idle = ledger.words["idle"]
    load.stdin.write(f"{command}\n")
    load.stdin.flush()
    ledger.wait_for(lambda: ledger.words["idle"] > idle)


def _kill(pybroker: Pybroker, ledger: Ledger, chooser: random.Random) -> float:
    """Kill the master at a random moment under load; return the seconds until something was accepted again."""
    goal = len(ledger.accepted) + chooser.randrange(1, ACCEPTED_BETWEEN_KILLS)
    ledger.wait_for(lambda: len(ledger.accepted) >= goal or bool(ledger.wrong))
    pybroker.pair.wait_for_standby()
    killed_at = time.monotonic()
    before = time.monotonic_ns()
    pybroker.kill()
    ledger.kills.append((before, time.monotonic_ns()))
    known = len(ledger.accepted)
    pybroker.pair.wait_for_master()
    ledger.wait_for(lambda: len(ledger.accepted) > known or bool(ledger.wrong))
    return time.monotonic() - killed_at


def _wait_until_empty(pybroker: Pybroker, queue: str) -> None:
    """Wait until no message is in a queue, or `QUIET_SECONDS`: what stays behind is looked for afterwards.

    That all accepted messages are received is not enough: a consumer holds those that it rolled back for another
    second, and among them may be messages whose commit is in doubt.
    """
    deadline = time.monotonic() + QUIET_SECONDS
    with contextlib.closing(StompClient(pybroker.pair.wait_for_master().port)) as client:
        is_empty = False
        while not is_empty and time.monotonic() < deadline:
            client.send("SUBSCRIBE", id="1", destination=queue, browser="true")
            is_empty = client.read().headers.get("browser") == "end"
            if not is_empty:
                client.read_until("MESSAGE", browser="end")
            client.request("UNSUBSCRIBE", id="1")


def _drain(pybroker: Pybroker, queue: str, ledger: Ledger) -> set[Key]:
    """Receive what is still in a queue, up to a last message sent now, and return what no one had received."""
    unseen = set()
    with contextlib.closing(StompClient(pybroker.pair.wait_for_master().port)) as client:
        client.request("SEND", b"last", destination=queue, persistent="true", producer="last", sequence="0")
        client.send("SUBSCRIBE", id="1", destination=queue, ack="client")
        while (frame := client.read()).headers["producer"] != "last":
            key = (frame.headers["producer"], int(frame.headers["sequence"]))
            if key not in ledger.received:
                unseen.add(key)
            client.send("ACK", id=frame.headers["ack"])
        client.request("ACK", id=frame.headers["ack"])  # else the next time would end with this one
    ledger.received |= unseen
    return unseen
