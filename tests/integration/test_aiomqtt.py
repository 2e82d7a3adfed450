"""aiomqtt as a client: what it does differently from paho, on which it is built, is waiting."""

import asyncio
from collections.abc import Callable

import aiomqtt
import pytest

from tests.integration.cluster import BrokerProcess, free_port

SECONDS = 30.0
V311, V5 = aiomqtt.ProtocolVersion.V311, aiomqtt.ProtocolVersion.V5


@pytest.fixture
def port(start: Callable[..., BrokerProcess]) -> int:
    """The MQTT port of a broker on a store in memory."""
    number = free_port()
    start("--mqtt", str(number), store="memory:").wait_for("listening on")
    return number


async def _next(client: aiomqtt.Client) -> tuple[str, object]:
    message = await asyncio.wait_for(anext(aiter(client.messages)), SECONDS)
    return str(message.topic), message.payload


@pytest.mark.parametrize("version", [V311, V5])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_messages_in_order(port: int, version: aiomqtt.ProtocolVersion, qos: int) -> None:
    async def converse() -> None:
        async with (
            aiomqtt.Client("127.0.0.1", port, identifier="receiver", protocol=version) as receiver,
            aiomqtt.Client("127.0.0.1", port, identifier="sender", protocol=version) as sender,
        ):
            await receiver.subscribe("a/+", qos)
            for number in range(10):
                await sender.publish("a/b", b"%d" % number, qos)
            assert [await _next(receiver) for _ in range(10)] == [("a/b", b"%d" % number) for number in range(10)]
            await receiver.unsubscribe("a/+")

    asyncio.run(converse())


def test_will_and_session(port: int) -> None:
    """A second connection takes the client id over: the first one's will comes, and the session goes on."""

    async def converse() -> None:
        will = aiomqtt.Will("gone", b"device", 1)
        async with aiomqtt.Client("127.0.0.1", port, identifier="watcher") as watcher:
            await watcher.subscribe("gone", 1)
            first = aiomqtt.Client("127.0.0.1", port, identifier="device", clean_session=False, will=will)
            await first.__aenter__()
            await first.subscribe("t", 1)
            async with aiomqtt.Client("127.0.0.1", port, identifier="device", clean_session=False) as second:
                assert await _next(watcher) == ("gone", b"device")
                with pytest.raises(aiomqtt.MqttError):
                    await _next(first)
                await watcher.publish("t", b"m", 1)
                assert await _next(second) == ("t", b"m")

    asyncio.run(converse())
