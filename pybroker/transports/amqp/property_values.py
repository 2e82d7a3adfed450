r"""Values of AMQP's application properties and annotations as values of JMS properties.

Source: ActiveMQ 5.17, AMQP transport:

```text
ubyte      Byte, or Short above 127         symbol      String
ushort     Short, or Integer above 32767    binary      String, with bytes that do not print as \x01
uint       Integer, or Long above 2^31-1    decimal     Float (32 bits) or Double
ulong      Long, negative above 2^63-1      list, map   as they are
boolean, byte, short, int, long, float, double, char, string, null          as they are
timestamp, uuid, array, described value     not representable
```

Unlike in ActiveMQ, a decimal becomes the number nearest to it, and values in lists and maps are converted, too.

This module is not compiled: for mypyc the type of `Short(value) if … else int(value)` is int, of which it makes a plain
int (mypyc 2.4).
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from pybroker.broker.domain.amqp.errors import AmqpError
from pybroker.broker.domain.amqp.values import (
    AmqpDecimal,
    AmqpValue,
    Byte,
    Char,
    Float,
    Long,
    Short,
    Symbol,
    UnsignedByte,
    UnsignedInt,
    UnsignedLong,
    UnsignedShort,
)
from pybroker.broker.domain.openwire.values import Value
from pybroker.transports.amqp.decimals import number_of

_NOT_IMPLEMENTED: Final = "amqp:not-implemented"

JMS_TYPES: Final[frozenset[type]] = frozenset((bool, Byte, Short, int, Long, Float, float, str, type(None)))
"""The types of values that AMQP and JMS have in common; a char is one if it is in the basic multilingual plane."""

_PRINTABLE: Final = {byte: chr(byte) if 31 < byte < 127 and byte != 0x5C else f"\\x{byte:02x}" for byte in range(256)}

_CHAR_MAX: Final = "\uffff"


def property_value(value: AmqpValue) -> Value:
    """Return a value of a section as a JMS property has it.

    Raises:
        AmqpError: JMS has no such type.
    """
    kind = type(value)
    if kind in JMS_TYPES:
        return cast("Value", value)
    convert = _CONVERTERS.get(kind)
    if convert is None:
        raise AmqpError(f"a property that is a {kind.__name__}", _NOT_IMPLEMENTED)
    return convert(value)


def key_text(key: AmqpValue) -> str:
    """Return the key of an annotation or a footer as part of a property's name. Raises `AmqpError` as above."""
    if isinstance(key, bool) or not isinstance(key, (str, int)):
        raise AmqpError(f"an annotation whose key is a {type(key).__name__}", _NOT_IMPLEMENTED)
    return f"{key}"


def nested_value(value: AmqpValue) -> Value:
    """Return a value within a list or map; binary stays as it is there. Raises `AmqpError` as `property_value`."""
    return value if type(value) is bytes else property_value(value)


def _list(values: list[AmqpValue]) -> list[Value]:
    return [nested_value(value) for value in values]


def _map(entries: Mapping[AmqpValue, AmqpValue]) -> dict[str, Value]:
    return {key_text(key): nested_value(value) for key, value in entries.items()}


def _long(value: int) -> Long:
    return Long(value - 2**64 if value >= 2**63 else value)


def checked_char(value: Char) -> Char:
    """Return a char that Java has. Raises `AmqpError` if it is beyond the basic multilingual plane."""
    if value > _CHAR_MAX:
        raise AmqpError("a char beyond the basic multilingual plane", _NOT_IMPLEMENTED)
    return value


_CONVERTERS: Final[Mapping[type, Callable[[Any], Value]]] = {
    UnsignedByte: lambda value: Byte(value) if value < 2**7 else Short(value),
    UnsignedShort: lambda value: Short(value) if value < 2**15 else int(value),
    UnsignedInt: lambda value: int(value) if value < 2**31 else Long(value),
    UnsignedLong: _long,
    Symbol: str.__str__,
    bytes: lambda value: "".join([_PRINTABLE[byte] for byte in value]),
    AmqpDecimal: number_of,
    Char: checked_char,
    list: _list,
    dict: _map,
}
