"""Tables and ActiveMQ's layouts, letter by letter; and text of clients that a terminal must not obey."""

import re
from typing import Any

import pytest

from pybroker.broker.app.operator_text import TableColumn, age, bstat, cut, dstat, number, plain, rate, table

# management.md, section 7: seen with ActiveMQ 5.17.2
DSTAT = """\
Name                                                Queue Size  Producer #  Consumer #   Enqueue #   Dequeue #   Forward #    Memory %
ORDERS                                                       7           1           1          11           4           0           0
"""  # noqa: E501
BSTAT = """\
Name = SP.q
destinationName = SP.q
destinationType = Queue
EnqueueCount = 1
DequeueCount = 0
ConsumerCount = 0
DispatchCount = 0
"""


def queue(name: str, **values: Any) -> dict[str, Any]:
    counts = dict.fromkeys(
        ("size", "producers", "consumers", "enqueued", "dequeued", "dispatched", "memory_percent"), 0
    )
    return {"kind": "queue", "name": name, "is_temporary": False, **counts, **values}


def test_dstat_is_that_of_activemq() -> None:
    rows = [queue("ORDERS", size=7, producers=1, consumers=1, enqueued=11, dequeued=4)]
    assert "\n".join(dstat(rows)) + "\n" == DSTAT


def test_bstat_is_that_of_activemq() -> None:
    assert "\n".join(bstat([queue("SP.q", enqueued=1)])) + "\n" == BSTAT
    assert list(bstat([queue("B"), queue("A")]))[6:9] == ["DispatchCount = 0", "", "Name = B"]


def test_dstat_is_by_name_and_without_temporary_queues() -> None:
    rows = [queue("b"), queue("a" * 60), queue("T", is_temporary=True)]
    _, first, second = dstat(rows)
    assert first == "a" * 60 + "           0" * 7
    assert second.startswith("b ")


def test_a_table_is_aligned() -> None:
    columns = (
        TableColumn("NAME", "name", plain),
        TableColumn("SIZE", "size", number, True),
        TableColumn("NOTE", "note", plain),
    )
    rows: list[dict[str, Any]] = [{"name": "ORDERS", "size": 1234}, {"name": "B", "size": None, "note": "x"}]
    assert list(table(columns, rows)) == [
        "NAME     SIZE  NOTE",
        "ORDERS  1,234",
        "B           -  x",
    ]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b[2Jb", "a\\u001b[2Jb"),
        ("a\nb\t", "a\\nb\\t"),
        ("\x9b31m", "\\u009b31m"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("ä 中", "ä 中"),
        (None, ""),
        (5, "5"),
    ],
)
def test_text_of_clients_is_not_obeyed(text: object, shown: str) -> None:
    assert plain(text) == shown
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e]", plain(text))


def test_numbers_and_times() -> None:
    assert [rate(each) for each in (None, 0, 0.04, 1.25, 12.6, 12345.0)] == ["-", "0", "0.0", "1.2", "13", "12,345"]
    assert [age(each) for each in (-5, 999, 59_000, 60_000, 7_200_000, 200_000_000)] == [
        "0 s",
        "0 s",
        "59 s",
        "1 min",
        "2 h",
        "2 d",
    ]
    assert [cut("abc", length) for length in (2, 3)] == ["a…", "abc"]
