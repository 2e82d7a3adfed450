"""The bytes before a body that is there as bytes, so that it is copied once, into the payload.

```text
section     0, smallulong 0x53, descriptor 0x75 (data) or 0x77 (amqp-value)
value       binary a0 u8 size | b0 u32 size        string a1 u8 size | b1 u32 size        then the bytes
```

Source: AMQP 1.0, 1.6.19, 1.6.20 and 3.2.6 to 3.2.8.
"""

from typing import Final

from pybroker.broker.domain.big_endian import BYTE_AND_UNSIGNED_INT

_DATA: Final = b"\0\x53\x75"
_VALUE: Final = b"\0\x53\x77"
_BINARY: Final = 0xA0
_STRING: Final = 0xA1
_LARGE: Final = 0x10
"""The difference between the constructors of a type for 4-byte and for 1-byte lengths (1.2.2): 0xB0 and 0xA0."""

NULL_VALUE: Final = _VALUE + b"\x40"
"""The body that is the value null."""


def data_head(size: int) -> bytes:
    """Return the bytes before a data section of so many bytes."""
    return _DATA + _head(_BINARY, size)


def binary_value_head(size: int) -> bytes:
    """Return the bytes before a value that is binary."""
    return _VALUE + _head(_BINARY, size)


def string_value_head(size: int) -> bytes:
    """Return the bytes before a value that is a string of so many bytes of UTF-8."""
    return _VALUE + _head(_STRING, size)


def _head(constructor: int, size: int) -> bytes:
    if size < 256:
        return bytes((constructor, size))
    return BYTE_AND_UNSIGNED_INT.pack(constructor + _LARGE, size)
