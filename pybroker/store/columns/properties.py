"""Primitive maps of many messages at once: properties as maps of texts, bodies of map messages as JSON.

Maps that `entries` marks as odd are left to `rows`.

JSON is built column by column, without a loop over messages; only doubles, floats and texts that need an escape are
formatted one by one:

```text
key             "text"     "count"    "paid"          quoted
value           "größe"    17         true            quoted, or a number's text
entry           "text":"größe"   "count":17   "paid":true
map             {"text":"größe","count":17,"paid":true}
```
"""

import json
import math
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pybroker.broker.domain.openwire.values import Float
from pybroker.store.columns.entries import CHAR, DOUBLE, FLOAT, NULL, Entries
from pybroker.store.columns.lanes import Flags, Window
from pybroker.store.columns.rows import as_json, as_text
from pybroker.store.columns.schema import TEXTS
from pybroker.store.columns.texts import Places

_CONTROLS = 0x20
"""Characters below need an escape in JSON, as do quote and backslash."""
_quote: Callable[[str], str] = json.JSONEncoder(ensure_ascii=False).encode


def properties(window: Window, places: Places, present: Flags, odd: Flags) -> pa.Array:
    """Return the properties of messages as maps.

    Args:
        window: where they are.
        places: the marshalled properties.
        present: where there is a message; one without properties has an empty map.
        odd: marked for maps of an unusual shape.
    """
    entries = Entries(window, places.only(present & ~odd), odd)
    values = _together(entries, entries.texts, {tag: _as_text(entries, tag) for tag in entries.tags()})
    return pa.MapArray.from_arrays(pa.array(entries.offsets), entries.keys, values, type=TEXTS, mask=pa.array(~present))


def map_texts(window: Window, places: Places, odd: Flags) -> pa.Array:
    """Return the bodies of map messages as JSON.

    Args:
        window: where they are.
        places: the contents, uncompressed; one of no bytes is an empty map.
        odd: marked for maps of an unusual shape.
    """
    entries = Entries(window, places, odd)
    strings = np.flatnonzero(entries.is_text)
    parts = {tag: _as_json(entries, tag) for tag in entries.tags()}
    nulls = int((entries.tag == NULL).sum())
    if nulls:
        parts[NULL] = pa.repeat("null", nulls)
    quoted = _quoted(entries.texts.take(pa.array(strings)))
    texts = quoted.take(pa.array(np.cumsum(entries.is_text) - 1, mask=~entries.is_text)) if parts else quoted
    pairs = pc.binary_join_element_wise(_quoted(entries.keys), _together(entries, texts, parts), ":")
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array(entries.offsets), pairs), ",")
    found: pa.Array = pc.binary_join_element_wise(pa.scalar("{"), joined, pa.scalar("}"), pa.scalar(""))
    return found


def _together(entries: Entries, texts: pa.Array, others: dict[int, pa.Array]) -> pa.Array:
    """Return the values of all entries, given the strings in their places and the others, type by type."""
    if not others:
        return texts
    parts, index, count = [texts], np.arange(len(texts)), len(texts)
    for tag, part in others.items():
        index[entries.tag == tag] = count + np.arange(len(part))
        parts.append(part)
        count += len(part)
    return pa.concat_arrays(parts).take(pa.array(index))


def _as_text(entries: Entries, tag: int) -> pa.Array:
    if tag == DOUBLE:
        return pa.array([as_text(each) for each in entries.numbers(tag)], pa.string())
    if tag == FLOAT:
        return pa.array([as_text(Float(each)) for each in entries.numbers(tag)], pa.string())
    return entries.formatted(tag)


def _as_json(entries: Entries, tag: int) -> pa.Array:
    if tag == DOUBLE:
        found = [repr(each) if math.isfinite(each) else as_json(each) for each in entries.numbers(tag)]
        return pa.array(found, pa.string())
    if tag == FLOAT:
        return pa.array([as_json(Float(each)) for each in entries.numbers(tag)], pa.string())
    return _quoted(entries.formatted(tag)) if tag == CHAR else entries.formatted(tag)


def _quoted(texts: pa.Array) -> pa.Array:
    """Return texts as JSON strings."""
    data = texts.buffers()[2]
    values = np.frombuffer(memoryview(data or b""), np.uint8)
    quoted: pa.Array = pc.binary_join_element_wise(pa.scalar('"'), texts, pa.scalar('"'), pa.scalar(""))
    if (
        values.min(initial=_CONTROLS) >= _CONTROLS
        and not (values == ord('"')).any()
        and not (values == ord("\\")).any()
    ):
        return quoted
    foreign = np.flatnonzero((values < _CONTROLS) | (values == ord('"')) | (values == ord("\\")))
    offsets = np.frombuffer(memoryview(texts.buffers()[1] or b""), np.int32)
    escaped = np.zeros(len(texts), np.bool_)
    escaped[np.searchsorted(offsets, foreign, "right") - 1] = True
    mask = pa.array(escaped)
    raw: list[bytes] = texts.filter(mask).cast(pa.binary()).to_pylist()  # what is no UTF-8 belongs to an odd map
    replaced: pa.Array = pc.replace_with_mask(
        quoted, mask, pa.array([_quote(each.decode(errors="replace")) for each in raw], pa.string())
    )
    return replaced
