"""Values of OpenWire's fields by the schema: those of a client's conversation, of its neighbours', and impossible ones.

A field has the value that its name and type ask for, so that a frame is carried out and not only decoded; now and then
it has another of its type. So sequences of commands arise that no client sends: transactions that were never begun or
are begun twice, acknowledgements of messages that were not delivered, consumers of sessions that are not there.
"""

import zlib
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final

from pybroker.broker.domain.destination import Destination, DestinationType
from pybroker.broker.domain.openwire import commands as wire
from pybroker.broker.domain.openwire.body import encode_text
from pybroker.broker.domain.openwire.ids import DESTINATION_TYPES
from pybroker.broker.domain.openwire.marshal.layouts import LAYOUTS, Layout
from pybroker.broker.domain.openwire.marshal.schema import FieldKind, Spec
from pybroker.broker.domain.openwire.values import Value, encode_map
from pybroker.broker.domain.transaction import LocalTransactionId, XATransactionId

QUEUE: Final = "FUZZ.Q"
TOPIC: Final = "FUZZ.T"
NAME_COUNT: Final = 64
"""The names of queues and topics of valid conversations: more than are played at a time, and so few that what changed
ones leave, such as retained messages, which each subscriber to `FUZZ/#` gets, does not grow with the cases."""
NAMES: Final = (
    "FUZZ.Q", "FUZZ.Q", "FUZZ.Q1", "FUZZ.T", "FUZZ.>", "FUZZ.*", ">", "*", "FUZZ.Q,FUZZ.Q1", "FUZZ.Q,topic://FUZZ.T",
    "queue://FUZZ.Q,temp-queue://x", "ActiveMQ.DLQ", "ActiveMQ.Advisory.>", "ActiveMQ.Advisory.Connection",
    "ActiveMQ.Advisory.TempQueue,ActiveMQ.Advisory.TempTopic", "ActiveMQ.Scheduler.Management",
    "ActiveMQ.Statistics.Broker", "VirtualTopic.FUZZ", "Consumer.A.VirtualTopic.FUZZ", "FUZZ.Q?consumer.prefetchSize=1",
    "FUZZ.Q?consumer.exclusive=true&consumer.priority=x", "", " ", ",", "a,,b", "FORBIDDEN.Q", "\0", "é\U0001f600",
    "x" * 1_025, "../../etc/passwd", "temp-queue://fuzz:1", "queue://queue://x", "FUZZ..Q", ".", "FUZZ.Q ",
)  # fmt: skip
TEXTS: Final = (
    None, "", "a", "é\U0001f600\0", "x" * 300, "ID:other-1:1", "JMSPriority > 3", "a = 1", "a LIKE 'x%' AND (",
    "((((((a)))))) = 'b'", "a IN ('1', '2')", "'" * 50, "1" * 400 + " = 1", "a BETWEEN 1 AND 'x'", "\r\n:\\", "%n%s{0}",
    "-a = +-+-1e999", "a LIKE '" + "%_" * 50 + "' ESCAPE '%'",
)  # fmt: skip
SELECTORS: Final = (
    "a = 1",
    "JMSPriority > 3",
    "a LIKE 'x%'",
    "a IN ('1', '2')",
    "a IS NULL",
    "TRUE",
    "a = ",
    "JMSXGroupID = 'g'",
)
_EDGES: Final = (
    0,
    0,
    1,
    1,
    2,
    -1,
    -2,
    3,
    7,
    127,
    128,
    255,
    32_767,
    65_536,
    (1 << 31) - 1,
    -(1 << 31),
    1 << 40,
    -(1 << 63),
    (1 << 63) - 1,
)
_BITS: Final[Mapping[FieldKind, int]] = {FieldKind.BYTE: 8, FieldKind.INT: 32, FieldKind.LONG: 64}
_NAMES_OF_PROPERTIES: Final = (
    "a", "b", "JMSXGroupID", "JMSXGroupSeq", "AMQ_SCHEDULED_DELAY", "AMQ_SCHEDULED_PERIOD", "AMQ_SCHEDULED_REPEAT",
    "AMQ_SCHEDULED_CRON", "AMQ_SCHEDULER_ACTION", "AMQ_SCHEDULER_ACTION_START_TIME", "ActiveMQ.Retain",
    "scheduledJobId", "dlqDeliveryFailureCause", "JMSXUserID", "", "x" * 200,
)  # fmt: skip
_CLASSES: Final = (
    "java.lang.SecurityException", "org.springframework.context.support.ClassPathXmlApplicationContext",
    "os.system", None,
)  # fmt: skip
_DEPTH: Final = 3
_UNUSUAL: Final = 0.15
"""The share of fields that have any value of their type."""
_COMMANDS: Final = tuple(kind for kind in wire.RECORDS if issubclass(kind, wire.BaseCommand))
_FREQUENT: Final = (
    wire.ActiveMQTextMessage, wire.ActiveMQMapMessage, wire.MessageAck, wire.TransactionInfo, wire.ConsumerInfo,
    wire.RemoveInfo, wire.MessagePull, wire.DestinationInfo, wire.SessionInfo, wire.ProducerInfo, wire.ConsumerControl,
    wire.RemoveSubscriptionInfo, wire.ConnectionInfo,
)  # fmt: skip


