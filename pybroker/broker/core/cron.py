"""Crontab entries: parses them, and computes their next time.

```text
minute  hour  day of month  month  day of week
0-59    0-23  1-31          1-12   0-6, 0 is Sunday

field = values                 *  or  ?       all
      | values / n             of these, the ones divisible by n
values = item , item ...       item = number | from - to
```

They are read as in ActiveMQ, `/` included: `*/10` and `5-59/10` both mean 10, 20, …, and not "every ten from five on".
Two errors of ActiveMQ are avoided:

* If both day fields are restricted, a day must satisfy both: `0 0 13 * 5` is Friday the 13th. ActiveMQ takes the day
  that is first, and finds 1 March for `0 12 29 2 *`.
* A date that does not exist (30 February), a value out of range (weekday 7) and an empty set (`5/15`) are refused.

In many time zones the local clock is changed twice a year. An entry with hours refers to the local clock: if its time
is skipped, it runs right after the change; if its time occurs twice, it runs the first time. An entry for every hour
refers to elapsed time: it runs once in each hour of elapsed time.

Source: ActiveMQ 5.17, `CronParser`; for daylight saving time, Vixie cron.
"""

from calendar import monthrange
from collections.abc import Callable, Iterator, Sequence
from datetime import MAXYEAR, UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Final

from pybroker.broker.domain.jobs import InvalidSchedule

TEXT_MAX: Final = 1000
"""Maximum length of an entry. A list of all minutes has 167 characters."""
YEARS_AHEAD: Final = 40
"""Years to search: the rarest day, a 29 February on a given weekday, is at most 40 years away (across 2100)."""

UtcOffset = Callable[[int], int]
"""Returns the seconds by which the local clock is ahead of UTC at a time in seconds since the epoch."""

_FIELDS: Final = (("minute", 0, 59), ("hour", 0, 23), ("day of month", 1, 31), ("month", 1, 12), ("day of week", 0, 6))
_REMEMBERED = 256
_EPOCH = datetime(1970, 1, 1)
_MINUTE_SECONDS = 60


def local_offset(seconds: int) -> int:
    """Return the UTC offset of this machine's time zone at that time."""
    offset = datetime.fromtimestamp(seconds, UTC).astimezone().utcoffset()
    return 0 if offset is None else int(offset.total_seconds())


