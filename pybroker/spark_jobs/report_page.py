"""The report's page: tiles and sections, which the template `report.html.j2` turns into one file without scripts."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from pybroker.spark_jobs.report_plots import Plot

ROWS_MAX: Final = 200
"""Rows shown of a table; the job's own table has all of them."""


@dataclass(frozen=True, slots=True)
class Tile:
    """A number at the top: its name, its value, and a detail in `words`; `mood` as in `Marked`."""

    name: str
    value: str
    words: str = ""
    mood: str = ""


@dataclass(frozen=True, slots=True)
class Marked:
    """A table cell with a `mood`: `bad`, `warn` or `good`."""

    words: str
    mood: str


@dataclass(frozen=True, slots=True)
class HtmlTable:
    """Rows below headings; columns in `numbers` are aligned to the right."""

    headings: Sequence[str]
    rows: Sequence[Sequence[Any]]
    numbers: Collection[int] = ()


@dataclass(slots=True)
class Section:
    """A part of the page.

    Attributes:
        title: its heading.
        intro: one or two sentences on its contents.
        parts: plots, tables and remarks, each with a heading or an empty string.
    """

    title: str
    intro: str
    parts: list[tuple[str, Plot | HtmlTable | str]] = field(default_factory=list[tuple[str, "Plot | HtmlTable | str"]])

    @property
    def anchor(self) -> str:
        """Its name in links."""
        return self.title.lower().replace(" ", "-")

    def add(self, part: Plot | HtmlTable | str, *, heading: str = "") -> None:
        """Add a plot, a table, or a remark in small print."""
        self.parts.append((heading, part))


def page(title: str, subtitle: str, tiles: Iterable[Tile], sections: Sequence[Section], footer: str) -> str:
    """Return the whole page."""
    environment = Environment(
        loader=PackageLoader("pybroker.spark_jobs", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html.j2").render(
        title=title, subtitle=subtitle, tiles=tiles, sections=sections, footer=footer, rows_max=ROWS_MAX, utc=utc
    )


def utc(time: datetime) -> datetime:
    """Return a time in UTC; Spark's times have no zone, and are in this machine's."""
    return time.astimezone(UTC)