class Values:
    """Makes values for one conversation.

    Attributes:
        connection_id: the conversation's connection.
    """

    def __init__(self, dice: Random, connection_id: str, neighbour: str, login: tuple[str | None, str | None]) -> None:
        """Begin a conversation.

        Args:
            dice: all choices.
            connection_id: of the conversation.
            neighbour: of another one, whose ids are used now and then.
            login: user and password.
        """
        self._dice = dice
        self.connection_id = connection_id
        self._neighbour = neighbour
        self._login = login
        self._special: dict[type, Callable[[], Any]] = {
            LocalTransactionId: self._local,
            XATransactionId: self._xa,
            wire.ConnectionId: lambda: wire.ConnectionId(self._connection()),
            wire.SessionId: lambda: wire.SessionId(self._connection(), self._small()),
            wire.ConsumerId: lambda: wire.ConsumerId(self._connection(), 1, self._small()),
            wire.ProducerId: lambda: wire.ProducerId(self._connection(), 1, 1),
            wire.OpenWireMessageId: self._message_id,
        }

    def command(self, version: int) -> Any:
        """Return a command that a version has."""
        dice = self._dice
        kind = dice.choice(_FREQUENT if dice.random() < 0.75 else _COMMANDS)
        layout = LAYOUTS[kind.DATA_TYPE]
        if layout.since > version:
            layout = LAYOUTS[wire.ActiveMQMessage.DATA_TYPE]
        return self.structure(layout, version, _DEPTH)

    def structure(self, layout: Layout, version: int, depth: int) -> Any:
        """Return a structure of a data type."""
        kind = layout.types[0]
        if kind is Destination:
            return Destination(DESTINATION_TYPES[layout.data_type], self._dice.choice(NAMES))
        if kind in self._special:
            return self._special[kind]()
        fields = {name: self._field(name, spec, version, depth) for name, spec in layout.fields_in(version)}
        return kind(**fields)

    def destination(self) -> Destination:
        """Return a destination."""
        dice = self._dice
        chance = dice.random()
        if chance < 0.5:
            return Destination(DestinationType.QUEUE, QUEUE)
        if chance < 0.6:
            return Destination(DestinationType.TOPIC, TOPIC)
        kind = dice.choice(tuple(DestinationType))
        if kind in (DestinationType.TEMP_QUEUE, DestinationType.TEMP_TOPIC):
            return Destination(kind, f"{self._connection()}:{dice.randint(1, 2)}")
        return Destination(kind, dice.choice(NAMES))

    def properties(self) -> bytes | None:
        """Return encoded properties of a message."""
        dice = self._dice
        chance = dice.random()
        if chance < 0.5:
            return None
        if chance < 0.6:
            return dice.randbytes(dice.randint(0, 40))
        names = dice.sample(_NAMES_OF_PROPERTIES, dice.randint(0, 4))
        return encode_map({name: self._value(2) for name in names})

    # ------------------------------------------------------------ fields

    def _field(self, name: str, spec: Spec, version: int, depth: int) -> Any:
        dice = self._dice
        usual = _USUAL.get(name)
        if usual is not None and dice.random() > _UNUSUAL:
            return usual(self)
        match spec.kind:
            case FieldKind.BOOLEAN:
                return dice.random() < 0.5
            case FieldKind.STRING:
                return self.text()
            case FieldKind.BYTES:
                return None if dice.random() < 0.3 else dice.randbytes(dice.randint(0, 60))
            case FieldKind.FIXED_BYTES:
                return dice.randbytes(spec.size)
            case FieldKind.OBJECT:
                return self._nested(spec, version, depth)
            case FieldKind.ARRAY:
                count = 0 if depth <= 0 else dice.choice((0, 1, 2, 5))
                return None if dice.random() < 0.5 else tuple(self._nested(spec, version, depth) for _ in range(count))
            case FieldKind.THROWABLE:
                return (
                    None
                    if dice.random() < 0.3
                    else wire.Throwable(class_name=dice.choice(_CLASSES), message=self.text())
                )
            case kind:
                return self._number(_BITS[kind])

    def text(self) -> str | None:
        """Return a string or null."""
        return self._dice.choice(TEXTS)

    def _nested(self, spec: Spec, version: int, depth: int) -> Any:
        dice = self._dice
        if depth <= 0 or dice.random() < 0.1:
            return None
        if spec.types == (Destination,):
            return self.destination()
        layouts = [
            layout
            for layout in LAYOUTS.values()
            if layout.since <= version and (not spec.types or _is_one_of(layout.types, spec.types))
        ]
        return self.structure(dice.choice(layouts), version, depth - 1) if layouts else None

    def _number(self, bits: int) -> int:
        dice = self._dice
        limit = 1 << (bits - 1)
        number = dice.choice(_EDGES) if dice.random() < 0.8 else dice.randrange(-limit, limit)
        return max(-limit, min(limit - 1, number))

    def _small(self) -> int:
        return self._dice.choice((1, 1, 1, 1, 2, 3, -1, 0, 1 << 62))

    def _connection(self) -> str | None:
        return self._dice.choice((self.connection_id,) * 12 + (self._neighbour, None, "", "never"))

    def _message_id(self) -> Any:
        producer = wire.ProducerId(self._connection(), 1, 1)
        return wire.OpenWireMessageId(None, producer, self._dice.randint(1, 30), self._small())

    def _local(self) -> Any:
        connection = self._connection()
        return LocalTransactionId(connection or "", self._dice.randint(1, 3))

    def _xa(self) -> Any:
        return XATransactionId(1, f"{self._connection()}".encode(), bytes((self._dice.randint(1, 2),)))

    def _value(self, levels: int) -> Value:
        dice = self._dice
        choices: list[Callable[[], Value]] = [
            lambda: dice.randint(-5, 5), lambda: "x", lambda: str(dice.randint(0, 100)), lambda: None,
            lambda: b"\0\xff", lambda: dice.random(), lambda: dice.random() < 0.5,
            lambda: "*/5 * * * *", lambda: "BROWSE",
        ]  # fmt: skip
        if levels:
            choices += [lambda: [self._value(levels - 1) for _ in range(3)], lambda: {"k": self._value(levels - 1)}]
        return dice.choice(choices)()

    def content(self) -> bytes | None:
        """Return a body."""
        dice = self._dice
        body = dice.choice((None, b"", encode_text("hello"), encode_map({"a": self._value(2)}), b"\xac\xed\0\5t\0\1x"))
        if body is not None and dice.random() < 0.1:
            return zlib.compress(body * dice.choice((1, 1_000)))
        return body

    def user(self) -> str | None:
        """Return the user's name, or another."""
        return self._login[0] if self._dice.random() < 0.8 else self.text()

    def password(self) -> str | None:
        """Return the password, or another."""
        return self._login[1] if self._dice.random() < 0.8 else self.text()

    def choose(self, *choices: Any) -> Any:
        """Return one of them."""
        return self._dice.choice(choices)


