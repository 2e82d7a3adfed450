"""Carries out the operations of MBeans by requests to the node, and shows messages as JMX does.

Source: management.md, section 5; ActiveMQ 5.17, `OpenTypeSupport`, `DestinationView.sendTextMessage`.
"""

import asyncio
import base64
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final

from pybroker.broker.domain.destination import parse
from pybroker.broker.domain.errors import BrokerError, InvalidDestination
from pybroker.broker.domain.node_requests import BrowsedRow, RequestFailed
from pybroker.broker.domain.openwire.message import MessageType, OpenWireMessage, decode
from pybroker.broker.domain.openwire.values import Byte, Float, Long, Short, Value
from pybroker.management.jolokia_errors import JolokiaError, illegal
from pybroker.management.link import Answer, NodeLink
from pybroker.management.mbean_operations import Chosen
from pybroker.management.messages import Inflation, browsed_rows, plain, to_send
from pybroker.management.operations import PAGE_BYTES
from pybroker.management.visitors import Visitor

PREVIEW_BYTES: Final = 255
"""Bytes of a body that are shown of a message that has no text."""

BROWSED_SECONDS: Final = 30.0
"""The time in which a browse looks for messages that match."""

BROWSED_BYTES: Final = 16 << 20
"""Bytes of messages after which a browse ends."""

_BROWSES_MAX: Final = 2
"""Browses at a time: each has its messages in memory."""

_PAGE: Final = 100
_FROM_THE_BEGINNING: Final = -1
_LAST: Final = "last"

_CLASSES: Final = {
    MessageType.TEXT: "ActiveMQTextMessage",
    MessageType.BYTES: "ActiveMQBytesMessage",
    MessageType.MAP: "ActiveMQMapMessage",
    MessageType.STREAM: "ActiveMQStreamMessage",
    MessageType.OBJECT: "ActiveMQObjectMessage",
}


