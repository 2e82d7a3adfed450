"""The screen of `pybroker top`, as lines of text with styles. Pure.

```text
amq  3.1 days  master a                                      2026-11-22 16:16:36
pair: healthy; a master; b standby, ready, 0.1 s behind
12 connections  1,234 waiting  8 in flight  12 in/s  11 out/s  memory 3 %

NAME                                SIZE  IN FLIGHT  CONS  PROD    IN/S   OUT/S
ORDERS                             1,200          8     3     1      12      11
…
q quit  ↑↓ PgUp PgDn move  ←→ sort: IN/S  r reverse                   1-19 of 57
```
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from pybroker.broker.app.operator_text import Row, age, cut, number, plain, rate
from pybroker.counted import counted

HEAD_LINES: Final = 4
"""Lines above the titles of the table."""

_BESIDE_ROWS: Final = HEAD_LINES + 2

_NUMBERS: Final = (
    ("SIZE", "size", 9),
    ("IN FLIGHT", "in_flight", 9),
    ("CONS", "consumers", 5),
    ("PROD", "producers", 5),
    ("IN/S", "enqueue_rate", 7),
    ("OUT/S", "dequeue_rate", 7),
)
_NAME_WIDTH_MIN: Final = 10

SORTABLE: Final = ("name", *[key for _, key, _ in _NUMBERS], "enqueued", "dequeued")
"""The columns that the arrows choose among."""

_TITLES: Final = {"name": "NAME", **{key: title for title, key, _ in _NUMBERS}}


class Line(NamedTuple):
    """A line and its style, of the names of rich; empty for none."""

    text: str
    style: str = ""


@dataclass(slots=True)
class TopView:
    """The state of the keys.

    Attributes:
        sort: the column to sort by.
        is_descending: True for the largest first.
        first: the number of rows above the first one that is shown.
        name: a part of the names of the queues.
    """

    sort: str
    is_descending: bool
    name: str = ""
    first: int = 0

    def press(self, key: str, rows: int) -> bool:
        """Obey a key, with so many rows on the screen; return False for the one that ends it."""
        match key:
            case "q":
                return False
            case "up" | "down":
                self.first = max(0, self.first + (1 if key == "down" else -1))
            case "page up" | "page down":
                self.first = max(0, self.first + (rows if key == "page down" else -rows))
            case "home":
                self.first = 0
            case "left" | "right":
                index = SORTABLE.index(self.sort) if self.sort in SORTABLE else 0
                self.sort = SORTABLE[(index + (1 if key == "right" else -1)) % len(SORTABLE)]
                self.is_descending, self.first = self.sort != "name", 0
            case "r":
                self.is_descending, self.first = not self.is_descending, 0
            case _:
                pass
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class TopState:
    """The pair at one moment.

    Attributes:
        at: the time, as text.
        now_ms: the same, in milliseconds since the epoch.
        members: the state of each member, by its URL: its overview, or why there is none.
        overview: that of the master; empty without one.
        pair: the state of high availability, as `/api/v1/ha` has it; empty if the members do not have it.
        queues: the rows on the screen.
        count: the number of all queues.
        problem: why there are no queues; empty if there are.
    """

    at: str
    now_ms: int
    members: Mapping[str, Mapping[str, Any] | str]
    overview: Mapping[str, Any] = field(default_factory=dict[str, Any])
    pair: Mapping[str, Any] = field(default_factory=dict[str, Any])
    queues: Sequence[Row] = ()
    count: int = 0
    problem: str = ""


def row_count(height: int) -> int:
    """Return the number of rows that a screen has room for."""
    return max(1, height - _BESIDE_ROWS)


def screen(state: TopState, view: TopView, width: int, height: int) -> Sequence[Line]:
    """Return the lines of a screen, no more than its height, none wider than its width."""
    lines = [_title(state, width), _pair(state), _totals(state), Line("")]
    widths = _name_width(width)
    lines.append(Line(_titles(view, widths), "bold"))
    room = row_count(height)
    if state.problem:
        lines.append(Line(plain(state.problem), "red"))
    else:
        lines += [_queue(row, widths) for row in state.queues[:room]]
    lines += [Line("")] * (height - 1 - len(lines))
    lines = [*lines[: max(0, height - 1)], _footer(state, view, width)]
    return [Line(cut(line.text, width), line.style) for line in lines[-height:]]


def _title(state: TopState, width: int) -> Line:
    overview = state.overview
    name = plain(overview.get("broker_name", "pybroker"))
    since = f"  master {plain(overview['host'])} for {age(state.now_ms - overview['since_ms'])}" if overview else ""
    left = cut(f"{name}{since}", max(1, width - len(state.at) - 1))
    return Line(f"{left}{state.at.rjust(width - len(left))}", "bold")


def _pair(state: TopState) -> Line:
    """Return the state of the pair: of high availability if the members know it, and else their roles."""
    if not state.pair:
        words = [f"{url} {_role(found)}" for url, found in state.members.items()]
        return Line("members: " + "; ".join(words), "" if state.overview else "red")
    status = str(state.pair.get("state", "unknown"))
    reasons = [str(each.get("text", "")) for each in state.pair.get("reasons", ())]
    members = [_member(each) for each in state.pair.get("members", ()) if each.get("is_alive")]
    style = {"healthy": "green", "degraded": "red"}.get(status, "yellow")
    first = f"{status}: {'; '.join(reasons)}" if reasons else status
    return Line(plain("pair: " + "; ".join((first, *members))), style)


def _member(member: Mapping[str, Any]) -> str:
    words = [f"{member.get('name')} {str(member.get('role')).lower()}"]
    if member.get("role") == "STANDBY":
        words.append("ready" if member.get("standby_ready") else "NOT READY")
        if member.get("lag_seconds") is not None:
            words.append(f"{member['lag_seconds']:.1f} s behind")
    return ", ".join(words)


def _role(found: Mapping[str, Any] | str) -> str:
    return "does not answer" if isinstance(found, str) else str(found.get("role", "unknown")).lower()


def _totals(state: TopState) -> Line:
    totals = state.overview.get("totals")
    if not totals:
        return Line("")
    limit = totals["memory_bytes_max"]
    memory = f"  memory {100 * totals['memory_bytes'] // limit} %" if limit else ""
    scheduled = f"  {totals['scheduled']:,} scheduled" if totals["scheduled"] else ""
    lag = f"  loop lag {totals['loop_lag_seconds'] * 1000:,.0f} ms"
    full = "  STORE FULL" if totals["is_full"] else ""
    text = (
        f"{counted(totals['connections'], 'connection')}  {totals['waiting']:,} waiting  "
        f"{totals['in_flight']:,} in flight{scheduled}{memory}{lag}{full}"
    )
    return Line(text, "red" if full else "")


def _name_width(width: int) -> int:
    return max(_NAME_WIDTH_MIN, width - sum(size + 1 for _, _, size in _NUMBERS))


def _titles(view: TopView, name_width: int) -> str:
    def title(text: str, key: str) -> str:
        mark = ("v" if view.is_descending else "^") if key == view.sort else ""
        return f"{mark}{text}"

    cells = [title("NAME", "name").ljust(name_width)]
    cells += [title(text, key)[: size + 1].rjust(size) for text, key, size in _NUMBERS]
    return " ".join(cells)


def _queue(row: Row, name_width: int) -> Line:
    state = " (paused)" if row.get("is_paused") else ""
    name = cut(plain(row["name"]), name_width - len(state)) + state
    cells = [name.ljust(name_width)]
    for _, key, size in _NUMBERS:
        text = rate(row[key]) if key.endswith("rate") else number(row[key])
        cells.append(cut(text, size).rjust(size))
    style = "yellow" if row["size"] and not row["consumers"] else ""
    return Line(" ".join(cells), style)


def _footer(state: TopState, view: TopView, width: int) -> Line:
    keys = f"q quit  ↑↓ move  ←→ sort: {_TITLES.get(view.sort, view.sort)}  r reverse"
    last = min(state.count, view.first + len(state.queues))
    where = f"{view.first + 1:,}-{last:,} of {state.count:,}" if last else "no queues"
    return Line(f"{keys}{where.rjust(width - len(keys))}", "dim")
