"""AMQP's decimals as numbers of Java.

Source: IEEE 754-2008, 3.5.2, binary integer encoding:

```text
| sign | exponent, not 11…           | coefficient                            |
| sign | 11 | exponent, not 11…      | coefficient, below the three bits 100  |
| sign | 11110 infinity, 11111 not a number                                   |
```
"""

from decimal import Decimal
from typing import Final

from pybroker.broker.domain.amqp.values import AmqpDecimal, Float
from pybroker.broker.domain.big_endian import FLOAT

_EXPONENTS: Final = {32: (8, 101), 64: (10, 398), 128: (14, 6176)}
"""The bits of the exponent, and its bias, by width."""

_FLOAT_MAX: Final = 3.4028234663852886e38


def number_of(decimal: AmqpDecimal) -> float:
    """Return the double nearest to a decimal; one of 32 bits becomes a `Float`."""
    width = decimal.width
    exponent_bits, bias = _EXPONENTS[width]
    bits = int.from_bytes(decimal.data)
    is_negative, bits = bits >> width - 1, bits & (1 << width - 1) - 1
    top = bits >> width - 6
    if top >= 0b11110:
        found = float("nan") if top & 1 else float("inf")
    else:
        is_large = top >= 0b11000
        coefficient_bits = width - 1 - exponent_bits - 2 * is_large
        exponent = (bits >> coefficient_bits & (1 << exponent_bits) - 1) - bias
        coefficient = bits & (1 << coefficient_bits) - 1
        if is_large:
            coefficient |= 0b100 << coefficient_bits
        found = float(Decimal(coefficient).scaleb(exponent))
    found = -found if is_negative else found
    if width > 32:
        return found
    return Float(FLOAT.unpack(FLOAT.pack(found))[0] if abs(found) <= _FLOAT_MAX else found * float("inf"))
