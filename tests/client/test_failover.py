"""A pair of brokers of which one is killed with SIGKILL: the application sees a pause, and its `on_…` callbacks."""

import asyncio
import threading

import pytest

from pybroker.client import ClientError, ConnectionLost, Redelivery, Timeout, TransactionRolledBack, aio, connect
from pybroker.client.sync import Connection
from pybroker.testing import Broker, Cluster
from tests.client.brokers import Pair

PATIENCE = 30.0
COUNT = 120


def test_messages_of_killed_brokers_arrive_once_in_order(pair: Pair) -> None:
    events: list[str] = []
    with connect(
        pair.uri, on_interrupted=lambda _: events.append("interrupted"), on_resumed=lambda _: events.append("resumed")
    ) as connection:
        seen: dict[str, list[int]] = {}

        def consume(ack: str) -> None:
            with connection.consumer(f"queue://{ack}", ack=ack, prefetch=20) as consumer:
                seen[ack] = []
                while len(seen[ack]) < COUNT:
                    message = consumer.receive(PATIENCE)
                    seen[ack].append(int(str(message.body)))
                    if ack != "auto":
                        message.ack()

        modes = ("auto", "client", "individual")
        consuming = [threading.Thread(target=consume, args=[ack]) for ack in modes]
        for thread in consuming:
            thread.start()
        for number in range(COUNT):
            if number in (COUNT // 3, 2 * COUNT // 3):
                pair.kill()
            if number == COUNT // 2:
                pair.revive()
            for ack in modes:
                connection.send(f"queue://{ack}", str(number), timeout=PATIENCE)
        for thread in consuming:
            thread.join()
        assert seen == {ack: list(range(COUNT)) for ack in modes}
    assert events == ["interrupted", "resumed"] * 2


def test_everything_is_restored_on_the_next_broker(pair: Pair) -> None:
    """The connection has one of each kind of object open."""
    interrupted = threading.Event()
    with connect(
        pair.uri,
        client_id="app",
        redelivery=Redelivery(initial_delay=0.01),
        on_interrupted=lambda _: interrupted.set(),
    ) as connection:
        for number in range(3):
            connection.send("queue://in", str(number))
        source = connection.consumer("queue://in", ack="transacted")
        selective = connection.consumer("queue://some", selector="colour = 'green'", prefetch=5)
        durable = connection.consumer("topic://news", durable="d")
        temporary = connection.temporary_destination()
        answers = connection.consumer(temporary)
        producer = connection.producer("queue://out")
        sending = connection.transaction()
        sending.send("queue://sent", "1")
        taking = connection.transaction()
        assert taking.receive(source, PATIENCE).body == "0"
        pair.kill()
        assert interrupted.wait(PATIENCE)  # or else the commit may be sent, and be in doubt

        sending.send("queue://sent", "2")
        sending.commit(PATIENCE)
        with pytest.raises(TransactionRolledBack):
            taking.commit(PATIENCE)
        for expected in ("0", "1", "2"):
            with connection.transaction() as again:
                message = again.receive(source, PATIENCE)
                assert (message.body, message.redelivered) == (expected, expected == "0" or message.redelivered)
        for colour in ("red", "green"):
            connection.send("queue://some", colour, properties={"colour": colour})
        assert selective.receive(PATIENCE).body == "green"
        connection.send("topic://news", "news")
        assert durable.receive(PATIENCE).body == "news"
        connection.send(temporary, "answer")
        assert answers.receive(PATIENCE).body == "answer"
        producer.send("out")
        assert _bodies(connection, "queue://out", 1) == ["out"]
        assert _bodies(connection, "queue://sent", 2) == ["1", "2"]
        with pytest.raises(Timeout):
            source.receive(0.3)


def test_tasks_go_on_while_a_broker_is_killed(pair: Pair) -> None:
    async def main() -> list[object]:
        async with aio.connect(pair.uri) as connection:

            async def produce() -> None:
                for number in range(COUNT):
                    if number == COUNT // 2:
                        await asyncio.to_thread(pair.kill)
                    await connection.send("queue://q", str(number))

            async def consume() -> list[object]:
                async with await connection.consumer("queue://q", ack="individual") as consumer:
                    seen: list[object] = []
                    async for message in consumer:
                        seen.append(message.body)
                        message.ack()
                        if len(seen) == COUNT:
                            return seen
                raise AssertionError

            async with asyncio.TaskGroup() as group:
                group.create_task(produce())
                consuming = group.create_task(consume())
            return consuming.result()

    assert asyncio.run(main()) == [str(number) for number in range(COUNT)]


def test_a_call_waits_no_longer_than_the_timeout_of_the_uri() -> None:
    with (
        Broker() as broker,
        connect(f"failover:({broker.uri})?timeout=300&maxReconnectDelay=50", timeout=30) as connection,
    ):
        consumer = connection.consumer("queue://q", timeout=PATIENCE)
        transaction = connection.transaction()
        transaction.send("queue://q", "x")
        broker.kill9()
        for call in (
            lambda: connection.send("queue://q", "x"),
            lambda: connection.send("queue://q", "x", persistent=False),
            lambda: connection.consumer("queue://q"),
            lambda: connection.producer("queue://q"),
            lambda: connection.request("queue://q", "x"),
            lambda: connection.temporary_destination(),
            lambda: connection.unsubscribe("d"),
            lambda: consumer.receive(),
            lambda: transaction.commit(),
        ):
            with pytest.raises(Timeout):
                call()


def test_without_failover_a_lost_connection_stays_lost() -> None:
    with Broker() as broker, connect(broker.uri, timeout=PATIENCE) as connection:
        consumer = connection.consumer("queue://q")
        broker.kill9()
        for call in (lambda: consumer.receive(PATIENCE), lambda: connection.send("queue://q", "x")):
            with pytest.raises(ConnectionLost):
                call()


def test_unanswered_sends_to_a_cut_off_broker_are_limited() -> None:
    with Cluster(2) as cluster, connect(cluster.uri, timeout=PATIENCE) as connection:
        connection.send("queue://q", b"first", timeout=PATIENCE)
        cluster.partition("master")
        sent = 1

        def send_until_it_is_too_much() -> None:
            nonlocal sent
            for _ in range(1000):
                connection.send("queue://q", bytes(100_000), persistent=False, timeout=0.3)
                sent += 1

        with pytest.raises(Timeout):
            send_until_it_is_too_much()
        assert sent < 200  # what the kernel takes, and little more
        cluster.heal()
        connection.send("queue://q", b"last", timeout=PATIENCE)
        with connection.consumer("queue://q", timeout=PATIENCE) as consumer:
            arrived = 0
            while consumer.receive(PATIENCE).body != b"last":
                arrived += 1
        assert arrived in (sent, sent + 1)  # the one that took too long is on its way, too


def test_a_callback_may_not_wait_and_may_fail(caplog: pytest.LogCaptureFixture) -> None:
    raised: list[Exception] = []
    with Cluster(2) as cluster:

        def resumed(address: str) -> None:
            for call in (lambda: connection.send("queue://q", address), lambda: consumer.receive(0), connection.close):
                try:
                    call()
                except ClientError as error:
                    raised.append(error)
            raise KeyError

        with connect(cluster.uri, timeout=PATIENCE, on_resumed=resumed) as connection:
            consumer = connection.consumer("queue://q")
            cluster.kill9("master")
            connection.send("queue://q", "x", timeout=PATIENCE)
            assert consumer.receive(PATIENCE).body == "x"
    assert ["callback" in str(error) for error in raised] == [True] * 3
    assert "a callback of the application failed" in caplog.text


def _bodies(connection: Connection, queue: str, count: int) -> list[object]:
    with connection.consumer(queue) as consumer:
        return [consumer.receive(PATIENCE).body for _ in range(count)]
