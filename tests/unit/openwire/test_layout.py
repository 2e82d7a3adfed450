"""The table of fields, and that every reader and writer of stored bytes follows its order.

The codec that is compiled from the declarations writes messages in each of which one field is set, or all are. What
the hand-written shortcuts make of those is compared with it, by the fields' names.
"""

import itertools
from dataclasses import fields, replace
from typing import Any

import pytest

from pybroker.broker.domain.destination import Destination, queue, topic
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire import layout
from pybroker.broker.domain.openwire.commands import (
    ActiveMQBlobMessage,
    ActiveMQMessage,
    ActiveMQTextMessage,
    BaseCommand,
    BrokerId,
    ConsumerId,
    KeepAliveInfo,
    MessageAck,
    MessageDispatch,
    OpenWireMessageId,
    ProducerId,
    Response,
)
from pybroker.broker.domain.openwire.heads import MessageHead, place, read_head
from pybroker.broker.domain.openwire.loose import Reader
from pybroker.broker.domain.openwire.marshal.layouts import LAYOUTS
from pybroker.broker.domain.openwire.marshal.schema import VERSION_MAX
from pybroker.broker.domain.openwire.marshal.transcode import STORE, from_store, stored
from pybroker.broker.domain.openwire.message import MessageType, OpenWireMessage, decode, encode, to_message
from pybroker.broker.domain.openwire.prefix_cache import PrefixCache
from pybroker.broker.domain.openwire.rerouting import Rerouting, unread
from pybroker.broker.domain.openwire.routing import routing
from pybroker.broker.domain.openwire.spotting import may_have
from pybroker.broker.domain.openwire.template import MessageTemplate
from pybroker.broker.domain.openwire.values import encode_map
from pybroker.broker.domain.transaction import LocalTransactionId, XATransactionId
from pybroker.store.jdbc.stamp import stamped
from pybroker.transports.openwire.arrivals import Arrivals

PRODUCER = ProducerId("ID:p", 2, 3)
ADVISED = KeepAliveInfo(command_id=5)
VALUES: dict[str, Any] = {
    "command_id": 0x01020304,
    "response_required": True,
    "producer_id": PRODUCER,
    "destination": queue("Q.1"),
    "transaction_id": LocalTransactionId("ID:t", 4),
    "original_destination": topic("T.1"),
    "message_id": OpenWireMessageId(None, PRODUCER, 5, 6),
    "original_transaction_id": XATransactionId(1, b"g", b"b"),
    "group_id": "group",
    "group_sequence": 7,
    "correlation_id": "correlation",
    "persistent": True,
    "expiration": 8,
    "priority": 9,
    "reply_to": queue("R"),
    "timestamp": 10,
    "jms_type": "type",
    "content": b"\0\0\0\2hi",
    "marshalled_properties": encode_map({"name": "value"}),
    "data_structure": ADVISED,
    "target_consumer_id": ConsumerId("ID:c", 1, 2),
    "compressed": True,
    "redelivery_counter": 11,
    "broker_path": (BrokerId("a"), BrokerId("b")),
    "arrival": 12,
    "user_id": "user",
    "received_by_bridge": True,
    "droppable": True,
    "cluster": (BrokerId("c"),),
    "broker_in_time": 13,
    "broker_out_time": 14,
    "group_first_for_consumer": True,
    "remote_blob_url": "http://b",
    "mime_type": "text/plain",
    "deleted_by_broker": True,
}
NEEDED = {name: VALUES[name] for name in ("producer_id", "destination", "message_id")}
"""Fields that routing needs."""
BLOBS_OWN = ("remote_blob_url", "mime_type", "deleted_by_broker")


def made(*names: str) -> ActiveMQMessage:
    kind = ActiveMQBlobMessage if set(names) & set(BLOBS_OWN) else ActiveMQTextMessage
    return kind(**NEEDED | {name: VALUES[name] for name in names})


MESSAGES = {
    **{name: made(name) for name in VALUES},
    "none": made(),
    "all": made(*(name for name in VALUES if name not in BLOBS_OWN)),
    "all of a blob": made(*VALUES),
}
each_message = pytest.mark.parametrize("message", [pytest.param(each, id=name) for name, each in MESSAGES.items()])


def shown(value: object) -> object:
    """A field's value as the broker's own class has it, which has some in the store's form."""
    if isinstance(value, KeepAliveInfo):
        return STORE.encode(value)
    if isinstance(value, tuple) and value and isinstance(value[0], BrokerId):
        return tuple(each.value for each in value)
    return value


def decoded(message: ActiveMQMessage) -> OpenWireMessage:
    """The message in the broker's own class, field by field."""
    found = {each.name: shown(getattr(message, each.name)) for each in fields(message)}
    return OpenWireMessage(type=MessageType(message.DATA_TYPE), **found)  # type: ignore[arg-type]


def same(found: Message, expected: Message) -> bool:
    return all(getattr(found, each.name) == getattr(expected, each.name) for each in fields(Message)[:-1])


