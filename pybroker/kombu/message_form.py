"""Kombu's messages as JMS messages, and back.

```text
body: text            TextMessage                     body: bytes   BytesMessage, as it is: no base64
correlation_id        JMSCorrelationID
priority              JMSPriority, 0 to 9             delivery_mode 2   persistent
expiration (ms)       JMSExpiration, but not of a task of Celery, which its worker revokes
content-type          kombu_content_type              content-encoding  kombu_content_encoding
exchange              kombu_exchange                  routing key       kombu_routing_key
headers               kombu_headers, JSON: null values and nested ones stay
AMQP's others         kombu_properties, JSON
task, id in headers   celery_task, celery_id: for selectors and consoles; not read back
```

Kombu's transports of AMQP ignore every other property, and so does this one: a caller may give what JSON cannot hold.

A message of a program without Kombu has no `kombu_headers`. Its properties are its headers, and its reply goes to the
queue of its JMSReplyTo.
"""

import json
from collections.abc import Mapping
from typing import Any, Final, NotRequired, TypedDict, cast

from kombu.utils.json import dumps, loads

from pybroker.broker.domain.destination import Destination
from pybroker.client import Message, UnreadableMessage
from pybroker.kombu.names import decode_name

PRIORITY_MAX: Final = 9

_HEADERS: Final = "kombu_headers"
_PROPERTIES: Final = "kombu_properties"
_EXCHANGE: Final = "kombu_exchange"
_ROUTING_KEY: Final = "kombu_routing_key"
_CONTENT_TYPE: Final = "kombu_content_type"
_CONTENT_ENCODING: Final = "kombu_content_encoding"

_OTHERS: Final = ("reply_to", "message_id", "timestamp", "type", "user_id", "app_id", "cluster_id")
"""AMQP's properties that have no field of their own in a JMS message. Source: AMQP 0-9-1, class basic."""


class SendArguments(TypedDict):
    """The arguments of `Connection.send` for one message."""

    body: str | bytes
    properties: dict[str, Any]
    persistent: bool
    priority: int
    ttl: NotRequired[float]
    correlation_id: NotRequired[str]


def outgoing(
    message: Mapping[str, Any], exchange: str, routing_key: str, *, transient_ttl: float | None = None
) -> SendArguments:
    """Return the arguments of a client's `send`.

    Args:
        message: the message, as `Channel.prepare_message` returns it.
        exchange: the exchange it is published to; empty for the default exchange.
        routing_key: the routing key.
        transient_ttl: the seconds until a message expires that is not persistent and has no expiration of its own.
    """
    headers: Mapping[str, Any] = message["headers"] or {}
    kombu: Mapping[str, Any] = message["properties"]
    properties: dict[str, Any] = {_HEADERS: dumps(headers), _EXCHANGE: exchange, _ROUTING_KEY: routing_key}
    for name, value in (
        (_CONTENT_TYPE, message.get("content-type")),
        (_CONTENT_ENCODING, message.get("content-encoding")),
        ("celery_task", headers.get("task")),
        ("celery_id", headers.get("id")),
    ):
        if isinstance(value, str):
            properties[name] = value
    others = {name: kombu[name] for name in _OTHERS if kombu.get(name) is not None}
    if others:
        properties[_PROPERTIES] = dumps(others)
    arguments = SendArguments(
        body=message["body"],
        properties=properties,
        persistent=kombu.get("delivery_mode") != 1,
        priority=priority_of(kombu.get("priority")),
    )
    if (correlation_id := kombu.get("correlation_id")) is not None:
        arguments["correlation_id"] = str(correlation_id)
    # A task that `expires` is for the worker, which records that it is revoked: the caller may wait for that. The
    # broker would drop it in silence, or keep it as a dead letter. Celery sets both.
    expiration = None if headers.get("expires") is not None else kombu.get("expiration")
    if expiration is not None:
        arguments["ttl"] = float(expiration) / 1000
    elif transient_ttl is not None and not arguments["persistent"]:
        arguments["ttl"] = transient_ttl
    return arguments


def priority_of(value: object) -> int:
    """Return a priority within 0 to 9; 0 for anything that is no number, as Kombu's other transports do."""
    return max(0, min(int(value), PRIORITY_MAX)) if isinstance(value, int | float) else 0


def incoming(message: Message, delivery_tag: int, queue: str) -> dict[str, Any]:
    """Return a received message in the form that Kombu's virtual transports have.

    Args:
        message: the client's message.
        delivery_tag: the number by which Kombu acknowledges it.
        queue: the queue it was consumed from, for messages that say no routing key.

    Raises:
        UnreadableMessage: its body, properties or headers are damaged.
    """
    properties = message.properties
    body = _body(message)
    if _HEADERS in properties:
        kombu, headers = _loads(properties.get(_PROPERTIES, "{}")), _loads(properties[_HEADERS])
        content_type, encoding = properties.get(_CONTENT_TYPE), properties.get(_CONTENT_ENCODING)
    else:
        headers = {name: value for name, value in properties.items() if not name.startswith(("JMS", "kombu_"))}
        kombu = {} if message.reply_to is None else {"reply_to": _queue_name(message.reply_to)}
        content_type, encoding = _foreign_type(body)
    if message.correlation_id is not None:
        kombu["correlation_id"] = message.correlation_id
    kombu |= {
        "priority": message.priority,
        "delivery_mode": 2 if message.persistent else 1,
        "delivery_tag": delivery_tag,
        "delivery_info": {
            "exchange": properties.get(_EXCHANGE, ""),
            "routing_key": properties.get(_ROUTING_KEY, queue),
            "redelivered": message.redelivered,
        },
    }
    return {
        "body": body,
        "content-type": content_type,
        "content-encoding": encoding,
        "headers": headers,
        "properties": kombu,
    }


def routing_key_of(message: Message) -> str:
    """Return the routing key a message was published with; empty if it has none."""
    return str(message.properties.get(_ROUTING_KEY) or "")


def _loads(text: object) -> dict[str, Any]:
    try:
        value = loads(text)
    except (TypeError, ValueError) as error:
        raise UnreadableMessage(f"headers that are no JSON: {error}") from error
    if not isinstance(value, dict):
        raise UnreadableMessage("headers that are no JSON object")
    return cast("dict[str, Any]", value)


def _body(message: Message) -> str | bytes:
    body = message.body
    if body is None:
        return ""
    if isinstance(body, str | bytes):
        return body
    return json.dumps(body, default=str)  # a MapMessage or StreamMessage of another program


def _foreign_type(body: str | bytes) -> tuple[str, str]:
    """Return content type and encoding of a message of a program without Kombu."""
    if isinstance(body, bytes):
        return "application/data", "binary"
    try:
        json.loads(body)
    except ValueError:
        return "text/plain", "utf-8"
    return "application/json", "utf-8"


def _queue_name(destination: Destination) -> str:
    return decode_name(destination.name)
