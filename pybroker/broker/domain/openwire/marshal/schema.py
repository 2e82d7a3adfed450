"""Specifiers: how the fields of OpenWire's structures are declared.

A structure is a dataclass whose defaults are these functions; the declaration carries what a marshaller has to know,
so the codec is compiled from the classes themselves.

```text
class SessionInfo(BaseCommand):
    session_id: SessionId | None = cached(SessionId)
```

Source: OpenWire, wire versions 1 to 12.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

VERSION_MIN: Final = 1
VERSION_MAX: Final = 12


class FieldKind(Enum):
    """The kind of value that a field has."""

    BOOLEAN = "boolean"
    BYTE = "byte"
    INT = "int"
    LONG = "long"
    STRING = "string"
    BYTES = "byteArray"
    FIXED_BYTES = "fixedBytes"
    OBJECT = "object"
    ARRAY = "objectArray"
    THROWABLE = "throwable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """The properties of a field that marshalling needs.

    Attributes:
        kind: how its value is encoded.
        since: first version that has it.
        until: last version that has it.
        cached: goes through the value cache of a connection that has one.
        types: classes its value, or an element, may be of; empty for any structure. A class that does not exist yet is
            given by its name.
        size: bytes of a `FIXED_BYTES`.
    """

    kind: FieldKind
    since: int = VERSION_MIN
    until: int = VERSION_MAX
    cached: bool = False
    types: tuple[type | str, ...] = ()
    size: int = 0

    def is_in(self, version: int) -> bool:
        """Return True if a version has the field."""
        return self.since <= version <= self.until


SPEC: Final = "openwire"
"""Key of the `Spec` in a dataclass field's metadata."""

# Like `dataclasses.field` they have the type of the declaration: the value put there is the default.


def boolean(*, since: int = VERSION_MIN, default: bool = False) -> Any:
    """Declare a flag; the default is also what a version without the field means."""
    return _declare(Spec(kind=FieldKind.BOOLEAN, since=since), default)


def byte(default: int = 0) -> Any:
    """Declare a number of 8 bits, signed."""
    return _declare(Spec(kind=FieldKind.BYTE), default)


def int32(*, since: int = VERSION_MIN, until: int = VERSION_MAX) -> Any:
    """Declare a number of 32 bits, signed."""
    return _declare(Spec(kind=FieldKind.INT, since=since, until=until), 0)


def int64(*, since: int = VERSION_MIN, default: int = 0) -> Any:
    """Declare a number of 64 bits, signed; the default is also what a version without the field means."""
    return _declare(Spec(kind=FieldKind.LONG, since=since), default)


def string(*, since: int = VERSION_MIN, is_secret: bool = False) -> Any:
    """Declare a nullable string; a `repr` shows no secret."""
    return _declare(Spec(kind=FieldKind.STRING, since=since), None, is_shown=not is_secret)


def byte_array(*, since: int = VERSION_MIN) -> Any:
    """Declare a nullable byte sequence."""
    return _declare(Spec(kind=FieldKind.BYTES, since=since), None)


def fixed_bytes(default: bytes) -> Any:
    """Declare bytes without length or null flag, as many as the default has."""
    return _declare(Spec(kind=FieldKind.FIXED_BYTES, size=len(default)), default)


def nested(*types: type, since: int = VERSION_MIN) -> Any:
    """Declare a nullable structure of one of these types, or of any type."""
    return _declare(Spec(kind=FieldKind.OBJECT, since=since, types=types), None)


def cached(*types: type, since: int = VERSION_MIN) -> Any:
    """Declare a nullable structure that value caching applies to."""
    return _declare(Spec(kind=FieldKind.OBJECT, since=since, cached=True, types=types), None)


def array(*types: type | str, since: int = VERSION_MIN) -> Any:
    """Declare a nullable array of nullable structures, as a tuple."""
    return _declare(Spec(kind=FieldKind.ARRAY, since=since, types=types), None)


def throwable(*, since: int = VERSION_MIN) -> Any:
    """Declare a nullable exception."""
    return _declare(Spec(kind=FieldKind.THROWABLE, since=since), None)


def _declare(spec: Spec, default: object, *, is_shown: bool = True) -> Any:
    return field(default=default, repr=is_shown, metadata={SPEC: spec})
