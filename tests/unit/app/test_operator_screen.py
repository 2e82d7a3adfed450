"""The screen of `pybroker top`: what it shows fits, whatever is in it; and its keys."""

from typing import Any

import pytest

from pybroker.broker.app.operator_screen import SORTABLE, TopState, TopView, row_count, screen
from pybroker.broker.app.operator_top import keys_in

NOW = 1_800_000_000_000
TOTALS = {
    "connections": 12,
    "waiting": 1234,
    "in_flight": 8,
    "memory_bytes": 3,
    "memory_bytes_max": 100,
    "scheduled": 0,
    "is_full": False,
    "loop_lag_seconds": 0.002,
}
OVERVIEW = {"broker_name": "amq", "host": "a", "since_ms": NOW - 7_200_000, "role": "MASTER", "totals": TOTALS}
HA: dict[str, Any] = {
    "state": "healthy",
    "reasons": [],
    "members": [
        {"name": "a", "role": "MASTER", "is_alive": True},
        {"name": "b", "role": "STANDBY", "is_alive": True, "standby_ready": True, "lag_seconds": 0.12},
        {"name": "c", "role": "STANDBY", "is_alive": False},
    ],
}


def queue(name: str, **values: Any) -> dict[str, Any]:
    counts: dict[str, Any] = dict.fromkeys(("size", "in_flight", "consumers", "producers"), 0)
    return {"name": name, "enqueue_rate": None, "dequeue_rate": None, "is_paused": False, **counts, **values}


def state(**values: Any) -> TopState:
    common: dict[str, Any] = {"at": "2026-11-22 16:16:36", "now_ms": NOW, "overview": OVERVIEW, "pair": HA}
    common["members"] = {"http://a:8161": OVERVIEW, "http://b:8161": {"role": "STANDBY"}}
    return TopState(**common | values)


def view() -> TopView:
    return TopView(sort="enqueue_rate", is_descending=True)


def test_the_screen_of_a_healthy_pair() -> None:
    rows = [queue("ORDERS", size=1200, in_flight=8, consumers=3, producers=1, enqueue_rate=12.4, dequeue_rate=0.5)]
    lines = [line.text.rstrip() for line in screen(state(queues=rows, count=1), view(), 80, 24)]
    assert lines[:6] == [
        "amq  master a for 2 h                                        2026-11-22 16:16:36",
        "pair: healthy; a master; b standby, ready, 0.1 s behind",
        "12 connections  1,234 waiting  8 in flight  memory 3 %  loop lag 2 ms",
        "",
        "NAME                                  SIZE IN FLIGHT  CONS  PROD   vIN/S   OUT/S",
        "ORDERS                               1,200         8     3     1      12     0.5",
    ]
    assert len(lines) == 24
    assert lines[-1].startswith("q quit")
    assert lines[-1].endswith("1-1 of 1")


def test_reasons_and_roles_are_shown() -> None:
    degraded = HA | {"state": "degraded", "reasons": [{"text": "b does not follow"}]}
    line = screen(state(pair=degraded), view(), 80, 24)[1]
    assert (line.text, line.style) == (
        "pair: degraded: b does not follow; a master; b standby, ready, 0.1 s behind",
        "red",
    )
    line = screen(state(pair={}), view(), 80, 24)[1]
    assert line.text == "members: http://a:8161 master; http://b:8161 standby"
    line = screen(state(pair={}, overview={}, members={"http://a:8161": "refused"}), view(), 80, 24)[1]
    assert (line.text, line.style) == ("members: http://a:8161 does not answer", "red")


def test_a_problem_takes_the_place_of_the_queues() -> None:
    lines = screen(state(overview={}, problem="there is no master\x1b[2J now"), view(), 80, 24)
    assert (lines[5].text, lines[5].style) == ("there is no master\\u001b[2J now", "red")
    assert lines[0].text.startswith("pybroker ")


@pytest.mark.parametrize(("width", "height"), [(80, 24), (40, 10), (200, 60), (10, 3), (1, 1)])
def test_every_size_of_a_terminal_is_kept(width: int, height: int) -> None:
    rows = [queue("\x1b[31mQ" * 40, size=10**15, enqueue_rate=1e12, is_paused=True) for _ in range(100)]
    lines = screen(state(queues=rows, count=10**9), view(), width, height)
    assert len(lines) == height
    assert all(len(line.text) <= width for line in lines)
    assert all(line.text.isprintable() for line in lines)


def test_arrows_choose_the_column_and_move() -> None:
    keys = view()
    assert keys.press("right", 18)
    assert (keys.sort, keys.is_descending) == ("dequeue_rate", True)
    assert keys.press("left", 18)
    assert keys.press("r", 18)
    assert (keys.sort, keys.is_descending) == ("enqueue_rate", False)
    for key, first in (("up", 0), ("down", 1), ("page down", 19), ("up", 18), ("page up", 0), ("x", 0)):
        assert keys.press(key, 18)
        assert keys.first == first
    for _ in SORTABLE:
        keys.press("right", 18)
    assert keys.sort == "enqueue_rate"
    assert not keys.press("q", 18)


@pytest.mark.parametrize(
    ("data", "keys"),
    [
        (b"\x1b[A\x1b[Bq", ["up", "down", "q"]),
        (b"\x1bOC\x1b[D", ["right", "left"]),
        (b"\x1b[5~\x1b[6~ ", ["page up", "page down", "page down"]),
        (b"xyz\x1b\xff", []),
        (b"jkr", ["down", "up", "r"]),
        (b"", ["q"]),
    ],
)
def test_keys_are_those_that_a_terminal_sends(data: bytes, keys: list[str]) -> None:
    assert keys_in(data) == keys


def test_a_screen_has_room_for_rows() -> None:
    assert [row_count(height) for height in (24, 6, 1)] == [18, 1, 1]
