"""A message that is given back is in its queue once, marked, for any consumer: with pybroker, ActiveMQ and STOMP."""

import asyncio
import threading
from pathlib import Path

import pytest

from pybroker.broker.domain.openwire.values import Long, Short, Value
from pybroker.client import ClientError, Timeout, aio, connect
from pybroker.client.messages import Body
from pybroker.client.sync import Connection, Consumer
from tests.client.brokers import Pair
from tests.conftest import Java

PATIENCE = 30.0
JAVA = Path(__file__).with_name("java")


def rest(connection: Connection, queue: str) -> list[tuple[object, bool]]:
    """Consume what is left in a queue: bodies, and which are marked."""
    found: list[tuple[object, bool]] = []
    with connection.consumer(queue) as consumer:
        try:
            while True:
                message = consumer.receive(PATIENCE if not found else 0.3)
                found.append((message.body, message.redelivered))
        except Timeout:
            return found


def sent(connection: Connection, queue: str, *bodies: str) -> None:
    for body in bodies:
        connection.send(queue, body)


def individual(connection: Connection, queue: str, prefetch: int = 100) -> Consumer:
    return connection.consumer(queue, ack="individual", prefetch=prefetch)


@pytest.mark.parametrize("prefetch", [0, 1, 100])
def test_the_only_message_keeps_its_place(connection: Connection, queue: str, prefetch: int) -> None:
    sent(connection, queue, "a", "b", "c")
    consumer = individual(connection, queue, prefetch)
    message = consumer.receive(PATIENCE)
    assert (message.body, message.redelivered) == ("a", False)
    consumer.give_back(message)
    held = [consumer.receive(PATIENCE)]
    while held[-1].body != "a":  # a pybroker has prefetched messages stay
        held.append(consumer.receive(PATIENCE))
    again = held.pop()
    assert (again.id, again.redelivered) == (message.id, True)
    consumer.give_back(again)
    for other in held:
        consumer.give_back(other)
    consumer.close()
    assert rest(connection, queue) == [("a", True), *((body, bool(held)) for body in ("b", "c"))]


def test_another_consumer_gets_it(broker_uri: str, connection: Connection, queue: str) -> None:
    sent(connection, queue, "a", "b")
    with connect(broker_uri) as other:
        consumer = individual(connection, queue, 1)
        message = consumer.receive(PATIENCE)
        elsewhere = individual(other, queue, 2)
        assert elsewhere.receive(PATIENCE).body == "b"
        consumer.set_prefetch(0)  # takes no more by itself
        consumer.give_back(message)
        again = elsewhere.receive(PATIENCE)
        assert (again.body, again.redelivered) == ("a", True)


def test_one_of_several_is_given_back(broker_ports: tuple[str, int, int], connection: Connection, queue: str) -> None:
    sent(connection, queue, "a", "b", "c", "d")
    consumer = individual(connection, queue)
    first, second, third = [consumer.receive(PATIENCE) for _ in range(3)]
    consumer.give_back(second)
    first.ack()
    consumer.give_back(third)
    consumer.close()
    expected = [("b", True), ("c", True), ("d", False)]
    if broker_ports[0] == "activemq":  # a copy of b, which is the last one; then c was the only one
        expected = [("c", True), ("d", False), ("b", True)]
    assert rest(connection, queue) == expected


def test_the_copy_is_the_same_message(connection: Connection, queue: str) -> None:
    properties: dict[str, Value] = {"i": 1, "l": Long(2), "s": Short(3), "t": "☕", "none": None, "yes": True}
    bodies: list[tuple[str, Body]] = [("object", b"\xac\xed\x00\x05t\x00\x01x"), ("map", {"a": [1, "b"]})]
    for kind, body in bodies:
        connection.send(queue, "held")
        connection.send(
            queue,
            body,
            kind=kind,
            properties=properties,
            priority=7,
            ttl=100,
            reply_to="queue://answers",
            correlation_id="17",
            type="t",
            persistent=False,
        )
        consumer = individual(connection, queue)
        held = [consumer.receive(PATIENCE) for _ in range(2)]
        message = next(message for message in held if message.body != "held")
        consumer.give_back(message)
        again = consumer.receive(PATIENCE)
        same = (
            "body",
            "kind",
            "priority",
            "expiration",
            "timestamp",
            "reply_to",
            "correlation_id",
            "type",
            "persistent",
        )
        assert [getattr(again, name) for name in same] == [getattr(message, name) for name in same]
        assert {name: again.properties[name] for name in properties} == properties
        assert {name: type(again.properties[name]) for name in properties} == {
            name: type(message.properties[name]) for name in properties
        }
        assert again.redelivered
        for each in (again, *held):
            each.ack()
        consumer.close()


@pytest.mark.component("activemq")
def test_a_java_consumer_sees_that_it_is_redelivered(
    java: Java, broker_uri: str, connection: Connection, queue: str
) -> None:
    sent(connection, queue, "a", "b", "c")
    consumer = individual(connection, queue)
    first, second = [consumer.receive(PATIENCE) for _ in range(2)]
    consumer.give_back(first)  # with ActiveMQ a copy
    consumer.give_back(second)
    consumer.close()
    lines = java.run(JAVA / "Redelivered.java", broker_uri, queue.removeprefix("queue://"), "3").splitlines()
    assert sorted(lines) == ["a true 2", "b true 2", "c false 1"]


