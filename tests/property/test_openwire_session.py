# mypy: disable-error-code="arg-type"
"""Properties of an OpenWire session: the short way in reads what the codec reads, and no bytes whatever upset it."""

import dataclasses
import random
import struct
from itertools import count, pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pybroker.broker.domain.destination import Destination, DestinationType
from pybroker.broker.domain.openwire.commands import (
    ActiveMQBlobMessage,
    ActiveMQBytesMessage,
    ActiveMQMessage,
    ActiveMQTextMessage,
    BrokerId,
    ConnectionId,
    ConnectionInfo,
    ConsumerId,
    ConsumerInfo,
    MessageAck,
    MessagePull,
    OpenWireMessageId,
    ProducerId,
    ProducerInfo,
    SessionId,
    SessionInfo,
    TransactionInfo,
)
from pybroker.broker.domain.openwire.marshal.codec import WireFormat
from pybroker.broker.domain.openwire.marshal.transcode import stored
from pybroker.broker.domain.openwire.marshal.wireformat import Offer, broker_offer, encode_offer
from pybroker.broker.domain.openwire.routing import routing
from pybroker.broker.domain.transaction import LocalTransactionId, XATransactionId
from pybroker.transports.openwire.arrivals import Acknowledgements, Arrivals
from pybroker.transports.openwire.states import OpenWireState
from tests.unit.transports.openwire.conversation import JAVA, OpenWireClient, World, split
from tests.unit.transports.openwire.conversation import settings as of_broker

CAPTURES = Path(__file__).parent.parent / "golden" / "openwire" / "captures"
WIRE_FILES = Path(__file__).parent.parent / "golden" / "openwire" / "wire"
WIRE = WireFormat(12)

# ---------------------------------------------------------------- messages of every shape

int64s = st.integers(-(1 << 63), (1 << 63) - 1)
int32s = st.integers(-(1 << 31), (1 << 31) - 1)
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8).filter(
    lambda name: name == name.strip() and "?" not in name
)
strings = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
payloads = st.none() | st.binary(max_size=40)
destinations = st.builds(Destination, st.sampled_from(DestinationType), names)
connection_ids = st.sampled_from(["ID:c1", "ID:c2:1", "x"])
producer_ids = st.builds(ProducerId, connection_ids, st.integers(-1, 3), st.integers(0, 3))
message_ids = st.builds(OpenWireMessageId, st.none() | st.none() | strings, producer_ids, int64s, int64s)
transactions = st.none() | st.one_of(
    st.builds(LocalTransactionId, connection_ids, int64s),
    st.builds(XATransactionId, int32s, st.binary(max_size=5), st.binary(max_size=5)),
)
broker_paths = st.none() | st.lists(st.builds(BrokerId, st.text(max_size=3)), max_size=3).map(tuple)

REQUIRED = {
    "command_id": int32s,
    "response_required": st.booleans(),
    "producer_id": producer_ids,
    "destination": destinations,
    "message_id": message_ids,
    "persistent": st.booleans(),
    "priority": st.integers(-128, 127),
    "content": payloads,
    "marshalled_properties": payloads,
}
OPTIONAL = {
    "transaction_id": transactions,
    "original_destination": st.none() | destinations,
    "original_transaction_id": transactions,
    "group_id": strings,
    "group_sequence": int32s,
    "correlation_id": strings,
    "expiration": int64s,
    "reply_to": st.none() | destinations,
    "timestamp": int64s,
    "jms_type": strings,
    "data_structure": st.none() | st.builds(SessionId, connection_ids, st.integers(0, 9)),
    "target_consumer_id": st.none() | st.builds(ConsumerId, connection_ids, st.integers(0, 9), st.integers(0, 9)),
    "compressed": st.booleans(),
    "redelivery_counter": int32s,
    "broker_path": broker_paths,
    "arrival": int64s,
    "user_id": strings,
    "received_by_bridge": st.booleans(),
    "droppable": st.booleans(),
    "cluster": broker_paths,
    "broker_in_time": int64s,
    "broker_out_time": int64s,
    "group_first_for_consumer": st.booleans(),
}
messages = st.sampled_from([ActiveMQMessage, ActiveMQTextMessage, ActiveMQBytesMessage]).flatmap(
    lambda kind: st.fixed_dictionaries(REQUIRED, optional=OPTIONAL).map(lambda fields: kind(**fields))
) | st.fixed_dictionaries(
    REQUIRED | {"remote_blob_url": strings, "mime_type": strings, "deleted_by_broker": st.booleans()},
    optional=OPTIONAL,
).map(lambda fields: ActiveMQBlobMessage(**fields))