class NodeActions:
    """Implements `JmxActions` by the requests of REST."""

    def __init__(self, link: NodeLink) -> None:
        self._link = link
        self._turns = asyncio.Semaphore(_BROWSES_MAX)

    async def browse(self, queue: str, selector: str | None, count: int) -> Sequence[Mapping[str, Any]]:
        """Return the first messages that match."""
        found: list[BrowsedRow] = []
        cursor, ends_at = _FROM_THE_BEGINNING, time.monotonic() + BROWSED_SECONDS
        async with self._turns:
            while len(found) < count and time.monotonic() < ends_at and sum(map(_size, found)) < BROWSED_BYTES:
                answer = await self._ask(
                    "browse",
                    selector=selector,
                    queue=queue,
                    cursor=cursor,
                    count=min(_PAGE, count - len(found)),
                    byte_count=PAGE_BYTES,
                )
                found += browsed_rows(answer.rows)
                cursor = answer.result["cursor"]
                if answer.result["end"] == _LAST:
                    break
            return await asyncio.to_thread(composites, found)

    async def message(self, queue: str, message_id: str) -> Mapping[str, Any] | None:
        """Return one message."""
        async with self._turns:
            answer = await self._ask("message", queue=queue, message_id=message_id)
            found = await asyncio.to_thread(composites, browsed_rows(answer.rows))
        return found[0] if found else None

    async def remove(self, queue: str, chosen: Chosen, visitor: Visitor) -> int:
        """Remove messages."""
        return await self._change("remove", queue, chosen, visitor)

    async def move(self, queue: str, target: str, chosen: Chosen, visitor: Visitor) -> int:
        """Move messages."""
        return await self._change("move", queue, chosen, visitor, target)

    async def copy(self, queue: str, target: str, chosen: Chosen, visitor: Visitor) -> int:
        """Copy messages."""
        return await self._change("copy", queue, chosen, visitor, target)

    async def retry(self, queue: str, chosen: Chosen, visitor: Visitor) -> int:
        """Move dead letters to where they came from."""
        try:
            return await self._change("retry", queue, chosen, visitor)
        except RequestFailed as error:
            if error.status is not HTTPStatus.CONFLICT:
                raise
            text = "Retry of message is only possible on Dead Letter Queues!"
            raise JolokiaError("java.lang.Exception", text, HTTPStatus.INTERNAL_SERVER_ERROR) from error

    async def pause(self, queue: str, visitor: Visitor) -> None:
        """Deliver nothing to the consumers of a queue."""
        await self._ask("pause", queue=queue, **_actor(visitor))

    async def resume(self, queue: str, visitor: Visitor) -> None:
        """Deliver again."""
        await self._ask("resume", queue=queue, **_actor(visitor))

    async def send(self, target: str, body: str | None, headers: Mapping[str, Any], visitor: Visitor) -> str:
        """Send a text message."""
        try:
            destination = parse(target)
        except InvalidDestination as error:
            raise illegal(str(error)) from error
        data = to_send(destination, message_fields(body, headers), round(time.time() * 1000))
        return str((await self._ask("send", data=data, **_actor(visitor))).result["message_id"])

    async def create(self, target: str, visitor: Visitor) -> None:
        """Create a destination."""
        await self._ask("create", target=target, **_actor(visitor))

    async def delete(self, target: str, visitor: Visitor) -> None:
        """Delete a destination."""
        try:
            await self._ask("delete", target=target, **_actor(visitor))
        except RequestFailed as error:
            if error.status is not HTTPStatus.NOT_FOUND:
                raise

    async def cut_off(self, connection_id: str, visitor: Visitor) -> None:
        """Close a connection."""
        await self._ask("cut_off", connection_id=connection_id, **_actor(visitor))

    async def unsubscribe(self, client_id: str, name: str, visitor: Visitor) -> None:
        """Delete a durable subscription."""
        try:
            await self._ask("unsubscribe", key=f"{client_id}:{name}", **_actor(visitor))
        except RequestFailed as error:
            if error.status is not HTTPStatus.NOT_FOUND:
                raise
            text = f"No durable subscription exists for clientID: {client_id} and subscriptionName: {name}"
            raise JolokiaError(
                "javax.jms.InvalidDestinationException", text, HTTPStatus.INTERNAL_SERVER_ERROR
            ) from error

    async def remove_job(self, job_id: str, visitor: Visitor) -> None:
        """Remove scheduled messages."""
        try:
            await self._ask("remove_job", job_id=job_id, next_time=None, **_actor(visitor))
        except RequestFailed as error:
            if error.status is not HTTPStatus.NOT_FOUND:
                raise

    async def stop_connector(self, name: str, visitor: Visitor) -> None:
        """End the bridges of a network connector."""
        await self._ask("stop_connector", connector=name, **_actor(visitor))

    async def start_connector(self, name: str, visitor: Visitor) -> None:
        """Open the bridges of a network connector again."""
        await self._ask("start_connector", connector=name, **_actor(visitor))

    async def _change(
        self, operation: str, queue: str, chosen: Chosen, visitor: Visitor, target: str | None = None
    ) -> int:
        answer = await self._ask(
            "change",
            selector=chosen.selector,
            queue=queue,
            operation=operation,
            message_ids=chosen.message_ids,
            maximum=chosen.maximum,
            target=target,
            **_actor(visitor),
        )
        result = answer.result
        if result["error"] is not None:
            text = f"{result['error']} ({result['affected']} messages are done)"
            raise JolokiaError("javax.jms.JMSException", text, HTTPStatus.INTERNAL_SERVER_ERROR)
        return int(result["affected"])

    async def _ask(self, method: str, **arguments: Any) -> Answer:
        """Ask the node.

        Raises:
            JolokiaError: the selector is not valid.
            RequestFailed: it cannot do that.
        """
        try:
            return await self._link.ask(method, **arguments)
        except RequestFailed as error:
            if error.status is not HTTPStatus.BAD_REQUEST or not arguments.get("selector"):
                raise
            text = f"{arguments['selector']}: {error.text.removeprefix('selector: ')}"
            raise JolokiaError("javax.jms.InvalidSelectorException", text, HTTPStatus.INTERNAL_SERVER_ERROR) from error


def _actor(visitor: Visitor) -> dict[str, str]:
    return {"user": visitor.user, "address": visitor.address}


# ---------------------------------------------------------------- a message to send


