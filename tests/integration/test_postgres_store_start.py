# mypy: disable-error-code="arg-type"
"""`pybroker start --store postgresql://…`: messages, scheduled ones and lock in one database, no shared directory."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pybroker.broker.app.database_status import DatabaseStatus, describe, read
from pybroker.broker.app.status import Exit
from pybroker.broker.app.wiring import database_url
from pybroker.broker.domain.errors import StoreError
from pybroker.locks.postgres.timing import now
from pybroker.store.jdbc.postgres import DatabaseConnection
from tests.integration.cluster import BrokerProcess, Pair, free_port
from tests.integration.forked import run_forked
from tests.integration.stomp_client import Disconnected, StompClient
from tests.integration.test_management import get, url_of
from tests.integration.test_postgres_start import assert_no_password, received, send
from tests.pace import in_time
from tests.postgres_cluster import PASSWORD_IN_URL, PostgresDatabase, postgres_cluster, postgres_database

__all__ = ["postgres_cluster", "postgres_database"]


@pytest.fixture
def pair(postgres_database: PostgresDatabase) -> Iterator[Pair]:
    with Pair(postgres_database.url) as pair:
        pair.wait_for_standby()
        yield pair


def report(what: str, seconds: float) -> None:
    print(f"\n{what:<70} {seconds * 1000:8.1f} ms")


# ---------------------------------------------------------------- failover


def test_standby_serves_what_a_killed_master_accepted(pair: Pair) -> None:
    """Scheduled messages too."""
    master, standby = pair.wait_for_master(), pair.wait_for_standby()
    for number in range(20):
        send(master.port, b"%d" % number)
    client = StompClient(master.port)
    delay = {"destination": "/queue/orders", "persistent": "true", "AMQ_SCHEDULED_DELAY": "3000"}
    assert client.request("SEND", b"later", **delay).command == "RECEIPT"
    client.close()
    master.kill()
    killed_at = now()
    standby.wait_for("listening on")
    seconds = now() - killed_at
    report("kill -9 of the master to the standby's listeners, all in the database", seconds)
    assert in_time(seconds, 1)
    assert received(standby.port, 21) == [*(b"%d" % number for number in range(20)), b"later"]
    for node in pair.nodes.values():
        assert_no_password("\n".join(node.lines))


def test_the_password_is_not_in_the_list_of_processes(postgres_database: PostgresDatabase) -> None:
    node = BrokerProcess(postgres_database.url, name="a", port=0, is_fresh=True)
    try:
        node.wait_for("listening on")
        command = Path(f"/proc/{node.process.pid}/cmdline").read_bytes()
        assert b"--store" in command
        assert PASSWORD_IN_URL.encode() not in command
    finally:
        node.close()


def test_orderly_stop_hands_over_at_once_and_knows_what_was_seen(pair: Pair) -> None:
    master, standby = pair.wait_for_master(), pair.wait_for_standby()
    send(master.port, b"accepted")
    assert master.terminate() == 0
    standby.wait_for("listening on")
    client = StompClient(standby.port)
    client.send("SUBSCRIBE", id="1", destination="/queue/orders", ack="client")
    message = client.read()
    assert (message.body, message.headers.get("redelivered")) == (b"accepted", None)
    client.close()


def test_a_restart_of_the_database_is_a_pause(pair: Pair, postgres_database: PostgresDatabase) -> None:
    """The master stays the master, though a standby waits; a client that sends during it waits for its receipt."""
    master = pair.wait_for_master()
    client = StompClient(master.port)
    assert client.request("SEND", b"before", destination="/queue/orders", persistent="true").command == "RECEIPT"
    began_at = now()
    postgres_database.cluster.stop()
    client.send("SEND", b"meanwhile", destination="/queue/orders", persistent="true", receipt="meanwhile")
    postgres_database.cluster.start()
    assert client.read().headers["receipt-id"] == "meanwhile"
    report("begin of the database's restart to the receipt of what was sent during it", now() - began_at)
    client.close()
    assert received(master.port, 2) == [b"before", b"meanwhile"]
    status = pair.wait_for_status(lambda status: status["master"] is not None)  # its session is opened again every 2 s
    assert (status["master"], status["epoch"]) == (master.name, 1)


def test_member_serves_again_when_database_returns_after_grace(
    postgres_database: PostgresDatabase,
) -> None:
    """Clients are cut off, nothing ends, nothing confirmed is lost."""
    with Pair(postgres_database.url, "--database-grace", "500ms") as pair:
        master = pair.wait_for_master()
        pair.wait_for_standby()
        send(master.port, b"before")
        postgres_database.cluster.stop()
        try:
            master.wait_for("standing by again after losing the")
            with pytest.raises(Disconnected):
                StompClient(master.port)
        finally:
            postgres_database.cluster.start()
        successor = pair.wait_for_master()
        assert received(successor.port, 1) == [b"before"]
        assert all(node.process.poll() is None for node in pair.nodes.values())


# ---------------------------------------------------------------- status


def test_status_shows_since_when_a_standby_is_master(postgres_database: PostgresDatabase) -> None:
    with Pair(postgres_database.url) as pair:
        master, standby = pair.wait_for_master(), pair.wait_for_standby()
        killed_at_ms = time.time_ns() // 1_000_000
        master.kill()
        standby.wait_for("listening on")
        found = pair.wait_for_status(lambda found: found["master"] == standby.name)
        (since_ms,) = (member["since_ms"] for member in found["members"] if member["role"] == "MASTER")
        assert since_ms >= killed_at_ms


def test_status_shows_master_standbys_and_what_is_pending(postgres_database: PostgresDatabase) -> None:
    assert status(postgres_database)[0] == 4
    with Pair(postgres_database.url) as pair:
        master, standby = pair.wait_for_master(), pair.wait_for_standby()
        send(master.port, b"1")
        until_both_are_seen(postgres_database)
        code, lines = status(postgres_database)
        assert code == 0
        assert lines[0] == f"master: {master.name} at stomp://127.0.0.1:{master.port}"
        assert "master since" in lines[1]
        assert "epoch 1, from 127.0.0.1" in lines[1]
        assert lines[2].split()[:3] == [standby.name, "standby", "since"]
        assert lines[3].split() == ["1", "message", "on", "queue://orders"]
        found = pair.status()
        assert (found["master"], found["locked"], found["epoch"]) == (master.name, True, 1)
        assert found["waiting"] == {"queue://orders": 1}
        assert_no_password(json.dumps(found) + "\n".join(lines))
        standby.terminate()
        master.terminate()
    assert describe(read(postgres_database.url))[0] == f"no master: the lock in {found['store']} is free"


def test_a_standby_knows_the_management_of_the_master(postgres_database: PostgresDatabase) -> None:
    """Its console links to that of the master."""
    with Pair(postgres_database.url, "--management", "127.0.0.1:0") as pair:
        master, standby = pair.wait_for_master(), pair.wait_for_standby()
        found = pair.wait_for_status(lambda status: status["master"] is not None)
        urls = {each["name"]: each["management"] for each in found["members"]}
        assert urls == {master.name: url_of(master), standby.name: ""}
        members = get(url_of(standby), "/api/v1/ha")[1]["members"]
        known = {each["name"]: each["management"] for each in members}
        assert known == {master.name: url_of(master), standby.name: url_of(standby)}


def test_member_waiting_for_the_row_is_never_its_holder(
    postgres_database: PostgresDatabase,
) -> None:
    ended = threading.Event()
    turns = 0

    def poll() -> None:
        nonlocal turns
        waiting = DatabaseConnection(database_url(postgres_database.url, "b"))
        while not ended.is_set():
            with pytest.raises(StoreError, match="could not obtain lock"):
                waiting.execute("SELECT * FROM activemq_lock FOR UPDATE NOWAIT")
            turns += 1
        waiting.close()

    node = BrokerProcess(postgres_database.url, name="a", port=0)
    poller = threading.Thread(target=poll)
    try:
        until(postgres_database, is_served)
        poller.start()
        for _ in range(100):
            found = read(postgres_database.url)
            assert found.holder.startswith("pybroker a from ")
            assert {member.name: member.role for member in found.members} in (
                {"a": "MASTER"},
                {"a": "MASTER", "b": "STANDBY"},
            )
        assert turns
    finally:
        ended.set()
        if poller.ident:
            poller.join()
        node.close()


@pytest.mark.parametrize("kind", ["lease", "advisory"])
def test_status_knows_every_kind_of_lock(postgres_database: PostgresDatabase, kind: str) -> None:
    with Pair(postgres_database.url, "--lock", f"postgres-{kind}") as pair:
        master, standby = pair.wait_for_master(), pair.wait_for_standby()
        found = until_both_are_seen(postgres_database)
        assert {member.name: member.role for member in found.members} == {
            master.name: "MASTER",
            standby.name: "STANDBY",
        }
        assert found.exit is Exit.MASTER


def test_status_shows_whole_ports_of_a_member_with_a_long_name(postgres_database: PostgresDatabase) -> None:
    name = "member-" * 13 + "a"
    node = BrokerProcess(postgres_database.url, name=name, port=free_port())
    try:
        found = until(postgres_database, is_served)
        assert found.master is not None
        assert (found.master.name, found.master.listeners) == (name, (f"stomp://127.0.0.1:{node.port}",))
        assert len(found.members) == 1
    finally:
        node.close()


def test_status_shows_a_standby_that_could_not_serve(postgres_database: PostgresDatabase) -> None:
    """Its address, of a block for documentation, is not this machine's."""
    nodes = [BrokerProcess(postgres_database.url, name="a", port=free_port())]
    try:
        nodes[0].wait_for("listening on")
        nodes.append(BrokerProcess(postgres_database.url, name="b", port=0, extra=("--bind", "192.0.2.1")))
        found = until(postgres_database, lambda found: any("192.0.2.1" in each.obstacle for each in found.members))
        assert found.master is not None
        assert [member.name for member in found.members if member.obstacle] == ["b"]
        assert status(postgres_database)[0] == Exit.UNREADY_STANDBY
        nodes[1].terminate()
        until(postgres_database, is_served)
    finally:
        for node in nodes:
            node.close()


