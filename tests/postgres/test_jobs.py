# mypy: disable-error-code="no-redef"
"""Contract of every job store on PostgreSQL: the suite of tests/conformance, unchanged; and the fence."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import pytest

from pybroker.broker.domain.errors import DatabaseUnavailable, LockNotHeld, NotReadYet, ResourceLimit
from pybroker.broker.domain.jobs import Job
from pybroker.store.jdbc import jobs
from pybroker.store.jdbc.jobs import JdbcJobStore
from pybroker.store.jdbc.limits import MESSAGE_BYTES_MAX
from pybroker.store.jdbc.postgres import DatabaseConnection
from tests.conformance.conftest import Loop
from tests.conformance.test_job_store import *  # noqa: F403
from tests.conformance.test_job_store import facts, job
from tests.postgres.conftest import JdbcLives
from tests.runtimes import runtime


class JobLives:
    """A database and the stores that own it: a message store that takes it over, and the job store."""

    store: JdbcJobStore

    def __init__(self, database: Any, held_bytes_max: int, **options: Any) -> None:
        self.messages = JdbcLives(database)
        self.options = {"held_bytes_max": held_bytes_max, **options}
        self.held_bytes_max = held_bytes_max
        self.loop = Loop()
        self.failures: list[Exception] = []

    def open(self) -> Sequence[Job]:
        self.messages.crash()
        self.messages.open()
        messages = self.messages.store
        self.store = JdbcJobStore(
            self.messages.database.url,
            epoch=lambda: messages.epoch,
            runtime=runtime(self.loop.call_soon, on_failure=self.failures.append),
            **{"read_seconds": 20.0} | self.options,  # a busy machine is no reason to fail here
        )
        return self.store.recover()

    def flush(self) -> None:
        self.loop.run_until(lambda: self.store.unwritten_bytes == 0)

    def cleanup(self) -> None:
        self.store.cleanup()

    def crash(self) -> None:
        self.store.abandon()
        self.loop.ready.clear()

    def end(self) -> None:
        """Check that a last crash changes nothing."""
        self.crash()
        before = facts(self.open(), self.store)
        self.crash()
        assert facts(self.open(), self.store) == before
        self.crash()
        self.messages.crash()
        assert not self.failures


@pytest.fixture(params=[1_000_000, 0], ids=["held", "not-held"])
def lives(request: pytest.FixtureRequest, postgres_database: Any) -> Iterator[JobLives]:
    lives = JobLives(postgres_database, request.param)
    lives.open()
    yield lives
    lives.end()


def test_a_stale_master_schedules_nothing(lives: Any) -> None:
    old, acknowledged = lives.store, []
    lives.open()
    old.add(job("a"))
    old.when_durable(lambda: acknowledged.append(1))
    lives.loop.run_until(lambda: bool(lives.failures))
    assert isinstance(lives.failures.pop(), LockNotHeld)
    assert not acknowledged
    old.abandon()
    lives.crash()
    assert not lives.open()


def test_messages_beyond_the_limit_are_left_to_the_database(lives: Any) -> None:
    made = job("a", data=b"x" * 1000)
    lives.store.add(made)
    lives.flush()
    assert (made.data is None) is (lives.held_bytes_max == 0)
    assert lives.store.load(made) == b"x" * 1000


def test_unreadable_message_is_read_after_the_outage(postgres_database: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    lives = JobLives(postgres_database, 0, read_seconds=0.0)
    lives.open()
    made = job("a", data=b"x" * 1000)
    lives.store.add(made)
    lives.flush()
    is_away = True

    def connect(url: str, **options: Any) -> DatabaseConnection:
        if is_away:
            raise DatabaseUnavailable("here", "no answer")
        return DatabaseConnection(url, **options)

    monkeypatch.setattr(jobs, "DatabaseConnection", connect)
    with pytest.raises(NotReadYet):
        lives.store.load(made)
    is_away = False
    found: list[bytes] = []

    def is_read() -> bool:
        with suppress(NotReadYet):
            found.append(lives.store.load(made))
        return bool(found)

    lives.loop.run_until(is_read)
    assert found == [b"x" * 1000]
    lives.options["read_seconds"] = 20.0
    lives.end()


def test_scheduled_message_above_the_cap_is_refused(lives: Any) -> None:
    with pytest.raises(ResourceLimit, match="a store in a database takes"):
        lives.store.add(job("a"), job("b", data=bytes(MESSAGE_BYTES_MAX + 1)))
    assert not lives.open()


@pytest.mark.parametrize("fields", [{"job_id": "a\0"}, {"job_id": "a", "cron": "\ud800"}])
def test_what_the_columns_cannot_hold_is_refused(lives: Any, fields: dict[str, Any]) -> None:
    make: Callable[..., Job] = job
    with pytest.raises(ResourceLimit):
        lives.store.add(make(**fields))
    lives.store.add(job("b"))
    lives.flush()
