"""Plots as inline SVG: lines over time, stacked areas, columns, bars, ranges on a logarithmic scale, strips. Pure.

Altair draws them when the report is made, so the page needs no script and no network. Colours are the page's CSS
variables (`--c1` to `--c8`), which the page sets for light and dark. The `<title>` of each mark has its name and value:
browsers show it beside the pointer, and screen readers read it aloud.
"""

import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from xml.etree import ElementTree

import altair as alt
import vl_convert
from markupsafe import Markup

WIDTH: Final = 960
HEIGHT: Final = 214
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 10, 26
COLOURS: Final = 8
"""Colours of the page; further series share grey."""
ROW: Final = 26
"""Height of a row in a plot that has one per name."""
NAME_LEFT: Final = 250
"""Space for names on the left of such a plot."""
SIDE: Final = 270
"""Space for text behind the longest bar."""
_NAME_CHARACTER, _TEXT_CHARACTER = 8.0, 7.3
"""Width of a wide character in a name and in other texts, which are smaller: longer ones are shortened."""

Point = tuple[float, float]
_Rows = list[dict[str, Any]]

_DURATIONS: Final = (1.0, 10.0, 100.0, 1e3, 1e4, 6e4, 6e5, 3.6e6, 3.6e7, 8.64e7, 8.64e8, 8.64e9, 8.64e10)
"""Milliseconds at the ticks of a logarithmic scale, from one to a thousand days."""
_MILLISECONDS: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"), (1, "ms"))

_COLOUR: Final = alt.Color("colour:N", scale=None)
_DETAIL: Final = alt.Detail("name:N")
_WORDS: Final = alt.Description("words:N")
_ROW: Final = alt.Y("row:O", axis=None, scale=alt.Scale(paddingInner=0.3, paddingOuter=0.15))
_AMOUNT: Final = alt.Y("y:Q", scale=alt.Scale(nice=5), axis=alt.Axis(title=None, tickCount=5))
_FINER: Final = re.compile(r"(?<=\.\d\d)\d+")
"""Digits of a coordinate smaller than a hundredth of a pixel."""
_SVG: Final = "http://www.w3.org/2000/svg"
_CONFIG: Final = {
    "autosize": "none",
    "background": "transparent",
    "font": "system-ui, sans-serif",
    "view": {"stroke": None},
    "line": {"strokeJoin": "round"},
    "axis": {
        "aria": False,
        "domain": False,
        "ticks": False,
        "gridColor": "var(--line)",
        "labelColor": "var(--soft)",
        "labelFontSize": 12,
        "labelPadding": 8,
    },
}


@dataclass(frozen=True, slots=True)
class Plot:
    """A drawing, and the names beside their colours (CSS) that explain it."""

    svg: Markup
    legend: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True, slots=True)
class Range:
    """A row of a range plot: a name, and values in milliseconds with their meanings, in ascending order."""

    name: str
    values: Sequence[tuple[str, float]]


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of a strip: start and end in the strip's unit, a colour (1 to 8, 0 for grey), and its title."""

    start: float
    end: float
    colour: int
    words: str


# ---------------------------------------------------------------- numbers as text


def count(value: float) -> str:
    """Return a number for people: 950, 12,300, 4.2 M."""
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


