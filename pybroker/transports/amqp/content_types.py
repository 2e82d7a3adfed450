"""Content types of AMQP messages: which of them make a text of bytes.

Source: ActiveMQ 5.17: `text/*`, some types of `application`, and those ending in `+xml` and `+json`.
"""

import codecs
import enum
from functools import lru_cache
from typing import Final

_CACHED: Final = 256
_CACHED_CHARS_MAX: Final = 128

_TEXTUAL: Final = frozenset(("xml", "json", "javascript", "ecmascript", "xml-dtd"))
_TEXTUAL_ENDS: Final = ("+xml", "+json")


class Textuality(enum.Enum):
    """The kind of text that a content type is for."""

    NONE = enum.auto()
    """Not text, or text in a charset that is unknown."""

    UTF_8 = enum.auto()
    OTHER_CHARSET = enum.auto()


def textuality(content_type: str) -> Textuality:
    """Return the kind of text of a content type."""
    return _cached(content_type) if len(content_type) <= _CACHED_CHARS_MAX else _textuality(content_type)


def _textuality(content_type: str) -> Textuality:
    kind, slash, rest = content_type.lower().partition("/")
    subtype, _, parameters = rest.partition(";")
    subtype = subtype.strip()
    if not (slash and subtype and _is_textual(kind.strip(), subtype)):
        return Textuality.NONE
    charset = _charset(parameters)
    if charset in (None, "utf-8"):
        return Textuality.UTF_8
    try:
        name = codecs.lookup(charset).name
    except LookupError:
        return Textuality.NONE
    return Textuality.UTF_8 if name == "utf-8" else Textuality.OTHER_CHARSET


def _is_textual(kind: str, subtype: str) -> bool:
    return kind == "text" or (kind == "application" and (subtype in _TEXTUAL or subtype.endswith(_TEXTUAL_ENDS)))


def _charset(parameters: str) -> str | None:
    for parameter in parameters.split(";"):
        name, equals, value = parameter.strip().partition("=")
        if equals and name.strip() == "charset":
            return value[1:-1] if len(value) > 1 and value[0] == value[-1] == '"' else value
    return None


_cached = lru_cache(_CACHED)(_textuality)
