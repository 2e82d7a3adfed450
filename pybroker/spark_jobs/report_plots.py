"""Plots as inline SVG: lines over time, stacked areas, columns, ranges on a logarithmic scale, strips. Pure.

A plot is text for a page that works without a network and without scripts. Colours are the page's CSS variables
(`--c1` to `--c8`, see `report_page`), so light and dark are the page's business. What a mark stands for is in its
`<title>`, which browsers show beside the pointer and screen readers read aloud.

```text
+--------+----------------------------------+
| labels |              marks               |  TOP to HEIGHT - BOTTOM
+--------+----------------------------------+
         |  ticks                           |  BOTTOM
         LEFT                          WIDTH - RIGHT
```
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape

WIDTH = 960
HEIGHT = 250
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 10, 26
COLOURS = 8
"""Colours a page has; further series share grey."""
ROW = 26
"""Height of a row in a plot that has one per name."""
NAME_LEFT = 250
"""Room for names on the left of such a plot."""
SIDE = 270
"""Room for words behind the longest bar."""
_NAME_CHARACTER, _TEXT_CHARACTER = 8.0, 7.3
"""Width of a wide character in a name and in other texts, which are smaller: longer ones are shortened."""

Point = tuple[float, float]

_TIME_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
"""Seconds between ticks of a time axis."""
_DURATIONS = (1.0, 10.0, 100.0, 1e3, 1e4, 6e4, 6e5, 3.6e6, 3.6e7, 8.64e7, 8.64e8, 8.64e9, 8.64e10)
"""Milliseconds at the ticks of a logarithmic scale, from one to a thousand days."""
_MILLISECONDS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"), (1, "ms"))


@dataclass(frozen=True, slots=True)
class Range:
    """A row of a range plot: a name, and values in ascending order, in milliseconds, with what each of them is."""

    name: str
    values: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of a strip: from and to in the strip's unit, a colour (1 to 8, 0 for grey), and words."""

    start: float
    end: float
    colour: int
    words: str


# ---------------------------------------------------------------- words for numbers


def count(value: float) -> str:
    """Return a number as people write it: 950, 12,300, 4.2 M."""
    if abs(value) >= 1_000_000:
        return f"{value / 1_000_000:,.1f} M"
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 100 else f"{value:.2g}"


def size(value: float) -> str:
    """Return bytes in the largest unit that leaves at least 1."""
    for unit in ("B", "KB", "MB", "GB"):
        if abs(value) < 1024:
            return f"{value:,.0f} {unit}" if value >= 10 or value == int(value) else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:,.1f} TB"


def duration(milliseconds: float) -> str:
    """Return a duration in the largest unit that leaves at least 1."""
    for unit_ms, unit in _MILLISECONDS:
        if abs(milliseconds) >= unit_ms:
            value = milliseconds / unit_ms
            return f"{value:,.0f} {unit}" if value >= 10 or value == int(value) else f"{value:.1f} {unit}"
    return "0" if not milliseconds else f"{milliseconds:.2g} ms"


def moment(seconds: float, span: float = 0) -> str:
    """Return a time in UTC; over a `span` of more than two days without its seconds, with its date."""
    at = datetime.fromtimestamp(seconds, UTC)
    return at.strftime("%m-%d %H:%M" if span > 172_800 else "%H:%M:%S")


def shortened(text: str, length: int) -> str:
    """Return a text of at most so many characters: the middle gives way, for both ends tell names apart."""
    if len(text) <= length:
        return text
    kept = max(length - 1, 2)
    return f"{text[: kept - kept // 2]}…{text[len(text) - kept // 2 :]}"


# ---------------------------------------------------------------- plots


def lines(series: Mapping[str, Sequence[Point]], *, label: Callable[[float], str] = count) -> str:
    """Draw one line per name; x are seconds since the epoch, in ascending order."""
    axes = _time_axes([points for points in series.values() if points], label)
    marks = [
        f'<polyline class="line s{_colour(number)}" points="{axes.path(points)}">{_title(name)}</polyline>'
        for number, (name, points) in enumerate(series.items())
        if points
    ]
    dots = [
        f'<circle class="dot" cx="{axes.x(x):.1f}" cy="{axes.y(y):.1f}" r="4">'
        f"{_title(f'{name} {moment(x, axes.x_span)}: {label(y)}')}</circle>"
        for name, points in series.items()
        for x, y in points
    ]
    return _figure(axes.frame() + "".join(marks) + "".join(dots), series)


