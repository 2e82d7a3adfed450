"""The report's page: tiles, sections, tables, colours for light and dark. One file without scripts. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from html import escape
from typing import Any, Final

ROWS_MAX: Final = 200
"""Rows of a table; the tables themselves have the rest."""

_STYLE: Final = """
:root{color-scheme:light dark;--page:#f6f6f3;--card:#fff;--ink:#15151a;--soft:#5d5d66;--line:#e3e2dc;
--c0:#a9a9a4;--c1:#2a78d6;--c2:#1baf7a;--c3:#eda100;--c4:#e34948;--c5:#4a3aa7;--c6:#e87ba4;--c7:#eb6834;--c8:#0f7b3f;
--bad:#c52f2e;--warn:#b87a00;--good:#0f7b3f}
@media(prefers-color-scheme:dark){:root{--page:#131316;--card:#1c1c21;--ink:#f1f0ec;--soft:#a5a4ad;--line:#33333b;
--c0:#6f6f75;--c1:#4a93e8;--c2:#2bb98a;--c3:#d99a1c;--c4:#e66767;--c5:#9085e9;--c6:#d55181;--c7:#e27441;--c8:#3fa566;
--bad:#ff8b86;--warn:#e2b04a;--good:#5fc48b}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,"Segoe UI",Roboto,sans-serif}
main{max-width:1080px;margin:0 auto;padding:32px 20px 64px}
h1{font-size:28px;line-height:1.2;margin:0 0 4px;letter-spacing:-.01em}
h2{font-size:19px;margin:0 0 4px}h3{font-size:14px;margin:22px 0 6px;font-weight:600}
p{margin:0 0 10px;max-width:76ch}.soft,.note{color:var(--soft)}.note{font-size:13px}
nav{display:flex;flex-wrap:wrap;gap:4px 16px;margin:14px 0 22px;font-size:14px}
a{color:var(--c1);text-decoration:none}a:hover{text-decoration:underline}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:12px;margin-bottom:24px}
.tile,section{background:var(--card);border:1px solid var(--line);border-radius:10px}
.tile{padding:12px 16px}.tile b{display:block;font-size:24px;line-height:1.25;font-variant-numeric:tabular-nums}
.tile span{color:var(--soft);font-size:13px}.tile small{display:block;color:var(--soft);font-size:12px}
section{padding:20px 24px 22px;margin-bottom:20px}
figure{margin:8px 0 0}svg{display:block;width:100%;height:auto}
svg text{fill:var(--soft);font-size:12px;font-family:inherit}svg .name{fill:var(--ink);font-size:13px}
.grid{stroke:var(--line)}.line{fill:none;stroke-width:2;stroke-linejoin:round}.dot{fill:transparent}.dot:hover{fill:var(--ink)}
.span{stroke:var(--c0);stroke-width:3}.area{fill-opacity:.8}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:2px 18px;margin:0 0 6px;padding:0}
.legend{font-size:13px;color:var(--soft)}
.legend i{display:inline-block;width:10px;height:10px;border-radius:3px;margin-right:7px}
.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:13.5px;margin-top:6px}
th{text-align:left;font-weight:600;color:var(--soft);border-bottom:1px solid var(--line);padding:6px 12px 6px 0}
td{border-bottom:1px solid var(--line);padding:6px 12px 6px 0;vertical-align:top;overflow-wrap:anywhere}
td:first-child{min-width:150px}
tr:last-child td{border-bottom:0}.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.t{white-space:nowrap}.bad{color:var(--bad);font-weight:600}.warn{color:var(--warn);font-weight:600}.good{color:var(--good)}
@media print{section{break-inside:avoid}nav{display:none}}
"""
_COLOURS: Final = "".join(
    f".f{number}{{fill:var(--c{number})}}.s{number}{{stroke:var(--c{number})}}.b{number}{{background:var(--c{number})}}"
    for number in range(9)
)


@dataclass(frozen=True, slots=True)
class Tile:
    """A number at the top: what it is, how many, and what else there is to say."""

    name: str
    value: str
    words: str = ""
    mood: str = ""


@dataclass(slots=True)
class Section:
    """A part of the page.

    Attributes:
        title: its heading.
        intro: what it shows, in a sentence or two.
        parts: HTML, one after the other.
    """

    title: str
    intro: str
    parts: list[str] = field(default_factory=list[str])

    @property
    def anchor(self) -> str:
        """Its name in links."""
        return self.title.lower().replace(" ", "-")

    def add(self, *parts: str, heading: str = "") -> None:
        """Add HTML, with a heading of its own."""
        self.parts += ([f"<h3>{escape(heading)}</h3>"] if heading else []) + list(parts)

    def note(self, words: str) -> None:
        """Add a remark in small print."""
        self.parts.append(f'<p class="note">{escape(words)}</p>')


def page(title: str, subtitle: str, tiles: Iterable[Tile], sections: Sequence[Section], footer: str) -> str:
    """Return the whole page."""
    links = "".join(f'<a href="#{each.anchor}">{escape(each.title)}</a>' for each in sections)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}{_COLOURS}</style></head><body><main>"
        f'<h1>{escape(title)}</h1><p class="soft">{escape(subtitle)}</p><nav>{links}</nav>'
        f'<div class="tiles">{"".join(map(_tile, tiles))}</div>'
        f'{"".join(map(_section, sections))}<p class="note">{escape(footer)}</p></main></body></html>\n'
    )


def table(headings: Sequence[str], rows: Sequence[Sequence[Any]], *, numbers: Iterable[int] = ()) -> str:
    """Return a table; columns in `numbers` are set to the right. An empty one is a sentence that says so."""
    if not rows:
        return '<p class="note">None.</p>'
    right = set(numbers)
    head = "".join(f"<th{_class(index in right)}>{escape(name)}</th>" for index, name in enumerate(headings))
    body = "".join(
        "<tr>" + "".join(_cell(value, is_number=index in right) for index, value in enumerate(row)) + "</tr>"
        for row in rows[:ROWS_MAX]
    )
    more = f'<p class="note">{len(rows) - ROWS_MAX} more.</p>' if len(rows) > ROWS_MAX else ""
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{more}'


def utc(time: datetime) -> datetime:
    """Return a time in UTC; Spark gives times without a zone, and means this machine's."""
    return time.astimezone(UTC)


@dataclass(frozen=True, slots=True)
class Said:
    """A cell's words with a mood: `bad`, `warn` or `good`."""

    words: str
    mood: str


def _cell(value: object, *, is_number: bool) -> str:
    if isinstance(value, Said):
        return f'<td class="{value.mood}">{escape(value.words)}</td>'
    if isinstance(value, datetime):
        return f'<td class="t">{utc(value):%Y-%m-%d %H:%M:%S}</td>'
    return f"<td{_class(is_number)}>{escape('–' if value is None else str(value))}</td>"


def _class(is_number: bool) -> str:
    return ' class="n"' if is_number else ""


def _tile(tile: Tile) -> str:
    small = f"<small>{escape(tile.words)}</small>" if tile.words else ""
    value = f'<b class="{tile.mood}">{escape(tile.value)}</b>'
    return f'<div class="tile"><span>{escape(tile.name)}</span>{value}{small}</div>'


def _section(section: Section) -> str:
    head = f"<h2>{escape(section.title)}</h2><p>{escape(section.intro)}</p>"
    return f'<section id="{section.anchor}">{head}{"".join(section.parts)}</section>'
