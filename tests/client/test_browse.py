"""Browsing a queue, over OpenWire and STOMP, by threads and tasks: it ends at the end, and consumes nothing."""

import asyncio
import contextlib

import pytest

from pybroker.broker.domain.subscription import BROWSER_PREFETCH
from pybroker.client import DestinationRefused, SelectorRefused, Timeout, UnsendableMessage, aio, connect
from pybroker.client.sync import Connection
from tests.client.brokers import Pair

PATIENCE = 30.0
MANY = BROWSER_PREFETCH + 150


@pytest.fixture(params=["openwire", "stomp"])
def uri(request: pytest.FixtureRequest, broker_uri: str, stomp_uri: str) -> str:
    return broker_uri if request.param == "openwire" else stomp_uri


def fill(uri: str, queue: str, count: int) -> list[str]:
    """Leave messages in a queue: all of a kind, as ActiveMQ keeps no order between those that are persistent or not."""
    with connect(uri, timeout=PATIENCE) as connection:
        for number in range(count):
            even = {"even": str(number % 2 == 0)}
            connection.send(queue, str(number), persistent=count < MANY, properties=even)
    return [str(number) for number in range(count)]


def test_all_that_waits_is_shown_and_stays(uri: str, queue: str) -> None:
    """More than the broker sends ahead."""
    expected = fill(uri, queue, MANY)
    with connect(uri, timeout=PATIENCE) as connection:
        assert [message.body for message in connection.browse(queue, timeout=PATIENCE)] == expected
        assert [message.body for message in connection.browse(queue)] == expected
        shown = connection.browse(queue, selector="even = 'True'")
        assert next(shown).body == "0"
        shown.close()  # leaves the others to who comes
        with connection.consumer(queue) as consumer:
            assert [consumer.receive(PATIENCE).body for _ in range(MANY)] == expected
        assert list(connection.browse(queue)) == []


def test_what_a_consumer_works_on_is_shown_and_stays_its_own(uri: str, queue: str) -> None:
    expected = fill(uri, queue, 3)
    with connect(uri, timeout=PATIENCE) as connection, connection.consumer(queue, ack="individual") as consumer:
        held = consumer.receive(PATIENCE)
        assert [message.body for message in connection.browse(queue)] == expected
        held.ack()
        assert [consumer.receive(PATIENCE).body for _ in range(2)] == ["1", "2"]


def test_what_cannot_be_browsed_is_refused(uri: str, queue: str) -> None:
    with connect(uri, timeout=PATIENCE) as connection:
        with pytest.raises(DestinationRefused, match="only queues"):
            next(connection.browse(queue.replace("queue:", "topic:")))
        with pytest.raises(SelectorRefused):
            next(connection.browse(queue, selector="even = = 1"))
        assert list(connection.browse(queue)) == []


def test_tasks_browse_too(uri: str, queue: str) -> None:
    expected = fill(uri, queue, MANY)

    async def main() -> None:
        async with aio.connect(uri, timeout=PATIENCE) as connection:
            assert [message.body async for message in connection.browse(queue, timeout=PATIENCE)] == expected
            shown = connection.browse(queue, selector="even = 'False'")
            async with contextlib.aclosing(shown):
                async for message in shown:
                    assert message.body == "1"
                    break
            with pytest.raises(DestinationRefused):
                await anext(connection.browse("topic://t"))
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


def test_a_queue_that_has_been_browsed_can_be_deleted(uri: str, connection: Connection, queue: str) -> None:
    """The end of the iteration is the end of the browser, so that no deletion is refused for it."""
    fill(uri, queue, 3)
    with connect(uri, timeout=PATIENCE) as browsing:
        for _ in range(30):
            assert all(message.body for message in browsing.browse(queue))
            connection.delete_destination(queue)
            connection.send(queue, "next")


def test_browsing_goes_on_at_the_next_broker(pair: Pair, queue: str) -> None:
    with connect(pair.uri, timeout=PATIENCE) as connection:
        for number in range(20):
            connection.send(queue, str(number))
        shown = connection.browse(queue, timeout=PATIENCE)
        seen = [next(shown).body for _ in range(5)]
        pair.kill()
        connection.send(queue, "20", timeout=PATIENCE)
        seen += [message.body for message in shown]
        assert seen[:20] == [str(number) for number in range(20)]
        assert seen[20:] in ([], ["20"]), "what comes during the browse may be shown or not"


