"""Bodies read ahead: never fewer than are there, never more in memory than is set."""

import random
import re
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from pybroker.broker.domain.errors import DatabaseUnavailable, StoreUnavailable
from pybroker.store.jdbc import reader
from pybroker.store.jdbc.reader import JdbcBodyReader
from tests.runtimes import runtime

WAIT_SECONDS = 20.0


class FakeDatabase:
    """A table of bodies, that every third time is away for a moment."""

    is_closed = False

    def __init__(self, bodies: dict[int, bytes]) -> None:
        self.bodies = bodies
        self.is_broken = False
        self.queries: list[Any] = []

    def rows(self, sql: str, values: Sequence[Any], **_: object) -> list[tuple[int, bytes | None]]:
        self.queries.append(values)
        if self.is_broken:
            raise StoreUnavailable("the table is not there")
        if len(self.queries) % 3 == 0:
            raise DatabaseUnavailable("here", "for a moment")
        if re.search("unnest", sql):
            return list(self._cut([each for each in values[1] if each in self.bodies], values[0]))
        bytes_max, after, through, _, count = values
        ids = sorted(each for each in self.bodies if after < each <= through)
        return list(self._cut(ids[:count], bytes_max))

    def _cut(self, ids: list[int], bytes_max: int) -> Iterator[tuple[int, bytes | None]]:
        for each in ids:
            yield each, self.bodies[each] if bytes_max > 0 else None
            bytes_max -= len(self.bodies[each])

    def interrupt(self) -> None:
        """Ignored: nothing is slow here."""

    def close(self) -> None:
        """There is nothing to close."""


@pytest.fixture
def database() -> FakeDatabase:
    return FakeDatabase({number: b"x" * number for number in range(1, 1000, 2)})


@pytest.fixture
def reads(database: FakeDatabase) -> Iterator[JdbcBodyReader]:
    made: Any = database
    bodies = JdbcBodyReader(lambda: made, runtime(lambda callback: callback()), lambda: None)
    yield bodies
    bodies.close(WAIT_SECONDS)


@pytest.mark.parametrize("bytes_max", [0, 5_000, 8 << 20])
def test_every_requested_message_that_exists_is_returned(
    reads: JdbcBodyReader, database: FakeDatabase, bytes_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "AHEAD_BYTES_MAX", bytes_max)
    chooser = random.Random(7)
    for _ in range(300):
        start = chooser.randrange(1, 900)
        wanted = list(range(start, start + chooser.randrange(1, 40)))
        found = reads.read(wanted, chooser.choice(["", "queue://A", "queue://B"]), seconds=WAIT_SECONDS)
        assert found == {each: database.bodies[each] for each in wanted if each in database.bodies}


def test_a_page_after_the_other_is_there_already(reads: JdbcBodyReader, database: FakeDatabase) -> None:
    for start in range(1, 401, 20):
        reads.read(list(range(start, start + 20, 2)), "queue://A", seconds=WAIT_SECONDS)
        reads.read([2], seconds=WAIT_SECONDS)  # behind the look ahead; this one is not there
    pages = [values[1] for values in database.queries if len(values) == 2 and values[1] != [2]]
    assert len(pages) == 1, "the first page only"


def test_an_error_is_reported_and_the_next_read_tries_again(reads: JdbcBodyReader, database: FakeDatabase) -> None:
    database.is_broken = True
    with pytest.raises(StoreUnavailable, match="not there"):
        reads.read([1], seconds=WAIT_SECONDS)
    database.is_broken = False
    assert reads.read([1], seconds=WAIT_SECONDS) == {1: b"x"}


@pytest.mark.parametrize("seed", range(20))
def test_pages_bounded_by_bytes_leave_nothing_out(database: FakeDatabase, reads: JdbcBodyReader, seed: int) -> None:
    """Bodies of all sizes, in any order, some of them lost, with pages for two destinations in turns."""
    chooser = random.Random(seed)
    orders = [list(range(1, 500)), list(range(500, 1000))]
    chooser.shuffle(orders[0])
    found: dict[int, bytes] = {}
    while any(orders):
        left = chooser.choice([each for each in orders if each])
        wanted, bytes_max = left[: chooser.randrange(1, 50)], chooser.choice([1, 500, 5_000, 1 << 40])
        page, count = reads.read_page(wanted, chooser.choice(["", "queue://A"]), bytes_max=bytes_max, seconds=20.0)
        assert count >= 1
        assert sum(map(len, page.values())) - len(page.get(wanted[count - 1], b"")) < bytes_max
        assert set(page) == database.bodies.keys() & wanted[:count]
        found |= page
        del left[:count]
    assert found == database.bodies


def test_large_bodies_are_fetched_a_few_at_a_time(reads: JdbcBodyReader, database: FakeDatabase) -> None:
    database.bodies = {number: bytes(100_000) for number in range(100)}
    page, count = reads.read_page(list(range(100)), "queue://A", bytes_max=250_000, seconds=WAIT_SECONDS)
    assert (list(page), count) == ([0, 1, 2], 3)
    assert reads._byte_count <= reader.AHEAD_BYTES_MAX
    assert reads.read_page(list(range(3, 100)), bytes_max=1, seconds=WAIT_SECONDS)[1] == 1
