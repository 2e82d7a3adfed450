"""What an operator is shown of a pair that is degraded: metrics, state, alerts and the doctor's findings, end to end.

The five ways in which pairs of ActiveMQ are known to fail without notice, and the five signals by which they are
watched, are provoked as in `test_pair_health`. NFS cannot be mounted where tests run: the locks that outlive a machine
are a lock of a process that is no member, with the entry of a member that is gone.
"""

import contextlib
import json
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

import pybroker
from pybroker.broker.app.machine import clock
from pybroker.broker.app.pair_remedies import REMEDIES
from pybroker.locks.file import FileLock
from pybroker.store.members import MemberFile, StoreIdentity
from tests.integration.cluster import free_port
from tests.integration.forked import run_forked
from tests.integration.stalling_proxy import StallingProxy
from tests.integration.stomp_client import StompClient
from tests.integration.test_pair_health import BUSY_SECONDS, FOUND_SECONDS, publish, unanswered
from tests.integration.watched_pair import SECONDS, WAITING, WatchedPair, watched_pair
from tests.postgres_cluster import PostgresDatabase, postgres_cluster, postgres_database

__all__ = ["postgres_cluster", "postgres_database"]

pytestmark = pytest.mark.component("prometheus")

SILENT_SECONDS: Final = 10.0
"""The time after which a member that renews nothing is silent, by definition."""


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[WatchedPair]:
    with watched_pair(tmp_path, tmp_path / "store") as pair:
        yield pair


def well(pair: WatchedPair) -> None:
    """Wait until both members are there and nothing is wrong."""
    pair.prometheus.wait_for("pybroker_standby_ready == 1", bool, SECONDS)
    pair.prometheus.wait_for("pybroker_degraded == 0", lambda found: len(found) == 2, SECONDS)


def doctor(pair: WatchedPair) -> list[dict[str, str]]:
    """Return the findings of the doctor for another member of the store."""
    done = run_forked("doctor", "--store", str(pair.store), "--stomp", "0", "--openwire", "off", "--json")
    findings: list[dict[str, str]] = json.JSONDecoder().raw_decode(done.stdout, done.stdout.index("{"))[0]["findings"]
    return findings


def shown(pair: WatchedPair, name: str, kind: str, alert: str, seconds: float = 0.0) -> None:
    """Require that a finding, from now on, soon is in a member's metrics and its state, an alert, and the doctor's."""
    deadline = time.monotonic() + FOUND_SECONDS + BUSY_SECONDS + seconds

    def left() -> float:
        """Return the seconds left; what came before may have needed a busy machine's."""
        return max(2.0, deadline - time.monotonic())

    own, prometheus = pair.instance(name), pair.prometheus
    prometheus.wait_for(f'pybroker_findings{{instance="{own}", kind="{kind}"}}', bool, left())
    prometheus.wait_for(f'pybroker_degraded{{instance="{own}"}}', {own: 1}.__eq__, left())
    prometheus.wait_for_alert(alert, left())
    state = pair.state(name)
    assert state["state"] == "degraded"
    assert kind in [each["kind"] for each in state["reasons"]], state["reasons"]
    wait_until(lambda: any(_is_about(each, kind) for each in doctor(pair)))


def _is_about(finding: dict[str, str], kind: str) -> bool:
    """Return True for the finding of a kind: by its remedy, or by the doctor's own look at the members."""
    own = {"silent": "has been silent", "alone": "there is no standby"}.get(kind)
    return finding["remedy"] == REMEDIES[kind] or (own is not None and own in finding["evidence"])


def wait_until(is_reached: Callable[[], Any]) -> None:
    deadline = time.monotonic() + SECONDS
    while not is_reached():
        assert time.monotonic() < deadline


def ready(pair: WatchedPair, name: str, value: float) -> None:
    pair.prometheus.wait_for("pybroker_standby_ready", {pair.instance(name): value}.__eq__, BUSY_SECONDS)


# ---------------------------------------------------------------- the five ways to fail


def test_lock_that_outlives_its_machine(pair: WatchedPair) -> None:
    """As on NFSv3: no standby is promoted, and producers hang."""
    (pair.store / "kahadb").mkdir(parents=True)
    path = pair.store / "kahadb" / "lock"
    lock = FileLock(path, clock=clock)
    assert lock.try_acquire()
    try:
        file = MemberFile.claim(pair.store / "members", "z")
        stamp = int.from_bytes(path.read_bytes(), "big")
        publish(file, identity=StoreIdentity(broker_id="", journal_inode=path.parent.stat().st_ino, lock_stamp=stamp))
        pair.start("b", wait_for="waiting for the lock")
        pair.prometheus.wait_for("pybroker_standby_ready", bool, SECONDS)
        file.close()
        shown(pair, "b", "zombie", "PybrokerNoMaster")
        ready(pair, "b", 0)
    finally:
        lock.release()


