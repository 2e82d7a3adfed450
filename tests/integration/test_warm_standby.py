"""A standby that follows its master's journal: two real processes, and a kill."""

import contextlib
import re
import time
from pathlib import Path
from typing import Any

import pytest

from pybroker.store.journal.store_snapshot import follower, snapshot, write
from pybroker.store.members import read_members
from tests.integration.activemq_broker import ActiveMQProcess
from tests.integration.cluster import BrokerProcess, Pair, free_port
from tests.integration.stomp_client import Disconnected, StompClient
from tests.pace import in_time

STOCK_BROKER = Path(__file__).parents[1] / "java" / "StockBroker.java"
QUEUE = "/queue/WARM"
MESSAGES = 2000
SECONDS = 30.0
CAUGHT_UP = r"caught up ([\d,]+) records in ([\d.]+) ms"


def send(client: StompClient, first: int, count: int) -> None:
    """Send numbered persistent messages; all are accepted on return."""
    for number in range(first, first + count):
        client.send("SEND", str(number).encode(), destination=QUEUE, persistent="true")
    client.request("SEND", str(first + count).encode(), destination=QUEUE, persistent="true")


def receive(client: StompClient, count: int) -> list[tuple[int, bool]]:
    """Receive and acknowledge messages; return each number, and True if it is marked as redelivered."""
    client.send("SUBSCRIBE", id="1", destination=QUEUE, ack="client-individual")
    found: list[tuple[int, bool]] = []
    for _ in range(count):
        frame = client.read_until("MESSAGE")
        found.append((int(frame.body), frame.headers.get("redelivered") == "true"))
        client.send("ACK", id=frame.headers["ack"])
    return found


def until_connected(port: int) -> StompClient:
    """Return a connection, as soon as someone serves there."""
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            return StompClient(port)
        except (Disconnected, OSError):
            if time.monotonic() > deadline:
                raise


def until_followed(pair: Pair, messages: int) -> dict[str, Any]:
    """Return the standby's entry, once it has followed that far."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        entries = [each for each in pair.status()["members"] if each.get("followed")]
        if entries and entries[0]["followed"]["messages"] == messages:
            return entries[0]
    raise AssertionError(f"the standby never followed to {messages} messages: {pair.status()}")


def test_standby_of_a_killed_master_has_read_the_journal(pair: Pair, capsys: pytest.CaptureFixture[str]) -> None:
    master = pair.wait_for_master()
    standby = pair.wait_for_standby()
    with contextlib.closing(StompClient(master.port)) as client:
        send(client, 1, MESSAGES - 1)
        standby.wait_for(r"standby: following .*: [\d,]+ messages")
        seen = until_followed(pair, MESSAGES)
        assert seen["role"] == "STANDBY"
        assert seen["followed"]["file_id"] >= 1
        assert in_time((seen["updated_ms"] - seen["followed"]["at_ms"]) / 1000, 2)

        begun = time.perf_counter()
        master.kill()
        with contextlib.closing(until_connected(standby.port)) as new_master:
            silence = (time.perf_counter() - begun) * 1000
            caught_up = standby.wait_for(CAUGHT_UP)
            won = standby.wait_for(r"listening on .*, (\d+) ms after the lock was won")
            # It had read everything, so only the last few records can have been left.
            assert int(caught_up[1].replace(",", "")) < 100
            assert [number for number, _ in receive(new_master, MESSAGES)] == list(range(1, MESSAGES + 1))
    with capsys.disabled():
        print(f"\nkill to connection {silence:.0f} ms, lock to ports {won[1]} ms, tail {caught_up[2]} ms")


def test_what_came_last_is_there_however_warm_the_standby(pair: Pair) -> None:
    sent = 0
    for _ in range(4):
        master = pair.wait_for_master()
        standby = pair.wait_for_standby()
        with contextlib.closing(until_connected(master.port)) as client:
            send(client, sent + 1, 150)  # as many, and one that is answered
            sent += 151
            master.kill()
        with contextlib.closing(until_connected(standby.port)):
            pair.restart(master)
    with contextlib.closing(until_connected(pair.wait_for_master().port)) as client:
        assert [number for number, _ in receive(client, sent)] == list(range(1, sent + 1))


def test_clean_stop_marks_no_message_redelivered_for_standby(pair: Pair) -> None:
    master = pair.wait_for_master()
    standby = pair.wait_for_standby()
    with contextlib.closing(StompClient(master.port)) as client:
        send(client, 1, 9)
        until_followed(pair, 10)
    assert master.terminate() == 0
    with contextlib.closing(until_connected(standby.port)) as client:
        assert receive(client, 10) == [(number, False) for number in range(1, 11)]


def test_a_third_member_follows_through_a_take_over(tmp_path: Path) -> None:
    with Pair(tmp_path / "store") as pair:
        pair.wait_for_standby()
        third = BrokerProcess(pair.store, name="c", port=free_port())
        try:
            third.wait_for("standby: following")
            master = pair.wait_for_master()
            other = pair.wait_for_standby()
            with contextlib.closing(StompClient(master.port)) as client:
                send(client, 1, 99)
            master.kill()
            survivors = {node.port: node for node in (other, third)}
            new_master = first_to_serve(survivors)
            last = next(node for port, node in survivors.items() if port != new_master)
            with contextlib.closing(until_connected(new_master)) as client:
                send(client, 101, 99)
            survivors[new_master].kill()
            with contextlib.closing(until_connected(last.port)) as client:
                assert [number for number, _ in receive(client, 200)] == list(range(1, 201))
            assert not [line for line in last.lines if re.search("from its first file", line)]
        finally:
            third.close()


def first_to_serve(nodes: dict[int, BrokerProcess]) -> int:
    """Return the port on which someone serves first."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        for port in nodes:
            with contextlib.suppress(Disconnected, OSError), contextlib.closing(StompClient(port)):
                return port
    raise AssertionError("no one took over")


