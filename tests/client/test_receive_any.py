"""A thread waits for several consumers, against real brokers; others acknowledge, send, open and close meanwhile."""

import asyncio
import contextlib
import threading
import time

import pytest

from pybroker.client import ConnectionClosed, ConnectionLost, Timeout, aio, connect
from pybroker.client.sync import Connection, Consumer
from pybroker.testing import Broker
from tests.client.brokers import Pair

PATIENCE = 30.0


def individual(connection: Connection, queue: str, count: int = 2, prefetch: int = 100) -> list[Consumer]:
    """Return consumers of so many queues."""
    return [connection.consumer(f"{queue}.{number}", ack="individual", prefetch=prefetch) for number in range(count)]


@pytest.mark.parametrize("prefetch", [100, 1, 0])
def test_each_consumer_gets_its_turn(connection: Connection, queue: str, prefetch: int) -> None:
    consumers = individual(connection, queue, 3, prefetch)
    for number in range(4):
        for index in range(3):
            connection.send(f"{queue}.{index}", f"{index} {number}")
    received: dict[int, list[object]] = {0: [], 1: [], 2: []}
    order: list[int] = []
    for _ in range(12):
        consumer, message = connection.receive_any(consumers, PATIENCE)
        index = consumers.index(consumer)
        received[index].append(message.body)
        order.append(index)
        message.ack()
    assert received == {index: [f"{index} {number}" for number in range(4)] for index in range(3)}
    if prefetch == 0:
        assert max(order.index(index) for index in range(3)) < 7
    for consumer in consumers:
        consumer.close()
    assert [connection.destination_exists(f"{queue}.{index}") for index in range(3)] == [True] * 3


def test_a_queue_that_is_never_empty_does_not_starve_another(connection: Connection, queue: str) -> None:
    busy, calm = consumers = individual(connection, queue)
    for number in range(50):
        connection.send(f"{queue}.0", str(number), persistent=False)
    assert connection.receive_any(consumers, PATIENCE)[0] is busy
    connection.send(f"{queue}.1", "calm")
    deadline = time.monotonic() + PATIENCE
    while not calm.has_message:
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)
    taken = 0
    while connection.receive_any(consumers, PATIENCE)[0] is busy:
        taken += 1
    assert taken < 25
    assert calm.error is None


@pytest.mark.parametrize("prefetch", [100, 0])
def test_a_timeout_ends_the_call_and_no_message_is_lost(connection: Connection, queue: str, prefetch: int) -> None:
    consumers = individual(connection, queue, 2, prefetch)
    begun = time.monotonic()
    for timeout in (0.2, 0):
        with pytest.raises(Timeout, match="no message within"):
            connection.receive_any(consumers, timeout)
    assert 0.2 <= time.monotonic() - begun < PATIENCE
    with pytest.raises(Timeout):
        connection.receive_any([], 0.01)
    connection.send(f"{queue}.1", "x")
    assert connection.receive_any(iter(consumers), PATIENCE)[1].body == "x"


def test_auto_mode_acknowledges_what_the_call_before_returned(connection: Connection, queue: str) -> None:
    first, second = [connection.consumer(f"{queue}.{number}") for number in range(2)]
    for index in range(2):
        connection.send(f"{queue}.{index}", "1")
    for _ in range(2):
        connection.receive_any([first, second], PATIENCE)
    with pytest.raises(Timeout):
        connection.receive_any([first, second], 0)
    first.close()
    second.close()
    for index in range(2):
        with connection.consumer(f"{queue}.{index}") as consumer, pytest.raises(Timeout):
            consumer.receive(0.3)


def test_other_threads_acknowledge_send_open_and_close(connection: Connection, queue: str) -> None:
    count, seen = 200, set[object]()
    consumers = individual(connection, queue, 3, prefetch=10)
    errors: list[BaseException] = []

    def work(index: int) -> None:
        try:
            for number in range(count):
                connection.send(f"{queue}.{index}", f"{index} {number}", persistent=False)
                connection.consumer(f"{queue}.other.{index}").close()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=[index]) for index in range(3)]
    acknowledging: list[threading.Thread] = []
    for thread in threads:
        thread.start()
    while len(seen) < 3 * count:
        _, message = connection.receive_any(consumers, PATIENCE)
        seen.add(message.body)
        acknowledging.append(threading.Thread(target=message.ack))
        acknowledging[-1].start()
    for thread in (*threads, *acknowledging):
        thread.join()
    assert not errors
    with pytest.raises(Timeout):
        connection.receive_any(consumers, 0.3)


def test_closing_the_consumers_or_the_connection_wakes(broker_uri: str, queue: str) -> None:
    outcomes: list[BaseException] = []
    with connect(broker_uri) as connection:
        first, second = consumers = individual(connection, queue)

        def wait(*awaited: Consumer) -> threading.Thread:
            started = threading.Event()

            def run() -> None:
                started.set()
                try:
                    connection.receive_any(awaited)[1].ack()
                except ConnectionClosed as error:
                    outcomes.append(error)

            thread = threading.Thread(target=run)
            thread.start()
            assert started.wait(PATIENCE)
            return thread

        waiting = wait(*consumers)
        first.close()
        connection.send(f"{queue}.1", "x")  # a closed consumer is ignored
        waiting.join(PATIENCE)
        assert not outcomes
        waiting = wait(*consumers)
        second.close()
        waiting.join(PATIENCE)
        assert [str(error) for error in outcomes] == ["all the consumers are closed"]
        waits = [wait(), wait(*individual(connection, queue))]
    for waiting in waits:
        waiting.join(PATIENCE)
    assert [str(error) for error in outcomes[1:]] == ["the connection is closed"] * 2


def test_a_lost_connection_is_raised_and_a_failover_is_not(pair: Pair) -> None:
    with Broker() as broker, connect(broker.uri) as connection:
        consumers = individual(connection, "queue://lost")
        broker.kill9()
        with pytest.raises(ConnectionLost):
            connection.receive_any(consumers)
    with connect(pair.uri) as connection:
        consumers = individual(connection, "queue://kept", prefetch=1)
        connection.send("queue://kept.0", "before")
        held = connection.receive_any(consumers, PATIENCE)[1]
        pair.kill()
        connection.send("queue://kept.1", "after")
        consumer, message = connection.receive_any(consumers, PATIENCE)
        assert (consumer, message.body) == (consumers[1], "after")
        held.ack()
        message.ack()
        with pytest.raises(Timeout):
            connection.receive_any(consumers, 0.5)


def test_a_consumer_of_another_connection_is_refused(broker_uri: str, connection: Connection, queue: str) -> None:
    with connect(broker_uri) as other, pytest.raises(ValueError, match="of this connection"):
        connection.receive_any(individual(other, queue), 0)


def test_tasks_wait_for_several_consumers(broker_uri: str, queue: str) -> None:
    async def main() -> None:
        async with aio.connect(broker_uri) as connection:
            consumers = [await connection.consumer(f"{queue}.{number}", ack="individual") for number in range(2)]
            waiting = asyncio.create_task(connection.receive_any(consumers, PATIENCE))
            await connection.send(f"{queue}.1", "x")
            consumer, message = await waiting
            assert (consumer, message.body) == (consumers[1], "x")
            message.ack()
            waiting = asyncio.create_task(connection.receive_any(consumers))
            await asyncio.wait({waiting}, timeout=0.05)
            waiting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await waiting
            await connection.send(f"{queue}.0", "y")
            assert (await connection.receive_any(consumers, PATIENCE))[1].body == "y"

    asyncio.run(main())