_USUAL: Final[Mapping[str, Callable[[Values], Any]]] = {
    "command_id": lambda values: values.choose(*range(1, 100)),
    "response_required": lambda values: values.choose(True, True, False),
    "marshalled_properties": Values.properties,
    "content": Values.content,
    "compressed": lambda values: values.choose(False, False, False, True),
    "selector": lambda values: values.choose(None, None, *SELECTORS),
    "prefetch_size": lambda values: values.choose(0, 1, 10, 1000),
    "priority": lambda values: values.choose(0, 4, 9),
    "transaction_id": lambda values: values.choose(None, values._local(), values._xa()),
    "message_count": lambda values: values.choose(1, 1, 2, 5),
    "ack_type": lambda values: values.choose(*wire.AckType),
    "type": lambda values: values.choose(*wire.TransactionType),
    "operation_type": lambda values: values.choose(0, 0, 1),
    "expiration": lambda values: values.choose(0, 0, 1, 1 << 60),
    "subscription_name": lambda values: values.choose(None, None, "s"),
    "client_id": lambda values: values.choose(None, values.connection_id),
    "user_name": Values.user,
    "password": Values.password,
    "browser": lambda values: values.choose(False, False, False, True),
    "original_destination": lambda values: None,
    "data_structure": lambda values: None,
    "timeout": lambda values: values.choose(-1, 0, 1, 10),
    "close": lambda values: values.choose(False, False, False, True),
    "reply_to": lambda values: values.choose(None, values.destination()),
    "broker_path": lambda values: None,
    "cluster": lambda values: None,
    "network_consumer_path": lambda values: None,
    "target_consumer_id": lambda values: None,
    "group_id": lambda values: values.choose(None, None, "g"),
    "group_sequence": lambda values: values.choose(0, 1, -1),
}
"""What fields usually have, by name."""


def _is_one_of(types: tuple[type, ...], wanted: tuple[type | str, ...]) -> bool:
    return any(kind in wanted or kind.__name__ in wanted for kind in types)
