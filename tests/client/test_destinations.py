"""Destinations are created, found and deleted, and the prefetch of a consumer changes, against real brokers."""

import asyncio
import threading

import pytest

from pybroker.client import DestinationRefused, Refused, Timeout, UnsendableMessage, aio, connect
from pybroker.client.sync import Connection
from tests.client.brokers import Pair

PATIENCE = 30.0


@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_a_destination_exists_from_its_creation_to_its_deletion(connection: Connection, queue: str, kind: str) -> None:
    name = f"{kind}{queue.removeprefix('queue')}"
    for _ in range(2):
        assert connection.destination_exists(name) is False
    for _ in range(2):
        connection.create_destination(name)
        assert connection.destination_exists(name) is True
    for _ in range(2):
        connection.delete_destination(name)
        assert connection.destination_exists(name) is False


def test_a_queue_of_a_virtual_topic_stores_from_its_creation_on(connection: Connection, queue: str) -> None:
    name = queue.removeprefix("queue://")
    plain, wild = f"queue://Consumer.a.VirtualTopic.{name}.k", f"queue://Consumer.b.VirtualTopic.{name}.>"
    for created in (plain, wild):
        connection.create_destination(created)
    connection.send(f"topic://VirtualTopic.{name}.k", "x")
    for created in (plain, wild):
        with connection.consumer(created) as consumer:
            assert consumer.receive(PATIENCE).body == "x"


def test_a_queue_with_a_consumer_is_not_deleted(connection: Connection, queue: str) -> None:
    connection.send(queue, "x")
    with connection.consumer(queue, ack="individual") as consumer:
        with pytest.raises(Refused, match="subscription"):
            connection.delete_destination(queue)
        assert consumer.receive(PATIENCE).body == "x"
    connection.delete_destination(queue)  # with its message
    with connection.consumer(queue) as consumer, pytest.raises(Timeout):
        consumer.receive(0.3)


def test_temporary_destinations_are_found_and_deleted(connection: Connection) -> None:
    for is_topic in (False, True):
        inbox = connection.temporary_destination(topic=is_topic)
        assert connection.destination_exists(inbox)
        connection.delete_destination(inbox)
        assert not connection.destination_exists(inbox)


def test_a_search_sees_everything_on_a_broker_with_many_queues(connection: Connection, queue: str) -> None:
    for number in range(150):
        connection.create_destination(f"{queue}.{number}")
    assert [connection.destination_exists(f"{queue}.{number}") for number in (0, 149, 150)] == [True, True, False]
    for number in range(150):
        connection.delete_destination(f"{queue}.{number}")


def test_searches_of_several_threads_do_not_disturb_each_other(connection: Connection, queue: str) -> None:
    connection.create_destination(f"{queue}.1")
    found: dict[int, bool] = {}

    def search(number: int) -> None:
        found[number] = connection.destination_exists(f"{queue}.{number % 2}")

    threads = [threading.Thread(target=search, args=[number]) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: number % 2 == 1 for number in range(8)}


def test_a_name_of_several_destinations_is_refused(connection: Connection) -> None:
    for call in (connection.create_destination, connection.delete_destination, connection.destination_exists):
        with pytest.raises(DestinationRefused, match="several"):
            call("queue://a,b")


def test_stomp_has_no_form_for_it(stomp_uri: str) -> None:
    with connect(stomp_uri) as connection, connection.consumer("queue://x") as consumer:
        for call in (connection.create_destination, connection.delete_destination, connection.destination_exists):
            with pytest.raises(UnsendableMessage, match="OpenWire"):
                call("queue://x")
        with pytest.raises(UnsendableMessage, match="OpenWire"):
            consumer.set_prefetch(5)


def test_a_created_queue_is_there_after_a_kill(pair: Pair) -> None:
    with connect(pair.uri) as connection:
        for name in ("queue://Consumer.kept.VirtualTopic.t", "queue://deleted"):
            connection.create_destination(name)
        connection.delete_destination("queue://deleted")
        pair.kill()
        assert connection.destination_exists("queue://Consumer.kept.VirtualTopic.t", timeout=PATIENCE)
        for name in ("queue://never", "queue://deleted"):
            assert not connection.destination_exists(name, timeout=PATIENCE)
        connection.send("topic://VirtualTopic.t", "x")
        with connection.consumer("queue://Consumer.kept.VirtualTopic.t") as consumer:
            assert consumer.receive(PATIENCE).body == "x"


def test_tasks_create_find_and_delete(broker_uri: str, queue: str) -> None:
    async def main() -> None:
        async with aio.connect(broker_uri) as connection:
            await connection.create_destination(queue)
            assert await connection.destination_exists(queue)
            await connection.delete_destination(queue)
            assert not await connection.destination_exists(queue)

    asyncio.run(main())


# ---------------------------------------------------------------- prefetch


def test_a_larger_prefetch_delivers_more_at_once(connection: Connection, queue: str) -> None:
    for number in range(5):
        connection.send(queue, str(number))
    consumer = connection.consumer(queue, ack="individual", prefetch=1)
    held = [consumer.receive(PATIENCE)]
    with pytest.raises(Timeout):
        consumer.receive(0.3)
    consumer.set_prefetch(3)
    held += [consumer.receive(PATIENCE) for _ in range(2)]
    with pytest.raises(Timeout):
        consumer.receive(0.3)
    assert [message.body for message in held] == ["0", "1", "2"]
    with pytest.raises(ValueError, match="0 or more"):
        consumer.set_prefetch(-1)
    consumer.close()
    with pytest.raises(Exception, match="closed"):
        consumer.set_prefetch(1)


def test_a_consumer_changes_between_push_and_pull(connection: Connection, queue: str) -> None:
    consumer = connection.consumer(queue, ack="individual", prefetch=1)
    connection.send(queue, "0")
    consumer.receive(PATIENCE).ack()
    consumer.set_prefetch(0)
    for number in range(1, 5):
        connection.send(queue, str(number))
    message = consumer.receive(PATIENCE)
    with connection.consumer(queue, ack="individual", prefetch=1) as other:
        assert other.receive(PATIENCE).body == "2"  # nothing but "1" is at the other consumer
    assert message.body == "1"
    message.ack()
    consumer.set_prefetch(10)
    assert [consumer.receive(PATIENCE).body for _ in range(3)] == ["2", "3", "4"]


def test_a_waiting_thread_pulls_once_the_prefetch_is_zero(connection: Connection, queue: str) -> None:
    consumer = connection.consumer(queue, ack="individual", prefetch=1)
    bodies: list[object] = []
    waiting = threading.Thread(target=lambda: bodies.append(consumer.receive(PATIENCE).body))
    waiting.start()
    consumer.set_prefetch(0)
    connection.send(queue, "x")
    waiting.join(PATIENCE)
    assert bodies == ["x"]


def test_a_changed_prefetch_applies_to_the_next_broker(pair: Pair) -> None:
    with connect(pair.uri) as connection:
        consumer = connection.consumer("queue://window", ack="individual", prefetch=1)
        consumer.set_prefetch(2)
        pair.kill()
        for number in range(3):
            connection.send("queue://window", str(number))
        held = [consumer.receive(PATIENCE) for _ in range(2)]
        with pytest.raises(Timeout):
            consumer.receive(0.3)
        assert [message.body for message in held] == ["0", "1"]
