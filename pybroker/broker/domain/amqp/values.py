"""AMQP's values as Python objects, which keep their types.

Source: AMQP 1.0, part 1 "Types", 1.6.

```text
null         None             float            Float       timestamp    Timestamp (ms since 1970)
boolean      bool             double           float       uuid         uuid.UUID
ubyte        UnsignedByte     decimal32 … 128  AmqpDecimal list         list
ushort       UnsignedShort    char             Char        map          dict
uint         UnsignedInt      binary           bytes       array        AmqpArray
ulong        UnsignedLong     string           str         described    AmqpDescribed
byte, short  Byte, Short      symbol           Symbol
int, long    int, Long
```

A plain int is AMQP's int where it fits 32 bits, otherwise its long. How wide a value was encoded (a smallulong, a list
of 32-bit size) is not kept: values are written in the shortest form.
"""

import uuid
from collections.abc import Iterable
from typing import TypeAlias, Union

from pybroker.broker.domain.openwire.values import Byte as Byte
from pybroker.broker.domain.openwire.values import Char as Char
from pybroker.broker.domain.openwire.values import Float as Float
from pybroker.broker.domain.openwire.values import Long as Long
from pybroker.broker.domain.openwire.values import Short as Short


class UnsignedByte(int):
    """AMQP's ubyte, 0 to 255."""

    __slots__ = ()


class UnsignedShort(int):
    """AMQP's ushort, 16 bits."""

    __slots__ = ()


class UnsignedInt(int):
    """AMQP's uint, 32 bits."""

    __slots__ = ()


class UnsignedLong(int):
    """AMQP's ulong, 64 bits."""

    __slots__ = ()


class Timestamp(int):
    """AMQP's timestamp: milliseconds since 1970, 64 bits with a sign."""

    __slots__ = ()


class Symbol(str):
    """AMQP's symbol: ASCII text from a limited vocabulary. It equals a str of the same characters."""

    __slots__ = ()


class UuidKey(uuid.UUID):
    """A uuid as the key of a decoded map.

    The hash of `uuid.UUID` is its number modulo 2^61 - 1, so a peer could choose keys that all collide.
    """

    __slots__ = ()

    def __hash__(self) -> int:
        """Return the hash of the bytes, which a peer cannot predict."""
        return hash(self.bytes)


class AmqpDecimal:
    """AMQP's decimal32, decimal64 or decimal128, as it is encoded.

    Attributes:
        data: IEEE 754 decimal in the binary integer encoding, big-endian; 4, 8 or 16 bytes.
    """

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data

    @property
    def width(self) -> int:
        """The number of bits: 32, 64 or 128."""
        return 8 * len(self.data)

    def __eq__(self, other: object) -> bool:
        """Compare type, width and bits."""
        return isinstance(other, AmqpDecimal) and other.data == self.data

    def __hash__(self) -> int:
        """Return the hash of the bits."""
        return hash(self.data)

    def __repr__(self) -> str:
        """Return the width and the bits."""
        return f"AmqpDecimal({self.width} bits: {self.data.hex()})"


class AmqpDescribed:
    """AMQP's described value. It is mutable in its parts, and so no key of a map.

    Attributes:
        descriptor: what the value means: a `Symbol` or an `UnsignedLong`.
        value: the value.
    """

    __slots__ = ("descriptor", "value")

    def __init__(self, descriptor: "AmqpValue", value: "AmqpValue") -> None:
        self.descriptor = descriptor
        self.value = value

    def __eq__(self, other: object) -> bool:
        """Compare descriptor and value."""
        return isinstance(other, AmqpDescribed) and (other.descriptor, other.value) == (self.descriptor, self.value)

    __hash__ = None  # type: ignore[assignment] # as a list

    def __repr__(self) -> str:
        """Return descriptor and value."""
        return f"AmqpDescribed({self.descriptor!r}, {self.value!r})"


class AmqpArray(list["AmqpValue"]):
    """AMQP's array: values of one type. Two arrays are equal if their elements are.

    Attributes:
        constructor: the encoded constructor, which an array that is not empty does not need: its elements have it.
    """

    __slots__ = ("constructor",)

    def __init__(self, values: "Iterable[AmqpValue]" = (), constructor: bytes = b"\x40") -> None:
        super().__init__(values)
        self.constructor = constructor


AmqpValue: TypeAlias = Union[  # noqa: UP007 -- the names in quotes are no types yet
    bool,
    int,
    float,
    str,
    bytes,
    uuid.UUID,
    AmqpDecimal,
    AmqpDescribed,
    list["AmqpValue"],
    dict["AmqpValue", "AmqpValue"],
    None,
]
"""A value of any of AMQP's types."""