def moment(seconds: float) -> str:
    """Return a time in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")


def shortened(text: str, length: int) -> str:
    """Return a text of at most `length` characters: the middle is left out, since names differ at both ends."""
    if len(text) <= length:
        return text
    kept = max(length - 1, 2)
    return f"{text[: kept - kept // 2]}…{text[len(text) - kept // 2 :]}"


# ---------------------------------------------------------------- plots


def lines(series: Mapping[str, Sequence[Point]]) -> Plot:
    """Draw one line per name; x are seconds since the epoch, in ascending order."""
    colours = colours_of(series)
    points: _Rows = [
        {"name": name, "colour": colours[name], "x": x * 1000, "y": y, "words": f"{name} {moment(x)}: {count(y)}"}
        for name, values in series.items()
        for x, y in values
    ]
    base = _chart(points).encode(x=_time([each["x"] for each in points]), y=_AMOUNT, color=_COLOUR)
    named = base.mark_line().encode(detail=_DETAIL, description="name:N")
    dots = base.mark_circle(opacity=0, size=60).encode(description=_WORDS)
    return _framed(alt.layer(named, dots), colours)


def areas(series: Mapping[str, Sequence[float]], xs: Sequence[float]) -> Plot:
    """Draw names on top of one another; each has one value for every x (seconds since the epoch)."""
    colours = colours_of(series)
    points: _Rows = [
        {"name": name, "number": number, "colour": colours[name], "x": x * 1000, "y": y}
        for number, (name, values) in enumerate(series.items())
        for x, y in zip(xs, values, strict=True)
    ]
    base = _chart(points).encode(x=_time([each["x"] for each in points]), y=_AMOUNT, color=_COLOUR)
    stacked = base.mark_area(opacity=0.8).encode(detail=_DETAIL, order="number:Q", description="name:N")
    return _framed(stacked, colours)


def columns(bars: Sequence[tuple[str, Mapping[str, float]]]) -> Plot:
    """Draw one column per label, made of one piece per name."""
    names = list(dict.fromkeys(name for _, pieces in bars for name in pieces))
    colours = colours_of(names)
    pieces: _Rows = [
        {
            "x": label,
            "y": y,
            "number": names.index(name),
            "colour": colours[name],
            "words": f"{label}, {name}: {count(y)}",
        }
        for label, values in bars
        for name, y in values.items()
    ]
    labels = alt.Scale(domain=[label for label, _ in bars], padding=0.05)
    axis = alt.Axis(title=None, labelAngle=0, labelOverlap=True)
    stacked = _chart(pieces).mark_bar().encode(x=alt.X("x:O", scale=labels, axis=axis), y=_AMOUNT, color=_COLOUR)
    return _framed(stacked.encode(order="number:Q", description=_WORDS), colours)


def bars(rows: Sequence[tuple[str, float, str]]) -> Plot:
    """Draw a horizontal bar per name, with its value and a text behind it."""
    highest = max((value for _, value, _ in rows), default=0) or 1
    space = WIDTH - NAME_LEFT - SIDE
    drawn: _Rows = []
    for number, (name, value, words) in enumerate(rows):
        behind = f"{count(value)}{' · ' if words else ''}{words}"
        start = NAME_LEFT + 8 + space * value / highest
        shown = shortened(behind, int((WIDTH - start) / _TEXT_CHARACTER))
        drawn.append({"row": number, "x": value, "shown": shown, "behind": behind, "words": f"{name}: {count(value)}"})
    x = alt.X("x:Q", axis=None, scale=alt.Scale(domain=[0, highest]))
    base = _chart(drawn).encode(x=x, y=_ROW)
    texts = base.mark_text(align="left", dx=8, fontSize=12, color="var(--soft)").encode(
        text="shown:N", description="behind:N"
    )
    marks = base.mark_bar(color="var(--c1)").encode(description=_WORDS)
    return _named([name for name, _, _ in rows], [marks, texts], right=SIDE, bottom=4)


def ranges(rows: Sequence[Range]) -> Plot:
    """Draw per name a line from its first to its last value, and a dot for each, on a logarithmic scale of times."""
    values = [max(value, 1.0) for row in rows for _, value in row.values]
    first = min(bisect_right(_DURATIONS, min(values, default=1.0)), len(_DURATIONS) - 1) - 1
    last = min(max(bisect_left(_DURATIONS, max(values, default=1.0)), first + 1), len(_DURATIONS) - 1)
    colours = colours_of(what for row in rows for what, _ in row.values)

    def x(value: float) -> float:
        return min(max(value, 1.0), _DURATIONS[last])

    dots: _Rows = [
        {"row": number, "x": x(value), "colour": colours[what], "words": f"{row.name}, {what}: {duration(value)}"}
        for number, row in enumerate(rows)
        for what, value in row.values
    ]
    spans: _Rows = [{"row": n, "x": x(row.values[0][1]), "end": x(row.values[-1][1])} for n, row in enumerate(rows)]
    scale = alt.Scale(type="log", domain=[_DURATIONS[first], _DURATIONS[last]])
    across = alt.X("x:Q", scale=scale, axis=_ticks(_DURATIONS[first : last + 1], duration, grid=True))
    span = _chart(spans).mark_rule(color="var(--c0)", strokeWidth=3, aria=False).encode(x=across, x2="end:Q", y=_ROW)
    dot = _chart(dots).mark_circle(size=110, opacity=1).encode(x=across, y=_ROW, color=_COLOUR, description=_WORDS)
    return _named([row.name for row in rows], [span, dot], colours, right=40, bottom=22)


def strips(
    rows: Sequence[tuple[str, Sequence[Span]]], tick: Callable[[float], str], legend: Mapping[str, int] | None = None
) -> Plot:
    """Draw per name a strip of coloured pieces on one common scale; `tick` writes that scale's ends."""
    first = min((span.start for _, spans in rows for span in spans), default=0)
    last = max((span.end for _, spans in rows for span in spans), default=1)
    space = WIDTH - NAME_LEFT - RIGHT
    least = 2 * ((last - first) or 1) / space  # two pixels
    pieces: _Rows = [
        {
            "row": number,
            "x": span.start,
            "end": max(span.end, span.start + least),
            "colour": _colour(span.colour),
            "words": span.words,
        }
        for number, (_, spans) in enumerate(rows)
        for span in spans
    ]
    scale = alt.Scale(domain=[first, max(last, first + least)], nice=False, zero=False)
    across = alt.X("x:Q", scale=scale, axis=_ticks([first, last], tick))
    marks = _chart(pieces).mark_bar(stroke="var(--card)", strokeWidth=1)
    drawn = marks.encode(x=across, x2="end:Q", y=_ROW, color=_COLOUR, description=_WORDS)
    colours = {name: _colour(number) for name, number in (legend or {}).items()}
    return _named([name for name, _ in rows], [drawn], colours, right=RIGHT, bottom=22)