@given(st.lists(messages, min_size=1, max_size=8), st.integers(0, 5))
def test_short_way_reads_messages_as_the_long_way_does(sent: list[ActiveMQMessage], repeated: int) -> None:
    reader = Arrivals(count(1000).__next__, takes_foreign_ids=True)
    for number, message in enumerate(sent + sent[:repeated]):
        frame = WIRE.encode(message)
        arrived, *details = reader.read(b"\xff" * 3 + frame + b"\xff" * 3, 3, 3 + len(frame))
        assert message.message_id is not None
        numbered = message.message_id._replace(broker_sequence_id=1000 + number)
        long_way = routing(WIRE.encode(_with_id(message, numbered)))
        assert dataclasses.asdict(arrived) == dataclasses.asdict(long_way)
        assert details == [message.producer_id, numbered.producer_sequence_id, message.transaction_id]
        assert stored(_with_id(message, numbered)) == arrived.data


def _with_id(message: ActiveMQMessage, message_id: OpenWireMessageId) -> ActiveMQMessage:
    copy = WIRE.decode(WIRE.encode(message))
    assert isinstance(copy, ActiveMQMessage)
    copy.message_id = message_id
    return copy


acknowledgements = st.builds(
    MessageAck,
    command_id=int32s,
    response_required=st.booleans(),
    destination=st.none() | destinations,
    transaction_id=transactions,
    consumer_id=st.builds(ConsumerId, connection_ids, st.integers(0, 2), st.integers(0, 2)),
    ack_type=st.integers(-128, 127),
    first_message_id=st.none() | message_ids,
    last_message_id=st.none() | message_ids,
    message_count=int32s,
)


@given(st.lists(acknowledgements | acknowledgements.map(lambda ack: _of_one(ack)), min_size=1, max_size=8))
def test_short_way_reads_acknowledgements_as_the_codec_does(sent: list[MessageAck]) -> None:
    reader = Acknowledgements()
    for original in sent + sent:
        frame = WIRE.encode(original)
        ack = reader.read(b"\xff" * 3 + frame + b"\xff" * 3, 3, 3 + len(frame))
        assert ack is not None
        assert ack == (
            original.consumer_id,
            original.transaction_id,
            original.ack_type % 256,
            None if original.first_message_id is None else str(original.first_message_id),
            None if original.last_message_id is None else str(original.last_message_id),
            original.message_count,
            None,
        )


def _of_one(ack: MessageAck) -> MessageAck:
    ack.first_message_id = ack.last_message_id
    return ack


# ---------------------------------------------------------------- bytes of every kind


def frames_of_clients() -> list[bytes]:
    """Return frames, with their sizes, as clients have sent them and as the golden files hold them."""
    sources = [
        *(path.read_bytes() for path in sorted(CAPTURES.glob("*-c2s.bin"))),
        *((WIRE_FILES / f"{name}.bin").read_bytes() for name in ("v12-loose", "v10-loose", "v06-loose", "v12-tight")),
    ]
    frames = {frame for source in sources for frame in split(source) if len(frame) < 4096}
    return [struct.pack(">i", len(frame)) + frame for frame in sorted(frames)]


FRAMES = frames_of_clients()

HELLO = encode_offer(Offer(version=12))


def setting(wire: WireFormat = WIRE) -> bytes:
    """Return the beginning of a conversation that has a session, producers, consumers and a transaction."""
    name = "ID:fuzz"
    news, orders = Destination(DestinationType.TOPIC, "NEWS"), Destination(DestinationType.QUEUE, "TEST.SEND")
    producer = ProducerId(name, 1, 1)
    commands = [
        ConnectionInfo(connection_id=ConnectionId(name), client_id="fuzz"),
        SessionInfo(session_id=SessionId(name, 1)),
        ProducerInfo(producer_id=producer, window_size=1000),
        ConsumerInfo(consumer_id=ConsumerId(name, 1, 1), destination=orders, prefetch_size=3),
        ConsumerInfo(consumer_id=ConsumerId(name, 1, 2), destination=news, prefetch_size=3, selector="a = 'b'"),
        ConsumerInfo(consumer_id=ConsumerId(name, 1, 3), destination=orders, prefetch_size=0),
        TransactionInfo(connection_id=ConnectionId(name), transaction_id=LocalTransactionId(name, 1)),
        ActiveMQTextMessage(producer_id=producer, destination=orders, message_id=OpenWireMessageId(None, producer, 1)),
        MessagePull(consumer_id=ConsumerId(name, 1, 3), timeout=50),
    ]
    return b"".join(map(wire.encode_frame, commands))


