"""A master that is not the master any more writes nothing and acknowledges nothing, whatever it believes itself."""

import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg2  # type: ignore[import-untyped]
import pytest

from pybroker.broker.domain.destination import queue
from pybroker.broker.domain.errors import LockNotHeld, StoreUnavailable
from tests.integration.stalling_proxy import StallingProxy
from tests.pace import in_time
from tests.postgres.conftest import JdbcLives

ORDERS = queue("ORDERS")
WAIT_SECONDS = 20.0


def ids(lives: JdbcLives, *numbers: int, text_message: Callable[..., Any]) -> list[str]:
    return [text_message(ORDERS, number).message_id for number in numbers]


def run_until_failure(lives: JdbcLives) -> Exception:
    lives.loop.run_until(lambda: bool(lives.failures))
    (failure,) = lives.failures
    lives.failures.clear()
    return failure


def test_unaware_stale_master_acknowledges_nothing(lives: Any, text_message: Any) -> None:
    lives.store.add(text_message(ORDERS, 1))
    lives.flush()
    old, acknowledged = lives.store, []
    lives.open()  # the lock has changed hands, and `check` of the old one still succeeds
    old.add(text_message(ORDERS, 2))
    old.remove(ORDERS, text_message(ORDERS, 1).message_id)
    old.when_durable(lambda: acknowledged.append("the old one"))
    assert isinstance(run_until_failure(lives), LockNotHeld)
    lives.store.add(text_message(ORDERS, 3))
    lives.store.when_durable(lambda: acknowledged.append("the new one"))
    lives.flush()
    assert acknowledged == ["the new one"]
    with pytest.raises(StoreUnavailable, match="stopped"):
        old.add(text_message(ORDERS, 4))
    lives.crash()
    assert lives.open().queues[ORDERS] == ids(lives, 1, 3, text_message=text_message)
    old.abandon()


def test_every_take_over_has_a_higher_epoch(lives: Any) -> None:
    epochs = [lives.store.epoch]
    for end in (lives.close, lives.crash, lives.close):
        end()
        lives.open()
        epochs.append(lives.store.epoch)
    assert epochs == [1, 2, 3, 4]


def test_a_stale_master_cannot_record_a_clean_stop(lives: Any, text_message: Any) -> None:
    message = text_message(ORDERS, 1)
    lives.store.add(message)
    lives.flush()
    old = lives.store
    lives.open()
    with pytest.raises(LockNotHeld):
        old.close(delivered=[])
    lives.loop.turn()
    lives.failures.clear()
    lives.crash()
    assert lives.open().delivered is None


def test_a_take_over_waits_for_a_transaction_under_way(lives: Any, text_message: Any) -> None:
    """Commits confirmed to the former master are seen by the new one, however late they were."""
    lives.crash()
    recovered: list[Any] = []
    with psycopg2.connect(lives.database.url) as session, session.cursor() as cursor:
        cursor.execute("SELECT FROM pybroker_epoch WHERE id = 1 FOR SHARE")  # as every transaction of a master does
        thread = threading.Thread(target=lambda: recovered.append(lives.open()))
        thread.start()
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        while lives.database.sql(waiting) != "1":
            assert thread.is_alive()
        cursor.execute(
            "INSERT INTO activemq_msgs VALUES (7, 'queue://ORDERS', 'ID:last:1:1', 1, 0, %s, 0, NULL)",
            (b"\0\0\0\0",),
        )
    session.close()
    thread.join(WAIT_SECONDS)
    assert list(recovered[0].queues[ORDERS]) == ["ID:last:1:1:1"]
    lives.store.remove(ORDERS, "ID:last:1:1:1")  # it has no body
    lives.flush()


def test_lost_connection_ends_the_mastership_without_retry(lives: Any, text_message: Any) -> None:
    acknowledged: list[int] = []
    lives.store.add(text_message(ORDERS, 1))
    lives.flush()
    lives.database.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'pybroker'")
    lives.store.add(text_message(ORDERS, 2))
    lives.store.when_durable(lambda: acknowledged.append(2))
    assert isinstance(run_until_failure(lives), StoreUnavailable)
    assert not acknowledged
    lives.crash()
    assert lives.open().queues[ORDERS] == ids(lives, 1, text_message=text_message)


def test_the_locks_fence_is_checked_after_every_commit(lives: Any, text_message: Any) -> None:
    acknowledged: list[int] = []
    lives.is_master = False
    lives.store.add(text_message(ORDERS, 1))
    lives.store.when_durable(lambda: acknowledged.append(1))
    assert isinstance(run_until_failure(lives), LockNotHeld)
    assert not acknowledged


def test_giving_up_does_not_wait_for_a_commit_that_hangs(lives: Any, text_message: Any) -> None:
    lives.store.add(text_message(ORDERS, 1))
    lives.flush()
    with psycopg2.connect(lives.database.url) as session, session.cursor() as cursor:
        cursor.execute("LOCK TABLE activemq_msgs IN EXCLUSIVE MODE")
        lives.store.add(text_message(ORDERS, 2))
        lives.loop.turn()
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        while lives.database.sql(waiting) != "1":
            assert not lives.failures
        lives.crash()
        # No one is there to be answered, so the server ends the statement, and a take-over need not wait for it.
        assert lives.open().queues[ORDERS] == ids(lives, 1, text_message=text_message)
    session.close()


def test_a_link_that_drops_everything_is_closed_in_time(postgres_database: Any, text_message: Any) -> None:
    """A server behind a proxy may be gone without the kernel's noticing; the bound is the store's own."""
    acknowledged: list[int] = []
    with StallingProxy(postgres_database.cluster.port) as proxy:
        lives = JdbcLives(postgres_database, url=postgres_database.through(proxy.port))
        lives.open()
        lives.store.add(text_message(ORDERS, 1))
        lives.flush()
        proxy.stall()
        begun = time.monotonic()
        lives.store.add(text_message(ORDERS, 2))
        lives.store.when_durable(lambda: acknowledged.append(2))
        failure = run_until_failure(lives)
        seconds = time.monotonic() - begun
        print(f"given up after {seconds:.1f} s: {failure}")
        assert in_time(seconds, 10)
        assert not acknowledged
        lives.crash()
    lives.options.clear()
    assert lives.open().queues[ORDERS] == ids(lives, 1, text_message=text_message)
    lives.crash()
