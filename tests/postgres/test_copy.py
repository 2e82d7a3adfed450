"""Batches of many messages, which are copied: the same rows as inserted ones, in one transaction with all else."""

import io
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pybroker.broker.domain.destination import queue
from pybroker.broker.domain.errors import LockNotHeld, StoreUnavailable
from pybroker.store.jdbc import statements as statements_module
from pybroker.store.jdbc.changes import Changes, MessageRow
from pybroker.store.jdbc.fence import CHECK
from pybroker.store.jdbc.postgres import Copy, DatabaseConnection
from pybroker.store.jdbc.statements import COPY_ROWS_MIN, statements
from tests.postgres.conftest import JdbcLives

ORDERS = queue("ORDERS")
WAIT_SECONDS = 20.0
SERVER_BUFFER_BYTES = 1 << 16
"""Size of the rows that a server gathers before it inserts them."""
ROWS = (
    MessageRow("queue://ORDERS", "ID:a:1:1", 1, 0, b"\0\xff\\x\t\n", 0, None),
    MessageRow("queue://Aufträge €\t\\N", "ID:ä\n", -1, -5, b"", 9, "+AAAA"),
    MessageRow("topic://T'", '"', 2**63 - 1, 2**63 - 1, bytes(300_000), 4, ""),
)


@pytest.fixture
def connection(lives: JdbcLives) -> DatabaseConnection:
    """One that the fence lets pass."""
    made = DatabaseConnection(lives.database.url)
    made.execute("PREPARE fence AS SELECT 1")
    return made


def batch(first: int, rows: Any = ROWS) -> Changes:
    changes = Changes()
    for sequence, row in enumerate(rows, first):
        changes.insert(sequence, row)
    return changes


def write(connection: DatabaseConnection, changes: Changes) -> list[bytes | Copy]:
    messages = statements(connection, CHECK, changes)
    for message in messages:
        connection.execute(message)
    return messages


def found(connection: DatabaseConnection, first: int) -> list[tuple[Any, ...]]:
    sql = "SELECT container, msgid_prod, msgid_seq, expiration, msg, priority, xid FROM activemq_msgs"
    rows = connection.rows(f"{sql} WHERE id >= {first} AND id < {first + 100} ORDER BY id")
    return [(*row[:4], bytes(row[4]), *row[5:]) for row in rows]


@pytest.mark.parametrize("chunk_bytes", [32 << 20, 1])
def test_copied_rows_are_those_that_an_insert_writes(
    connection: DatabaseConnection, monkeypatch: pytest.MonkeyPatch, chunk_bytes: int
) -> None:
    monkeypatch.setattr(statements_module, "TEXT_BYTES_MAX", chunk_bytes)
    copied = write(connection, batch(1000))
    monkeypatch.setattr(statements_module, "COPY_BYTES_MIN", 1 << 30)
    inserted = write(connection, batch(2000))
    assert any(isinstance(message, Copy) for message in copied)
    assert not any(isinstance(message, Copy) for message in inserted)
    assert found(connection, 1000) == found(connection, 2000) == list(ROWS)
    connection.execute("DELETE FROM activemq_msgs")
    connection.close()


def test_client_encoding_of_the_url_cannot_lose_names(lives: JdbcLives) -> None:
    connection = DatabaseConnection(f"{lives.database.url}?client_encoding=LATIN1")
    connection.execute("PREPARE fence AS SELECT 1")
    row = ROWS[0]._replace(container="queue://Aufträge 世界")
    write(connection, batch(1000, [row] * COPY_ROWS_MIN))
    assert set(found(connection, 1000)) == {tuple(row)}
    connection.execute("DELETE FROM activemq_msgs")
    connection.close()


def test_what_comes_after_a_copy_counts_with_it_or_not_at_all(connection: DatabaseConnection) -> None:
    changes = batch(1000)
    changes.marked[1] = "x" * 300  # too long for its column
    connection.execute("INSERT INTO activemq_msgs (id, container) VALUES (1, 'queue://ORDERS')")
    with pytest.raises(StoreUnavailable, match="too long"):
        write(connection, changes)
    assert not found(connection, 1000)
    connection.execute("DELETE FROM activemq_msgs")
    connection.close()


