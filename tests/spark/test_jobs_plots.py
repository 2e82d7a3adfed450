# mypy: disable-error-code="arg-type, call-arg"
"""Plots are well-formed SVG, say what their marks stand for, and stay inside their frame, whatever they are given."""

import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.spark_jobs import report_plots as plots
from pybroker.spark_jobs.report_page import Section, Tile, page, table
from pybroker.spark_jobs.store_names import short_names

names = st.text(st.characters(blacklist_categories=("Cs", "Cc")), max_size=50)
amounts = st.floats(0, 1e12)
moments = st.floats(0, 4e9)


def parsed(html: str) -> ElementTree.Element:
    return ElementTree.fromstring(f"<div>{html}</div>")


def check(html: str) -> ElementTree.Element:
    """Parse a plot, and look whether each mark lies inside its frame."""
    root = parsed(html)
    for svg in root.iter("svg"):
        _, _, width, height = map(float, svg.get("viewBox", "").split())
        for each in svg.iter():
            points = [pair.split(",") for pair in each.get("points", "").split()]
            xs = [each.get(name) for name in ("x", "cx", "x1", "x2")] + [x for x, _ in points]
            ys = [each.get(name) for name in ("y", "cy", "y1", "y2")] + [y for _, y in points]
            assert all(-1 <= float(x) <= width + 1 for x in xs if x is not None)
            assert all(-1 <= float(y) <= height + 1 for y in ys if y is not None)
    return root


@given(st.dictionaries(names, st.lists(st.tuples(moments, amounts), max_size=5).map(sorted), max_size=10))
def test_lines(series: dict[str, list[tuple[float, float]]]) -> None:
    root = check(plots.lines(series))
    assert len(list(root.iter("circle"))) == sum(map(len, series.values()))


@given(
    st.lists(moments, min_size=1, max_size=5, unique=True).map(sorted), st.dictionaries(names, st.just(2.0), min_size=1)
)
def test_areas(xs: list[float], series: dict[str, float]) -> None:
    root = check(plots.areas({name: [value] * len(xs) for name, value in series.items()}, xs))
    assert len(list(root.iter("polygon"))) == len(series)


@given(st.lists(st.tuples(names, st.dictionaries(names, amounts, max_size=4)), max_size=30))
def test_columns(bars: list[tuple[str, dict[str, float]]]) -> None:
    root = check(plots.columns(bars))
    assert len(list(root.iter("rect"))) == sum(len(pieces) for _, pieces in bars)


@given(st.lists(st.tuples(names, amounts, names), max_size=20))
def test_bars(rows: list[tuple[str, float, str]]) -> None:
    assert len(list(check(plots.bars(rows)).iter("rect"))) == len(rows)


@given(st.lists(st.builds(plots.Range, names, st.tuples(st.tuples(st.just("half"), amounts))), max_size=20))
def test_ranges(rows: list[plots.Range]) -> None:
    assert len(list(check(plots.ranges(rows)).iter("circle"))) == len(rows)


spans_of = st.tuples(amounts, amounts).map(sorted).map(lambda ends: plots.Span(*ends, 1, "words"))


@given(st.lists(st.tuples(names, st.lists(spans_of, max_size=5)), max_size=5))
def test_strips(rows: list[tuple[str, list[plots.Span]]]) -> None:
    root = check(plots.strips(rows, tick=plots.count))
    assert len(list(root.iter("rect"))) == sum(len(spans) for _, spans in rows)


def test_marks_say_what_they_stand_for() -> None:
    root = parsed(plots.bars([("<orders>", 3, "old & new")]))

    assert [each.text for each in root.iter("title")] == ["<orders>", "<orders>: 3"]


@pytest.mark.parametrize(
    ("written", "value"),
    [
        (plots.count(950), "950"),
        (plots.count(12_300), "12,300"),
        (plots.count(4_200_000), "4.2 M"),
        (plots.count(0.25), "0.25"),
        (plots.size(1023), "1,023 B"),
        (plots.size(1536), "1.5 KB"),
        (plots.size(3 << 30), "3 GB"),
        (plots.duration(0), "0"),
        (plots.duration(90_000), "1.5 min"),
        (plots.duration(864e5 * 12), "12 d"),
        (plots.moment(0), "00:00:00"),
        (plots.moment(0, 200_000), "01-01 00:00"),
    ],
)
def test_numbers_are_written_as_people_write_them(written: str, value: str) -> None:
    assert written == value


def test_a_page_escapes_what_it_is_given() -> None:
    section = Section("A <b>", "x & y")
    section.add(table(["<h>"], [("<script>",), (None,)]))
    text = page("t", "<i>", [Tile("<n>", "1")], [section], "<f>")

    assert "<script>" not in text
    assert "<i>" not in text
    assert "&lt;script&gt;" in text


def test_a_long_table_says_how_much_it_leaves_out() -> None:
    assert "5 more." in table(["n"], [(n,) for n in range(205)])


@pytest.mark.parametrize("text", ["short", "a" * 30, "ORDERS." + "x" * 60 + ".EUROPE (one)"])
def test_name_that_is_too_long_keeps_both_ends(text: str) -> None:
    shown = plots.shortened(text, 30)
    assert len(shown) <= 30
    assert (shown[:6], shown[-6:]) == (text[:6], text[-6:])
    assert ("…" in shown) is (len(text) > 30)


def test_words_of_bars_stay_inside_the_plot() -> None:
    drawn = plots.bars([("W" * 80, 10, "w" * 200), ("b", 1, "short")])
    texts = re.findall(r'<text (?:class="name" )?x="([0-9.]+)"[^>]*text-anchor="(end|start)">([^<]*)<', drawn)
    assert len(texts) == 4
    for x, anchor, words in texts:
        width = 7 * len(words)
        assert float(x) >= width if anchor == "end" else float(x) + width <= plots.WIDTH
    assert f"<title>{'W' * 80}</title>" in drawn
    assert "w" * 200 in drawn, "the whole text is in its title"


@pytest.mark.parametrize(
    ("directories", "expected"),
    [
        (["/mnt/a"], ["/mnt/a"]),
        (["/mnt/a/kahadb", "/mnt/b/kahadb"], ["a", "b"]),
        (["/mnt/a/x/kahadb", "/mnt/b/y/kahadb"], ["a/x", "b/y"]),
        (["/mnt/a", "/mnt/a/kahadb"], ["/mnt/a", "/mnt/a/kahadb"]),
        (["one", "two"], ["one", "two"]),
    ],
)
def test_stores_are_named_by_what_differs(directories: list[str], expected: list[str]) -> None:
    assert list(short_names(directories).values()) == expected