def message_fields(body: str | None, headers: Mapping[str, Any]) -> dict[str, Any]:
    """Return a text message as REST takes it, from headers and properties of JMS.

    As in ActiveMQ it is not persistent and has priority 0 unless a header says otherwise.

    Raises:
        JolokiaError: a header has no meaning.
    """
    fields: dict[str, Any] = {"body": body, "persistent": False, "priority": 0}
    properties: dict[str, Any] = {}
    for name, value in headers.items():
        match name:
            case "JMSDeliveryMode":
                fields["persistent"] = str(value).upper() in ("2", "PERSISTENT")
            case "JMSPriority":
                fields["priority"] = _whole(name, value)
            case "JMSExpiration":
                fields["time_to_live_ms"] = max(0, _whole(name, value) - round(time.time() * 1000)) if value else 0
            case "JMSCorrelationID":
                fields["correlation_id"] = value
            case "JMSType":
                fields["type"] = value
            case "JMSReplyTo":
                fields["reply_to"] = value
            case "JMSXGroupID":
                fields["group_id"] = value
            case _:
                properties[name] = value
    return fields | {"properties": properties}


def _whole(name: str, value: Any) -> int:
    try:
        return int(str(value))
    except ValueError as error:
        raise illegal(f"{name} is a number") from error


# ---------------------------------------------------------------- a message that is browsed


_TABLES: Final[Mapping[str, type]] = {
    "BooleanProperties": bool,
    "ByteProperties": Byte,
    "ShortProperties": Short,
    "LongProperties": Long,
    "IntProperties": int,
    "FloatProperties": Float,
    "DoubleProperties": float,
    "StringProperties": str,
}
"""The tables of properties, which JMX has for each type, in the order in which a value is tried."""


def composites(rows: Sequence[BrowsedRow]) -> list[dict[str, Any]]:
    """Return browsed messages as the composites that ActiveMQ's `browse` returns; takes milliseconds for large ones.

    The times that ActiveMQ writes into a message as it comes, and the length of its path, are not there.
    """
    inflation = Inflation(is_kept=True)
    return [_composite(row, inflation) for row in rows]


def _size(row: BrowsedRow) -> int:
    return len(row.data)


def _composite(row: BrowsedRow, inflation: Inflation) -> dict[str, Any]:
    data = base64.b64decode(row.data)
    found: dict[str, Any] = {"JMSMessageID": row.message_id, "JMSRedelivered": row.redelivery_count > 0}
    try:
        message = decode(data)
        found |= _headers(message) | _properties(message.properties)
        return found | _body(inflation.inflated(message)) if len(data) == row.size else found
    except BrokerError as error:
        return found | {"Error": f"the message cannot be shown: {error}"}


def _headers(message: OpenWireMessage) -> dict[str, Any]:
    moment = datetime.fromtimestamp(message.timestamp / 1000, UTC)
    return {
        "JMSDestination": _name(message.destination),
        "JMSDeliveryMode": "PERSISTENT" if message.persistent else "NON-PERSISTENT",
        "JMSPriority": message.priority,
        "JMSTimestamp": moment.isoformat(timespec="seconds").replace("+00:00", "Z"),
        "JMSExpiration": message.expiration,
        "JMSCorrelationID": message.correlation_id,
        "JMSReplyTo": _name(message.reply_to),
        "JMSType": message.jms_type,
        "JMSXGroupID": message.group_id,
        "JMSXGroupSeq": message.group_sequence,
        "JMSXUserID": message.user_id,
        "OriginalDestination": _name(message.original_destination),
        "BrokerPath": _text_of(message.broker_path),
        "class": f"org.apache.activemq.command.{_CLASSES.get(message.type, 'ActiveMQMessage')}",
    }


def _properties(properties: Mapping[str, Value]) -> dict[str, Any]:
    tables: dict[str, dict[str, Any]] = {table: {} for table in _TABLES}
    for name, value in properties.items():
        table = next((table for table, each in _TABLES.items() if isinstance(value, each)), None)
        if table is not None:
            tables[table][name] = plain(value)
    return {"PropertiesText": _map_text(properties), **tables}


def _body(message: OpenWireMessage) -> dict[str, Any]:
    match message.type:
        case MessageType.TEXT:
            return {"Text": message.text()}
        case MessageType.MAP:
            return {"ContentMap": _map_text(message.map())}
        case MessageType.BYTES:
            content = message.body_bytes()
            return {"BodyLength": len(content), "BodyPreview": list(content[:PREVIEW_BYTES])}
        case _:
            return {}


def _map_text(values: Mapping[str, Value]) -> str:
    """Return a map as Java writes it."""
    return "{" + ", ".join([f"{name}={_text_of(value)}" for name, value in values.items()]) + "}"


def _text_of(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    return str(plain(value))


def _name(destination: Any) -> str | None:
    return None if destination is None else str(destination)