def test_a_message_of_a_virtual_topic_returns_to_its_queue(connection: Connection, queue: str) -> None:
    name = queue.removeprefix("queue://")
    mine, others = (f"queue://Consumer.{who}.VirtualTopic.{name}" for who in ("a", "b"))
    for each in (mine, others):
        connection.create_destination(each)
    sent(connection, f"topic://VirtualTopic.{name}", "x", "y")
    consumer = individual(connection, mine)
    held = [consumer.receive(PATIENCE) for _ in range(2)]
    for message in held:  # the second is the only one left
        consumer.give_back(message)
    consumer.close()
    assert sorted(rest(connection, mine)) == [("x", True), ("y", True)]
    assert rest(connection, others) == [("x", False), ("y", False)]


def test_many_threads_give_back_and_nothing_is_lost(connection: Connection, queue: str) -> None:
    count, attempts = 60, 3
    for number in range(count):
        connection.send(queue, str(number), persistent=False)
    consumer = individual(connection, queue, 10)
    seen: dict[object, int] = {}
    errors: list[BaseException] = []
    lock, done = threading.Lock(), threading.Event()

    def work() -> None:
        try:
            while not done.is_set():
                try:
                    message = consumer.receive(0.5)
                except Timeout:
                    continue
                with lock:
                    seen[message.body] = seen.get(message.body, 0) + 1
                    again = seen[message.body] < attempts
                if again:
                    consumer.give_back(message, PATIENCE)
                else:
                    message.ack()
                    with lock:
                        if len(seen) == count and set(seen.values()) == {attempts}:
                            done.set()
        except BaseException as error:
            errors.append(error)
            done.set()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert done.wait(PATIENCE)
    for thread in threads:
        thread.join()
    assert not errors
    assert seen == {str(number): attempts for number in range(count)}
    consumer.close()
    with connection.consumer(queue) as left, pytest.raises(Timeout):
        left.receive(0.3)


def test_over_stomp_it_is_given_back_too(stomp_uri: str, queue: str) -> None:
    with connect(stomp_uri) as connection:
        sent(connection, queue, "a", "b")
        consumer = individual(connection, queue)
        first, second = [consumer.receive(PATIENCE) for _ in range(2)]
        consumer.give_back(first)  # as a copy
        consumer.give_back(second)
        consumer.close()
        assert rest(connection, queue) == [("b", True), ("a", True)]


def test_what_cannot_be_given_back_is_refused(connection: Connection, queue: str) -> None:
    sent(connection, queue, "a", "b")
    consumer, other = individual(connection, queue, 1), individual(connection, queue, 1)
    message = consumer.receive(PATIENCE)
    with pytest.raises(ClientError, match="another consumer"):
        other.give_back(message)
    message.ack()
    with pytest.raises(ClientError, match="already"):
        consumer.give_back(message)
    consumer.close()
    mine = other.receive(PATIENCE)
    other.close()
    other.give_back(mine)  # it is in its queue already
    with connection.consumer(queue, ack="client") as client, pytest.raises(ClientError, match="individual"):
        client.give_back(client.receive(PATIENCE))
    with connection.consumer("topic://NEWS", ack="individual") as news:
        connection.send("topic://NEWS", "x")
        with pytest.raises(ClientError, match="of a queue"):
            news.give_back(news.receive(PATIENCE))


def test_a_kill_returns_what_was_given_back_and_keeps_the_rest(pair: Pair) -> None:
    with connect(pair.uri) as connection:
        sent(connection, "queue://back", "a", "b", "c")
        consumer = individual(connection, "queue://back", 3)
        first, second, third = [consumer.receive(PATIENCE) for _ in range(3)]
        pair.kill()
        consumer.give_back(second, PATIENCE)
        first.ack()
        third.ack()
        again = consumer.receive(PATIENCE)
        assert (again.body, again.redelivered) == ("b", True)
        again.ack()
        with pytest.raises(Timeout):
            consumer.receive(0.5)


def test_kills_while_messages_are_given_back_lose_none(pair: Pair) -> None:
    count = 40
    with connect(pair.uri) as connection:
        sent(connection, "queue://stir", *(str(number) for number in range(count)))
        consumer = individual(connection, "queue://stir", 5)
        acknowledged: dict[object, int] = {}
        held = [consumer.receive(PATIENCE) for _ in range(3)]
        for turn in range(60):
            if turn in (20, 40):
                pair.kill()
            if turn == 30:
                pair.revive()
            message = held.pop(0)
            assert message.redelivered or turn < 60
            consumer.give_back(message, PATIENCE)
            held.append(consumer.receive(PATIENCE))
        while True:
            for message in held:
                message.ack()
                acknowledged[message.body] = acknowledged.get(message.body, 0) + 1
            try:
                held = [consumer.receive(PATIENCE if len(acknowledged) < count else 0.5)]
            except Timeout:
                break
    assert acknowledged == {str(number): 1 for number in range(count)}


def test_tasks_give_back(broker_uri: str, queue: str) -> None:
    async def main() -> None:
        async with aio.connect(broker_uri) as connection:
            await connection.send(queue, "x")
            async with await connection.consumer(queue, ack="individual") as consumer:
                message = await consumer.receive(PATIENCE)
                await consumer.give_back(message)
                again = await consumer.receive(PATIENCE)
                assert again.redelivered
                again.ack()

    asyncio.run(main())