def test_status_of_a_database_that_is_not_there(postgres_database: PostgresDatabase) -> None:
    code, lines = status(postgres_database, url=postgres_database.through(1))
    assert code == 1
    assert "Connection refused" in lines[0]


def until_both_are_seen(database: PostgresDatabase) -> DatabaseStatus:
    return until(database, lambda found: is_served(found) and len(found.members) == 2)


def is_served(found: DatabaseStatus) -> bool:
    """Return True if a master has logged where it serves, a moment after its session is there."""
    return found.exit is Exit.MASTER and found.master is not None and bool(found.master.listeners)


def until(database: PostgresDatabase, is_so: Callable[[DatabaseStatus], bool]) -> DatabaseStatus:
    """Check until it is: a member opens its session after it has logged that it waits, or serves."""
    deadline = now() + 30
    while not is_so(found := read(database.url)):
        assert now() < deadline, found
    return found


def status(database: PostgresDatabase, url: str = "") -> tuple[int, list[str]]:
    done = run_forked("status", "--store", url or database.url)
    assert_no_password(done.stdout)
    return done.returncode, done.stdout.splitlines()


# ---------------------------------------------------------------- settings


def test_settings_of_a_journal_are_logged_as_without_effect(postgres_database: PostgresDatabase) -> None:
    node = BrokerProcess(postgres_database.url, name="a", port=0, extra=("--sync", "never", "--archive"))
    try:
        node.wait_for("no journal: of no effect are sync, disk_reserve, archive")
    finally:
        node.close()
