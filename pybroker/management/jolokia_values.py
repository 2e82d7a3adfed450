"""Values of Jolokia's answers: inner paths, limits, and JSON that is made in pieces.

A value of many MBeans has megabytes of JSON. It is made in another thread, which holds Python's lock only for the
piece that it is at, so that the event loop goes on answering.
"""

import contextlib
import json
from collections.abc import Sequence
from itertools import islice
from typing import Any, Final

from pybroker.management.jolokia_errors import JolokiaError, illegal
from pybroker.management.jolokia_requests import AnswerOptions
from pybroker.management.json_types import as_array, as_object
from pybroker.management.mbeans import MBeanReference
from pybroker.management.object_names import ObjectName

_PIECES_DEPTH: Final = 4
"""The levels of an answer whose items are encoded one by one: answers, answer, value, MBean."""


def select(value: Any, path: Sequence[str | None]) -> Any:
    """Return the part of a value that an inner path leads to; where the path has None, one for each item.

    Raises:
        JolokiaError: it leads to nothing.
    """
    if not path:
        return value
    part, rest = path[0], path[1:]
    fields, items = as_object(value), as_array(value)
    if part is None and (fields is not None or items is not None):
        return _select_each(value, rest)
    if part is None:
        raise illegal("Invalid path: there is no part that a * could stand for")
    if fields is not None and part in fields:
        return select(fields[part], rest)
    if items is not None and part.isascii() and part.isdecimal() and len(part) < 10 and int(part) < len(items):
        return select(items[int(part)], rest)
    raise illegal(f"Invalid path: there is nothing at {part!r}")


def _select_each(value: Any, path: Sequence[str | None]) -> Any:
    """Return the parts of the items that the path leads to; those where it leads to nothing are left out."""
    fields = as_object(value)
    found: dict[Any, Any] = {}
    for name, each in enumerate(value) if fields is None else fields.items():
        with contextlib.suppress(JolokiaError):
            found[name] = select(each, path)
    if value and not found:
        raise illegal(f"Invalid path: it leads to nothing in any of {len(value)} items")
    return list(found.values()) if fields is None else found


def plain(value: Any, options: AnswerOptions, depth: int = 0) -> Any:
    """Return a value as JSON has it, within its limits."""
    if isinstance(value, MBeanReference):
        return {"objectName": ObjectName.parse(value).canonical if options.is_canonical else str(value)}
    fields, items = as_object(value), as_array(value)
    if fields is None and items is None:
        return value
    if options.depth_max and depth >= options.depth_max:
        return json.dumps(plain(value, AnswerOptions(is_canonical=options.is_canonical)))
    limit = options.collection_max or None
    if fields is not None:
        return {name: plain(each, options, depth + 1) for name, each in islice(fields.items(), limit)}
    assert items is not None, "it is one of both"
    return [plain(each, options, depth + 1) for each in items[:limit]]


def encode(value: Any, depth: int = _PIECES_DEPTH) -> str:
    """Return JSON, made in pieces down to a depth."""
    fields, items = as_object(value), as_array(value)
    if depth and fields is not None:
        return "{" + ",".join([f"{json.dumps(name)}:{encode(each, depth - 1)}" for name, each in fields.items()]) + "}"
    if depth and items is not None:
        return "[" + ",".join([encode(each, depth - 1) for each in items]) + "]"
    return json.dumps(value)