def send(lives: JdbcLives, text_message: Callable[..., Any], count: int) -> list[str]:
    messages = [text_message(ORDERS, number) for number in range(1, count + 1)]
    for message in messages:
        lives.store.add(message)
    return [message.message_id for message in messages]


def test_a_stale_master_copies_nothing(lives: JdbcLives, text_message: Callable[..., Any]) -> None:
    old = lives.store
    lives.open()
    for number in range(1, COPY_ROWS_MIN + 1):
        old.add(text_message(ORDERS, number))
    lives.loop.run_until(lambda: bool(lives.failures))
    assert isinstance(lives.failures.pop(), LockNotHeld)
    old.abandon()
    lives.crash()
    assert not lives.open().queues


class FreezingBytesIO(io.BytesIO):
    """Data of a COPY by a client that freezes before the last of it, and thaws when it may."""

    is_frozen = threading.Event()
    may_thaw = threading.Event()

    def read(self, size: int | None = -1, /) -> bytes:
        if self.getbuffer().nbytes - self.tell() <= (size or 0):
            self.is_frozen.set()
            assert self.may_thaw.wait(WAIT_SECONDS)
        return super().read(size)


@pytest.fixture
def frozen(lives: JdbcLives, text_message: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[JdbcLives]:
    """A master that is frozen in a copy, of which the server has rows and waits for the others without a limit."""
    old = lives.store
    FreezingBytesIO.is_frozen.clear()
    FreezingBytesIO.may_thaw.clear()
    with monkeypatch.context() as patch:
        patch.setattr("io.BytesIO", FreezingBytesIO)
        for number in range(1, COPY_ROWS_MIN + 1):
            old.add(text_message(ORDERS, number, "x" * SERVER_BUFFER_BYTES))
        lives.loop.turn()
        assert FreezingBytesIO.is_frozen.wait(WAIT_SECONDS)
    yield lives
    FreezingBytesIO.may_thaw.set()
    old.abandon()


def thaw(lives: JdbcLives) -> None:
    """Let the frozen master go on, and find out."""
    FreezingBytesIO.may_thaw.set()
    lives.loop.run_until(lambda: bool(lives.failures))
    assert isinstance(lives.failures.pop(), LockNotHeld)


def test_master_frozen_in_a_copy_blocks_and_writes_nothing(frozen: JdbcLives, text_message: Callable[..., Any]) -> None:
    frozen.open()
    sent = send(frozen, text_message, COPY_ROWS_MIN)
    frozen.flush()
    thaw(frozen)
    frozen.crash()
    assert list(frozen.open().queues[ORDERS]) == sent


def test_no_later_master_uses_the_ids_of_a_frozen_copy(frozen: JdbcLives, text_message: Callable[..., Any]) -> None:
    """The ids stay unused even after the tables were emptied and a clean stop holds nothing of them."""
    frozen.open()
    frozen.close()
    frozen.open()
    sent = send(frozen, text_message, COPY_ROWS_MIN)
    frozen.flush()
    thaw(frozen)
    frozen.crash()
    assert list(frozen.open().queues[ORDERS]) == sent


@pytest.mark.parametrize("is_before", [True, False])
def test_a_copy_that_is_cut_off_is_done_once(
    adapter: Callable[..., JdbcLives],
    text_message: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    is_before: bool,
) -> None:
    """The server may have had it or not."""
    lives = adapter(grace=20.0)
    lives.open()
    execute = DatabaseConnection.execute
    cut: list[Any] = []

    def cutting(self: DatabaseConnection, sql: Any, **options: Any) -> None:
        if isinstance(sql, Copy) and not cut:
            cut.append(sql)
            if not is_before:
                execute(self, sql, **options)
            self.interrupt()
        execute(self, sql, **options)

    monkeypatch.setattr(DatabaseConnection, "execute", cutting)
    sent = send(lives, text_message, COPY_ROWS_MIN)
    lives.flush()
    assert cut
    lives.crash()
    assert list(lives.open().queues[ORDERS]) == sent