def test_the_table_has_the_fields_that_are_declared() -> None:
    assert layout.BLOB.names("command_id") == list(VALUES)
    assert layout.MESSAGE.names("command_id") == [name for name in VALUES if name not in BLOBS_OWN]
    assert set(VALUES) == {each.name for each in fields(OpenWireMessage) if each.init} - {"type"}
    assert list(MessageHead._fields) == layout.MESSAGE.names("producer_id", "message_id")


@pytest.mark.parametrize("data_type", [each for each, one in LAYOUTS.items() if one.build is None and each != 1])
def test_a_record_without_values_is_as_long_as_its_run(data_type: int) -> None:
    """The widths are those of the codec, and a nullable field is a flag."""
    one = LAYOUTS[data_type]
    if one.since <= layout.STORED_VERSION:
        table = layout.FieldTable(one)
        run = table.run(next(iter(table.fields))) if table.fields else ""
        assert len(STORE.encode(one.types[0]())) == 1 + layout.packed(run).size


@pytest.mark.parametrize("command", [MessageDispatch, MessageAck, Response])
def test_newest_version_of_fast_path_commands_is_the_stored_one(command: type[BaseCommand]) -> None:
    """The transport reads and writes them without the codec, alike for every peer with the stored form of messages."""
    one = LAYOUTS[command.DATA_TYPE]
    assert one.fields_in(VERSION_MAX) == one.fields_in(layout.STORED_VERSION)


@each_message
def test_the_full_reader_and_writer_keep_to_it(message: ActiveMQMessage) -> None:
    data = stored(message)
    assert decode(data) == decoded(message)
    assert encode(decoded(message)) == data


@each_message
def test_readers_for_routing_keep_to_it(message: ActiveMQMessage) -> None:
    data = stored(message)
    expected = to_message(decoded(message))
    assert same(routing(data), expected)
    cache = PrefixCache()
    for _ in range(2):
        assert same(cache.route(data, expected.message_id), expected)


@each_message
def test_a_connection_keeps_to_it(message: ActiveMQMessage) -> None:
    arrivals = Arrivals(itertools.count(77).__next__)
    chunk = b"size" + stored(message)
    for number in (77, 78):
        arrived, producer, sequence, transaction = arrivals.read(chunk, 4, len(chunk))
        numbered = replace(message, message_id=OpenWireMessageId(None, PRODUCER, 5, number))
        assert same(arrived, to_message(decoded(numbered)))
        assert (producer, sequence, transaction) == (PRODUCER, 5, message.transaction_id)


@each_message
def test_what_cuts_and_pastes_keeps_to_it(message: ActiveMQMessage) -> None:
    data = stored(message)
    other = queue("OTHER")
    routed = routing(data)
    copy = Rerouting(routed).copy(other, topic("SENT"))
    assert copy.data == stored(replace(message, destination=other, original_destination=topic("SENT")))
    late = unread(routed, other, 99)
    sent: dict[str, Any] = {"destination": other, "original_destination": message.destination, "expiration": 99}
    assert late.data == stored(replace(message, **sent))
    branch = XATransactionId(9, b"x", b"y")
    assert stamped(data, branch) == stored(replace(message, transaction_id=branch))


@each_message
def test_the_head_is_where_the_table_places_it(message: ActiveMQMessage) -> None:
    data = stored(message)
    head = read_head(Reader(data, layout.BODY_AT))
    for name in MessageHead._fields:
        value = getattr(message, name)
        assert getattr(head, name) == value
        begin, end = place(data, name)
        assert data[begin:end] == (b"\0" if value is None else b"\1" + STORE.encode(value))


@each_message
def test_properties_are_found_where_the_table_places_them(message: ActiveMQMessage) -> None:
    message = replace(message, content=b"name")
    searched = message.marshalled_properties is not None
    usual = all(getattr(message, name) is None for name in ("data_structure", "target_consumer_id", "user_id"))
    usual = usual and message.broker_path is None and message.cluster is None and message.DATA_TYPE != 29
    found = routing(stored(message))
    assert may_have(found, b"name") is (searched or not usual)


TEMPLATES = ("content", "expiration", "correlation_id", "reply_to", "jms_type", "group_id", "transaction_id")


@pytest.mark.parametrize(
    "name", [*TEMPLATES, "marshalled_properties", "broker_in_time", "user_id", "redelivery_counter"]
)
def test_a_template_keeps_to_it(name: str) -> None:
    template = MessageTemplate(PRODUCER, Destination(*NEEDED["destination"]))
    has_properties = name == "marshalled_properties"
    given = {} if has_properties or name == "content" else {name: VALUES[name]}
    built = template.build(
        type=MessageType.TEXT, sequence=5, broker_sequence=6, content=VALUES["content"], persistent=True, timestamp=10,
        priority=9, group_sequence=7, properties={"name": "value"} if has_properties else {}, **given,
    )  # fmt: skip
    expected = made("content", "persistent", "timestamp", "priority", "group_sequence", name)
    assert from_store(built.data) == expected
    assert built.data == stored(expected)