class Cron:
    """A parsed entry."""

    __slots__ = ("_days", "_every_hour", "_hours", "_minutes", "_months", "_weekdays", "text")

    def __init__(self, text: str) -> None:
        """Parse an entry.

        Raises:
            InvalidSchedule: the text is not a valid entry, or no day ever satisfies it.
        """
        if len(text) > TEXT_MAX:
            raise InvalidSchedule(f"a cron entry of {len(text)} characters: {TEXT_MAX} are enough")
        tokens = text.split()
        if len(tokens) != len(_FIELDS):
            raise InvalidSchedule(
                f"Not a valid cron entry - wrong number of tokens({len(tokens)}): {text}; "
                "it has five: minute, hour, day of month, month, day of week"
            )
        self.text = text
        self._minutes, self._hours, self._days, self._months, weekdays = (
            _values(token, name, low, high) for token, (name, low, high) in zip(tokens, _FIELDS, strict=True)
        )
        self._weekdays = frozenset(weekdays)
        self._every_hour = len(self._hours) == 24
        if next(self._days_after(_EPOCH.date()), None) is None:
            raise InvalidSchedule(f"cron entry {text}: there is no such day in any year")

    def next_after(self, now_ms: int, offset_at: UtcOffset = local_offset) -> int | None:
        """Return the first time of the entry after another time, both in milliseconds since the epoch; None: no date.

        Args:
            now_ms: the time.
            offset_at: the time zone.
        """
        try:
            seconds = self._next_instant(now_ms // 1000, offset_at)
        except (OverflowError, OSError, ValueError):  # dates that Python's calendar, or the C library, does not support
            return None
        return None if seconds is None else seconds * 1000

    def _next_instant(self, time: int, offset_at: UtcOffset) -> int | None:
        """Return the first time of the entry after `time`, in seconds.

        A reading is the time that a local clock shows, in seconds as if it were UTC. Between two changes of the UTC
        offset, readings and times differ by a constant, so the search goes from change to change.
        """
        reading = time + offset_at(time)
        while True:
            offset = offset_at(time)
            wanted = self._next_reading(reading)
            if wanted is None:
                return None
            if offset_at(wanted - offset) == offset:
                return wanted - offset
            time = _first_change(time, wanted - offset, offset_at)
            before, after = time + offset, time + offset_at(time)
            if self._every_hour:
                reading = after - 1
            elif before < after and wanted < after:
                return time  # the clock skips this reading
            else:
                reading = max(before, after) - 1

    def _next_reading(self, reading: int) -> int | None:
        """Return the first reading of the entry after another reading."""
        start = _EPOCH + timedelta(seconds=(reading // _MINUTE_SECONDS + 1) * _MINUTE_SECONDS)
        day = start.date()
        found = self._time_from(start.hour, start.minute) if self._includes(day) else None
        if found is None:
            next_day = next(self._days_after(day), None)
            if next_day is None:
                return None
            day, found = next_day, (self._hours[0], self._minutes[0])
        hour, minute = found
        return ((day - _EPOCH.date()).days * 24 + hour) * 3600 + minute * 60

    def _time_from(self, hour: int, minute: int) -> tuple[int, int] | None:
        """Return the first hour and minute of the entry on a day, from a given time on; None if there is none."""
        if hour in self._hours:
            for each in self._minutes:
                if each >= minute:
                    return hour, each
        later = next((each for each in self._hours if each > hour), None)
        return None if later is None else (later, self._minutes[0])

    def _includes(self, day: date) -> bool:
        return day.day in self._days and day.month in self._months and day.isoweekday() % 7 in self._weekdays

    def _days_after(self, day: date) -> Iterator[date]:
        for year in range(day.year, min(day.year + YEARS_AHEAD, MAXYEAR) + 1):
            for month in self._months:
                if (year, month) < (day.year, day.month):
                    continue
                _, length = monthrange(year, month)
                for number in self._days:
                    if number <= length and (found := date(year, month, number)) > day and self._includes(found):
                        yield found


parse = lru_cache(_REMEMBERED)(Cron)
"""Parses an entry; the last ones are cached. Raises `InvalidSchedule`."""


def _first_change(low: int, high: int, offset_at: UtcOffset) -> int:
    """Return the first time after `low`, up to `high`, at which the offset differs from that of `low`."""
    offset = offset_at(low)
    while high - low > 1:
        middle = (low + high) // 2
        if offset_at(middle) == offset:
            low = middle
        else:
            high = middle
    return high


def _values(token: str, name: str, low: int, high: int) -> Sequence[int]:
    """Return a field's values, ascending."""
    items, slash, step = token.partition("/")
    chosen: set[int] = set()
    for item in items.split(","):
        chosen.update(_item(item, name, low, high))
    if slash:
        divisor = _number(step, name)
        if divisor == 0:
            raise InvalidSchedule(f"cron field {name}: {token}: nothing can be divided by 0")
        chosen = {value for value in chosen if value % divisor == 0}
    if not chosen:
        raise InvalidSchedule(
            f"cron field {name}: {token} stands for nothing; for steps write a range, such as 0-59/15"
        )
    return sorted(chosen)


def _item(item: str, name: str, low: int, high: int) -> range:
    if item in ("*", "?"):
        return range(low, high + 1)
    first_text, dash, last_text = item.partition("-")
    first = _number(first_text, name)
    last = _number(last_text, name) if dash else first
    if not (low <= first <= high and low <= last <= high):
        raise InvalidSchedule(f"cron field {name}: {item} is not within {low} to {high}")
    return range(first, last + 1)


def _number(text: str, name: str) -> int:
    if not (text.isascii() and text.isdecimal()) or len(text) > 9:
        raise InvalidSchedule(f"cron field {name}: {text!r} is not a number")
    return int(text)
