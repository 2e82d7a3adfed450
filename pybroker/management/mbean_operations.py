"""The operations of MBeans: a table of those that may be called, each with its role. No other is ever called.

```text
OPERATIONS[kind] -> JmxOperation (name, parameters, role) -> call(OperationCall) -> JmxActions -> the node
```

Source: management.md, section 5; ActiveMQ 5.17, `BrokerViewMBean`, `QueueViewMBean`, `DestinationViewMBean`.
"""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from pybroker.broker.domain.node_requests import ConsumerRow, ManagementRole
from pybroker.management.jolokia_errors import JolokiaError
from pybroker.management.json_types import as_object
from pybroker.management.mbean_broker import BROKER, HEALTH, SCHEDULER, health_list
from pybroker.management.mbean_clients import (
    CONNECTION,
    CONNECTOR,
    DURABLE_SUBSCRIPTION,
    INACTIVE_SUBSCRIPTION,
)
from pybroker.management.mbean_destinations import QUEUE, TOPIC
from pybroker.management.mbean_networks import NETWORK_CONNECTOR
from pybroker.management.mbeans import BrokerPicture, MBean, MBeanKind
from pybroker.management.query import query_destinations
from pybroker.management.visitors import Visitor

BROWSED_MAX: Final = 400
"""Messages of one `browse`, as in ActiveMQ."""

INT_MAX: Final = 2**31 - 1

STRING: Final = "java.lang.String"

_MONITOR, _OPERATOR, _ADMIN = ManagementRole.MONITOR, ManagementRole.OPERATOR, ManagementRole.ADMIN


class Chosen(NamedTuple):
    """The messages that an operation is about; see `domain.operations.MessageSelection`."""

    selector: str | None = None
    message_ids: Sequence[str] | None = None
    maximum: int | None = None


class JmxActions(Protocol):
    """Operations of the broker, as the operations of MBeans need them. All raise `RequestFailed`.

    Destinations are texts such as `queue://A`; queues are their names.
    """

    async def browse(self, queue: str, selector: str | None, count: int) -> Sequence[Mapping[str, Any]]:
        """Return the first messages that match, as composites of JMX."""
        ...

    async def message(self, queue: str, message_id: str) -> Mapping[str, Any] | None:
        """Return one message as a composite of JMX; None if there is none of that id."""
        ...

    async def remove(self, queue: str, chosen: Chosen, visitor: Visitor) -> int:
        """Remove messages, and return their number."""
        ...

    async def move(self, queue: str, target: str, chosen: Chosen, visitor: Visitor) -> int:
        """Move messages, and return their number."""
        ...

    async def copy(self, queue: str, target: str, chosen: Chosen, visitor: Visitor) -> int:
        """Copy messages, and return their number."""
        ...

    async def retry(self, queue: str, chosen: Chosen, visitor: Visitor) -> int:
        """Move dead letters to where they came from, and return their number."""
        ...

    async def pause(self, queue: str, visitor: Visitor) -> None:
        """Deliver nothing to the consumers of a queue."""
        ...

    async def resume(self, queue: str, visitor: Visitor) -> None:
        """Deliver again."""
        ...

    async def send(self, target: str, body: str | None, headers: Mapping[str, Any], visitor: Visitor) -> str:
        """Send a text message with headers and properties of JMS, and return its id."""
        ...

    async def create(self, target: str, visitor: Visitor) -> None:
        """Create a destination, unless it exists."""
        ...

    async def delete(self, target: str, visitor: Visitor) -> None:
        """Delete a destination; do nothing if it does not exist."""
        ...

    async def cut_off(self, connection_id: str, visitor: Visitor) -> None:
        """Close a connection."""
        ...

    async def unsubscribe(self, client_id: str, name: str, visitor: Visitor) -> None:
        """Delete a durable subscription."""
        ...

    async def remove_job(self, job_id: str, visitor: Visitor) -> None:
        """Remove scheduled messages; do nothing if there are none of that id."""
        ...

    async def stop_connector(self, name: str, visitor: Visitor) -> None:
        """End the bridges of a network connector."""
        ...

    async def start_connector(self, name: str, visitor: Visitor) -> None:
        """Open the bridges of a network connector again."""
        ...


