"""Conversion between trees and JSON text.

Source: Jettison 1.5, the mapped convention as XStream uses it:

```text
an element's text           "x", or bare if it is exactly as Java writes a number or a boolean, whatever its type
without text or children    ""
children                    {"name": ..., "name": ...} in the order in which the names first appear
several of one name         "name": [..., ...] at the place of the first
the attribute class         "@class": "..."
```

A slash has a backslash before it behind `<`, and in a list always.
So `{"string": ["5", "x"]}` comes out as `{"string":[5,"x"]}`, and a double of 3.0 as 3: the name has the type.
"""

import json
import re
from typing import Any, Final, cast

from pybroker.broker.domain.openwire.java_text import java_text
from pybroker.transports.stomp.transformation.tree import Element, NotTransformable, check_count, check_depth

_LONG = re.compile(r"0|-?[1-9][0-9]{0,18}")
_LONG_BOUNDS: Final = (-(2**63), 2**63 - 1)
_DOUBLE = re.compile(r"-?[0-9]+\.[0-9]+(E[0-9]+)?")
_DOUBLE_CHARS_MAX: Final = 26
"""The longest text of a double in Java."""

_SPECIAL = re.compile(r'[\x00-\x1f"\\/\u2028\u2029]')
_NAMED_ESCAPES: Final = {
    '"': r"\"", "\\": r"\\", "\b": r"\b", "\t": r"\t", "\n": r"\n", "\f": r"\f", "\r": r"\r",
    "\u2028": r"\u2028", "\u2029": r"\u2029",
}  # fmt: skip


# ---------------------------------------------------------------- writing


def to_json(root: Element) -> str:
    """Return a tree as JSON."""
    return f'{{"{root.name}":{_value(root, listed=False)}}}'


def _value(node: Element, *, listed: bool) -> str:
    """Return an element's value; `listed`: it is an item of a list."""
    listed = listed or node.is_array
    if node.text is not None:
        value = _primitive(node.text, listed=listed)
    elif node.children or node.java_class is not None:
        value = _object(node)
    else:
        value = '""'
    return f"[{value}]" if node.is_array else value


def _object(node: Element) -> str:
    members: dict[str, list[Element]] = {}
    for child in node.children:
        members.setdefault(child.name, []).append(child)
    texts = [f'"{name}":{_member(nodes)}' for name, nodes in members.items()]
    if node.java_class is not None:
        texts.insert(0, f'"@class":"{node.java_class}"')
    return "{" + ",".join(texts) + "}"


def _member(nodes: list[Element]) -> str:
    if len(nodes) == 1:
        return _value(nodes[0], listed=False)
    return "[" + ",".join(_value(node, listed=True) for node in nodes) + "]"


def _primitive(text: str, *, listed: bool) -> str:
    if text in ("true", "false"):
        return text
    if _LONG.fullmatch(text) and _LONG_BOUNDS[0] <= int(text) <= _LONG_BOUNDS[1]:
        return text
    if len(text) <= _DOUBLE_CHARS_MAX and _DOUBLE.fullmatch(text) and java_text(float(text)) == text:
        return text if "E" in text else text.rstrip("0").rstrip(".")
    return f'"{_SPECIAL.sub(_escape_listed if listed else _escape, text)}"'


def _escape(match: re.Match[str]) -> str:
    char, start = match[0], match.start()
    if char == "/":
        return r"\/" if match.string[start - 1 : start] == "<" else "/"
    return _NAMED_ESCAPES.get(char) or f"\\u{ord(char):04x}"


def _escape_listed(match: re.Match[str]) -> str:
    return r"\/" if match[0] == "/" else _escape(match)


# ---------------------------------------------------------------- reading


class _Members(list[tuple[str, Any]]):
    """A JSON object's members in their order; a name may occur twice."""


def _items(array: object) -> list[Any]:
    return cast("list[Any]", array)


def from_json(body: bytes) -> Element:
    """Return the tree of a text in UTF-8.

    Raises:
        NotTransformable: it is no JSON, no object with one member, or has more or deeper elements than is allowed.
    """
    counter = _Counter()
    try:
        parsed: object = json.loads(
            body.decode(),
            object_pairs_hook=counter.members,
            parse_int=counter.number,
            parse_float=counter.number,
            parse_constant=counter.number,
        )
    except (ValueError, RecursionError) as error:
        raise NotTransformable(f"The body is no JSON: {error}") from error
    if not isinstance(parsed, _Members) or not parsed:
        raise NotTransformable("The body's JSON must be an object with one member, whose name is a type")
    reader = _JsonTreeReader()
    name, value = parsed[0]
    return reader.elements(name, value, 1)[0]


class _Counter:
    """Limits the objects and numbers of a text while it is parsed."""

    def __init__(self) -> None:
        self._count = 0

    def members(self, pairs: list[tuple[str, Any]]) -> _Members:
        self._count += 1
        check_count(self._count)
        return _Members(pairs)

    def number(self, text: str) -> str:
        """Return a number as text, since the element's name has its type: 0.10 is a valid string."""
        self._count += 1
        check_count(self._count)
        return text


class _JsonTreeReader:
    """Builds the tree from parsed JSON."""

    def __init__(self) -> None:
        self._count = 0

    def elements(self, name: str, value: Any, depth: int) -> list[Element]:
        """Return the elements of a member: one, or as many as its array has."""
        self._count += 1
        check_count(self._count)
        check_depth(depth)
        if isinstance(value, _Members):
            return [self._element(name, value, depth)]
        if isinstance(value, list):
            items = [node for item in _items(cast("object", value)) for node in self.elements(name, item, depth + 1)]
            return items or [Element(name, "")]
        if value is True or value is False:
            return [Element(name, java_text(value))]
        return [Element(name, value or "")]

    def _element(self, name: str, members: _Members, depth: int) -> Element:
        children: list[Element] = []
        java_class: str | None = None
        for key, value in members:
            if key == "@reference":
                raise NotTransformable("References between elements are not supported")
            if key == "@class":
                java_class = str(value)
            elif not key.startswith("@"):
                children += self.elements(key, value, depth + 1)
        return Element(name, "", children, java_class)
