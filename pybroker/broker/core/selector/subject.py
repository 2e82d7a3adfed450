"""The message that selectors are evaluated on: its header fields, and the properties that were asked for.

A message is often offered to one consumer after another, so the last one is kept, and no other: what waits for a
consumer takes no memory for what a selector has decoded of it.
"""

from typing import Final

from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.message import OpenWireMessage, decode
from pybroker.broker.domain.openwire.property_index import PropertyIndex

_PLAIN_TYPES: Final[frozenset[type]] = frozenset((int, str, float, bool, type(None)))


class Subject:
    """A message as selectors see it.

    Attributes:
        fields: its header fields.
        found: values of properties that were asked for, in Python's own types.
        redelivery_count: earlier deliveries.
    """

    __slots__ = ("_index", "fields", "found", "redelivery_count")

    def __init__(self, fields: OpenWireMessage) -> None:
        self.fields = fields
        self.found: dict[str, object] = {}
        self.redelivery_count = fields.redelivery_counter
        self._index: PropertyIndex | None = None

    def find(self, name: str) -> object:
        """Return the value of a property, and put it into `found`.

        Raises:
            MalformedOpenWire: the properties do not decode.
        """
        if self._index is None:
            self._index = PropertyIndex(self.fields.marshalled_properties or b"")
        value = self._index.get(name)
        found = self.found[name] = value if type(value) in _PLAIN_TYPES else _plain(value)
        return found


class SubjectCache:
    """Keeps the subject of the last message."""

    __slots__ = ("_data", "_subject")

    def __init__(self) -> None:
        self._data: bytes | None = None
        self._subject: Subject | None = None

    def get(self, message: Message, redelivery_count: int) -> Subject:
        """Return the subject of a message, which is valid until the next call.

        Args:
            message: the message.
            redelivery_count: the broker's count of earlier deliveries; 0: that of the message itself.

        Raises:
            MalformedOpenWire: the message does not decode.
        """
        data = message.data
        subject = self._subject
        if subject is None or self._data is not data:
            fields = message.decoded
            if not isinstance(fields, OpenWireMessage):
                fields = decode(data, with_content=False)
            subject = self._subject = Subject(fields)
            self._data = data
        subject.redelivery_count = redelivery_count or subject.fields.redelivery_counter
        return subject

    def clear(self) -> None:
        """Forget the message."""
        self._data = self._subject = None


def _plain(value: object) -> object:
    """Return a number or text of a Java type as Python's own type; return bytes, lists and maps unchanged."""
    for kind in (int, float, str):
        if isinstance(value, kind):
            return kind(value)
    return value
