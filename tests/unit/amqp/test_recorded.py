"""Messages of qpid-proton are delivered as ActiveMQ 5.17.2 delivered them in the captures of tests/golden/amqp."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pybroker.broker.domain.amqp.frames import AmqpFrame, AmqpFrameDecoder, AmqpLimits
from pybroker.broker.domain.amqp.performatives import AmqpTransfer
from pybroker.broker.domain.amqp.sections import decode_message
from pybroker.broker.domain.destination import Destination, DestinationType, queue
from pybroker.transports.amqp.inbound import AmqpTransformer, TransferReader
from pybroker.transports.amqp.outbound import TransferWriter

GOLDEN = Path(__file__).parents[2] / "golden" / "amqp"


def transfers(name: str, direction: str) -> Iterator[bytes]:
    """Yield the payloads that a client ("C") or ActiveMQ ("S") sent in a recorded conversation."""
    decoder = AmqpFrameDecoder(AmqpLimits())
    for event in json.loads((GOLDEN / f"{name}.json").read_text())["events"]:
        if event.get("dir") == direction:
            for seen in decoder.feed(bytes.fromhex(event["hex"])):
                if isinstance(seen, AmqpFrame) and isinstance(seen.performative, AmqpTransfer):
                    yield bytes(seen.payload)


def delivered(
    payloads: Iterator[bytes], transformer: AmqpTransformer, connection_id: str, destination: Destination | None
) -> Iterator[bytes]:
    reader = TransferReader(connection_id, lambda: 0, lambda: 0, transformer, producer_value=0, session_id=0)
    writer = TransferWriter(lambda: 0, body_bytes_max=1 << 20)
    for payload in payloads:
        yield writer.render(reader.read(payload, 0, destination), 0).payload


CONVERSATIONS = [
    pytest.param("01-send", "02-receive", "7:15", queue("v1"), 2, id="queue"),
    pytest.param("06-dynamic-anonymous", "06-dynamic-anonymous", "7:22", None, 1, id="anonymous relay"),
]


@pytest.mark.parametrize(("sent", "received", "connection", "destination", "count"), CONVERSATIONS)
def test_recorded_messages_are_delivered_as_by_activemq(
    sent: str, received: str, connection: str, destination: Destination | None, count: int
) -> None:
    connection_id = f"ID:vm-33877-1795364227485-{connection}"

    ours = list(delivered(transfers(sent, "C"), AmqpTransformer.JMS, connection_id, destination))

    theirs = list(transfers(received, "S"))
    assert [decode_message(each) for each in ours] == [decode_message(each) for each in theirs]
    assert len(ours) == count


def test_recorded_relay_goes_to_the_temporary_queue() -> None:
    (payload,) = transfers("06-dynamic-anonymous", "C")
    reader = TransferReader("ID:c", lambda: 0, lambda: 0, AmqpTransformer.JMS, producer_value=0)

    message = reader.read(payload, 0, None)

    assert message.destination == Destination(DestinationType.TEMP_QUEUE, "ID:vm-33877-1795364227485-7:22:0")


@pytest.mark.parametrize("transformer", [AmqpTransformer.NATIVE, AmqpTransformer.RAW])
def test_recorded_messages_come_back_bit_by_bit(transformer: AmqpTransformer) -> None:
    sent = list(transfers("07-native", "C"))

    assert list(delivered(iter(sent), transformer, "ID:c", queue("v1"))) == sent
    assert len(sent) == 2
