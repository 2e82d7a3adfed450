"""Journals made by hand: data files from commands, and messages to put into them."""

from collections.abc import Sequence
from pathlib import Path

from pybroker.broker.domain.destination import Destination, queue, topic
from pybroker.broker.domain.openwire.body import encode_text
from pybroker.broker.domain.openwire.message import MessageType, OpenWireMessage, OpenWireMessageId, ProducerId, encode
from pybroker.broker.domain.openwire.objects import encode_subscription_info
from pybroker.broker.domain.subscription import DurableSubscription
from pybroker.broker.domain.transaction import TransactionId
from pybroker.store.journal.commands import AddMessage, Command, RemoveMessage, Subscribe
from pybroker.store.journal.commands import encode as encode_command
from pybroker.store.journal.format import EOF_MARKER, data_file_name, encode_batch, encode_record

PRODUCER = ProducerId("ID:test-40001-1700000000000-3:1", 1, 1)
QUEUE, OTHER, TOPIC = queue("Q"), queue("OTHER"), topic("T")


def message_id(number: int) -> str:
    return f"{PRODUCER}:{number}"


def add(
    number: int,
    destination: Destination = QUEUE,
    *,
    text: str = "",
    body: bytes | None = None,
    transaction: TransactionId | None = None,
    priority: int | None = None,
) -> AddMessage:
    fields = OpenWireMessage(
        type=MessageType.TEXT if body is None else MessageType.BYTES,
        content=body,
        producer_id=PRODUCER,
        destination=destination,
        message_id=OpenWireMessageId(None, PRODUCER, number),
        persistent=True,
        priority=4 if priority is None else priority,
    )
    if body is None:
        fields.content = encode_text(text or f"text {number}")
    return AddMessage(
        destination, message_id(number), encode(fields), fields.priority, priority is not None, transaction
    )


def ack(number: int, destination: Destination = QUEUE, *, key: str | None = None, **more: object) -> RemoveMessage:
    return RemoveMessage(destination, message_id(number), subscription_key=key, **more)  # type: ignore[arg-type]


def subscribe(name: str, destination: Destination = TOPIC) -> Subscribe:
    terms = DurableSubscription(
        client_id="client", name=name, destination=destination, subscribed_destination=destination
    )
    return Subscribe(destination, terms.key, encode_subscription_info(terms))


def batch(*commands: Command | bytes, checksum: bool = True) -> bytes:
    payloads = [each if isinstance(each, bytes) else encode_command(each) for each in commands]
    return encode_batch([encode_record(payload) for payload in payloads], checksum=checksum)


def write(directory: Path, *files: Sequence[Command | bytes], first: int = 1, marker: bytes = EOF_MARKER) -> Path:
    """Write one data file per sequence, one batch per command."""
    directory.mkdir(parents=True, exist_ok=True)
    for file_id, commands in enumerate(files, first):
        data = b"".join(batch(command) for command in commands) + marker
        (directory / data_file_name(file_id)).write_bytes(data)
    return directory