@pytest.mark.component("activemq")
def test_the_journal_of_an_activemq_is_followed(java: Any, tmp_path: Path) -> None:
    classes = java.command(STOCK_BROKER)[4].partition(":")[0]
    store = tmp_path / "activemq"
    stock = ActiveMQProcess(f"{classes}:{java.class_path}", store).wait()
    standby = None
    try:
        with contextlib.closing(StompClient(stock.stomp)) as client:
            send(client, 1, 199)
            standby = BrokerProcess(str(store), name="b", port=free_port())
            standby.wait_for(r"standby: following .*: 200 messages")
            assert [number for number, _ in receive(client, 50)] == list(range(1, 51))
            send(client, 201, 99)
        time_limit = time.monotonic() + SECONDS
        while followed(store) != 250 and time.monotonic() < time_limit:
            pass
        assert followed(store) == 250
        stock.kill()
        with contextlib.closing(until_connected(standby.port)) as client:
            assert int(standby.wait_for(CAUGHT_UP)[1]) < 100
            assert [number for number, _ in receive(client, 250)] == list(range(51, 301))
    finally:
        stock.close()
        if standby is not None:
            standby.close()


def followed(store: Path) -> int | None:
    """Return how many messages the standby of a store has followed to."""
    found = [each.member.followed for each in read_members(store / "members") if each.member is not None]
    return found[0].messages if found and found[0] is not None else None


@pytest.mark.component("activemq")
def test_activemqs_records_are_read_behind_the_snapshot(java: Any, tmp_path: Path) -> None:
    classes = java.command(STOCK_BROKER)[4].partition(":")[0]
    store = tmp_path / "activemq"
    journal = store / "kahadb"
    with (
        contextlib.closing(ActiveMQProcess(f"{classes}:{java.class_path}", store).wait()) as stock,
        contextlib.closing(StompClient(stock.stomp)) as client,
    ):
        send(client, 1, 199)
    reader = follower(journal)
    while not reader.advance().is_at_end:
        pass
    write(snapshot(reader.state, reader.location), journal, lambda: None)
    with (
        contextlib.closing(ActiveMQProcess(f"{classes}:{java.class_path}", store).wait()) as stock,
        contextlib.closing(StompClient(stock.stomp)) as client,
    ):
        assert [number for number, _ in receive(client, 50)] == list(range(1, 51))
        send(client, 201, 9)
    new_master = follower(journal)
    new_master.finish()
    assert new_master.rebuild_count == 0
    assert new_master.resumed_at == reader.location
    assert new_master.message_count == 160
    assert new_master.record_count < 100
