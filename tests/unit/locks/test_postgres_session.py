"""URLs and their secrets, without a server."""

import threading

import pytest

from pybroker.broker.domain.errors import DatabaseUnavailable

pytest.importorskip("psycopg2", reason="install pybroker[postgres]")

from pybroker.broker.domain.errors import ConfigError
from pybroker.locks.postgres.session import DatabaseSession, DatabaseTarget, Interrupt, Interrupted
from pybroker.locks.postgres.timing import Timing


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("postgresql://u:secret@db:6432/broker", "postgresql://db:6432/broker"),
        ("postgres://u@db/broker?sslmode=require", "postgresql://db:5432/broker"),
        ("postgresql://u:secret@a,b:1/broker?target_session_attrs=read-write", "postgresql://a:5432,b:1/broker"),
        ("postgresql://u:secret@[::1]:5/broker", "postgresql://[::1]:5/broker"),
        ("postgresql:///broker?password=secret&host=/run/postgresql", "postgresql:///run/postgresql:5432/broker"),
        ("postgresql://", "postgresql://localhost:5432/"),
    ],
)
def test_name_shows_the_place_and_neither_user_nor_password(url: str, name: str) -> None:
    target = DatabaseTarget(url)
    assert target.name == name
    assert "secret" not in target.name


@pytest.mark.parametrize(
    "url",
    [
        "secret",
        "mysql://u:secret@h/d",
        "postgresql://u:sec@ret@h/d",
        "postgresql://u:secret@h/d?no_such_option=secret",
        "postgresql://u:secret@h:5432/d?connect_timeout",
        "postgresql://u:se%zzcret@h/d",
        "postgresql://u:secret@[h/d",
    ],
)
def test_what_is_no_url_is_refused_without_being_quoted(url: str) -> None:
    with pytest.raises(ConfigError, match="lock_url: this is not the URL") as caught:
        DatabaseTarget(url)
    assert caught.value.__cause__ is None, "libpq's words may quote the password"
    for piece in ("secret", "cret", "ret@"):
        assert piece not in str(caught.value)


def test_passwords_are_made_unreadable_in_the_drivers_messages() -> None:
    target = DatabaseTarget("postgresql://u:p%20w@h/d?sslpassword=keykey")
    assert target.without_secrets("FATAL: p w or p%20w is wrong, and keykey") == "FATAL: *** or *** is wrong, and ***"


def test_a_server_that_is_not_there_is_unreachable() -> None:
    with pytest.raises(DatabaseUnavailable, match="start PostgreSQL there") as caught:
        DatabaseSession(DatabaseTarget("postgresql://u:secret@127.0.0.1:1/d"), Timing.of())
    assert "secret" not in str(caught.value)


def test_a_set_interrupt_ends_waits_until_it_is_cleared() -> None:
    interrupt = Interrupt()
    interrupt.wait(0.001)
    threading.Timer(0.01, interrupt.set).start()
    for _ in range(2):
        with pytest.raises(Interrupted):
            interrupt.wait(20)
    interrupt.set()
    interrupt.clear()
    assert not interrupt.is_set()
    interrupt.wait(0.001)
