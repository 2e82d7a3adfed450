"""Reads DER, the binary form of certificates and keys, as far as key stores need it.

```text
+---------+-------------------------------------------+---------+
| tag u8  | length: u8 < 0x80, or 0x81..0x84 | u8…u32 | content |
+---------+-------------------------------------------+---------+
```

Tags above 30 and lengths that come at the end (BER) do not occur in what Java writes, and are refused.

Source: ITU-T X.690, 8.1 and 10.1.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from pybroker.broker.domain.errors import MalformedData

INTEGER: Final = 0x02
OCTET_STRING: Final = 0x04
OBJECT_IDENTIFIER: Final = 0x06
BMP_STRING: Final = 0x1E
SEQUENCE: Final = 0x30
SET: Final = 0x31
EXPLICIT_0: Final = 0xA0

_LENGTH_OCTETS_MAX: Final = 4


class DerElement(NamedTuple):
    """One element.

    Attributes:
        tag: its first octet.
        content: its octets without tag and length.
        encoded: the same with them.
    """

    tag: int
    content: bytes
    encoded: bytes

    def expect(self, tag: int) -> bytes:
        """Return the content of an element that has this tag.

        Raises:
            MalformedData: it has another.
        """
        if self.tag != tag:
            raise MalformedData(f"there is an element {self.tag:#04x} in place of {tag:#04x}")
        return self.content

    def parts(self, tag: int, at_least: int = 0) -> "list[DerElement]":
        """Return the elements within an element that has this tag.

        Raises:
            MalformedData: it has another tag, or fewer elements than `at_least`.
        """
        found = list(elements(self.expect(tag)))
        if len(found) < at_least:
            raise MalformedData(f"an element {tag:#04x} has {len(found)} parts, of at least {at_least}")
        return found


def element(data: bytes) -> DerElement:
    """Return the one element that these octets are.

    Raises:
        MalformedData: they are none, or more than one.
    """
    found = list(elements(data))
    if len(found) != 1:
        raise MalformedData(f"there are {len(found)} elements in place of one")
    return found[0]


def elements(data: bytes) -> Iterator[DerElement]:
    """Yield the elements that follow one another.

    Raises:
        MalformedData: one is cut off, or is not DER.
    """
    place = 0
    while place < len(data):
        begin = place
        if len(data) < place + 2:
            raise MalformedData("an element is cut off")
        tag, length = data[place], data[place + 1]
        place += 2
        if tag & 0x1F == 0x1F:
            raise MalformedData("an element has a tag above 30")
        if length & 0x80:
            octets = length & 0x7F
            if not 1 <= octets <= _LENGTH_OCTETS_MAX:
                raise MalformedData("an element has no definite length")
            length = int.from_bytes(data[place : place + octets], "big")
            place += octets
        if len(data) < place + length:
            raise MalformedData("an element is cut off")
        yield DerElement(tag, data[place : place + length], data[begin : place + length])
        place += length


def unsigned(given: DerElement) -> int:
    """Return a number that is not negative, below 2**63.

    Raises:
        MalformedData: it is another one, or no number.
    """
    content = given.expect(INTEGER)
    number = int.from_bytes(content, "big", signed=True) if 1 <= len(content) <= 8 else -1
    if number < 0:
        raise MalformedData("a number is outside of 0 to 2**63")
    return number


def object_identifier(given: DerElement) -> str:
    """Return an object identifier in dotted form, such as `1.2.840.113549.1.7.1`.

    Raises:
        MalformedData: it is none.
    """
    content = given.expect(OBJECT_IDENTIFIER)
    if not 1 <= len(content) <= 32 or content[-1] & 0x80:
        raise MalformedData("an object identifier is empty, long or cut off")
    arcs, value = list[int](), 0
    for octet in content:
        value = value << 7 | octet & 0x7F
        if not octet & 0x80:
            arcs.append(value)
            value = 0
    first = min(arcs[0] // 40, 2)
    return ".".join(map(str, (first, arcs[0] - 40 * first, *arcs[1:])))
