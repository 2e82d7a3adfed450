"""Lives of a store in a PostgreSQL database: open, use, close or crash, open again."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from pybroker.broker.domain.errors import LockNotHeld
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.recovery import Recovery
from pybroker.store.jdbc.store import JdbcStore
from tests.conformance.conftest import Loop, bodies, snapshot, text_message
from tests.postgres_cluster import (  # noqa: F401
    PostgresCluster,
    PostgresDatabase,
    postgres_cluster,
    postgres_database,
)
from tests.runtimes import runtime


class JdbcLives:
    """A database and the stores that own it, one after the other."""

    def __init__(self, database: PostgresDatabase, **options: Any) -> None:
        self.database = database
        self.options = options
        self.loop = Loop()
        self.failures: list[Exception] = []
        self.is_master = True
        self.store: JdbcStore = self.make()

    def make(self, **options: Any) -> JdbcStore:
        """Return a store that is not open."""
        self.is_master = True
        parts: dict[str, Any] = {"read_seconds": 20.0}  # a busy machine is no reason to fail here
        parts |= {"url": self.database.url} | self.options | options
        world = runtime(
            self.loop.call_soon,
            call_later=parts.pop("call_later", None),
            fence=self._check,
            on_failure=self.failures.append,
        )
        return JdbcStore(**parts, runtime=world)

    def _check(self) -> None:
        if not self.is_master:
            raise LockNotHeld("the lock was taken away")

    def open(self) -> Recovery:
        self.store = self.make()
        return self.store.recover()

    def flush(self) -> None:
        """Let everything become durable."""
        self.loop.run_until(lambda: self.store.unwritten_bytes == 0)

    def cleanup(self) -> None:
        self.store.cleanup()
        self.flush()

    def close(self, delivered: Iterable[str] = ()) -> None:
        self.store.close(delivered)

    def crash(self) -> None:
        """Stop in the middle: what was changed in the last turn is lost, what is on its way is not acknowledged."""
        self.is_master = False
        self.store.abandon()
        self.loop.ready.clear()

    def end(self) -> None:
        """Check that the tables are sound, and that a last crash changes nothing."""
        self.crash()
        recovery = self.open()
        before = snapshot(recovery)
        bodies(self.store, recovery)
        assert not self.store.damages
        assert not self.failures
        self.crash()
        assert snapshot(self.open()) == before
        self.crash()


@pytest.fixture
def lives_type() -> type[JdbcLives]:
    """Kind of stores that the adapter makes."""
    return JdbcLives


@pytest.fixture
def adapter(
    postgres_cluster: PostgresCluster,  # noqa: F811
    lives_type: type[JdbcLives],
) -> Iterator[Callable[..., JdbcLives]]:
    """Makes stores, each in a database of its own; after every test each is checked for consistency."""
    made: list[JdbcLives] = []

    def make(**options: Any) -> JdbcLives:
        made.append(lives_type(postgres_cluster.create_database(), **options))
        return made[-1]

    yield make
    for lives in made:
        lives.end()
        lives.database.drop()


@pytest.fixture
def lives(adapter: Callable[..., JdbcLives]) -> JdbcLives:
    """A store, opened for the first time."""
    lives = adapter()
    lives.open()
    return lives


@pytest.fixture(name="snapshot")
def snapshot_fixture() -> Callable[[Recovery], dict[str, Any]]:
    """The function `snapshot`."""
    return snapshot


@pytest.fixture(name="text_message")
def text_message_fixture() -> Callable[..., Message]:
    """The function `text_message`."""
    return text_message
