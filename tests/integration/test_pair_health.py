"""A pair that is degraded without anything having failed yet: each way to get there is found, and nothing else is.

Real members on one machine. What is wrong is caused for real where one machine allows it: another directory behind the
same path, other users, a store that does not answer (a lease on a file of it), a master that is stopped, a clock that
is ahead, a lock that outlives its master.
"""

import contextlib
import fcntl
import json
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import pybroker
from pybroker.broker.app.machine import clock
from pybroker.broker.domain.role import Role
from pybroker.locks.file import FileLock
from pybroker.store.member_history import read_history
from pybroker.store.members import MemberFile, MemberRecord, StoreIdentity
from tests.integration.activemq_broker import ActiveMQProcess
from tests.integration.cluster import START_SECONDS, BrokerProcess, Pair, free_port
from tests.integration.forked import run_forked
from tests.integration.stalling_proxy import StallingProxy
from tests.integration.stomp_client import Disconnected, StompClient
from tests.pace import in_time
from tests.postgres_cluster import PostgresDatabase, postgres_cluster, postgres_database

__all__ = ["postgres_cluster", "postgres_database"]

FOUND_SECONDS = 5.0
"""The time in which what is wrong is found; a member that is silent counts as that after ten seconds."""

BUSY_SECONDS = 5.0
"""In addition, as the machine is shared with other tests."""

HEALTHY = "healthy again after"

Start = Callable[..., BrokerProcess]


class ClockAhead(BrokerProcess):
    """A member on a machine whose clock is ahead."""

    module = "tests.integration.clock_ahead"


class SteppingMember(BrokerProcess):
    """A member that steps down at SIGUSR2."""

    module = "tests.integration.stepping_member"


def found(broker: BrokerProcess, pattern: str, seconds: float = 0.0) -> None:
    """Require that a member finds something soon."""
    broker.wait_for(f"degraded: .*{pattern}", FOUND_SECONDS + BUSY_SECONDS + seconds)


def history(store: Path, name: str, kind: str) -> list[dict[str, Any]]:
    return [each for each in read_history(store / "members", name) if each["kind"] == kind]


def state(store: Path) -> dict[str, Any]:
    output = run_forked("status", "--store", str(store), "--json").stdout
    return json.JSONDecoder().raw_decode(output, output.index("{"))[0]["ha"]