def test_database_of_the_lock_on_a_half_open_connection(pair: WatchedPair, postgres_database: PostgresDatabase) -> None:
    with StallingProxy(postgres_database.cluster.port) as proxy:
        url = postgres_database.through(proxy.port)
        pair.start("a", "--lock", "postgres-row", "--lock-url", url, "--lock-lease", "16s")
        pair.prometheus.wait_for("pybroker_lock_last_confirmed_seconds < 5 and pybroker_lock_held == 1", bool, SECONDS)
        proxy.stall()
        pair.prometheus.wait_for_alert("PybrokerLockUnconfirmed", FOUND_SECONDS + BUSY_SECONDS)
        shown(pair, "a", "unconfirmed", "PybrokerLockUnconfirmed", seconds=5.0)


def test_two_masters(pair: WatchedPair) -> None:
    pair.start("a")
    pair.start("b", wait_for=WAITING)
    well(pair)
    file = MemberFile.claim(pair.store / "members", "z")
    try:
        publish(file)
        for name in ("a", "b"):
            shown(pair, name, "masters", "PybrokerTwoMasters")
        pair.prometheus.wait_for('min(pybroker_members{state="master"})', {"{}": 2}.__eq__, BUSY_SECONDS)
    finally:
        file.close()


def test_scheduled_messages_in_a_directory_of_the_machine(pair: WatchedPair, tmp_path: Path) -> None:
    pair.start("a")
    (tmp_path / "local").mkdir()
    pair.start("b", "--scheduler-store", str(tmp_path / "local"), wait_for=WAITING)
    shown(pair, "b", "scheduler", "PybrokerStandbyNotReady")
    ready(pair, "b", 0)


@pytest.mark.parametrize("is_empty", [True, False])
def test_standby_whose_store_is_empty_or_another(pair: WatchedPair, tmp_path: Path, *, is_empty: bool) -> None:
    """It runs, and would not take over: the degradation that nothing showed."""
    pair.start("a")
    path, other = tmp_path / "mounted", tmp_path / "other"
    path.symlink_to(pair.store)
    pair.start("b", wait_for=WAITING, store=path)
    well(pair)
    for directory in (other, other / "kahadb", other / "members")[: 1 if is_empty else 3]:
        directory.mkdir()
    if not is_empty:
        (other / "kahadb" / "lock").write_bytes(bytes(8))
    replacement = tmp_path / "replacement"
    replacement.symlink_to(other)
    replacement.replace(path)
    shown(pair, "a", "store" if is_empty else "place", "PybrokerStandbyNotReady")
    ready(pair, "b", 0)
    replacement.symlink_to(pair.store)
    replacement.replace(path)
    well(pair)


# ---------------------------------------------------------------- the five signals


def test_holder_of_the_lock_is_named_by_both_members(pair: WatchedPair) -> None:
    master = pair.start("a")
    pair.start("b", wait_for=WAITING)
    first, second = pair.instance("a"), pair.instance("b")
    wait = pair.prometheus.wait_for
    wait('pybroker_lock_holder_info{holder="a"}', {first: 1, second: 1}.__eq__, FOUND_SECONDS + BUSY_SECONDS)
    assert {pair.state(name)["lock"]["holder"] for name in ("a", "b")} == {"a"}
    wait("pybroker_lock_age_seconds", lambda found: len(found) == 2, BUSY_SECONDS)
    master.kill()
    wait('pybroker_lock_holder_info{holder="b"}', {second: 1}.__eq__, FOUND_SECONDS + BUSY_SECONDS)
    assert pair.state("b")["lock"]["holder"] == "b"


def test_standby_that_hangs_and_then_crashes(pair: WatchedPair) -> None:
    pair.start("a")
    standby = pair.start("b", wait_for=WAITING)
    well(pair)
    standby.process.send_signal(signal.SIGSTOP)
    pair.prometheus.wait_for_alert("PybrokerMemberDown", FOUND_SECONDS + BUSY_SECONDS)
    shown(pair, "a", "silent", "PybrokerMemberSilent", seconds=SILENT_SECONDS)
    standby.process.send_signal(signal.SIGCONT)
    well(pair)
    standby.kill()
    pair.prometheus.wait_for_alert("PybrokerNoStandby", FOUND_SECONDS + BUSY_SECONDS)
    shown(pair, "a", "alone", "PybrokerDegraded")