def areas(series: Mapping[str, Sequence[float]], xs: Sequence[float], *, label: Callable[[float], str] = count) -> str:
    """Draw names on top of one another; each has one value for every x (seconds since the epoch)."""
    totals = [sum(values) for values in zip(*series.values(), strict=True)]
    axes = _time_axes([list(zip(xs, totals, strict=True))], label)
    floor = [0.0] * len(xs)
    marks: list[str] = []
    for number, (name, values) in enumerate(series.items()):
        top = [low + value for low, value in zip(floor, values, strict=True)]
        outline = axes.path(list(zip(xs, top, strict=True)))
        back = axes.path(list(zip(reversed(xs), reversed(floor), strict=True)))
        marks.append(f'<polygon class="area f{_colour(number)}" points="{outline} {back}">{_title(name)}</polygon>')
        floor = top
    return _figure(axes.frame() + "".join(marks), series)


def columns(bars: Sequence[tuple[str, Mapping[str, float]]], *, label: Callable[[float], str] = count) -> str:
    """Draw one column per label, made of one piece per name."""
    names = list(dict.fromkeys(name for _, pieces in bars for name in pieces))
    highest = max((sum(pieces.values()) for _, pieces in bars), default=0)
    axes = _Axes((0, max(len(bars), 1)), (0, highest or 1), label)
    step = axes.width / max(len(bars), 1)
    marks: list[str] = []
    for index, (title, pieces) in enumerate(bars):
        left = LEFT + index * step
        floor = 0.0
        for name, value in pieces.items():
            high, low = axes.y(floor + value), axes.y(floor)
            words = f"{title}, {name}: {label(value)}"
            marks.append(_rect(left + 2, high, step - 4, low - high, _colour(names.index(name)), words))
            floor += value
        if index % max(1, math.ceil(len(bars) / 16)) == 0:
            marks.append(_text(left + step / 2, HEIGHT - BOTTOM + 16, title, "middle"))
    return _figure(axes.frame(ticks=False) + "".join(marks), dict.fromkeys(names))


def bars(rows: Sequence[tuple[str, float, str]], *, label: Callable[[float], str] = count) -> str:
    """Draw a horizontal bar per name, value and words behind it."""
    highest = max((value for _, value, _ in rows), default=0) or 1
    room = WIDTH - NAME_LEFT - SIDE
    marks: list[str] = []
    for index, (name, value, words) in enumerate(rows):
        y = index * ROW + 4
        length = max(room * value / highest, 2)
        marks.append(_name(y, name))
        marks.append(_rect(NAME_LEFT, y, length, ROW - 8, 1, f"{name}: {label(value)}"))
        start = NAME_LEFT + length + 8
        behind = f"{label(value)}{' · ' if words else ''}{words}"
        shown = shortened(behind, int((WIDTH - start) / _TEXT_CHARACTER))
        marks.append(_text(start, y + 13, shown, "start", behind if shown != behind else ""))
    return _svg("".join(marks), len(rows) * ROW + 4)


def ranges(rows: Sequence[Range]) -> str:
    """Draw per name a line from its first to its last value, and a dot for each, on a logarithmic scale of times."""
    values = [max(value, 1.0) for row in rows for _, value in row.values]
    first = min(bisect_right(_DURATIONS, min(values, default=1.0)), len(_DURATIONS) - 1) - 1
    last = min(max(bisect_left(_DURATIONS, max(values, default=1.0)), first + 1), len(_DURATIONS) - 1)
    low, high = math.log10(_DURATIONS[first]), math.log10(_DURATIONS[last])
    room = WIDTH - NAME_LEFT - 40

    def x(value: float) -> float:
        return NAME_LEFT + room * (min(math.log10(max(value, 1.0)), high) - low) / (high - low)

    bottom = len(rows) * ROW + 4
    marks = [
        f'<line class="grid" x1="{x(value):.1f}" x2="{x(value):.1f}" y1="0" y2="{bottom}"/>'
        + _text(x(value), bottom + 16, duration(value), "middle")
        for value in _DURATIONS[first : last + 1]
    ]
    for index, row in enumerate(rows):
        y = index * ROW + ROW / 2
        least, most = row.values[0][1], row.values[-1][1]
        marks.append(_name(y - 9, row.name))
        marks.append(f'<line class="span" x1="{x(least):.1f}" x2="{x(most):.1f}" y1="{y}" y2="{y}"/>')
        marks += [
            f'<circle class="f{number}" cx="{x(value):.1f}" cy="{y}" r="6">'
            f"{_title(f'{row.name}, {what}: {duration(value)}')}</circle>"
            for number, (what, value) in enumerate(row.values, 1)
        ]
    legend = dict.fromkeys(what for row in rows for what, _ in row.values)
    return _figure("".join(marks), legend, height=bottom + 22)


