"""A register in PostgreSQL: its table, its rights, its notifications, and servers that do not accept it."""

import time
from collections.abc import Callable, Iterator

import pytest

from pybroker.broker.domain.errors import ConfigError
from pybroker.locks.election.postgres import TABLE, PostgresRegister
from pybroker.locks.election.register import ABSENT, RegisterUnavailable
from pybroker.locks.postgres.session import DatabaseSession
from tests.integration.register_engines import PATIENT_SECONDS, RECORD, record
from tests.integration.test_registers import Seen, created, read_patiently
from tests.pace import in_time
from tests.postgres_cluster import PASSWORD, USER, PostgresDatabase, postgres_cluster, postgres_database

__all__ = ["postgres_cluster", "postgres_database"]

NewPostgres = Callable[..., PostgresRegister]


@pytest.fixture
def new_postgres(postgres_database: PostgresDatabase) -> Iterator[NewPostgres]:
    made: list[PostgresRegister] = []

    def new(url: str = "", *, seconds: float = PATIENT_SECONDS) -> PostgresRegister:
        made.append(PostgresRegister(url or postgres_database.url, timeout_seconds=seconds))
        return made[-1]

    yield new
    for register in made:
        register.close()


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ("", "pybroker"),
        ("?cluster=orders", "orders"),
        ("?application_name=x%20y&cluster=a%2Fb", "a/b"),
        ("?cluster=orders&options=-c%20search_path%3Dpublic", "orders"),
    ],
)
def test_url_names_the_cluster(
    postgres_database: PostgresDatabase,
    new_postgres: NewPostgres,
    options: str,
    name: str,
) -> None:
    register = new_postgres(postgres_database.url + options)
    created(register)
    assert postgres_database.sql(f"SELECT name FROM {TABLE}") == name
    assert register.name.endswith(f"/{postgres_database.name}?cluster={name}")
    assert "s3cret" not in register.name


def test_url_with_two_clusters_is_refused(postgres_database: PostgresDatabase, new_postgres: NewPostgres) -> None:
    with pytest.raises(ConfigError, match="more than one cluster"):
        new_postgres(f"{postgres_database.url}?cluster=a&cluster=b")


def test_notification_is_quicker_than_the_next_read(new_postgres: NewPostgres) -> None:
    register, writer, seen = new_postgres(seconds=300.0), new_postgres(), Seen()
    state = created(writer)
    register.watch(seen.states.put)
    seen.wait_for_nonce(RECORD.nonce)
    for nonce in ("one", "two", "three"):
        began = time.monotonic()
        state = writer.swap(state.revision, record(nonce)).present
        seen.wait_for_nonce(nonce)
        assert in_time(time.monotonic() - began, 2.0)


def test_notifications_are_not_kept(new_postgres: NewPostgres) -> None:
    register, writer, seen = new_postgres(seconds=300.0), new_postgres(), Seen()
    state = created(writer)
    watching = register.watch(seen.states.put)
    for count in range(20):
        state = writer.swap(state.revision, record(f"n-{count}")).present
    seen.wait_for_nonce("n-19")
    session = watching._register._session
    assert session is not None
    assert len(session._connection.notifies) <= 1, "the last one may just have come"


def test_ended_session_is_opened_again(postgres_database: PostgresDatabase, new_postgres: NewPostgres) -> None:
    register, seen = new_postgres(seconds=2.0), Seen()
    before = created(register)
    register.watch(seen.states.put)
    seen.wait_for_nonce(RECORD.nonce)
    users = f"usename = '{USER}' AND datname = current_database()"
    postgres_database.sql(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {users}")
    with pytest.raises(RegisterUnavailable):
        register.swap(before.revision, record("lost"))
    assert read_patiently(register) == before
    assert register.swap(before.revision, record("next")).is_swapped
    seen.wait_for_nonce("next")


def test_commit_waits_for_the_disk_whatever_the_role_says(
    postgres_database: PostgresDatabase,
    new_postgres: NewPostgres,
) -> None:
    for given, wanted in (("off", "on"), ("local", "on"), ("remote_apply", "remote_apply")):
        postgres_database.sql(f"ALTER DATABASE {postgres_database.name} SET synchronous_commit = {given}")
        register = new_postgres()
        register.read()
        assert register._session is not None
        assert register._session.run("SHOW synchronous_commit") == [(wanted,)]


def test_server_that_only_reads_is_unavailable(postgres_database: PostgresDatabase, new_postgres: NewPostgres) -> None:
    """A replica answers with what may be old."""
    state = created(new_postgres())
    postgres_database.sql(f"ALTER DATABASE {postgres_database.name} SET default_transaction_read_only = on")
    register = new_postgres()
    with pytest.raises(RegisterUnavailable, match="read-only"):
        register.read()
    with pytest.raises(RegisterUnavailable, match="read-only"):
        register.swap(state.revision, record("next"))
    postgres_database.cluster.sql(f"ALTER DATABASE {postgres_database.name} RESET default_transaction_read_only")
    assert register.read() == state


def test_user_without_rights_is_an_error_of_configuration(
    postgres_database: PostgresDatabase,
    new_postgres: NewPostgres,
) -> None:
    state = created(new_postgres())
    postgres_database.sql(f"ALTER TABLE {TABLE} OWNER TO postgres")
    postgres_database.sql(f"REVOKE ALL ON {TABLE} FROM {USER}; GRANT SELECT ON {TABLE} TO {USER}")
    register = new_postgres()
    assert register.read() == state
    with pytest.raises(ConfigError, match=f"GRANT SELECT, INSERT, UPDATE ON {TABLE}"):
        register.swap(state.revision, record("next"))
    postgres_database.sql(f"GRANT UPDATE ON {TABLE} TO {USER}; GRANT USAGE ON SEQUENCE {TABLE}_revision_seq TO {USER}")
    assert register.swap(state.revision, record("next")).is_swapped


def test_wrong_password_is_not_shown(postgres_database: PostgresDatabase, new_postgres: NewPostgres) -> None:
    register = new_postgres(postgres_database.url.replace("s3cret", "wr0ng"))
    with pytest.raises(RegisterUnavailable, match="password authentication failed") as caught:
        register.read()
    assert "wr0ng" not in f"{caught.value}{caught.value.__cause__}"
    assert PASSWORD not in str(caught.value)


def test_members_create_the_table_once(new_postgres: NewPostgres) -> None:
    """Of two members that start together, both find no table, and both create it."""
    first, second = new_postgres(), new_postgres()
    run = DatabaseSession.run

    def create_between(self: DatabaseSession, statement: str, *arguments: object, seconds: float = 5.0) -> object:
        if statement.startswith("CREATE"):
            patch.setattr(DatabaseSession, "run", run)
            assert second.read() == ABSENT
        return run(self, statement, *arguments, seconds=seconds)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DatabaseSession, "run", create_between)
        assert first.read() == ABSENT
    state = created(first)
    assert second.read() == state