def wait_for_state(store: Path, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    deadline = time.monotonic() + START_SECONDS
    while not condition(last := state(store)):
        assert time.monotonic() < deadline, last
    return last


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def events(tmp_path: Path) -> tuple[str, Path]:
    """A program that writes each event that it gets into a file."""
    program, told = tmp_path / "program", tmp_path / "told"
    program.write_text(f"#!/bin/sh\nexec cat >> {told}\n")
    program.chmod(0o700)
    return str(program), told


@pytest.fixture
def member(start: Start, store: Path) -> Callable[..., BrokerProcess]:
    """Start a member of the store."""

    def member(name: str, *extra: str, path: Path | None = None, wait_for: str = "listening on") -> BrokerProcess:
        broker = start(*extra, store=path or store, name=name)
        broker.wait_for(wait_for)
        return broker

    return member


WAITING = "following"


# ---------------------------------------------------------------- what is wrong


@pytest.mark.parametrize("is_empty", [True, False])
def test_standby_whose_path_leads_elsewhere_now(
    member: Start, store: Path, tmp_path: Path, events: tuple[str, Path], *, is_empty: bool
) -> None:
    """As when a share is unmounted, or another one is mounted in its place."""
    program, told = events
    member("a")
    path, other = tmp_path / "mounted", tmp_path / "other"
    path.symlink_to(store)
    standby = member("b", "--on-ha-event", program, path=path, wait_for=WAITING)
    wait_for_state(store, lambda found: found["state"] == "healthy")
    for directory in (other, other / "kahadb", other / "members")[: 1 if is_empty else 3]:
        directory.mkdir()
    if not is_empty:
        (other / "kahadb" / "lock").write_bytes(bytes(8))
    replacement = tmp_path / "replacement"
    replacement.symlink_to(other)
    replacement.replace(path)
    found(standby, "No such file" if is_empty else "is not the directory in which this member began to wait")
    last = wait_for_state(store, lambda found: found["state"] == "degraded")
    assert {each["member"] for each in last["reasons"] if each["is_obstacle"]} == {"b"}
    assert run_forked("status", "--store", str(store)).returncode == 5
    replacement.symlink_to(store)
    replacement.replace(path)
    standby.wait_for(HEALTHY)
    wait_for_state(store, lambda found: found["state"] == "healthy")
    assert standby.terminate() == 0
    lines = [json.loads(line) for line in told.read_text().splitlines()]
    assert [each["event"] for each in lines] == ["degraded", "healthy"], "once each"
    assert lines[0] == lines[0] | {"member": "b", "role": "STANDBY"}


def test_standby_with_other_users_and_settings(member: Start, store: Path, tmp_path: Path) -> None:
    for name, users in (("a", "shop=one\n"), ("b", "shop=one\nclerk=two\n")):
        (tmp_path / f"{name}.properties").write_text(users)
        (tmp_path / f"{name}.properties").chmod(0o600)
    member("a", "--users-file", str(tmp_path / "a.properties"))
    standby = member("b", "--users-file", str(tmp_path / "b.properties"), "--max-redeliveries", "1", wait_for=WAITING)
    found(standby, "not the same here and on the master a: max_redeliveries, users")
    wait_for_state(store, lambda found: found["state"] == "degraded")
    text = run_forked("status", "--store", str(store))
    assert text.returncode == 0, "it could serve"
    assert "DEGRADED: not the same here" in text.stdout
    (tmp_path / "b.properties").write_text("shop=one\n")
    standby.wait_for("was read again: 1 users")
    (tmp_path / "a.properties").write_text("shop=one\nclerk=two\n")
    found(standby, "max_redeliveries, users")


def test_standby_with_another_directory_of_scheduled_messages(member: Start, tmp_path: Path) -> None:
    member("a")
    (tmp_path / "local").mkdir()
    standby = member("b", "--scheduler-store", str(tmp_path / "local"), wait_for=WAITING)
    found(standby, "the directory of scheduled messages is not that of the master a")


@contextlib.contextmanager
def unanswered(path: Path) -> Iterator[None]:
    """Keep others from opening a file: as long as this has a lease on it the kernel keeps others waiting."""
    before = signal.signal(signal.SIGIO, lambda number, frame: None)
    fd = os.open(path, os.O_RDWR)
    try:
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
                break
            except BlockingIOError:  # a member reads it at this moment
                assert time.monotonic() < deadline
        yield
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    finally:
        os.close(fd)
        signal.signal(signal.SIGIO, before)


def test_store_that_does_not_answer(member: Start, store: Path) -> None:
    """Neither clients nor the event loop are held up meanwhile."""
    master = member("a")
    standby = member("b", wait_for=WAITING)
    wait_for_state(store, lambda found: found["state"] == "healthy")
    with unanswered(store / "kahadb" / "pybroker.broker"):
        found(standby, r"the store has not answered for \d+ s")
        found(master, r"the store has not answered for \d+ s")
        with contextlib.closing(StompClient(master.port)) as client:
            assert client.request("SEND", b"x", destination="/queue/Q", persistent="true").command == "RECEIPT"
    standby.wait_for(HEALTHY)
    master.wait_for(HEALTHY)


def test_master_that_hangs(member: Start, store: Path) -> None:
    master = member("a")
    standby = member("b", wait_for=WAITING)
    wait_for_state(store, lambda found: found["state"] == "healthy")
    master.process.send_signal(signal.SIGSTOP)
    found(standby, r"the master a on \S+ has been silent for 1\d s and holds the lock", seconds=10.0)
    last = wait_for_state(store, lambda found: any(each["is_silent"] for each in found["members"]))
    assert last["state"] == "degraded"
    master.process.send_signal(signal.SIGCONT)
    standby.wait_for(HEALTHY)


def test_standby_that_hangs_or_is_gone(member: Start, store: Path) -> None:
    master = member("a")
    standby = member("b", wait_for=WAITING)
    standby.process.send_signal(signal.SIGSTOP)
    found(master, r"b has been silent for 1\d s", seconds=10.0)
    standby.process.send_signal(signal.SIGCONT)
    master.wait_for(HEALTHY)
    standby.kill()
    found(master, "there is no standby")


def test_member_whose_clock_is_ahead(member: Start, store: Path) -> None:
    with contextlib.closing(ClockAhead(str(store), name="a", port=free_port())) as master:
        master.wait_for("listening on")
        standby = member("b", wait_for=WAITING)
        # A busy machine reads the master's time late, so that it seems to be less ahead.
        found(standby, r"the clock of the master a is (59\d|600|601)\.\d s ahead of this member's")


def publish(file: MemberFile, **fields: Any) -> MemberRecord:
    times: dict[str, Any] = {"since_ms": clock(), "started_ms": clock(), "updated_ms": clock()}
    record = MemberRecord(
        name=file.name, role=Role.MASTER, pid=1, host="elsewhere", version=pybroker.__version__, lock_kind="file",
        **(times | fields),
    )  # fmt: skip
    file.publish(record)
    return record


def test_lock_that_outlives_its_master(member: Start, store: Path) -> None:
    """As the locks of a machine that lost power do, on NFSv3."""
    (store / "kahadb").mkdir(parents=True)
    path = store / "kahadb" / "lock"
    lock = FileLock(path, clock=clock)
    assert lock.try_acquire()
    try:
        file = MemberFile.claim(store / "members", "z")
        stamp = int.from_bytes(path.read_bytes(), "big")
        publish(file, identity=StoreIdentity(broker_id="", journal_inode=path.parent.stat().st_ino, lock_stamp=stamp))
        standby = member("b", wait_for="waiting for the lock")
        file.close()
        found(standby, f"z on elsewhere is gone, and the lock {re.escape(str(path))} that it took is still held")
    finally:
        lock.release()
    standby.wait_for("listening on")


def test_two_masters(member: Start, store: Path) -> None:
    master = member("a")
    standby = member("b", wait_for=WAITING)
    file = MemberFile.claim(store / "members", "z")
    try:
        publish(file)
        found(master, "a and z are both master")
        found(standby, "a and z are both master")
    finally:
        file.close()


def test_database_of_the_lock_that_does_not_answer(
    start: Start, store: Path, postgres_database: PostgresDatabase
) -> None:
    """The master's half-open connection is a finding before the lock is lost."""
    with StallingProxy(postgres_database.cluster.port) as proxy:
        url = postgres_database.through(proxy.port)
        master = start("--lock", "postgres-row", "--lock-url", url, "--lock-lease", "6s", store=store)
        master.wait_for("listening on")
        wait_for_state(store, lambda found: found["lock"]["confirmed_ms"])
        proxy.stall()
        found(master, r"the lock \S+ in \S+ has not been confirmed for \d s")
        master.wait_for("lost the lock")


def test_lag_of_a_standby_is_shown_in_bytes_and_seconds(member: Start, store: Path) -> None:
    """A standby that is stopped reads nothing of what the master writes, over several files."""
    master = member("a", "--journal-file-max", "1mb", "--journal-batch-max", "1mb")
    standby = member("b", "--journal-file-max", "1mb", "--journal-batch-max", "1mb", wait_for=WAITING)
    wait_for_state(store, lambda found: found["members"][1]["lag_bytes"] == 0)
    standby.process.send_signal(signal.SIGSTOP)
    with contextlib.closing(StompClient(master.port)) as client:
        for _ in range(30):
            client.request("SEND", b"x" * 100_000, destination="/queue/Q", persistent="true")
    last = wait_for_state(store, lambda found: (found["members"][1]["lag_bytes"] or 0) > 2_900_000)
    assert last["members"][1]["lag_bytes"] < 5_000_000
    assert re.search(r"  b  .* s and [\d,]+ bytes behind: ", run_forked("status", "--store", str(store)).stdout)
    standby.process.send_signal(signal.SIGCONT)
    wait_for_state(store, lambda found: found["members"][1]["lag_bytes"] == 0)


# ---------------------------------------------------------------- what is not


class Load(threading.Thread):
    """Sends to whichever member is master."""

    def __init__(self, ports: list[int]) -> None:
        super().__init__()
        self.ends = threading.Event()
        self.sent = 0
        self._ports = ports

    def run(self) -> None:
        while not self.ends.is_set():
            for port in self._ports:
                with contextlib.suppress(Disconnected, OSError), contextlib.closing(StompClient(port)) as client:
                    while not self.ends.is_set():
                        client.request("SEND", b"x" * 10_000, destination="/queue/Q", persistent="true")
                        self.sent += 1


def test_failovers_under_load_are_no_reason_but_for_the_missing_standby(store: Path) -> None:
    with Pair(store) as pair:
        pair.wait_for_standby()
        load = Load(pair.ports)
        load.start()
        try:
            for _ in range(4):
                master, standby, sent = pair.wait_for_master(), pair.wait_for_standby(), load.sent
                standby.wait_for(WAITING)
                deadline = time.monotonic() + START_SECONDS
                while load.sent < sent + 200:
                    assert time.monotonic() < deadline
                    time.sleep(0.01)
                master.kill()
                pair.wait_for_master()
                pair.restart(master)
            pair.wait_for_standby()
            wait_for_state(store, lambda found: found["state"] == "healthy")
        finally:
            load.ends.set()
            load.join()
        reasons = {
            reason for name in ("a", "b") for each in history(store, name, "degraded") for reason in each["reasons"]
        }
        assert reasons <= {"there is no standby: no member takes over when this one fails"}
        promotions = [each for name in ("a", "b") for each in history(store, name, "promotion")]
        assert len(promotions) == 5
        assert (
            sorted(each["epoch"] for each in promotions) == [each["epoch"] for each in state(store)["promotions"]][::-1]
        )
        assert in_time(max(each["total_ms"] for each in promotions) / 1000, 5.0)


def test_clients_that_come_back_are_counted(member: Start, store: Path) -> None:
    ports = [free_port(), free_port()]
    master = member("a", "--openwire", str(ports[0]))
    member("b", "--openwire", str(ports[1]), wait_for=WAITING)
    with pybroker.connect(f"failover:(tcp://127.0.0.1:{ports[0]},tcp://127.0.0.1:{ports[1]})") as connection:
        connection.send("queue://Q", "one")
        assert wait_for_state(store, lambda found: found["master"] == "a")["reconnections"] in (0, None)
        master.kill()
        connection.send("queue://Q", "two")
        wait_for_state(store, lambda found: found["reconnections"] == 1)


# ---------------------------------------------------------------- stepping down


def test_master_steps_down_and_the_standby_takes_over(store: Path) -> None:
    ports = {name: free_port() for name in ("a", "b")}
    with contextlib.ExitStack() as stack:
        members = [
            stack.enter_context(contextlib.closing(SteppingMember(str(store), name=name, port=port)))
            for name, port in ports.items()
        ]
        deadline = time.monotonic() + START_SECONDS
        while not (serving := [each for each in members if any("listening on" in line for line in each.lines)]):
            assert time.monotonic() < deadline, [each.lines for each in members]
            for each in members:
                each.drain(0.05)
        (master,) = serving
        (standby,) = [each for each in members if each is not master]
        standby.wait_for(WAITING)
        wait_for_state(store, lambda found: found["state"] == "healthy")
        client = stack.enter_context(contextlib.closing(StompClient(master.port)))
        assert client.request("SEND", b"x", destination="/queue/Q", persistent="true").command == "RECEIPT"
        master.process.send_signal(signal.SIGUSR2)
        master.wait_for("asked to step down: it does")
        standby.wait_for("listening on")
        master.wait_for("standing by again after stepping down")
        after = stack.enter_context(contextlib.closing(StompClient(standby.port)))
        after.send("SUBSCRIBE", id="1", destination="/queue/Q")
        assert after.read().body == b"x"
        last = wait_for_state(store, lambda found: [each["role"] for each in found["members"]].count("STANDBY") == 1)
        assert last["master"] == standby.name
        assert sum("lock acquired" in line for line in master.lines) == 1, "it did not win it back"
        reason = [each["reason"] for each in history(store, master.name, "role") if each["role"] == "RELINQUISHING"]
        assert reason == ["asked to step down: sending what is owed, then handing over"]
        standby.kill()
        master.wait_for(r"(?s)lock acquired")
        assert master.terminate() == 0


def test_master_without_a_standby_does_not_step_down(store: Path) -> None:
    with contextlib.closing(SteppingMember(str(store), name="a", port=free_port())) as master:
        master.wait_for("listening on")
        master.process.send_signal(signal.SIGUSR2)
        master.wait_for("asked to step down: there is no standby: no member would take over")
        with contextlib.closing(StompClient(master.port)) as client:
            assert client.request("SEND", b"x", destination="/queue/Q").command == "RECEIPT"


@pytest.mark.component("activemq")
def test_standby_of_an_activemq_is_well(member: Start, store: Path, activemq_class_path: str, tmp_path: Path) -> None:
    """It publishes nothing of itself, and is no reason."""
    classes = tmp_path / "classes"
    sources = [str(Path(__file__).parents[1] / "java" / each) for each in ("StockBroker.java", "Json.java")]
    command = ["javac", "-nowarn", "-cp", activemq_class_path, "-d", str(classes), *sources]
    subprocess.run(command, timeout=120, check=True)
    class_path = os.pathsep.join((str(classes), activemq_class_path))
    with contextlib.closing(ActiveMQProcess(class_path, store)) as master:
        master.wait()
        began_ms = clock()
        standby = member("b", wait_for=WAITING)
        with contextlib.closing(StompClient(master.stomp)) as client:
            deadline = time.monotonic() + START_SECONDS
            while ((last := state(store))["members"][0]["checked_ms"] or 0) < began_ms + 7_000:
                client.request("SEND", b"x", destination="/queue/Q", persistent="true")
                assert time.monotonic() < deadline
        assert (last["state"], last["lock"]["holder"]) == ("healthy", "another process")
        master.kill()
        standby.wait_for("listening on")
        assert history(store, "b", "degraded") == []
