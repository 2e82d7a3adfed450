# mypy: disable-error-code="arg-type"
"""`pybroker doctor` beside real members, and on databases."""

import json
from pathlib import Path
from typing import Any

from pybroker.store.jdbc.schema import ACKS, KEY, LOCK, MESSAGES, OWN
from tests.integration.cluster import Pair
from tests.integration.forked import run_forked
from tests.postgres_cluster import USER, PostgresDatabase, postgres_cluster, postgres_database

__all__ = ["postgres_cluster", "postgres_database"]

TABLES = "SELECT string_agg(tablename, ' ' ORDER BY tablename) FROM pg_tables WHERE schemaname = 'public'"


def findings(store: str, *extra: str) -> tuple[int, list[dict[str, Any]]]:
    arguments = ("--store", store, "--stomp", "0", "--openwire", "0", "--disk-reserve", "0", "--json", *extra)
    done = run_forked("doctor", *arguments)
    found = json.loads(done.stdout)
    assert found["exit_code"] == done.returncode
    return done.returncode, found["findings"]


def test_a_pair_and_what_is_left_of_it(tmp_path: Path) -> None:
    with Pair(tmp_path / "store") as pair:
        standby = pair.wait_for_standby()
        pair.wait_for_status(lambda status: {each["role"] for each in status["members"]} == {"MASTER", "STANDBY"})
        code, found = findings(pair.store)
        assert (code, [each["check"] for each in found]) == (0, ["standby"])  # both are on one machine
        standby.kill()
        code, found = findings(pair.store)
        assert (code, [(each["severity"], each["check"]) for each in found]) == (3, [("warning", "standby")])
        pair.wait_for_master().kill()
        code, found = findings(pair.store)
        assert (code, found) == (0, [])  # members that have ended are no longer expected


def test_what_is_printed_for_people(tmp_path: Path) -> None:
    done = run_forked("doctor", "--store", "memory:", "--stomp", "0", "--openwire", "0")
    assert done.returncode == 3
    assert done.stdout == (
        "WARNING  store: messages are in memory, and end with the process\n         -> set store to a directory\n"
    )
    well = run_forked("doctor", "--store", str(tmp_path), "--stomp", "0", "--openwire", "0", "--disk-reserve", "0")
    assert well.returncode == 0
    assert well.stdout.startswith("ADVICE   store: there is no store in ")


def used_by_activemq(database: PostgresDatabase) -> None:
    """Create the tables that ActiveMQ creates."""
    tables = "activemq_msgs, activemq_acks, activemq_lock"
    database.sql(f"{MESSAGES}{ACKS % KEY}{LOCK} GRANT ALL ON {tables} TO {USER}")


def test_tables_that_a_start_creates_are_advice(postgres_database: PostgresDatabase) -> None:
    used_by_activemq(postgres_database)
    before = postgres_database.sql(TABLES)
    code, found = findings(postgres_database.url)
    assert (code, [(each["severity"], each["check"]) for each in found]) == (0, [("advice", "store")])
    assert found[0]["evidence"] == f"the first start creates the tables {', '.join(OWN)}"
    assert postgres_database.sql(TABLES) == before


def test_tables_that_may_not_be_created_are_an_error(postgres_database: PostgresDatabase) -> None:
    used_by_activemq(postgres_database)
    postgres_database.sql(f"ALTER DATABASE {postgres_database.name} OWNER TO postgres")
    code, found = findings(postgres_database.url)
    assert (code, [each["severity"] for each in found]) == (4, ["error"])
    assert f"tables are missing, and {USER} may not create them in the schema public" in found[0]["evidence"]
    assert found[0]["remedy"] == f"as the schema's owner: GRANT CREATE ON SCHEMA public TO {USER}"
    postgres_database.sql("DROP SCHEMA public CASCADE")
    code, found = findings(postgres_database.url)
    assert (code, [each["remedy"] for each in found]) == (4, ["create the schema, or set search_path for the role"])


def test_tables_that_no_start_may_create_are_an_error(postgres_database: PostgresDatabase) -> None:
    used_by_activemq(postgres_database)
    code, found = findings(postgres_database.url, "--no-create-tables")
    assert code == 4
    assert "there is no table pybroker_epoch" in found[0]["evidence"]