class OperationCall(NamedTuple):
    """A call of an operation.

    Attributes:
        mbean: the MBean.
        picture: the state of the broker, with the rows that the operation needs.
        arguments: the arguments, of the types of its parameters.
        actions: what carries it out.
        visitor: who has called it.
    """

    mbean: MBean
    picture: BrokerPicture
    arguments: Sequence[Any]
    actions: JmxActions
    visitor: Visitor

    @property
    def queue(self) -> str:
        """The name of the MBean's queue."""
        return str(self.mbean.row.name)


Call = Callable[[OperationCall], Awaitable[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class JmxOperation:
    """An operation of a kind of MBean.

    Attributes:
        name: its name; several with different parameters may have the same.
        parameters: the names of its parameters, with their types in Java.
        returns: the type that it returns.
        role: the role that it needs.
        call: carries it out.
        needs: the rows that it needs.
    """

    name: str
    parameters: Sequence[tuple[str, str]]
    returns: str
    role: ManagementRole
    call: Call
    needs: Sequence[str] = ()

    @property
    def signature(self) -> str:
        """The types of its parameters, in parentheses."""
        return f"({','.join(each for _, each in self.parameters)})"


# ---------------------------------------------------------------- messages


async def _purge(call: OperationCall) -> None:
    await call.actions.remove(call.queue, Chosen(), call.visitor)


async def _remove(call: OperationCall) -> int:
    return await call.actions.remove(call.queue, _matching(*call.arguments), call.visitor)


async def _move(call: OperationCall) -> int:
    selector, target, *maximum = call.arguments
    return await call.actions.move(call.queue, _target(target), _matching(selector, *maximum), call.visitor)


async def _copy(call: OperationCall) -> int:
    selector, target, *maximum = call.arguments
    return await call.actions.copy(call.queue, _target(target), _matching(selector, *maximum), call.visitor)


async def _remove_one(call: OperationCall) -> bool:
    return await call.actions.remove(call.queue, _one(call.arguments[0]), call.visitor) > 0


async def _move_one(call: OperationCall) -> bool:
    message_id, target = call.arguments
    return await call.actions.move(call.queue, _target(target), _one(message_id), call.visitor) > 0


async def _copy_one(call: OperationCall) -> bool:
    message_id, target = call.arguments
    return await call.actions.copy(call.queue, _target(target), _one(message_id), call.visitor) > 0


async def _retry(call: OperationCall) -> int:
    return await call.actions.retry(call.queue, Chosen(), call.visitor)


async def _retry_one(call: OperationCall) -> bool:
    return await call.actions.retry(call.queue, _one(call.arguments[0]), call.visitor) > 0


async def _browse(call: OperationCall) -> Sequence[Mapping[str, Any]]:
    selector = call.arguments[0] if call.arguments else None
    return await call.actions.browse(call.queue, selector or None, BROWSED_MAX)


async def _message(call: OperationCall) -> Mapping[str, Any] | None:
    return await call.actions.message(call.queue, _text(call.arguments[0]))


async def _pause(call: OperationCall) -> None:
    await call.actions.pause(call.queue, call.visitor)


async def _resume(call: OperationCall) -> None:
    await call.actions.resume(call.queue, call.visitor)


async def _send_text(call: OperationCall, *, with_headers: bool = False) -> str:
    """Send a text; user and password, if they are given, are not used: the login of the request is."""
    headers: Mapping[str, Any] = call.arguments[0] or {} if with_headers else {}
    body = call.arguments[1 if with_headers else 0]
    return await call.actions.send(_own(call), body, headers, call.visitor)


async def _send_with_properties(call: OperationCall) -> str:
    """Send a text of which the argument has all: `body=…,JMSPriority=3,color=red`."""
    fields: dict[str, str] = {}
    for part in _text(call.arguments[0]).split(","):
        name, _, value = part.strip().partition("=")
        if name not in ("", "username", "password"):
            fields[name] = value
    body = fields.pop("body", None)
    return await call.actions.send(_own(call), body, fields, call.visitor)


def _matching(selector: str | None, maximum: int | None = None) -> Chosen:
    """Return the messages of a selector; ActiveMQ takes an empty one for all, and a maximum below 1 for no limit."""
    return Chosen(selector=selector or None, maximum=maximum if maximum is not None and maximum > 0 else None)


def _one(message_id: str | None) -> Chosen:
    return Chosen(message_ids=[_text(message_id)])


def _own(call: OperationCall) -> str:
    row = call.mbean.row
    return f"{'temp-' if row.is_temporary else ''}{row.kind}://{row.name}"


def _target(name: str | None) -> str:
    """Return a destination that an argument names: a queue, unless it says that it is a topic."""
    text = _text(name)
    return text if "://" in text else f"queue://{text}"


def _text(value: str | None) -> str:
    if not value:
        raise JolokiaError("java.lang.IllegalArgumentException", "an argument is missing")
    return value


# ---------------------------------------------------------------- the broker


async def _add(call: OperationCall, *, kind: str) -> None:
    name = call.arguments[0]
    if not name:
        text = "Invalid destination name: a non-empty name is required"
        raise JolokiaError("java.lang.IllegalArgumentException", text)
    await call.actions.create(f"{kind}://{name}", call.visitor)


async def _delete(call: OperationCall, *, kind: str) -> None:
    await call.actions.delete(f"{kind}://{_text(call.arguments[0])}", call.visitor)


async def _destroy_subscriber(call: OperationCall) -> None:
    client_id, name = call.arguments
    await call.actions.unsubscribe(_text(client_id), _text(name), call.visitor)


async def _query(call: OperationCall, *, kind: str) -> str:
    text, page, page_size = call.arguments
    return query_destinations(call.picture, kind, text, page, page_size)


async def _connector_by_type(call: OperationCall) -> str | None:
    connectors: Mapping[str, str] = call.mbean.value(call.picture, "TransportConnectors")
    return connectors.get("openwire" if call.arguments[0] == "tcp" else _text(call.arguments[0]))


async def _nothing(call: OperationCall) -> None:
    """Do nothing: there is nothing to collect."""


async def _refuse(call: OperationCall) -> None:
    raise JolokiaError("java.lang.SecurityException", "not offered over management", 403)


# ---------------------------------------------------------------- others


async def _health_list(call: OperationCall) -> list[dict[str, str]]:
    return health_list(call.picture)


async def _stop_connection(call: OperationCall) -> None:
    await call.actions.cut_off(call.mbean.row.connection_id, call.visitor)


async def _connection_count(call: OperationCall) -> int:
    name = call.mbean.keys["connectorName"]
    return sum(connector == name for connector in _connectors_of(call.picture))


def _connectors_of(picture: BrokerPicture) -> Sequence[str]:
    return [CONNECTION.names(picture, each)[0]["connectorName"] for each in picture.connections]


async def _destroy_own(call: OperationCall) -> None:
    row = call.mbean.row
    name = row.subscription if isinstance(row, ConsumerRow) else row.name
    await call.actions.unsubscribe(row.client_id, name, call.visitor)


async def _remove_job(call: OperationCall) -> None:
    await call.actions.remove_job(_text(call.arguments[0]), call.visitor)


async def _stop_connector(call: OperationCall) -> None:
    await call.actions.stop_connector(call.mbean.row.name, call.visitor)


async def _start_connector(call: OperationCall) -> None:
    await call.actions.start_connector(call.mbean.row.name, call.visitor)


# ---------------------------------------------------------------- the table


def _operation(
    name: str,
    role: ManagementRole,
    call: Call,
    *parameters: tuple[str, str],
    returns: str = "void",
    needs: Sequence[str] = (),
) -> JmxOperation:
    return JmxOperation(name=name, role=role, call=call, parameters=parameters, returns=returns, needs=needs)


_SELECTOR, _ID = ("selector", STRING), ("messageId", STRING)
_TARGET, _MAXIMUM = ("destinationName", STRING), ("maximumMessages", "int")
_BODY, _LOGIN = ("body", STRING), (("userName", STRING), ("password", STRING))
_HEADERS = ("headers", "java.util.Map")
_COMPOSITES = "[Ljavax.management.openmbean.CompositeData;"

_SENDING: Final = (
    _operation("sendTextMessage", _OPERATOR, _send_text, _BODY, returns=STRING),
    _operation("sendTextMessage", _OPERATOR, _send_text, _BODY, *_LOGIN, returns=STRING),
    _operation("sendTextMessage", _OPERATOR, partial(_send_text, with_headers=True), _HEADERS, _BODY, returns=STRING),
    _operation(
        "sendTextMessage", _OPERATOR, partial(_send_text, with_headers=True), _HEADERS, _BODY, *_LOGIN, returns=STRING
    ),
    _operation(
        "sendTextMessageWithProperties", _OPERATOR, _send_with_properties, ("properties", STRING), returns=STRING
    ),
)
_OF_QUEUE: Final = (
    _operation("browse", _MONITOR, _browse, returns=_COMPOSITES),
    _operation("browse", _MONITOR, _browse, _SELECTOR, returns=_COMPOSITES),
    _operation("getMessage", _MONITOR, _message, _ID, returns="javax.management.openmbean.CompositeData"),
    _operation("purge", _OPERATOR, _purge),
    _operation("removeMessage", _OPERATOR, _remove_one, _ID, returns="boolean"),
    _operation("removeMatchingMessages", _OPERATOR, _remove, _SELECTOR, returns="int"),
    _operation("removeMatchingMessages", _OPERATOR, _remove, _SELECTOR, _MAXIMUM, returns="int"),
    _operation("copyMessageTo", _OPERATOR, _copy_one, _ID, _TARGET, returns="boolean"),
    _operation("copyMatchingMessagesTo", _OPERATOR, _copy, _SELECTOR, _TARGET, returns="int"),
    _operation("copyMatchingMessagesTo", _OPERATOR, _copy, _SELECTOR, _TARGET, _MAXIMUM, returns="int"),
    _operation("moveMessageTo", _OPERATOR, _move_one, _ID, _TARGET, returns="boolean"),
    _operation("moveMatchingMessagesTo", _OPERATOR, _move, _SELECTOR, _TARGET, returns="int"),
    _operation("moveMatchingMessagesTo", _OPERATOR, _move, _SELECTOR, _TARGET, _MAXIMUM, returns="int"),
    _operation("retryMessage", _OPERATOR, _retry_one, _ID, returns="boolean"),
    _operation("retryMessages", _OPERATOR, _retry, returns="int"),
    _operation("pause", _OPERATOR, _pause),
    _operation("resume", _OPERATOR, _resume),
    *_SENDING,
)
_QUERY = (("filter", STRING), ("page", "int"), ("pageSize", "int"))
_NAME = ("name", STRING)
_REFUSED: Final[Mapping[str, Sequence[tuple[str, str]]]] = {
    "start": (),
    "stop": (),
    "restart": (),
    "reloadLog4jProperties": (),
    "terminateJVM": (("exitCode", "int"),),
    "addConnector": (("discoveryAddress", STRING),),
    "removeConnector": (("connectorName", STRING),),
    "addNetworkConnector": (("discoveryAddress", STRING),),
    "removeNetworkConnector": (("connectorName", STRING),),
}
_OF_BROKER: Final = (
    _operation("addQueue", _ADMIN, partial(_add, kind="queue"), _NAME),
    _operation("addTopic", _ADMIN, partial(_add, kind="topic"), _NAME),
    _operation("removeQueue", _ADMIN, partial(_delete, kind="queue"), _NAME),
    _operation("removeTopic", _ADMIN, partial(_delete, kind="topic"), _NAME),
    _operation(
        "destroyDurableSubscriber", _OPERATOR, _destroy_subscriber, ("clientId", STRING), ("subscriberName", STRING)
    ),
    _operation(
        "queryQueues", _MONITOR, partial(_query, kind="queue"), *_QUERY, returns=STRING, needs=("destinations",)
    ),
    _operation(
        "queryTopics", _MONITOR, partial(_query, kind="topic"), *_QUERY, returns=STRING, needs=("destinations",)
    ),
    _operation("getTransportConnectorByType", _MONITOR, _connector_by_type, ("type", STRING), returns=STRING),
    _operation("gc", _OPERATOR, _nothing),
    *(_operation(name, _ADMIN, _refuse, *parameters) for name, parameters in _REFUSED.items()),
)

OPERATIONS: Final[Mapping[str, Sequence[JmxOperation]]] = {
    BROKER.class_name: _OF_BROKER,
    QUEUE.class_name: _OF_QUEUE,
    TOPIC.class_name: _SENDING,
    HEALTH.class_name: (
        _operation("healthList", _MONITOR, _health_list, returns="java.util.List", needs=("destinations",)),
        _operation(
            "health",
            _MONITOR,
            _health_list,
            returns="javax.management.openmbean.TabularData",
            needs=("destinations",),
        ),
    ),
    CONNECTION.class_name: (_operation("stop", _ADMIN, _stop_connection),),
    CONNECTOR.class_name: (
        _operation("connectionCount", _MONITOR, _connection_count, returns="int", needs=("connections",)),
    ),
    NETWORK_CONNECTOR.class_name: (
        _operation("start", _OPERATOR, _start_connector),
        _operation("stop", _OPERATOR, _stop_connector),
    ),
    DURABLE_SUBSCRIPTION.class_name: (_operation("destroy", _OPERATOR, _destroy_own),),
    INACTIVE_SUBSCRIPTION.class_name: (_operation("destroy", _OPERATOR, _destroy_own),),
    SCHEDULER.class_name: (_operation("removeJob", _OPERATOR, _remove_job, ("jobId", STRING)),),
}
"""The operations by the Java class of their kind."""


def operations_of(kind: MBeanKind) -> Sequence[JmxOperation]:
    """Return the operations of a kind."""
    return OPERATIONS.get(kind.class_name, ())


# ---------------------------------------------------------------- arguments


def converted(value: Any, java_type: str) -> Any:
    """Return an argument as the value of its Java type; texts are read as such.

    Raises:
        JolokiaError: it cannot be one.
    """
    if value is None:
        if java_type in ("int", "long", "boolean"):
            raise JolokiaError("java.lang.IllegalArgumentException", f"Cannot convert null to {java_type}")
        return None
    try:
        return _CONVERSIONS[java_type](value)
    except ValueError as error:
        text = f"Cannot convert {str(value)[:100]!r} to {java_type}"
        raise JolokiaError("java.lang.IllegalArgumentException", text) from error


def _int(value: Any) -> int:
    number = int(value) if isinstance(value, str) and len(value) < 20 else value
    if not isinstance(number, int) or isinstance(number, bool) or not -INT_MAX <= number <= INT_MAX:
        raise ValueError("no int")
    return number


def _map(value: Any) -> Mapping[str, Any]:
    found = as_object(json.loads(value) if isinstance(value, str) else value)
    if found is None:
        raise ValueError("no map")
    return found


def _string(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


_CONVERSIONS: Final[Mapping[str, Callable[[Any], Any]]] = {
    STRING: _string,
    "int": _int,
    "java.util.Map": _map,
}
