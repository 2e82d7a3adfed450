# mypy: disable-error-code="return-value, union-attr"
"""A relay over one store: ActiveMQ, pybroker, ActiveMQ, pybroker, and ActiveMQ to the end; stopped in order or killed.

Each leg a Java client sends, consumes a part of what is there, and leaves a transaction in doubt; see `Relay.java`. It
reports what it is about to do and what was confirmed. From that follows what must be: nothing confirmed is lost,
nothing comes twice whose consumption was confirmed, nothing comes that was undone, and the order holds.
"""

import os
import signal
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.integration.activemq_broker import ActiveMQProcess
from tests.integration.cluster import free_port
from tests.java.installations import FollowedBroker

pytestmark = [pytest.mark.component("activemq"), pytest.mark.timeout(400)]

JAVA = ("StockBroker.java", "Json.java")
HERE = Path(__file__).parent
PRIORITIES = (1, 4, 8)
LEGS = ("activemq", "pybroker", "activemq", "pybroker")
POLICY = '[[policies]]\nqueue = "RELAY.P"\nprioritized_messages = true\n'
JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


@pytest.fixture(scope="session")
def class_path(activemq_class_path: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Compile the client and the stock broker."""
    classes = tmp_path_factory.mktemp("relay")
    sources = [str(HERE / "java" / "Relay.java"), *[str(HERE.parent / "java" / each) for each in JAVA]]
    command = ["javac", "-nowarn", "-cp", activemq_class_path, "-d", str(classes), *sources]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return os.pathsep.join((str(classes), activemq_class_path))


class Runner:
    """A broker that holds the store for one leg."""

    def __init__(self, kind: str, store: Path, class_path: str) -> None:
        self.openwire = free_port()
        self._activemq: ActiveMQProcess | None = None
        self._pybroker: FollowedBroker | None = None
        if kind == "activemq":
            policies = ["queue=RELAY.P prioritizedMessages=true"]
            self._activemq = ActiveMQProcess(class_path, store, policies=policies, openwire=self.openwire).wait()
        else:
            config = store.with_name("relay.toml")
            config.write_text(POLICY)
            extra = ("--config", str(config), "--openwire", str(self.openwire))
            self._pybroker = FollowedBroker(str(store), name="relay", port=free_port(), extra=extra)
            self._pybroker.wait_for("listening on")

    @property
    def uri(self) -> str:
        return f"tcp://127.0.0.1:{self.openwire}"

    @property
    def process(self) -> subprocess.Popen[bytes]:
        return self._held.process

    def stop(self) -> None:
        """Stop in order."""
        if self._activemq is not None:
            self.process.stdin.close()
        else:
            self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(60) == 0

    def kill(self) -> None:
        """kill -9."""
        self._held.kill()

    def close(self) -> None:
        """Leave nothing running."""
        self._held.kill()
        self._held.close()

    @property
    def _held(self) -> ActiveMQProcess | FollowedBroker:
        held = self._activemq or self._pybroker
        assert held is not None
        return held


def run_leg(class_path: str, runner: Runner, leg: int, *, last: bool = False, kill_at: int | None = None) -> list[str]:
    """Run a leg's client and return its lines; kill the broker once it has printed so many."""
    mode = ["last"] if last else ["held"] if kill_at else []
    command = ["java", *JVM, "-cp", class_path, "Relay", runner.uri, str(leg), *mode]
    lines: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as client:
        for line in client.stdout:
            lines.append(line.strip())
            if len(lines) == kill_at:
                runner.kill()
        errors = client.stderr.read()
    if kill_at is None:
        assert lines[-1:] == ["over"], errors
    else:
        assert lines[kill_at - 1 :], errors
    return [line for line in lines if line != "over"]


def relay(store: Path, class_path: str, end: str) -> list[list[str]]:
    """Run all legs, each on another broker, and a last one that consumes everything."""
    legs = []
    for leg, kind in enumerate(LEGS):
        runner = Runner(kind, store, class_path)
        try:
            kill_at = 90 + 60 * leg if end == "killed in the middle" else None
            legs.append(run_leg(class_path, runner, leg, kill_at=kill_at))
            if end == "stopped":
                runner.stop()
            else:
                runner.kill()
        finally:
            runner.close()
    runner = Runner("activemq", store, class_path)
    try:
        legs.append(run_leg(class_path, runner, len(LEGS), last=True))
    finally:
        runner.close()
    return legs


# ------------------------------------------------------------ what must be


def bodies(lines: list[str], verb: str) -> list[str]:
    return [line.split()[1].rstrip("!") for line in lines if line.split()[0] == verb]


def number_of(body: str) -> tuple[int, int]:
    leg, number = body.split("-")[1:]
    return int(leg), int(number)


def judge(legs: list[list[str]], *, at_most_once: bool) -> None:
    lines = [line for leg in legs for line in leg]
    sending, sent = set(bodies(lines, "sending")), set(bodies(lines, "sent"))
    receiving, received = bodies(lines, "receiving"), bodies(lines, "received")
    committed = {f"xa-{line.split()[1]}" for line in lines if line.startswith("ending") and line.endswith("commit")}
    ended = set(bodies(lines, "ended"))
    certain = sent | {body for body in committed if body.removeprefix("xa-") in ended}

    assert certain <= set(receiving), f"lost: {sorted(certain - set(receiving))}"
    assert set(receiving) <= sending | committed, f"made up: {sorted(set(receiving) - sending - committed)}"
    counts = Counter(received)
    twice = [body for body, count in counts.items() if count > 1 and (at_most_once or not body.startswith("s-"))]
    assert not twice, f"twice: {twice}"
    if at_most_once:
        assert Counter(receiving) == counts
        assert set(counts) == certain
    judge_order(legs)
    judge_doubts(legs)


def judge_order(legs: list[list[str]]) -> None:
    for kind in ("q-", "t-", "x-"):
        order = [number_of(body) for leg in legs for body in bodies(leg, "received") if body.startswith(kind)]
        assert order == sorted(order), f"{kind}: out of order"
    for leg in legs:
        seen = [number_of(body) for body in bodies(leg, "received") if body.startswith("p-")]
        wanted = sorted(seen, key=lambda each: (-PRIORITIES[each[1] % 3], each))
        assert seen == wanted, "by priority, and by age within each"


def judge_doubts(legs: list[list[str]]) -> None:
    """Require that prepared branches are in doubt with every broker until they were ended."""
    prepared: set[str] = set()
    uncertain: set[str] = set()
    for leg in legs:
        doubts = set(bodies(leg, "doubt"))
        assert prepared - uncertain <= doubts <= prepared | uncertain
        ending, ended = set(bodies(leg, "ending")), set(bodies(leg, "ended"))
        uncertain |= ending - ended
        prepared -= ended
        prepared |= set(bodies(leg, "prepared"))
        uncertain |= set(bodies(leg, "preparing")) - set(bodies(leg, "prepared"))


@pytest.mark.parametrize("end", ["stopped", "killed", "killed in the middle"])
def test_a_relay_over_one_store(tmp_path: Path, class_path: str, end: str) -> None:
    legs = relay(tmp_path / "store", class_path, end)
    assert len([line for leg in legs for line in leg if line.startswith("received")]) > 100
    judge(legs, at_most_once=end == "stopped")
