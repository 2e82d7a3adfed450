"""The asyncio API against real brokers: it does what its twin does, in tasks."""

# ruff: noqa: PT012 -- an exception that leaves a `with` statement is what these tests are about

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from pybroker.client import ConnectionClosed, Redelivery, Timeout, TransactionRolledBack, aio
from tests.integration.cluster import free_port

PATIENCE = 30.0

Scene = Callable[[aio.Connection], Coroutine[Any, Any, None]]


def play(uri: str, scene: Scene, **settings: Any) -> None:
    """Run a scene on a connection, and leave no task behind."""

    async def main() -> None:
        async with aio.connect(uri, timeout=PATIENCE, **settings) as connection:
            await scene(connection)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


def test_what_is_sent_arrives_and_is_acknowledged(broker_uri: str, queue: str) -> None:
    async def scene(connection: aio.Connection) -> None:
        await asyncio.gather(*(connection.send(queue, number.to_bytes()) for number in range(50)))
        async with await connection.producer(queue) as producer:
            await producer.send("last", persistent=False, properties={"a": 1})
        seen: list[object] = []
        async with await connection.consumer(queue) as consumer:
            async for message in consumer:
                seen.append(message.body)
                if message.body == "last":
                    break
        assert seen == [*(number.to_bytes() for number in range(50)), "last"]
        async with await connection.consumer(queue) as consumer:
            with pytest.raises(Timeout):
                await consumer.receive(0.3)

    play(broker_uri, scene)


def test_a_close_that_has_begun_ends_a_wait(broker_uri: str, queue: str) -> None:
    async def scene(connection: aio.Connection) -> None:
        consumer = await connection.consumer(queue)
        connection.begin_close()
        with pytest.raises(ConnectionClosed):
            await consumer.receive(PATIENCE)

    play(broker_uri, scene)


def test_a_closed_consumer_ends_an_iteration(broker_uri: str, queue: str) -> None:
    async def scene(connection: aio.Connection) -> None:
        consumer = await connection.consumer(queue, ack="client")
        read_one = asyncio.Event()

        async def close() -> None:
            await read_one.wait()
            consumer.close()

        closing = asyncio.create_task(close())
        await connection.send(queue, "x")
        seen = []
        async for message in consumer:
            seen.append(message.body)
            read_one.set()
        await closing
        assert seen == ["x"]

    play(broker_uri, scene)


def test_a_commit_does_all_of_it_and_a_rollback_nothing(broker_uri: str, queue: str) -> None:
    async def scene(connection: aio.Connection) -> None:
        out = f"{queue}.out"
        await connection.send(queue, "in")
        source = await connection.consumer(queue, ack="transacted")
        with pytest.raises(KeyError):
            async with connection.transaction() as transaction:
                await transaction.receive(source, PATIENCE)
                await transaction.send(out, "never")
                raise KeyError
        async with connection.transaction() as transaction:
            assert (await transaction.receive(source, PATIENCE)).redelivery_count == 1
            await transaction.send(out, "out")
        with pytest.raises(TransactionRolledBack):
            await transaction.send(out, "late")
        async with await connection.consumer(out) as consumer:
            assert (await consumer.receive(PATIENCE)).body == "out"

    play(broker_uri, scene, redelivery=Redelivery(initial_delay=0.01))


def test_a_request_is_answered(broker_uri: str, queue: str) -> None:
    async def scene(connection: aio.Connection) -> None:
        async def serve() -> None:
            async with await connection.consumer(queue) as consumer:
                async for asked in consumer:
                    assert asked.reply_to is not None
                    await connection.send(asked.reply_to, asked.body, correlation_id=asked.correlation_id or "")

        serving = asyncio.create_task(serve())
        answers = await asyncio.gather(*(connection.request(queue, str(n), timeout=PATIENCE) for n in range(10)))
        assert [answer.body for answer in answers] == [str(n) for n in range(10)]
        serving.cancel()
        await asyncio.wait({serving})
        with pytest.raises(Timeout):
            await connection.request(queue, "no one", timeout=0.1)

    play(broker_uri, scene)


def test_sends_in_flight_are_answered_and_a_finish_confirms(broker_uri: str, queue: str) -> None:
    async def scene(connection: aio.Connection) -> None:
        sendings = [connection.begin_send(queue, str(number)) for number in range(10)]
        for sending in sendings:
            await sending.wait(PATIENCE)
        assert all(sending.is_sent and sending.is_done for sending in sendings)
        consumer = await connection.consumer(queue)
        assert [(await consumer.receive(PATIENCE)).body for _ in sendings] == [str(number) for number in range(10)]
        assert await consumer.finish(PATIENCE)
        assert not await consumer.finish(PATIENCE)

    play(broker_uri, scene)


@pytest.mark.parametrize("seconds", [0, 0.1])
def test_connecting_can_be_cancelled(seconds: float) -> None:
    async def main() -> None:
        connection = aio.connect(f"failover:(tcp://127.0.0.1:{free_port()})")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(seconds), connection:
                pass
        with pytest.raises(ConnectionClosed):
            await connection.send("queue://q", "x")
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


def test_a_cancelled_call_leaves_the_connection_as_it_was(broker_uri: str, queue: str) -> None:
    async def scene(connection: aio.Connection) -> None:
        consumer = await connection.consumer(queue)
        for _ in range(3):
            waiting = asyncio.create_task(consumer.receive())
            await asyncio.sleep(0)
            waiting.cancel()
            assert isinstance((await asyncio.gather(waiting, return_exceptions=True))[0], asyncio.CancelledError)
        await connection.send(queue, "x")
        assert (await consumer.receive(PATIENCE)).body == "x"

    play(broker_uri, scene)
