"""`pybroker start --store postgresql://…` that cannot be: one line with the remedy, and no table is left behind."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.cluster import BrokerProcess
from tests.integration.test_postgres_start import assert_no_password, assert_refused, start
from tests.postgres_cluster import PASSWORD_IN_URL, USER, PostgresDatabase, postgres_cluster, postgres_database

__all__ = ["postgres_cluster", "postgres_database"]

TABLES = "SELECT string_agg(tablename, ' ' ORDER BY tablename) FROM pg_tables WHERE schemaname = 'public'"


def refused(tmp_path: Path, url: str, *words: str, arguments: tuple[str, ...] = (), code: int = 1) -> None:
    """Start a member; it ends with one line that matches."""
    done = start(tmp_path, "--store", url, *arguments)
    assert_refused(done, *words)
    assert done.returncode == code
    assert not (tmp_path / "store").exists()


def test_no_one_there(tmp_path: Path, postgres_database: PostgresDatabase) -> None:
    refused(tmp_path, postgres_database.through(1), "refused", "start PostgreSQL there", "in store")


def test_wrong_password(tmp_path: Path, postgres_database: PostgresDatabase) -> None:
    url = postgres_database.url.replace(PASSWORD_IN_URL, "wr0ng")
    refused(tmp_path, url, "password authentication failed", "check user and password in store")


def test_unknown_database(tmp_path: Path, postgres_database: PostgresDatabase) -> None:
    url = postgres_database.cluster.url("nowhere")
    refused(tmp_path, url, 'database "nowhere" does not exist', "create the database")


def test_a_server_that_only_reads(tmp_path: Path, postgres_database: PostgresDatabase) -> None:
    postgres_database.sql(f"ALTER DATABASE {postgres_database.name} SET default_transaction_read_only = on")
    refused(tmp_path, postgres_database.url, "read-only", "name the primary in store")


def test_a_role_that_may_not_create(tmp_path: Path, postgres_database: PostgresDatabase) -> None:
    postgres_database.sql(f"ALTER DATABASE {postgres_database.name} OWNER TO postgres")
    refused(tmp_path, postgres_database.url, "permission denied for schema public", "grant")
    assert postgres_database.sql(TABLES) == ""


def test_tables_that_may_not_be_used(tmp_path: Path, postgres_database: PostgresDatabase) -> None:
    """An ActiveMQ's, of another role: none of ours appear beside them."""
    postgres_database.sql(
        "CREATE TABLE activemq_msgs (id bigint); CREATE TABLE activemq_acks (id bigint);"
        f"GRANT SELECT, INSERT ON activemq_msgs TO {USER}"
    )
    grant = f"GRANT SELECT, INSERT, UPDATE, DELETE ON activemq_acks, activemq_msgs TO {USER}"
    refused(tmp_path, postgres_database.url, f"{USER} may not SELECT", grant, code=2)
    assert postgres_database.sql(TABLES) == "activemq_acks activemq_msgs"


def test_other_tables_of_those_names(tmp_path: Path, postgres_database: PostgresDatabase) -> None:
    postgres_database.sql(f"CREATE TABLE activemq_msgs (id bigint); GRANT ALL ON activemq_msgs TO {USER}")
    refused(tmp_path, postgres_database.url, "activemq_msgs is not ActiveMQ", "use another database or schema")
    assert postgres_database.sql(TABLES) == "activemq_msgs"


def test_tables_of_a_newer_version(tmp_path: Path, postgres_database: PostgresDatabase) -> None:
    once(postgres_database)
    postgres_database.sql("UPDATE pybroker_epoch SET version = 2")
    refused(tmp_path, postgres_database.url, "of version 2", "run the newer pybroker")


def test_tables_that_are_missing_and_not_to_be_created(tmp_path: Path, postgres_database: PostgresDatabase) -> None:
    words = ("there is no table activemq_msgs", "allow the broker to create tables")
    refused(tmp_path, postgres_database.url, *words, arguments=("--no-create-tables",))
    assert postgres_database.sql(TABLES) == ""
    once(postgres_database)
    once(postgres_database, "--no-create-tables")  # which are there now
    lock = ("--lock", "postgres-row", "--lock-url", postgres_database.url, "--no-create-tables")
    postgres_database.sql("DROP TABLE activemq_lock")
    done = start(tmp_path, *lock)
    assert_refused(done, "create_tables: there is no table activemq_lock")


def test_a_row_lock_where_someone_has_a_lease(tmp_path: Path, postgres_database: PostgresDatabase) -> None:
    once(postgres_database)
    postgres_database.sql("UPDATE activemq_lock SET broker_name = 'broker-x', time = 9e15")
    refused(tmp_path, postgres_database.url, "broker-x has a lease", "same kind of lock", code=2)


def test_a_lease_where_someone_has_a_row_lock(tmp_path: Path, postgres_database: PostgresDatabase) -> None:
    lease = ("--lock", "postgres-lease", "--lock-lease", "1s")
    node = BrokerProcess(postgres_database.url, name="a", port=0)
    try:
        node.wait_for("listening on")
        refused(
            tmp_path,
            postgres_database.url,
            "another member has a row lock",
            "same kind of lock",
            arguments=lease,
            code=2,
        )
    finally:
        node.close()


def test_settings_that_contradict_each_other(tmp_path: Path) -> None:
    done = start(tmp_path, "--store", "postgresql://u:pw@h/d", "--lock", "file")
    assert done.returncode == 2
    assert_refused(done, "does not guard a store in a database", "postgres-row")
    assert "pw@h" not in done.stdout


def test_a_url_that_is_none(tmp_path: Path) -> None:
    refused(tmp_path, "postgresql://u:p@pw@h/d", "store: this is not the URL", "%40", code=2)


@pytest.mark.parametrize("command", ["start", "status"])
def test_without_the_driver(command: str) -> None:
    program = "import sys; sys.modules['psycopg2'] = None; from pybroker.broker.app.cli import main; main()"
    words = [sys.executable, "-c", program, command, "--store", "postgresql://u:pw@h/d"]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 2
    assert_refused(done, "needs psycopg2, which is not installed; pip install psycopg2-binary")


def once(database: PostgresDatabase, *arguments: str) -> None:
    """Let a member serve once, which creates the tables, and stop it."""
    node = BrokerProcess(database.url, name="once", port=0, extra=arguments)
    try:
        node.wait_for("listening on")
        assert node.terminate() == 0
        assert_no_password("\n".join(node.lines))
    finally:
        node.close()