def strips(rows: Sequence[tuple[str, Sequence[Span]]], *, tick: Callable[[float], str] | None = None) -> str:
    """Draw per name a strip of coloured pieces on one common scale; `tick` puts that scale's ends into words."""
    starts = [span.start for _, spans in rows for span in spans]
    ends = [span.end for _, spans in rows for span in spans]
    first, last = min(starts, default=0), max(ends, default=1)
    scale = (WIDTH - NAME_LEFT - RIGHT) / ((last - first) or 1)
    marks: list[str] = []
    for index, (name, spans) in enumerate(rows):
        y = index * ROW + 4
        marks.append(_name(y, name))
        for span in spans:
            left = NAME_LEFT + (span.start - first) * scale
            width = max((span.end - span.start) * scale - 1, 2)
            marks.append(_rect(left, y, width, ROW - 8, span.colour, span.words))
    bottom = len(rows) * ROW + 4
    if tick is not None:
        marks.append(_text(NAME_LEFT, bottom + 14, tick(first), "start"))
        marks.append(_text(WIDTH - RIGHT, bottom + 14, tick(last), "end"))
    return _svg("".join(marks), bottom + (20 if tick is not None else 0))


def legend(names: Iterable[tuple[str, int]]) -> str:
    """Return names beside their colours."""
    items = "".join(f'<li><i class="b{colour}"></i>{escape(name)}</li>' for name, colour in names)
    return f'<ul class="legend">{items}</ul>'


# ---------------------------------------------------------------- axes


class _Axes:
    """Maps values to places; draws the grid, its labels and the ticks."""

    def __init__(self, xs: Point, ys: Point, label: Callable[[float], str]) -> None:
        self._x_min, x_max = xs
        self.x_span = (x_max - self._x_min) or 1
        self._steps = _nice(ys[1])
        self._y_max = self._steps[-1]
        self._label = label
        self.width = WIDTH - LEFT - RIGHT

    def x(self, value: float) -> float:
        return LEFT + (value - self._x_min) / self.x_span * self.width

    def y(self, value: float) -> float:
        return HEIGHT - BOTTOM - value / self._y_max * (HEIGHT - TOP - BOTTOM)

    def path(self, points: Sequence[Point]) -> str:
        return " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in points)

    def frame(self, *, ticks: bool = True) -> str:
        grid = [
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{self.y(y):.1f}" y2="{self.y(y):.1f}"/>'
            + _text(LEFT - 8, self.y(y) + 4, self._label(y), "end")
            for y in self._steps
        ]
        times = [
            _text(self.x(second), HEIGHT - BOTTOM + 16, moment(second, self.x_span), "middle")
            for second in (self._times() if ticks else ())
        ]
        return "".join(grid + times)

    def _times(self) -> Iterable[float]:
        step = next((each for each in _TIME_STEPS if self.x_span / each <= 8), 86400 * math.ceil(self.x_span / 691_200))
        second = math.ceil(self._x_min / step) * step
        while second <= self._x_min + self.x_span:
            if LEFT + 20 < self.x(second) < WIDTH - RIGHT - 20:
                yield second
            second += step


def _time_axes(series: Sequence[Sequence[Point]], label: Callable[[float], str]) -> _Axes:
    xs = [x for points in series for x, _ in points]
    highest = max((y for points in series for _, y in points), default=0)
    return _Axes((min(xs, default=0), max(xs, default=1)), (0, highest or 1), label)


def _nice(highest: float) -> list[float]:
    """Return up to six round numbers from 0 to at least `highest`."""
    step = 10.0 ** math.floor(math.log10(highest / 4)) if highest > 0 else 1.0
    step *= next(each for each in (1, 2, 2.5, 5, 10) if highest / (step * each) <= 5)
    return [step * each for each in range(math.ceil(highest / step - 1e-9) + 1)]


# ---------------------------------------------------------------- marks


def _colour(number: int) -> int:
    return number + 1 if number < COLOURS else 0


def _title(words: str) -> str:
    return f"<title>{escape(words)}</title>"


def _rect(x: float, y: float, width: float, height: float, colour: int, words: str) -> str:
    return (
        f'<rect class="f{colour}" x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.5):.1f}" height="{max(height, 0):.1f}" '
        f'rx="2">{_title(words)}</rect>'
    )


def _text(x: float, y: float, words: str, anchor: str, whole: str = "") -> str:
    title = _title(whole) if whole else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}{title}</text>'


def _name(y: float, name: str) -> str:
    shown = shortened(name, int((NAME_LEFT - 10) / _NAME_CHARACTER))
    place = f'x="{NAME_LEFT - 10}" y="{y + 13:.1f}"'
    return f'<text class="name" {place} text-anchor="end">{escape(shown)}{_title(name)}</text>'


def _svg(marks: str, height: float) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img">{marks}</svg>'


def _figure(marks: str, names: Iterable[str], *, height: float = HEIGHT) -> str:
    shown = legend((name, _colour(number)) for number, name in enumerate(names))
    return f"<figure>{shown}{_svg(marks, height)}</figure>"
