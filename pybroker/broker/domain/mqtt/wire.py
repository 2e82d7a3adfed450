"""The values that packets consist of: integers, texts, binary data, and the variable byte integer.

Source: MQTT 5.0, 1.5 "Data representation"; MQTT 3.1.1, 1.5. All integers are big-endian.

```text
text, binary data        length (2 bytes)   bytes               a text is UTF-8 without NUL
variable byte integer    7 bits a byte, lowest first; 0x80 means that another byte follows; 4 bytes at most
```
"""

from typing import Final

from pybroker.broker.domain.mqtt.errors import malformed

VARIABLE_MAX: Final = 268_435_455
"""The greatest variable byte integer, and so the greatest remaining length of a packet."""

_TEXT_MAX: Final = 65_535


class PacketReader:
    """Reads the values of one packet, which is complete.

    Attributes:
        offset: where the next value begins.
        end: where the packet, or the part of it that is read, ends.
    """

    __slots__ = ("_data", "end", "offset")

    def __init__(self, data: bytes, offset: int, end: int) -> None:
        self._data = data
        self.offset = offset
        self.end = end

    @property
    def is_at_end(self) -> bool:
        """True if nothing is left."""
        return self.offset >= self.end

    def unsigned(self, size: int) -> int:
        """Read an integer of 1, 2 or 4 bytes.

        Raises:
            MqttProtocolError: the packet ends before.
        """
        return int.from_bytes(self.bytes(size), "big")

    def packet_id(self) -> int:
        """Read a packet identifier.

        Raises:
            MqttProtocolError: it is 0, or missing.
        """
        found = self.unsigned(2)
        if not found:
            raise malformed("The packet identifier is 0: choose one from 1 to 65535")
        return found

    def variable(self) -> int:
        """Read a variable byte integer.

        Raises:
            MqttProtocolError: it has more than four bytes, or the packet ends before.
        """
        value = 0
        for shift in (0, 7, 14, 21):
            byte = self.unsigned(1)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise malformed("A variable byte integer has more than four bytes")

    def binary(self) -> bytes:
        """Read binary data.

        Raises:
            MqttProtocolError: the packet ends before.
        """
        return self.bytes(self.unsigned(2))

    def text(self) -> str:
        """Read a text.

        Raises:
            MqttProtocolError: it is no UTF-8 or contains NUL, or the packet ends before.
        """
        try:
            text = self.binary().decode()
        except UnicodeDecodeError as error:
            raise malformed(f"A text is no UTF-8: its byte {error.start}") from error
        if "\0" in text:
            raise malformed("A text contains the character NUL")
        return text

    def bytes(self, size: int) -> bytes:
        """Read that many bytes.

        Raises:
            MqttProtocolError: the packet ends before.
        """
        start = self.offset
        stop = start + size
        if stop > self.end:
            raise malformed(f"The packet ends within a value of {size} bytes")
        self.offset = stop
        return self._data[start:stop]

    def part(self, size: int) -> "PacketReader":
        """Return a reader for the next bytes, which this one skips.

        Raises:
            MqttProtocolError: the packet ends before.
        """
        start = self.offset
        if size > self.end - start:
            raise malformed(f"The packet ends within a part of {size} bytes")
        self.offset = start + size
        return PacketReader(self._data, start, self.offset)


def encode_variable(value: int) -> bytes:
    """Encode a variable byte integer.

    Raises:
        OverflowError: it is greater than `VARIABLE_MAX`.
    """
    if value < 0x80:
        return value.to_bytes()
    if value > VARIABLE_MAX:
        raise OverflowError(f"{value} is no variable byte integer")
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def encode_binary(data: bytes) -> bytes:
    """Encode binary data.

    Raises:
        OverflowError: it has more than 65,535 bytes.
    """
    return len(data).to_bytes(2, "big") + data


def encode_text(text: str) -> bytes:
    """Encode a text.

    Raises:
        OverflowError: its UTF-8 has more than 65,535 bytes.
    """
    return encode_binary(text.encode(errors="replace"))


def shortened_text(text: str) -> str:
    """Shorten a text of the broker's own to what fits; a reason may quote names that are longer."""
    data = text.encode(errors="replace")
    return text if len(data) <= _TEXT_MAX else data[:_TEXT_MAX].decode(errors="ignore")
