"""Crontab entries: which instants they mean, on calendars and clocks as they are."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pybroker.broker.core.cron import TEXT_MAX, Cron, local_offset, parse
from pybroker.broker.domain.jobs import InvalidSchedule

HOUR = 3600


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def show(time: int | None) -> str | None:
    return None if time is None else datetime.fromtimestamp(time / 1000, UTC).strftime("%Y-%m-%d %H:%M")


def utc(_: int) -> int:
    return 0


def after(entry: str, text: str, offset_at: Callable[[int], int] = utc) -> str | None:
    return show(Cron(entry).next_after(ms(text), offset_at))


SATURDAY = "2026-11-21 06:00"


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("* * * * *", "2026-11-21 06:01"),
        ("0 4 * * *", "2026-11-22 04:00"),
        ("30 6 * * *", "2026-11-21 06:30"),
        ("0 6 * * *", "2026-11-22 06:00"),
        ("15,45 8-10 * * ?", "2026-11-21 08:15"),
        ("0 3 1 1 *", "2027-01-01 03:00"),
        ("0 0 * * 0", "2026-11-22 00:00"),
        ("0 0 31 * *", "2026-12-31 00:00"),
        ("0 0 * 2 *", "2027-02-01 00:00"),
        ("59 23 31 12 *", "2026-12-31 23:59"),
    ],
)
def test_plain_entries(entry: str, expected: str) -> None:
    assert after(entry, SATURDAY) == expected


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("0 0 13 * 5", "2027-08-13 00:00"),  # ActiveMQ: 2026-12-13, a Sunday
        ("0 0 1 * 1", "2027-02-01 00:00"),  # ActiveMQ: 2026-12-01, a Tuesday
        ("0 12 29 2 *", "2028-02-29 12:00"),  # ActiveMQ: 2027-03-01
    ],
)
def test_both_day_fields_must_fit(entry: str, expected: str) -> None:
    assert after(entry, SATURDAY) == expected


def test_the_rarest_day_of_all() -> None:
    """2100 has no 29 February, so the next one of a given weekday may be 40 years away."""
    found = [after(f"0 0 29 2 {weekday}", "2072-03-01 00:00") for weekday in range(7)]
    assert None not in found
    for weekday, text in enumerate(found):
        day = datetime.fromisoformat(text or "")
        assert (day.month, day.day, day.isoweekday() % 7) == (2, 29, weekday)
    assert max(found, key=str) == "2112-02-29 00:00"


@pytest.mark.parametrize(
    ("field", "minutes"),
    [
        ("*/10", [0, 10, 20, 30, 40, 50]),
        ("5-59/10", [10, 20, 30, 40, 50]),
        ("0-59/15", [0, 15, 30, 45]),
        ("0/15", [0]),
        ("1,2,10-20/5", [10, 15, 20]),
        ("7,3,5-6", [3, 5, 6, 7]),
    ],
)
def test_steps_keep_what_can_be_divided_as_in_activemq(field: str, minutes: list[int]) -> None:
    found: list[int] = []
    time: int | None = ms("2026-11-21 05:59")
    while len(found) < len(minutes):
        time = Cron(f"{field} * * * *").next_after(time or 0, utc)
        assert time is not None
        found.append(time // 60_000 % 60)
    assert found == minutes
    assert time is not None
    assert time // 3_600_000 == ms(SATURDAY) // 3_600_000


@pytest.mark.parametrize(
    "entry",
    [
        "",
        "* * * *",
        "* * * * * *",
        "60 * * * *",
        "* 24 * * *",
        "* * 0 * *",
        "* * * 13 *",
        "* * * * 7",
        "a * * * *",
        "-1 * * * *",
        "1- * * * *",
        "1,,2 * * * *",
        "5/15 * * * *",
        "*/0 * * * *",
        "*/x * * * *",
        "*/2,4 * * * *",
        "* 22-2 * * *",
        "* * * JAN *",
        "٣ * * * *",
        "* * 30 2 *",
        "* * 31 2,4,6,9,11 *",
        "1" * 20 + " * * * *",
        "* * * *" + " " * TEXT_MAX + "*",
    ],
)
def test_what_makes_no_sense_is_refused(entry: str) -> None:
    with pytest.raises(InvalidSchedule):
        Cron(entry)


def test_an_entry_is_parsed_once() -> None:
    assert parse("1 2 3 4 5") is parse("1 2 3 4 5")


def test_beyond_the_calendar_there_is_nothing() -> None:
    assert Cron("* * * * *").next_after(2**63 - 1) is None
    assert Cron("0 0 1 1 *").next_after(ms("9999-12-31 00:00"), utc) is None


# ---------------------------------------------------------------- clocks that jump


def european(time: int) -> int:
    """Central Europe's offset in 2026: clocks go forward on 29 March and back on 25 October, both at 01:00 UTC."""
    return 2 * HOUR if ms("2026-03-29 01:00") <= time * 1000 < ms("2026-10-25 01:00") else HOUR


def instants(entry: str, start: str, end: str, offset_at: Callable[[int], int] = european) -> list[str]:
    found = []
    time = Cron(entry).next_after(ms(start), offset_at)
    while time is not None and time < ms(end):
        found.append(show(time) or "")
        time = Cron(entry).next_after(time, offset_at)
    return found


