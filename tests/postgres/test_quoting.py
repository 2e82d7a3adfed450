"""Texts of clients stay texts, whatever role, database, pooler or session set as `standard_conforming_strings`."""

from typing import Any

import psycopg2  # type: ignore[import-untyped]
import pytest

from pybroker.broker.domain.destination import queue
from pybroker.broker.domain.errors import ConfigError, StoreUnavailable
from pybroker.locks.postgres import session as lock_session
from pybroker.locks.postgres.session import DatabaseSession, DatabaseTarget
from pybroker.locks.postgres.timing import Timing
from pybroker.store.jdbc import postgres
from pybroker.store.jdbc.changes import Changes
from pybroker.store.jdbc.fence import CHECK
from pybroker.store.jdbc.postgres import DatabaseConnection, quoted, quoted_bytes
from pybroker.store.jdbc.statements import statements
from tests.postgres.conftest import JdbcLives
from tests.postgres_cluster import USER

OFF = "standard_conforming_strings = off"
TEXTS = [
    "plain",
    "it's",
    "a\\b",
    "\\",
    "\\'",
    "'\\",
    "\\'); DROP TABLE activemq_msgs; --",
    "\\x41",
    "世界\\é",
    "",
    "%s",
]


@pytest.fixture
def nonconforming(postgres_database: Any) -> Any:
    """A database, and a role, with the setting off."""
    postgres_database.sql(f"ALTER DATABASE {postgres_database.name} SET {OFF}")
    postgres_database.sql(f"ALTER ROLE {USER} IN DATABASE {postgres_database.name} SET {OFF}")
    return postgres_database


@pytest.mark.parametrize("setting", ["on", "off"])
def test_quoted_values_mean_the_same_with_either_setting(postgres_database: Any, setting: str) -> None:
    with psycopg2.connect(postgres_database.url) as raw, raw.cursor() as cursor:
        cursor.execute(f"SET standard_conforming_strings = {setting}")
        for text in TEXTS:
            cursor.execute(b"SELECT " + quoted(text) + b", " + quoted_bytes(text.encode()) + b"::bytea")
            ((found, data),) = cursor.fetchall()
            assert (found, bytes(data)) == (text, text.encode())
    raw.close()


def test_client_name_with_setting_off_injects_no_sql(nonconforming: Any, text_message: Any) -> None:
    lives = JdbcLives(nonconforming)
    lives.open()
    sent = [text_message(queue(f"q {text}"), number) for number, text in enumerate(TEXTS)]
    for message in sent:
        lives.store.add(message)
    lives.flush()
    lives.crash()
    assert lives.open().queues == {message.destination: [message.message_id] for message in sent}
    for message in sent:
        assert [each.data for each in lives.store.read(message.destination, [message.message_id])] == [message.data]
    lives.crash()


def test_store_refuses_a_pooler_that_drops_the_option(nonconforming: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "STRINGS", "")
    with pytest.raises(StoreUnavailable, match="standard_conforming_strings = off, and not on"):
        DatabaseConnection(nonconforming.url)


def test_lock_refuses_a_pooler_that_drops_the_option(nonconforming: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    DatabaseSession(DatabaseTarget(nonconforming.url), Timing.of()).close()
    monkeypatch.setattr(lock_session, "_STRINGS", "")
    with pytest.raises(ConfigError, match="standard_conforming_strings = off, and not on"):
        DatabaseSession(DatabaseTarget(nonconforming.url), Timing.of())


def test_setting_changed_in_the_session_is_refused(lives: JdbcLives) -> None:
    connection = DatabaseConnection(lives.database.url)
    connection.execute(f"SET {OFF}")
    with pytest.raises(StoreUnavailable, match="and not on"):
        statements(connection, CHECK, Changes())
    connection.close()
    session = DatabaseSession(DatabaseTarget(lives.database.url), Timing.of())
    session.run(f"SET {OFF}")
    with pytest.raises(ConfigError, match="and not on"):
        session.run("SELECT %s", "text")
    session.close()


def test_options_of_the_url_stay(postgres_database: Any) -> None:
    url = f"{postgres_database.url}?options=-c%20search_path%3Delsewhere"
    connection = DatabaseConnection(url)
    assert connection.rows("SHOW search_path") == [("elsewhere",)]
    connection.close()
    session = DatabaseSession(DatabaseTarget(url), Timing.of())
    assert session.run("SHOW search_path") == [("elsewhere",)]
    session.close()