# ---------------------------------------------------------------- messages one by one (prefetch 0)


def left_over(connection: Connection, queue: str) -> list[object]:
    return [message.body for message in connection.browse(queue, timeout=PATIENCE)]


@pytest.mark.parametrize("ack", ["auto", "client", "individual"])
def test_a_message_is_delivered_on_a_pull(broker_uri: str, connection: Connection, queue: str, ack: str) -> None:
    """The second consumer gets what the first has not pulled."""
    fill(broker_uri, queue, 4)
    with connection.consumer(queue, prefetch=0, ack=ack) as one, connection.consumer(queue, prefetch=0, ack=ack) as two:
        for number, consumer in enumerate((one, two, two, one)):
            message = consumer.receive(PATIENCE)
            assert message.body == str(number)
            if ack != "auto":
                message.ack()
        for seconds in (0, 0.1):
            with pytest.raises(Timeout):
                one.receive(seconds)
        connection.send(queue, "now")
        assert two.receive(0).body == "now"


def test_a_consumer_that_waits_gets_what_is_sent_then(broker_uri: str, connection: Connection, queue: str) -> None:
    async def scene(tasks: aio.Connection, consumer: aio.Consumer) -> None:
        waiting = asyncio.create_task(consumer.receive(PATIENCE))
        await tasks.send(queue, "awaited")
        assert (await waiting).body == "awaited"
        for seconds in (0, 0.1):
            with pytest.raises(Timeout):
                await consumer.receive(seconds)
        waiting = asyncio.create_task(consumer.receive())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait({waiting})
        await tasks.send(queue, "for another")
        async with await tasks.consumer(queue, prefetch=0) as other:
            assert (await other.receive(PATIENCE)).body == "for another"

    async def main() -> None:
        async with aio.connect(broker_uri, timeout=PATIENCE) as tasks, await tasks.consumer(queue, prefetch=0) as one:
            await scene(tasks, one)

    asyncio.run(main())
    assert left_over(connection, queue) == []


def test_messages_are_pulled_over_a_failover(pair: Pair, queue: str) -> None:
    with connect(pair.uri, timeout=PATIENCE) as connection:
        for number in range(4):
            connection.send(queue, str(number))
        consumer = connection.consumer(queue, prefetch=0, ack="individual", timeout=PATIENCE)
        first, second = (consumer.receive(PATIENCE) for _ in range(2))
        first.ack()
        pair.kill()
        third = consumer.receive(PATIENCE)  # waits for the next broker, and pulls from that
        assert [message.body for message in (first, second, third)] == ["0", "1", "2"]
        second.ack()
        third.ack()
        consumer.close()
        with connection.consumer(queue, prefetch=0, timeout=PATIENCE) as rest:
            assert rest.receive(PATIENCE).body == "3"
        with connection.consumer(queue, timeout=PATIENCE) as rest, pytest.raises(Timeout):
            rest.receive(0.3)


def test_tasks_pull_messages_and_browse_over_a_failover(pair: Pair, queue: str) -> None:
    async def main() -> None:
        async with aio.connect(pair.uri, timeout=PATIENCE) as connection:
            for number in range(4):
                await connection.send(queue, str(number))
            shown = connection.browse(queue, timeout=PATIENCE)
            async with await connection.consumer(queue, prefetch=0, ack="individual") as consumer:
                first = await consumer.receive(PATIENCE)
                seen = [(await anext(shown)).body for _ in range(2)]
                await asyncio.to_thread(pair.kill)
                second = await consumer.receive(PATIENCE)
                first.ack()
                second.ack()
            assert (first.body, second.body) == ("0", "1")
            assert [*seen, *[message.body async for message in shown]] == ["0", "1", "2", "3"]
            async with await connection.consumer(queue) as rest:
                assert [(await rest.receive(PATIENCE)).body for _ in range(2)] == ["2", "3"]

    asyncio.run(main())


def test_pulling_over_stomp_is_an_error(stomp_uri: str, queue: str) -> None:
    with connect(stomp_uri, timeout=PATIENCE) as connection:
        with pytest.raises(UnsendableMessage, match="OpenWire"):
            connection.consumer(queue, prefetch=0)
        with pytest.raises(ValueError, match="0 or more"):
            connection.consumer(queue, prefetch=-1)
        connection.send(queue, "goes on")
