"""Tables and values of the commands for operators, as text; and the layouts of ActiveMQ's `dstat` and `bstat`.

Names and bodies come from clients: what a terminal would obey in them is shown as an escape.

Source: ActiveMQ 5.17, `DstatCommand`, `BstatCommand`; management.md, section 7.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

Row = Mapping[str, Any]

_DSTAT: Final = "%-50s" + 7 * "  %10s"
_DSTAT_TITLES: Final = (
    "Name",
    "Queue Size",
    "Producer #",
    "Consumer #",
    "Enqueue #",
    "Dequeue #",
    "Forward #",
    "Memory %",
)


class TableColumn(NamedTuple):
    """A column of a table.

    Attributes:
        title: its title.
        key: the field that it shows.
        shown: returns the text of the field.
        is_number: True to align it to the right.
    """

    title: str
    key: str
    shown: Callable[[Any], str]
    is_number: bool = False


def table(columns: Sequence[TableColumn], rows: Iterable[Row]) -> Iterator[str]:
    """Yield the lines of a table, the titles first."""
    cells = [[column.title for column in columns]]
    cells += [[column.shown(row.get(column.key)) for column in columns] for row in rows]
    widths = [max(len(line[index]) for line in cells) for index in range(len(columns))]
    for line in cells:
        padded = [
            cell.rjust(width) if column.is_number else cell.ljust(width)
            for cell, width, column in zip(line, widths, columns, strict=True)
        ]
        yield "  ".join(padded).rstrip()


def plain(value: object) -> str:
    """Return a text in one line, without what a terminal would obey."""
    text = "" if value is None else str(value)
    return text if text.isprintable() else json.dumps(text, ensure_ascii=False)[1:-1].translate(_ESCAPES)


_ESCAPES: Final = {
    number: f"\\u{number:04x}" for number in (*range(0x7F, 0xA0), 0x2028, 0x2029, *range(0x202A, 0x202F))
}
"""Characters that JSON does not escape, and a terminal may obey."""


def number(value: Any) -> str:
    """Return a number with commas; `-` if it is not known."""
    return "-" if value is None else f"{value:,}"


def rate(value: Any) -> str:
    """Return a rate; `-` if it is not known."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 10 or not value else f"{value:.1f}"


def yes(value: Any) -> str:
    """Return `yes` or `no`."""
    return "yes" if value else "no"


def age(milliseconds: int) -> str:
    """Return a time in the past, in its largest unit."""
    seconds = max(0, milliseconds) // 1000
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"


def cut(text: str, length: int) -> str:
    """Return a text of at most so many characters."""
    return text if len(text) <= length else f"{text[: length - 1]}…"


# ---------------------------------------------------------------- ActiveMQ's


def dstat(rows: Iterable[Row]) -> Iterator[str]:
    """Yield the lines of `activemq dstat`, by name."""
    yield _DSTAT % _DSTAT_TITLES
    for row in _by_name(rows):
        columns = ("size", "producers", "consumers", "enqueued", "dequeued")
        yield _DSTAT % (plain(row["name"]), *[row[each] for each in columns], 0, row["memory_percent"])


def bstat(rows: Iterable[Row]) -> Iterator[str]:
    """Yield the lines of `activemq bstat`: a block for each destination, with an empty line between two."""
    for index, row in enumerate(_by_name(rows)):
        if index:
            yield ""
        name = plain(row["name"])
        yield f"Name = {name}"
        yield f"destinationName = {name}"
        yield f"destinationType = {row['kind'].capitalize()}"
        for title, key in (
            ("EnqueueCount", "enqueued"),
            ("DequeueCount", "dequeued"),
            ("ConsumerCount", "consumers"),
            ("DispatchCount", "dispatched"),
        ):
            yield f"{title} = {row[key]}"


def _by_name(rows: Iterable[Row]) -> Sequence[Row]:
    """Return the rows by name, without temporary destinations, whose MBeans have another type."""
    return sorted((row for row in rows if not row.get("is_temporary")), key=lambda row: str(row["name"]))
