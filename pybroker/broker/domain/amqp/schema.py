"""Specifiers: how the fields of AMQP's composite types are declared.

A composite type is a dataclass whose fields have these functions as defaults, in the order of the standard. The
declaration carries what readers and writers have to know, and `composites` compiles them from it.

```text
class AmqpDetach:
    DESCRIPTOR: ClassVar = 0x16
    NAME: ClassVar = "amqp:detach:list"
    handle: int = uint(mandatory=True)
    closed: bool | None = boolean()
```

Source: AMQP 1.0, part 1 "Types", 1.4 "Composite Type Representation".
"""

from dataclasses import MISSING, dataclass, field
from enum import IntFlag
from typing import Any, Final


class FieldType(IntFlag):
    """Types that the value of a field may have. Integers and booleans are plain, except where several are allowed."""

    BOOLEAN = 1
    UBYTE = 2
    USHORT = 4
    UINT = 8
    ULONG = 16
    TIMESTAMP = 32
    BINARY = 64
    STRING = 128
    SYMBOL = 256
    UUID = 512
    MAP = 1024
    ARRAY = 2048
    DESCRIBED = 4096
    OTHER = 8192


ANY_TYPE: Final = FieldType(2 * FieldType.OTHER - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldSpec:
    """The properties of a field that readers and writers need.

    Attributes:
        types: the types of its value.
        is_mandatory: it is not null.
        is_multiple: its value is a tuple of symbols, encoded as one symbol or as an array of them.
        classes: names of the composite types that a described value may have; a value of none of AMQP's composite types
            stays an `AmqpDescribed` if `is_open`.
        is_open: see `classes`.
    """

    types: FieldType
    is_mandatory: bool = False
    is_multiple: bool = False
    classes: tuple[str, ...] = ()
    is_open: bool = True


SPEC: Final = "amqp"
"""Key of the `FieldSpec` in a dataclass field's metadata."""

OUTCOMES: Final = ("AmqpAccepted", "AmqpRejected", "AmqpReleased", "AmqpModified", "AmqpDeclared")
DELIVERY_STATES: Final = (*OUTCOMES, "AmqpReceived", "AmqpTransactionalState")

# Like `dataclasses.field` they have the type of the declaration: None is the default of all but mandatory fields.


def boolean(*, mandatory: bool = False) -> Any:
    """Declare a boolean."""
    return _declare(FieldSpec(types=FieldType.BOOLEAN, is_mandatory=mandatory))


def ubyte(*, mandatory: bool = False) -> Any:
    """Declare a number of 8 bits."""
    return _declare(FieldSpec(types=FieldType.UBYTE, is_mandatory=mandatory))


def ushort() -> Any:
    """Declare a number of 16 bits."""
    return _declare(FieldSpec(types=FieldType.USHORT))


def uint(*, mandatory: bool = False) -> Any:
    """Declare a number of 32 bits."""
    return _declare(FieldSpec(types=FieldType.UINT, is_mandatory=mandatory))


def ulong(*, mandatory: bool = False) -> Any:
    """Declare a number of 64 bits."""
    return _declare(FieldSpec(types=FieldType.ULONG, is_mandatory=mandatory))


def timestamp() -> Any:
    """Declare a time in milliseconds since 1970."""
    return _declare(FieldSpec(types=FieldType.TIMESTAMP))


def binary(*, mandatory: bool = False, is_secret: bool = False) -> Any:
    """Declare bytes; a `repr` shows no secret."""
    return _declare(FieldSpec(types=FieldType.BINARY, is_mandatory=mandatory), is_shown=not is_secret)


def string(*, mandatory: bool = False) -> Any:
    """Declare a string."""
    return _declare(FieldSpec(types=FieldType.STRING, is_mandatory=mandatory))


def symbol(*, mandatory: bool = False) -> Any:
    """Declare a symbol."""
    return _declare(FieldSpec(types=FieldType.SYMBOL, is_mandatory=mandatory))


def symbols(*, mandatory: bool = False) -> Any:
    """Declare a tuple of symbols."""
    types = FieldType.SYMBOL | FieldType.ARRAY
    return _declare(FieldSpec(types=types, is_mandatory=mandatory, is_multiple=True))


def identifier() -> Any:
    """Declare an id of a message, which keeps its type."""
    return _declare(FieldSpec(types=FieldType.ULONG | FieldType.UUID | FieldType.BINARY | FieldType.STRING))


def mapping() -> Any:
    """Declare a map."""
    return _declare(FieldSpec(types=FieldType.MAP))


def composite(*classes: str, mandatory: bool = False, is_open: bool = True) -> Any:
    """Declare a value of one of these composite types, or of types that AMQP does not define."""
    types = FieldType.DESCRIBED
    return _declare(FieldSpec(types=types, is_mandatory=mandatory, classes=classes, is_open=is_open))


def _declare(spec: FieldSpec, *, is_shown: bool = True) -> Any:
    return field(default=MISSING if spec.is_mandatory else None, repr=is_shown, metadata={SPEC: spec})