def mutated(frame: bytes, chance: random.Random) -> bytes:
    """Return a frame with some bytes changed, taken out, or put in; mostly with a size that fits again."""
    data = bytearray(frame)
    for _ in range(chance.choice((0, 1, 1, 1, 2, 5))):
        at = chance.randrange(4, len(data) + 1)
        match chance.randrange(4):
            case 0 if at < len(data):
                data[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
            case 1:
                del data[at : at + chance.randrange(1, 9)]
            case 2:
                data[at:at] = chance.randbytes(chance.randrange(1, 9))
            case _ if at + 4 <= len(data):
                data[at : at + 4] = struct.pack(">i", chance.choice((-1, 0, 1, 65536, 1 << 30, -(1 << 31))))
            case _:
                del data[at:]
    if len(data) < 5:
        data += b"\x00"
    if chance.random() < 0.95:
        data[:4] = struct.pack(">i", len(data) - 4)
    return bytes(data)


def chunked(data: bytes, how: str, chance: random.Random) -> list[bytes]:
    if how == "whole":
        return [data]
    if how == "bytes":
        return [data[at : at + 1] for at in range(len(data))]
    cuts = sorted({0, len(data), *(chance.randrange(len(data) + 1) for _ in range(20))})
    return [data[start:end] for start, end in pairwise(cuts)]


def end_sanely(world: World, client: OpenWireClient, witness: OpenWireClient) -> None:
    """Have time pass and the connection end; nothing of it is left, and another client was not disturbed."""
    assert client.link.closed == (client.session.state is OpenWireState.CLOSED)
    client.wait(100)
    client.read_frames()
    client.session.written()
    client.session.lost()
    client.session.lost()
    assert client.session.state is OpenWireState.CLOSED
    assert all(each is witness.session for each in world.sessions.by_id.values())
    assert [each.client_id for each in world.broker.connections()] == ["witness"]
    assert not witness.link.closed
    destination = Destination(DestinationType.QUEUE, "WITNESS")
    witness.consume(destination)
    witness.send(destination, "still here")
    witness.session.lost()
    assert list(world.broker.connections()) == []
    for queue_ in world.broker.queues.values():
        assert not queue_.is_in_use


OFFERS = (
    (Offer(version=1), None),
    (Offer(version=6), None),
    (Offer(version=12), None),
    (JAVA, dataclasses.replace(broker_offer(), tight_encoding_enabled=True, cache_enabled=True, cache_size=1024)),
)


@settings(max_examples=80, deadline=None)
@given(st.randoms(use_true_random=False), st.sampled_from(["whole", "bytes", "random"]), st.sampled_from(OFFERS))
def test_mutated_frames_end_sanely(chance: random.Random, how: str, offers: tuple[Offer, Offer | None]) -> None:
    world = World()
    witness = world.client("witness")
    client = world.new_client(offer=offers[0], of_broker=of_broker(offers[1]), sends_offer=False)
    frames = [mutated(chance.choice(FRAMES), chance) for _ in range(12)]
    beginning = b"" if client.wire.version == 1 else setting(client.wire)
    data = encode_offer(offers[0]) + beginning + b"".join(frames)
    for chunk in chunked(data, how, chance):
        client.session.receive(chunk)
        if chance.random() < 0.1:
            client.session.written()
    end_sanely(world, client, witness)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=200), st.sampled_from([b"", HELLO, encode_offer(JAVA)]))
def test_random_bytes_end_sanely(data: bytes, beginning: bytes) -> None:
    world = World()
    witness = world.client("witness")
    client = world.new_client(sends_offer=False)
    client.session.receive(beginning + data)
    end_sanely(world, client, witness)


@pytest.mark.parametrize("index", range(0, len(FRAMES), max(1, len(FRAMES) // 40)))
def test_every_prefix_of_a_frame_waits_for_more_or_ends(index: int) -> None:
    world = World()
    witness = world.client("witness")
    for end in range(0, len(FRAMES[index]), 7):
        client = world.new_client(offer=Offer(version=12))
        client.session.receive(setting())
        short = FRAMES[index][4:end]
        client.session.receive(struct.pack(">i", len(short)) + short)
        client.session.lost()
    end_sanely(world, world.new_client(), witness)


@settings(max_examples=20, deadline=None)
@given(st.randoms(use_true_random=False))
def test_chunks_do_not_matter(chance: random.Random) -> None:
    """The same bytes in other chunks get the same answers."""
    outputs: list[bytes] = []
    frames = b"".join(mutated(chance.choice(FRAMES), random.Random(0)) for _ in range(3))
    for how in ("whole", "bytes", "random"):
        world = World()
        client = world.new_client(offer=Offer(version=12))
        for chunk in chunked(setting() + frames, how, chance):
            client.session.receive(chunk)
        outputs.append(b"".join(sorted(client.read_frames())))
        client.session.lost()
    assert outputs[0] == outputs[1] == outputs[2]