def test_a_reading_that_is_jumped_over_runs_right_after_the_jump() -> None:
    assert instants("30 2 * * *", "2026-03-28 00:00", "2026-03-31 00:00") == [
        "2026-03-28 01:30",
        "2026-03-29 01:00",
        "2026-03-30 00:30",
    ]


def test_a_reading_that_comes_twice_runs_the_first_time() -> None:
    assert instants("10,50 2 * * *", "2026-10-24 12:00", "2026-10-26 12:00") == [
        "2026-10-25 00:10",
        "2026-10-25 00:50",
        "2026-10-26 01:10",
        "2026-10-26 01:50",
    ]


def test_readings_around_a_jump_keep_their_hour() -> None:
    assert instants("0 1,3 * * *", "2026-03-28 12:00", "2026-03-29 12:00") == ["2026-03-29 00:00", "2026-03-29 01:00"]
    assert instants("0 1,3 * * *", "2026-10-24 12:00", "2026-10-25 12:00") == ["2026-10-24 23:00", "2026-10-25 02:00"]


@pytest.mark.parametrize("day", ["2026-03-29", "2026-10-25"])
def test_an_entry_for_every_hour_follows_real_time(day: str) -> None:
    found = [datetime.fromisoformat(text) for text in instants("*/20 * * * *", f"{day} 00:00", f"{day} 03:00")]
    assert len(found) == 8
    assert {later - earlier for earlier, later in pairwise(found)} == {timedelta(minutes=20)}


def test_a_year_of_jumps_lies_between() -> None:
    assert after("0 12 1 11 *", "2026-01-01 00:00", european) == "2026-11-01 11:00"
    assert after("0 12 1 7 *", "2026-01-01 00:00", european) == "2026-07-01 10:00"


def test_the_machines_own_time_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
        time.tzset()
        assert (local_offset(ms("2026-01-01 00:00") // 1000), local_offset(ms("2026-07-01 00:00") // 1000)) == (
            HOUR,
            2 * HOUR,
        )
        assert show(Cron("30 2 * * *").next_after(ms("2026-03-29 00:00"))) == "2026-03-29 01:00"
    time.tzset()


# ---------------------------------------------------------------- against the slow and simple


def field(low: int, high: int) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    span = st.tuples(number, number).map(lambda pair: f"{min(pair)}-{max(pair)}")
    items = st.lists(st.one_of(number.map(str), span), min_size=1, max_size=3).map(",".join)
    return st.one_of(st.just("*"), items)


def fits(entry: str, reading: datetime) -> bool:
    values = (reading.minute, reading.hour, reading.day, reading.month, reading.isoweekday() % 7)
    for token, value in zip(entry.split(), values, strict=True):
        spans = (item.partition("-") for item in token.split(","))
        if token != "*" and not any(int(a) <= value <= int(b or a) for a, _, b in spans):
            return False
    return True


entries = st.tuples(field(0, 59), field(0, 23), field(1, 28), st.just("*"), st.just("*")).map(" ".join)


@given(entries, st.integers(ms("2026-01-01 00:00"), ms("2026-12-01 00:00")))
def test_the_next_instant_is_the_first_minute_that_fits(entry: str, start: int) -> None:
    found = Cron(entry).next_after(start, utc)
    assert found is not None
    assert found > start
    assert fits(entry, datetime.fromtimestamp(found / 1000, UTC))
    for minute in range(start // 60_000 + 1, min(found // 60_000, start // 60_000 + 3000)):
        assert not fits(entry, datetime.fromtimestamp(minute * 60, UTC))


def runs_at(entry: str, time: int) -> bool:
    """Return True if, by the rules alone, an entry runs at a full minute in central Europe."""
    offset = european(time)
    reading = datetime.fromtimestamp(time + offset, UTC)
    if all(fits(f"* {entry.split()[1]} * * *", reading.replace(hour=hour)) for hour in range(24)):
        return fits(entry, reading)  # also where the hours are written out: 0-23
    is_second_time = offset < european(time - HOUR)
    skipped = [reading - timedelta(minutes=ago) for ago in range(1, 61)] if offset > european(time - 60) else []
    return (fits(entry, reading) and not is_second_time) or any(fits(entry, each) for each in skipped)


near_a_jump = st.sampled_from([ms("2026-03-28 22:00"), ms("2026-10-24 21:00")])


@given(entries, near_a_jump, st.integers(0, 170))
@example("1 0-23 * * *", ms("2026-03-28 22:00"), 121)
def test_clocks_that_jump_by_the_rules(entry: str, start: int, minutes: int) -> None:
    start += minutes * 60_000
    found = Cron(entry).next_after(start, european)
    assert found is not None
    horizon = start // 60_000 + 1 + 30 * 60
    expected = next((m * 60_000 for m in range(start // 60_000 + 1, horizon) if runs_at(entry, m * 60)), None)
    assert found == expected or (expected is None and found >= horizon * 60_000)


@given(st.text(alphabet="0123456789*/,-? ", max_size=30))
def test_any_text_parses_or_is_refused(text: str) -> None:
    try:
        entry = Cron(text)
    except InvalidSchedule:
        return
    assert entry.next_after(ms(SATURDAY), utc) is not None
