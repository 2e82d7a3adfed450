"""What the tests of the transport do with channels."""

from typing import Any

PATIENCE = 20.0
"""Seconds in which a broker delivers what it has."""

SILENCE = 0.3
"""Seconds after which a test believes that nothing comes: what it waits for is refuted by a message before."""


def message(channel: Any, body: Any = "[]", **properties: Any) -> dict[str, Any]:
    """Return a message to publish."""
    return channel.prepare_message(
        body,
        content_type="application/json",
        content_encoding="utf-8",
        priority=properties.pop("priority", None),
        headers=properties.pop("headers", {}),
        properties={"delivery_mode": 2, **properties},
    )


def publish(channel: Any, exchange: str, key: str, body: Any = "[]", **properties: Any) -> None:
    """Publish a message."""
    channel.basic_publish(message(channel, body, **properties), exchange, key)


def consume(channel: Any, queue: str, tag: str = "tag", *, no_ack: bool = False) -> list[Any]:
    """Consume a queue; return the list to which messages will be added."""
    received: list[Any] = []
    channel.basic_consume(queue, no_ack, received.append, tag)
    return received


def drain(channel: Any, received: list[Any], count: int) -> list[Any]:
    """Wait until so many messages are there, and return all."""
    transport = channel.connection
    while len(received) < count:
        transport.drain_events(transport, timeout=PATIENCE)
    return received


def drain_rest(channel: Any) -> None:
    """Deliver whatever still comes."""
    transport = channel.connection
    while True:
        try:
            transport.drain_events(transport, timeout=SILENCE)
        except TimeoutError:
            return


def bodies(received: list[Any]) -> list[Any]:
    """Return the bodies of messages as text."""
    return [each.body.decode() if isinstance(each.body, bytes) else each.body for each in received]
