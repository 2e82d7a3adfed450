# mypy: disable-error-code="arg-type, call-arg"
"""Plots are well-formed SVG with a title for each mark; plots and page escape every text."""

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from xml.etree import ElementTree

import pytest
from markupsafe import Markup

from pybroker.spark_jobs import report_plots as plots
from pybroker.spark_jobs.report_page import HtmlTable, Marked, Section, Tile, page
from pybroker.spark_jobs.store_names import short_names

SVG = "{http://www.w3.org/2000/svg}"

FIRST, LAST = 1_790_000_000.0, 1_790_003_600.0
HOSTILE = "<b onload=x> & $x_1$ {{7*7}} ']+datum"


def drawn(plot: plots.Plot) -> ElementTree.Element:
    return ElementTree.fromstring(plot.svg)


def titles(plot: plots.Plot) -> list[str]:
    return [each.text or "" for each in drawn(plot).iter(f"{SVG}title")]


def texts(plot: plots.Plot) -> list[str]:
    return [each.text or "" for each in drawn(plot).iter(f"{SVG}text")]


def test_lines_have_a_title_for_each_point_and_series() -> None:
    plot = plots.lines({HOSTILE: [(FIRST, 1), (LAST, 2_500)], "b": [(FIRST, 3)], "empty": []})

    assert titles(plot) == [
        HOSTILE,
        "b",
        f"{HOSTILE} 2026-09-21 14:13:20: 1",
        f"{HOSTILE} 2026-09-21 15:13:20: 2,500",
        "b 2026-09-21 14:13:20: 3",
    ]
    assert plot.legend == [(HOSTILE, "var(--c1)"), ("b", "var(--c2)"), ("empty", "var(--c3)")]


def test_areas_are_stacked_with_a_title_each() -> None:
    plot = plots.areas({HOSTILE: [3, 1], "b": [6, 1]}, [FIRST, LAST])

    assert titles(plot) == [HOSTILE, "b"]
    assert "10" in texts(plot), "the axis reaches the sum"


def test_long_time_axis_shows_dates() -> None:
    assert "09-22 00:00" in texts(plots.lines({"a": [(FIRST, 1), (FIRST + 4 * 86_400, 1)]}))


def test_columns_are_made_of_a_piece_per_name() -> None:
    plot = plots.columns([("1 KB", {HOSTILE: 1, "b": 2}), ("2 KB", {}), ("4 KB", {"b": 3})])

    assert titles(plot) == [f"1 KB, {HOSTILE}: 1", "1 KB, b: 2", "4 KB, b: 3"]
    assert [each for each in texts(plot) if "KB" in each] == ["1 KB", "2 KB", "4 KB"]


def test_bars_show_names_values_and_words() -> None:
    plot = plots.bars([(HOSTILE, 3, "old & new"), ("<b>", 0, "")])

    assert texts(plot)[:2] == ["3 · old & new", "0"]
    assert sorted(titles(plot)) == sorted([f"{HOSTILE}: 3", "3 · old & new", HOSTILE, "<b>: 0", "0", "<b>"])


def test_bars_of_equal_names_stay_apart() -> None:
    assert titles(plots.bars([("a", 1, ""), ("a", 2, "")])).count("a") == 2


def test_ranges_have_a_dot_for_each_value() -> None:
    plot = plots.ranges([plots.Range(HOSTILE, [("half", 5), ("99 %", 90_000)]), plots.Range("b", [("half", 1)])])

    assert titles(plot) == [f"{HOSTILE}, half: 5 ms", f"{HOSTILE}, 99 %: 1.5 min", "b, half: 1 ms", HOSTILE, "b"]
    ticks = ["1 ms", "10 ms", "100 ms", "1 s", "10 s", "1 min", "10 min"]
    assert [each for each in texts(plot) if each in ticks] == ticks


def test_strips_keep_short_pieces_visible() -> None:
    spans = [plots.Span(0, 0, 1, "nothing"), plots.Span(0, 2048, 0, HOSTILE)]
    plot = plots.strips([("a", spans)], plots.size, {"one": 1, "none": 0})

    assert titles(plot) == ["nothing", HOSTILE, "a"]
    assert [each for each in texts(plot) if each != "a"] == ["0 B", "2 KB"]
    pieces = [each.get("d", "") for each in drawn(plot).iter(f"{SVG}path") if each.get("stroke") == "var(--card)"]
    assert len(pieces) == 2
    assert "h0v" not in pieces[0]
    assert plot.legend == [("one", "var(--c1)"), ("none", "var(--c0)")]


@pytest.mark.parametrize(
    "plot",
    [
        lambda: plots.lines({}),
        lambda: plots.areas({}, []),
        lambda: plots.columns([]),
        lambda: plots.bars([]),
        lambda: plots.ranges([]),
        lambda: plots.strips([], plots.size),
    ],
)
def test_plot_without_data_is_drawn_empty(plot: Callable[[], plots.Plot]) -> None:
    assert titles(plot()) == []


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
        (plots.moment(0), "1970-01-01 00:00:00"),
    ],
)
def test_numbers_are_written_as_people_write_them(written: str, value: str) -> None:
    assert written == value


def test_page_escapes_what_it_is_given() -> None:
    section = Section("A <b>", "x & y")
    section.add(HtmlTable(["<h>"], [(HOSTILE,), (None,), (Marked("<script>", "bad"),)]), heading="<h>")
    section.add(plots.Plot(Markup("<svg></svg>"), [("<name>", "var(--c1)")]))
    section.add("<note>")
    text = page("t", "<i>", [Tile("<n>", "<1>", "<w>")], [section], "<f>")

    for each in ("<b ", "<h>", "<script>", "<name>", "<note>", "<i>", "<n>", "<1>", "<w>", "<f>"):
        assert each not in text.replace("<b class", "")
    assert "&lt;script&gt;" in text
    assert "{{7*7}}" in text
    assert "<svg></svg>" in text


def test_page_shows_times_in_utc_and_the_absence_of_rows() -> None:
    section = Section("a", "b")
    section.add(HtmlTable(["time"], [(datetime(2026, 1, 2, 3, tzinfo=timezone(timedelta(hours=1))),)]))
    section.add(HtmlTable(["empty"], []))
    text = page("t", "", [], [section], "")

    assert '<td class="t">2026-01-02 02:00:00</td>' in text
    assert '<p class="note">None.</p>' in text
    assert "<th>empty" not in text


def test_long_table_names_how_much_it_leaves_out() -> None:
    section = Section("a", "b")
    section.add(HtmlTable(["n"], [(n,) for n in range(205)]))
    assert "5 more." in page("t", "", [], [section], "")


@pytest.mark.parametrize("text", ["short", "a" * 30, "ORDERS." + "x" * 60 + ".EUROPE (one)"])
def test_name_that_is_too_long_keeps_both_ends(text: str) -> None:
    shown = plots.shortened(text, 30)
    assert len(shown) <= 30
    assert (shown[:6], shown[-6:]) == (text[:6], text[-6:])
    assert ("…" in shown) is (len(text) > 30)


def test_long_texts_of_bars_are_shortened_and_whole_in_titles() -> None:
    plot = plots.bars([("W" * 80, 10, "w" * 200), ("b", 1, "short")])

    assert max(map(len, texts(plot))) <= 60
    assert {"W" * 80, f"10 · {'w' * 200}"} <= set(titles(plot))


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
