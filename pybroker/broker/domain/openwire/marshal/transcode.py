"""Messages between a peer's form and the store's, which is version 11, loose and uncached.

Versions fall into four classes within which a message has one layout: {1}, {2}, {3 to 9}, {10 to 12}. A peer that
speaks the last one loose and uncached has the store's very bytes; for every other the message is decoded there and
encoded here.

Source: OpenWire, `Message`, wire versions 1 to 12.
"""

from io import SEEK_END, BytesIO
from typing import Final

from pybroker.broker.domain.openwire.commands import ActiveMQMessage
from pybroker.broker.domain.openwire.ids import MESSAGE_ID
from pybroker.broker.domain.openwire.layout import BLOB_TYPE, STORED_VERSION
from pybroker.broker.domain.openwire.loose import MalformedOpenWire
from pybroker.broker.domain.openwire.marshal.codec import WireFormat
from pybroker.broker.domain.openwire.marshal.layouts import LAYOUTS

STORE: Final = WireFormat(STORED_VERSION, stack_traces=True)
"""The form in which messages are kept."""

_LAYOUT_CLASS_STARTS = {spec.since for data_type in (BLOB_TYPE, MESSAGE_ID) for _, spec in LAYOUTS[data_type].fields}
"""The versions in which fields were added to messages or their ids."""


def layout_class(version: int) -> int:
    """Return the lowest version in which messages have the layout that they have in this one."""
    return max(start for start in _LAYOUT_CLASS_STARTS if start <= version)


def is_verbatim(wire: WireFormat) -> bool:
    """Return True if a peer's message frames are, byte for byte, what the store keeps."""
    return not wire.tight and not wire.cache_size and layout_class(wire.version) == layout_class(STORE.version)


def stored(message: ActiveMQMessage) -> bytes:
    """Return the store's bytes of a message.

    Raises:
        UnencodableOpenWire: a number is out of its range or a string too long, which no decoded message's is.
    """
    return STORE.encode(message)


def stored_in_place(message: ActiveMQMessage, frame: BytesIO, start: int) -> bytes:
    """Return the store's bytes of a large message in the memory of the frame that it was decoded from.

    To move the content by a few bytes takes a tenth of the time of a copy, for which the system clears new memory.

    Args:
        message: of `WireFormat.decode_large`; its content is None afterwards.
        frame: its frame, which is of no use afterwards.
        start: where the content begins in it.

    Raises:
        UnencodableOpenWire: as `stored`.
    """
    head, content, tail = STORE.encode_pieces(message)
    length, end = len(content), len(head) + len(content)
    message.content = None
    del content  # with the last reference to the frame's bytes, which would be copied otherwise
    frame.seek(0, SEEK_END)
    if (missing := end + len(tail) - frame.tell()) > 0:
        frame.write(bytes(missing))
    with frame.getbuffer() as buffer:
        buffer[len(head) : end] = buffer[start : start + length]
        buffer[: len(head)] = head
        buffer[end : end + len(tail)] = tail
    frame.truncate(end + len(tail))
    return frame.getvalue()


def from_store(data: bytes) -> ActiveMQMessage:
    """Return the message that the store's bytes are; a large content is a view of them.

    Raises:
        MalformedOpenWire: they do not decode, or are no message.
    """
    return _checked(STORE.decode(data, with_views=True))


def _checked(value: object) -> ActiveMQMessage:
    if not isinstance(value, ActiveMQMessage):
        raise MalformedOpenWire(f"{type(value).__name__} where a message belongs")
    return value
