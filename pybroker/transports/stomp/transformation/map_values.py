"""Conversion between values of a MapMessage and trees.

Source: XStream 1.4, the converters of Java's basic types and collections.

```text
null, boolean, byte, char, short, int, long, float, double, string    text
byte-array                                                            Base64
map                                                                   entry elements, each a key and a value
list                                                                  its values
```
"""

import base64
import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from pybroker.broker.domain.big_endian import FLOAT
from pybroker.broker.domain.openwire.java_text import java_text
from pybroker.broker.domain.openwire.values import Byte, Char, Float, Long, Short, Value
from pybroker.broker.domain.stomp.frames import shortened
from pybroker.transports.stomp.transformation.tree import Element, NotTransformable, check_count, check_depth

# ---------------------------------------------------------------- writing


def tree_of(value: Value) -> Element:
    """Return the tree of a value.

    Raises:
        NotTransformable: it has too many values, or they are nested too deep.
    """
    return _TreeBuilder().node(value, 1)


class _TreeBuilder:
    def __init__(self) -> None:
        self._count = 0

    def node(self, value: Value, depth: int) -> Element:
        self._count += 1
        check_count(self._count)
        check_depth(depth)
        if isinstance(value, Mapping):
            self._count += 2 * len(value)
            entries = [
                Element("entry", None, (Element("string", key), self.node(item, depth + 2)))
                for key, item in value.items()
            ]
            return Element("map", None, entries)
        if value is None:
            return Element("null")
        if isinstance(value, bytes):
            return Element("byte-array", base64.b64encode(value).decode())
        if isinstance(value, Char):
            return Element("char", "" if value == "\0" else value)
        if not isinstance(value, str) and isinstance(value, Sequence):
            return Element("list", None, [self.node(item, depth + 1) for item in value])
        return Element(_type_name(value), java_text(value))


def _type_name(value: bool | int | float | str) -> str:
    name = _NAMES.get(type(value))
    if name is None:
        return "int" if _INT_BOUNDS[0] <= value <= _INT_BOUNDS[1] else "long"  # type: ignore[operator]
    return name


_INT_BOUNDS: Final = (-(2**31), 2**31 - 1)
_NAMES: Final[Mapping[type, str]] = {
    bool: "boolean", Byte: "byte", Short: "short", Long: "long", Float: "float", float: "double", str: "string",
}  # fmt: skip


# ---------------------------------------------------------------- reading


def map_of(root: Element) -> dict[str, Value]:
    """Return the body of a MapMessage.

    Raises:
        NotTransformable: the tree is no map, or has a value that is not allowed in maps.
    """
    body = value_of(root)
    if not isinstance(body, dict):
        raise NotTransformable(f"The body must be a map, and not {shortened(root.name)}")
    return body


def value_of(node: Element) -> Value:
    """Return the value of a tree, whose size was checked when it was read.

    Raises:
        NotTransformable: its type is unknown, or its text is no such value.
    """
    name = node.java_class or node.name
    read = _READERS.get(name)
    if read is None:
        raise NotTransformable(f"{shortened(name)} is no type of a value: write one of {', '.join(_SHORT_NAMES)}")
    try:
        return read(node)
    except (ValueError, OverflowError) as error:
        raise NotTransformable(f"{node.text!r:.60} is no {name}: {error}") from error


def _map(node: Element) -> dict[str, Value]:
    body: dict[str, Value] = {}
    for entry in node.children:
        if len(entry.children) < 2:
            raise NotTransformable("An entry of a map needs a key and a value")
        key = value_of(entry.children[0])
        if type(key) is not str or not key:
            raise NotTransformable("A key of a map must be a string, and not empty")
        body[key] = value_of(entry.children[1])
    return body


def _list(node: Element) -> list[Value]:
    return [value_of(child) for child in node.children]


def _string(node: Element) -> str:
    return node.text or ""


def _boolean(node: Element) -> bool:
    return _string(node).lower() == "true"


def _char(node: Element) -> Char:
    unit = _string(node)[:1].encode("utf-16-le", "surrogatepass")[:2] or b"\0\0"
    return Char(unit.decode("utf-16-le", "surrogatepass"))


def _bytes(node: Element) -> bytes:
    return base64.b64decode("".join(_string(node).split()), validate=True)


def _integer(kind: Callable[[int], int], bits: int, node: Element) -> int:
    """Return an integer by the rules of Java's `decode`, which include `0x1f`, `#1f` and octal `017`.

    Values up to twice the largest one wrap round, so that 255 is the byte -1.
    """
    match = _INTEGER.fullmatch(_string(node))
    if match is None:
        raise ValueError("it is not written as an integer")
    number = int(
        match["hex"] or match["octal"] or match["decimal"], 16 if match["hex"] else 8 if match["octal"] else 10
    )
    if match["sign"] == "-":
        number = -number
    half = 1 << (bits - 1)
    if not -half <= number < 2 * half:
        raise ValueError("it is out of range")
    return kind(number - 2 * half if number >= half else number)


_INTEGER = re.compile(
    r"(?P<sign>[+-]?)(?:(?:0[xX]|#)(?P<hex>[0-9a-fA-F]{1,16})|0(?P<octal>[0-7]{1,22})|(?P<decimal>0|[1-9][0-9]{0,19}))",
    re.ASCII,
)


def _floating(kind: Callable[[float], float], node: Element) -> float:
    """Return a number by the rules of Java's `valueOf`, except hexadecimal ones."""
    text = _string(node).strip()
    if text.lstrip("+-") in ("NaN", "Infinity"):
        return kind(float(text))
    if not _FLOATING.fullmatch(text):
        raise ValueError("it is not written as a number")
    return kind(float(text.rstrip("dDfF")))


def _single(number: float) -> Float:
    """Return a single precision number; one outside its range is an infinity, as in Java."""
    try:
        FLOAT.pack(number)
    except OverflowError:
        return Float(math.copysign(math.inf, number))
    return Float(number)


_FLOATING = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,9})?[dDfF]?", re.ASCII)


def _null(_node: Element) -> None:
    return None


_SHORT_NAMES: Final[Mapping[str, Callable[[Element], Value]]] = {
    "null": _null,
    "boolean": _boolean,
    "byte": partial(_integer, Byte, 8),
    "char": _char,
    "short": partial(_integer, Short, 16),
    "int": partial(_integer, int, 32),
    "long": partial(_integer, Long, 64),
    "float": partial(_floating, _single),
    "double": partial(_floating, float),
    "string": _string,
    "byte-array": _bytes,
    "map": _map,
    "list": _list,
}
_READERS: Final[Mapping[str, Callable[[Element], Value]]] = {
    **_SHORT_NAMES,
    "java.lang.Boolean": _boolean,
    "java.lang.Byte": _SHORT_NAMES["byte"],
    "java.lang.Character": _char,
    "java.lang.Short": _SHORT_NAMES["short"],
    "java.lang.Integer": _SHORT_NAMES["int"],
    "java.lang.Long": _SHORT_NAMES["long"],
    "java.lang.Float": _SHORT_NAMES["float"],
    "java.lang.Double": _SHORT_NAMES["double"],
    "java.lang.String": _string,
    "linked-hash-map": _map,
    "hashtable": _map,
    "concurrent-hash-map": _map,
    "java.util.HashMap": _map,
    "linked-list": _list,
    "java.util.ArrayList": _list,
}
"""The readers by element name; a MapMessage has one type of map and one of list, for all of Java's."""
