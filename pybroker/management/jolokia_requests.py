"""Requests of Jolokia: from the path of a GET, or an object of JSON in a POST.

```text
GET /read/MBEAN/ATTRIBUTE,ATTRIBUTE/INNER/PATH    {"type": "read", "mbean": …, "attribute": …, "path": …}
GET /exec/MBEAN/OPERATION/ARGUMENT/…              {"type": "exec", "mbean": …, "operation": …, "arguments": […]}
GET /search/PATTERN                               {"type": "search", "mbean": …}
GET /list/DOMAIN/PROPERTIES/…                     {"type": "list", "path": …}
GET /version                                      {"type": "version"}
GET /write/MBEAN/ATTRIBUTE/VALUE                  {"type": "write", "mbean": …, "attribute": …, "value": …}
```

In a path `!` stands before a `/`, `!` or `"` that is meant. AnswerOptions are parameters of the query, or the object
`config`.

Source: the protocol of Jolokia 1.7; management.md, section 2.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

from pybroker.management.jolokia_errors import illegal
from pybroker.management.json_types import as_array, as_object
from pybroker.management.object_names import MalformedObjectName, ObjectName

TYPES: Final = ("read", "write", "exec", "list", "search", "version")

_NAMED: Final = ("read", "write", "exec", "search")
"""The types that name an MBean."""

_PART: Final = re.compile(r"(?:[^/!]|!.?)*", re.DOTALL)
_ESCAPED: Final = re.compile(r"!(.)", re.DOTALL)

_ARGUMENTS: Final[Mapping[str, Any]] = {"[null]": None, '""': ""}
"""Texts that stand for others, in the path of a GET."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerOptions:
    """The options of a request.

    Attributes:
        ignores_errors: an attribute that cannot be read has a text that begins with `ERROR:`.
        depth_max: levels of a value below which there are texts, or of a list below which there is 1; 0: all.
        collection_max: items of a list or object that are returned; 0: all.
        is_canonical: names in answers have their keys in order.
    """

    ignores_errors: bool = False
    depth_max: int = 0
    collection_max: int = 0
    is_canonical: bool = True

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """Return the options that are given; unknown ones are ignored.

        Raises:
            JolokiaError: a number is none.
        """
        return cls(
            ignores_errors=_flag(values.get("ignoreErrors"), default=False),
            depth_max=_number(values, "maxDepth"),
            collection_max=_number(values, "maxCollectionSize"),
            is_canonical=_flag(values.get("canonicalNaming"), default=True),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class JolokiaRequest:
    """A request.

    Attributes:
        type: one of `TYPES`.
        mbean: the name of an MBean, or a pattern; None for types that have none.
        attribute: the name of an attribute, or several of them; None: all.
        operation: the name of an operation, maybe with the types of its parameters.
        arguments: its arguments.
        path: the inner path: keys and indices of the value; None stands for any.
        value: the value to write.
        options: the options.
    """

    type: str
    mbean: ObjectName | None = None
    attribute: str | Sequence[str] | None = None
    operation: str = ""
    arguments: Sequence[Any] = ()
    path: Sequence[str | None] = ()
    value: Any = None
    options: AnswerOptions = field(default_factory=AnswerOptions)

    @property
    def attributes(self) -> Sequence[str] | None:
        """The names of its attributes; None: all."""
        return [self.attribute] if isinstance(self.attribute, str) else self.attribute

    def name_of(self, text: str, canonical: str) -> str:
        """Return the form of a name that its answer has."""
        return canonical if self.options.is_canonical else text

    def as_json(self) -> dict[str, Any]:
        """Return the request, as its answer repeats it."""
        found: dict[str, Any] = {}
        if self.mbean is not None:
            found["mbean"] = self.name_of(self.mbean.text, self.mbean.canonical)
        if self.attribute is not None:
            found["attribute"] = self.attribute
        if self.type == "exec":
            found["operation"] = self.operation
            if self.arguments:
                found["arguments"] = self.arguments
        if self.type == "write":
            found["value"] = self.value
        if self.path:
            found["path"] = "/".join(_escaped(part) for part in self.path)
        return found | {"type": self.type}


def from_path(path: str, query: Mapping[str, str]) -> JolokiaRequest:
    """Return the request of a GET.

    Args:
        path: what follows the base path, decoded from percents.
        query: the parameters of the query.

    Raises:
        JolokiaError: it is none.
    """
    kind, *parts = split(path.strip("/") or query.get("p", "").strip("/") or "version")
    options = AnswerOptions.of(query)
    if kind not in TYPES:
        raise _no_type(kind)
    if kind == "version":
        return JolokiaRequest(type=kind, options=options)
    if kind == "list":
        return JolokiaRequest(type=kind, path=_path(parts), options=options)
    name = _name(parts[0] if parts else None)
    match kind, parts[1:]:
        case "search", _:
            return JolokiaRequest(type=kind, mbean=name, options=options)
        case "read", rest:
            names = rest[0].split(",") if rest else []
            attribute = names[0] if len(names) == 1 else names or None
            return JolokiaRequest(type=kind, mbean=name, attribute=attribute, path=_path(rest[1:]), options=options)
        case "exec", [operation, *arguments]:
            given = [_ARGUMENTS.get(each, each) for each in arguments]
            return JolokiaRequest(type=kind, mbean=name, operation=operation, arguments=given, options=options)
        case "write", [written, value, *rest]:
            return JolokiaRequest(
                type=kind, mbean=name, attribute=written, value=value, path=_path(rest), options=options
            )
        case _:
            raise illegal(f"Invalid arguments in pathinfo for command {kind}")


def from_json(given: Any, query: Mapping[str, str]) -> JolokiaRequest:
    """Return the request of an object of JSON; its `config` precedes the query.

    Raises:
        JolokiaError: it is none.
    """
    fields = as_object(given)
    if fields is None:
        raise illegal("Not a request: an object of JSON is expected")
    kind = fields.get("type")
    if not isinstance(kind, str) or kind.lower() not in TYPES:
        raise _no_type(kind)
    kind = kind.lower()
    config = as_object(fields.get("config") or {})
    if config is None:
        raise illegal("config is an object")
    options = AnswerOptions.of({**query, **config})
    name = _name(fields.get("mbean")) if kind in _NAMED else None
    return JolokiaRequest(
        type=kind,
        mbean=name,
        attribute=_attribute(fields.get("attribute")) if kind in ("read", "write") else None,
        operation=_operation(fields) if kind == "exec" else "",
        arguments=_arguments(fields.get("arguments")),
        path=_json_path(fields.get("path")),
        value=fields.get("value"),
        options=options,
    )


def split(path: str) -> list[str]:
    """Return the parts of a path, without escapes."""
    parts: list[str] = []
    at = 0
    while True:
        found = _PART.match(path, at)
        assert found is not None, "it matches nothing, too"
        parts.append(_ESCAPED.sub(r"\1", found[0]))
        at = found.end() + 1
        if at > len(path):
            return parts


def _escaped(part: str | None) -> str:
    return "*" if part is None else part.replace("!", "!!").replace("/", "!/")


def _path(parts: Iterable[str]) -> Sequence[str | None]:
    return [None if part == "*" else part for part in parts]


def _json_path(value: Any) -> Sequence[str | None]:
    if not value:
        return ()
    parts = as_array(value)
    if parts is not None:
        return _path(map(str, parts))
    if not isinstance(value, str):
        raise illegal("path is a text")
    return _path(split(value.strip("/"))) if value.strip("/") else ()


def _name(text: Any) -> ObjectName:
    if not isinstance(text, str):
        raise illegal("Objectname can not be null")
    try:
        return ObjectName.parse(text)
    except MalformedObjectName as error:
        raise illegal(f"Invalid object name. {error}") from error


def _attribute(value: Any) -> str | Sequence[str] | None:
    several = as_array(value)
    if several is not None and all(isinstance(each, str) for each in several):
        return several or None
    if value is not None and not isinstance(value, str):
        raise illegal("attribute is a text, or a list of texts")
    return value or None


def _operation(fields: Mapping[str, Any]) -> str:
    value = fields.get("operation")
    if not isinstance(value, str) or not value:
        raise illegal(f"No operation given for exec Request on MBean {fields.get('mbean')}")
    return value


def _arguments(value: Any) -> Sequence[Any]:
    if value is None:
        return ()
    arguments = as_array(value)
    if arguments is None:
        raise illegal("arguments is a list")
    return arguments


def _no_type(kind: Any) -> Exception:
    return illegal(f"No type with name '{str(kind)[:100]}' exists")


def _flag(value: Any, *, default: bool) -> bool:
    return default if value is None else str(value).lower() == "true"


def _number(values: Mapping[str, Any], name: str) -> int:
    text = str(values.get(name, 0))
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise illegal(f"{name} is a number from 0 on, not {text[:20]!r}")
    return int(text)