def test_master_that_hangs(pair: WatchedPair) -> None:
    master = pair.start("a")
    pair.start("b", wait_for=WAITING)
    well(pair)
    master.process.send_signal(signal.SIGSTOP)
    pair.prometheus.wait_for_alert("PybrokerNoMaster", FOUND_SECONDS + BUSY_SECONDS)
    shown(pair, "b", "silent", "PybrokerMemberSilent", seconds=SILENT_SECONDS)
    ready(pair, "b", 0)
    master.process.send_signal(signal.SIGCONT)
    well(pair)


def test_standby_that_has_not_read_everything(pair: WatchedPair) -> None:
    """Before it counts, and whenever it is behind, its lag is shown: by the master, if it does not answer itself."""
    files = ("--journal-file-max", "1mb", "--journal-batch-max", "1mb")
    master = pair.start("a", *files)
    standby = pair.start("b", *files, wait_for=WAITING)
    own = pair.instance("b")
    wait = pair.prometheus.wait_for
    wait("pybroker_standby_lag_bytes == 0 and pybroker_standby_ready == 1", {own: 0}.__eq__, SECONDS)
    standby.process.send_signal(signal.SIGSTOP)
    with contextlib.closing(StompClient(master.port)) as client:
        for _ in range(30):
            client.request("SEND", b"x" * 100_000, destination="/queue/Q", persistent="true")
    deadline = time.monotonic() + FOUND_SECONDS + BUSY_SECONDS
    while (lag := pair.state("a")["members"][1]["lag_bytes"] or 0) < 2_900_000:
        assert time.monotonic() < deadline, lag
    standby.process.send_signal(signal.SIGCONT)
    wait("pybroker_standby_lag_bytes", {own: 0}.__eq__, SECONDS)
    wait("pybroker_standby_lag_seconds < 5", lambda found: [*found] == [own], SECONDS)


def test_clients_that_come_back_are_counted_by_both_members(pair: WatchedPair) -> None:
    ports = {"a": free_port(), "b": free_port()}
    master = pair.start("a", "--openwire", str(ports["a"]))
    pair.start("b", "--openwire", str(ports["b"]), wait_for=WAITING)
    with pybroker.connect(f"failover:(tcp://127.0.0.1:{ports['a']},tcp://127.0.0.1:{ports['b']})") as connection:
        connection.send("queue://Q", "one")
        pair.prometheus.wait_for("pybroker_client_reconnects_total == 0", bool, SECONDS)
        master.kill()
        connection.send("queue://Q", "two")
        count = {pair.instance("b"): 1}
        pair.prometheus.wait_for("pybroker_client_reconnects_total", count.__eq__, FOUND_SECONDS + BUSY_SECONDS)
        assert pair.state("b")["reconnections"] == 1
        pair.start("a", "--openwire", str(ports["a"]), wait_for=WAITING)
        pair.prometheus.wait_for("pybroker_client_reconnects_total", lambda found: [*found.values()] == [1, 1], SECONDS)


def test_time_since_the_last_clean_check_grows_while_degraded(pair: WatchedPair) -> None:
    pair.start("a")
    standby = pair.start("b", wait_for=WAITING)
    well(pair)
    age = "time() - pybroker_ha_last_check_timestamp_seconds"
    pair.prometheus.wait_for(f"{age} < 5", lambda found: len(found) == 2, FOUND_SECONDS + BUSY_SECONDS)
    standby.kill()
    pair.prometheus.wait_for(f"{age} > 5", bool, 5.0 + FOUND_SECONDS + BUSY_SECONDS)
    pair.start("b", wait_for=WAITING)
    pair.prometheus.wait_for(f"{age} < 5", lambda found: len(found) == 2, SECONDS)


# ---------------------------------------------------------------- the store


def test_store_that_does_not_answer(pair: WatchedPair) -> None:
    pair.start("a")
    pair.start("b", wait_for=WAITING)
    well(pair)
    with unanswered(pair.store / "kahadb" / "pybroker.broker"):
        shown(pair, "b", "hanging", "PybrokerDegraded")
        ready(pair, "b", 0)
        shown(pair, "a", "hanging", "PybrokerDegraded")
    well(pair)


def test_store_that_is_full(pair: WatchedPair) -> None:
    master = pair.start("a", "--store-limit", "2mb", "--journal-file-max", "1mb", "--journal-batch-max", "1mb")
    with contextlib.closing(StompClient(master.port)) as client:
        while client.request("SEND", b"x" * 100_000, destination="/queue/Q", persistent="true").command == "RECEIPT":
            pass
        pair.prometheus.wait_for_alert("PybrokerStoreFull", FOUND_SECONDS + BUSY_SECONDS)
        wait_until(lambda: any(each["check"] == "disk" for each in doctor(pair)))
