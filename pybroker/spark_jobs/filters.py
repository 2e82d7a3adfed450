"""Spark's filters on a journal: those that are decided while reading, so that the rest is not decoded.

A filter is taken only when it is applied exactly; every other one goes back to Spark, which applies it itself. Filters
on one column may come one by one, so they intersect. A row in which the column is null passes none of them, as in SQL.

| column                    | filters                                                  | decided                      |
|---------------------------|----------------------------------------------------------|------------------------------|
| file                      | =, <, <=, >, >=, in                                      | when partitions are planned  |
| record_type, destination  | =, in                                                    | before messages are decoded  |
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from pybroker.store.columns.selection import EVERYTHING, Selection
from pybroker.store.journal.format import OFFSET_MAX

_FILE: Final = ("file",)
_TEXTS: Final[Mapping[tuple[str, ...], str]] = {
    ("record_type",): "record_types",
    ("destination",): "destinations",
}


@dataclass(frozen=True, slots=True)
class Pushed:
    """Filters that were taken, together.

    Attributes:
        selection: of rows.
        file_min: the lowest data file.
        file_max: the highest data file.
        file_ids: only these, if not None.
    """

    selection: Selection = EVERYTHING
    file_min: int = 0
    file_max: int = OFFSET_MAX
    file_ids: frozenset[int] | None = None

    def takes_file(self, file_id: int) -> bool:
        """Return True for a data file whose rows are wanted."""
        listed = self.file_ids is None or file_id in self.file_ids
        return listed and self.file_min <= file_id <= self.file_max


def push(filters: Iterable[Filter]) -> tuple[Pushed, list[Filter]]:
    """Return the options for the filters used, and the other filters."""
    pushed, left = Pushed(), list[Filter]()
    for each in filters:
        taken = _take(pushed, each)
        if taken is None:
            left.append(each)
        else:
            pushed = taken
    return pushed, left


def _take(pushed: Pushed, condition: Filter) -> Pushed | None:
    """Return the filters with one more, None if it is not for us."""
    attribute: tuple[str, ...] = getattr(condition, "attribute", ())
    if attribute == _FILE:
        return _take_file(pushed, condition)
    if attribute in _TEXTS:
        values = _values(condition)
        if values is not None and all(isinstance(value, str) for value in values):
            return _take_text(pushed, _TEXTS[attribute], frozenset(map(str, values)))
    return None


def _values(condition: Filter) -> tuple[object, ...] | None:
    match condition:
        case EqualTo(value=value) | EqualNullSafe(value=value):
            return (value,)
        case In(value=values):
            return tuple(values)
        case _:
            return None


def _take_text(pushed: Pushed, name: str, values: frozenset[str]) -> Pushed:
    before: frozenset[str] | None = getattr(pushed.selection, name)
    both = values if before is None else before & values
    return replace(pushed, selection=replace(pushed.selection, **{name: both}))


def _take_file(pushed: Pushed, condition: Filter) -> Pushed | None:
    match condition:
        case IsNotNull():
            return pushed  # no row is without
        case GreaterThan(value=int(value)):
            return replace(pushed, file_min=max(pushed.file_min, value + 1))
        case GreaterThanOrEqual(value=int(value)):
            return replace(pushed, file_min=max(pushed.file_min, value))
        case LessThan(value=int(value)):
            return replace(pushed, file_max=min(pushed.file_max, value - 1))
        case LessThanOrEqual(value=int(value)):
            return replace(pushed, file_max=min(pushed.file_max, value))
        case _:
            values = _values(condition)
    if values is None or not all(isinstance(value, int) for value in values):
        return None
    listed = frozenset(value for value in values if isinstance(value, int))
    return replace(pushed, file_ids=listed if pushed.file_ids is None else pushed.file_ids & listed)