def colours_of(names: Iterable[str]) -> dict[str, str]:
    """Return a colour for each name, in their order; grey after the page's last colour."""
    return {name: _colour(number if number <= COLOURS else 0) for number, name in enumerate(dict.fromkeys(names), 1)}


def _colour(number: int) -> str:
    return f"var(--c{number})"


# ---------------------------------------------------------------- charts


def _chart(rows: _Rows) -> alt.Chart:
    return alt.Chart(alt.InlineData(values=rows))


def _ticks(values: Sequence[float], label: Callable[[float], str], *, grid: bool = False) -> alt.Axis:
    """Return an axis with ticks at values of one's own, and labels that Python writes."""
    labels = json.dumps({f"{value:.0f}": label(value) for value in values})
    return alt.Axis(
        title=None, grid=grid, values=values, labelExpr=f"{labels}['' + round(datum.value)]", labelFlush=True
    )


def _time(milliseconds: Sequence[float]) -> alt.X:
    """Return a time axis in UTC; for more than two days with dates instead of seconds."""
    is_long = bool(milliseconds) and max(milliseconds) - min(milliseconds) > 172_800_000
    form = "%m-%d %H:%M" if is_long else "%H:%M:%S"
    return alt.X("x:T", scale=alt.Scale(type="utc"), axis=alt.Axis(title=None, grid=False, tickCount=8, format=form))


def _framed(chart: alt.typing.ChartType, colours: Mapping[str, str]) -> Plot:
    padding = {"left": LEFT, "right": RIGHT, "top": TOP, "bottom": BOTTOM}
    return Plot(_svg(chart, WIDTH - LEFT - RIGHT, HEIGHT, padding), list(colours.items()))


def _named(
    names: Sequence[str],
    marks: Sequence[alt.Chart],
    colours: Mapping[str, str] | None = None,
    *,
    right: int,
    bottom: int,
) -> Plot:
    """Put names on the left of marks, a row each."""
    length = int((NAME_LEFT - 10) / _NAME_CHARACTER)
    rows: _Rows = [{"row": number, "name": name, "shown": shortened(name, length)} for number, name in enumerate(names)]
    texts = _chart(rows).mark_text(align="right", x=-10, fontSize=13, color="var(--ink)")
    chart = alt.layer(*marks, texts.encode(y=_ROW, text="shown:N", description="name:N"))
    padding = {"left": NAME_LEFT, "right": right, "top": 0, "bottom": bottom}
    return Plot(_svg(chart, WIDTH - NAME_LEFT - right, len(names) * ROW, padding), list((colours or {}).items()))


def _svg(chart: alt.typing.ChartType, width: int, height: int, padding: Mapping[str, int]) -> Markup:
    """Draw a chart; its marks' descriptions become titles, which browsers show."""
    spec = chart.to_dict() | {"width": width, "height": height, "padding": dict(padding)}
    drawn = vl_convert.vegalite_to_svg(spec, config=_CONFIG, allowed_base_urls=[])
    ElementTree.register_namespace("", _SVG)
    root = ElementTree.fromstring(drawn)  # noqa: S314  it was made in this process
    for each in list(root.iter()):
        words = each.attrib.pop("aria-label", None)
        for name in ("role", "aria-roledescription", "aria-hidden"):
            each.attrib.pop(name, None)
        for name in {"d", "transform"}.intersection(each.keys()):
            each.set(name, _FINER.sub("", each.attrib[name]))
        if words is not None:
            title = ElementTree.Element(f"{{{_SVG}}}title")
            title.text = words
            each.insert(0, title)
    root.set("role", "graphics-document")
    return Markup(ElementTree.tostring(root, encoding="unicode"))  # noqa: S704  texts were escaped as XML
