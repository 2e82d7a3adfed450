"""`pybroker handback` of a store in PostgreSQL, and that a stock ActiveMQ has there what a pybroker left."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pybroker.broker.app import handback_database
from pybroker.broker.app.activemq_target import ActiveMQVersion
from pybroker.broker.app.cli import commands
from pybroker.broker.app.config import Config
from pybroker.broker.app.handback import HandbackFacts
from pybroker.broker.domain.transaction import XATransactionId
from pybroker.store.jdbc.xid import key_of
from tests.conftest import JAR_DIRECTORY, JDBC_JARS
from tests.integration.cluster import free_port
from tests.integration.test_handback import PROGRAM, OpenWireBroker
from tests.postgres_cluster import PASSWORD, USER, PostgresDatabase, postgres_cluster, postgres_database

__all__ = ["postgres_cluster", "postgres_database"]

STOCK = Path(__file__).parent / "java" / "StockDatabaseBroker.java"


def handback(database: PostgresDatabase, *arguments: str) -> tuple[int, dict[str, Any]]:
    """Return the exit code and the report."""
    done = CliRunner().invoke(commands, ["handback", database.url, "--json", *arguments], catch_exceptions=False)
    assert PASSWORD not in done.output
    return done.exit_code, json.loads(done.stdout)


def kinds(report: dict[str, Any], urgency: str = "to do") -> set[str]:
    return {each["kind"] for each in report["findings"] if each["urgency"] == urgency}


@pytest.fixture
def serve(postgres_database: PostgresDatabase) -> Iterator[Callable[[], OpenWireBroker]]:
    """Starts a pybroker on the database."""
    with ExitStack() as running:

        def begin() -> OpenWireBroker:
            broker = OpenWireBroker(postgres_database.url)
            running.enter_context(closing(broker))
            broker.wait_for("listening on")
            return broker

        yield begin


@pytest.fixture
def activemq(java: Any, postgres_database: PostgresDatabase, tmp_path: Path) -> Iterator[Callable[[Path], str]]:
    """Starts a stock ActiveMQ on the database with that scheduler's directory; returns its address."""
    jars = [str(JAR_DIRECTORY / jar) for jar in JDBC_JARS]
    tools = replace(java, class_path=os.pathsep.join([java.class_path, *jars]))
    where = f"127.0.0.1:{postgres_database.cluster.port}/{postgres_database.name}"
    url = f"jdbc:postgresql://{where}?user={USER}&password={PASSWORD}".replace(" ", "%20")
    with ExitStack() as running:

        def begin(scheduler: Path) -> str:
            port = free_port()
            arguments = (url, str(tmp_path / "activemq"), str(free_port()), str(port), str(scheduler))
            with (tmp_path / "activemq.log").open("wb") as log:
                process = subprocess.Popen(tools.command(STOCK, *arguments), stdout=subprocess.PIPE, stderr=log)
            running.enter_context(process)
            running.callback(process.kill)
            assert process.stdout is not None
            assert process.stdout.readline() == b"listening\n", (tmp_path / "activemq.log").read_text()
            return f"tcp://127.0.0.1:{port}"

        yield begin


@pytest.mark.component("activemq-jdbc")
def test_activemq_has_everything_of_a_database(
    java: Any,
    serve: Callable[[], OpenWireBroker],
    activemq: Callable[[Path], str],
    postgres_database: PostgresDatabase,
    tmp_path: Path,
) -> None:
    ours = serve()
    java.run(PROGRAM, ours.uri, "fill", timeout_seconds=90)
    seen = java.run(PROGRAM, ours.uri, "read", timeout_seconds=90)
    refused = CliRunner().invoke(commands, ["handback", postgres_database.url])
    assert refused.exit_code == 2
    assert "alive are a (as master" in refused.stderr
    code, report = handback(postgres_database, "--in-use")
    assert (code, kinds(report)) == (1, {"scheduled messages"})
    assert "in use" in kinds(report, "note")
    assert ours.terminate() == 0

    code, report = handback(postgres_database)
    assert code == 1
    assert kinds(report) == {"scheduled messages"}
    assert (report["scheduled"], len(report["in_doubt"]), report["subscriptions"]) == (3, 1, 3)
    assert kinds(report, "note") >= {"own tables", "JAXB", "in doubt"}
    jobs = tmp_path / "scheduler"
    code, report = handback(postgres_database, "--jobs-to", str(jobs), "--yes")
    assert code == 0, report["findings"]
    assert report["scheduled"] == 3
    assert any(f'schedulerDirectory="{jobs}"' in line for line in report["activemq_xml"])
    assert postgres_database.sql("SELECT count(*) FROM pybroker_jobs") == "0"

    assert java.run(PROGRAM, activemq(jobs), "read", timeout_seconds=90) == seen


class TestFindings:
    """Rows made by hand, in the tables of a broker that has ended."""

    @pytest.fixture(autouse=True)
    def tables(self, serve: Callable[[], OpenWireBroker]) -> None:
        assert serve().terminate() == 0

    def test_empty_tables_are_ready(self, postgres_database: PostgresDatabase) -> None:
        code, report = handback(postgres_database)
        assert (code, kinds(report), kinds(report, "setting")) == (0, set(), set())
        assert report["store"].startswith("postgresql://127.0.0.1:")
        assert any("jdbc:postgresql://127.0.0.1:" in line for line in report["activemq_xml"])

    def test_each_row_that_activemq_does_not_read_is_found(self, postgres_database: PostgresDatabase) -> None:
        first = "(1, 'topic://T', 'ID:a:1:1', 1, 0, 'x', 9, NULL)"
        second = "(2, 'queue://PYBROKER.Scheduled', 'p', 1, 0, 'x', 0, NULL)"
        postgres_database.sql(f"INSERT INTO activemq_msgs VALUES {first}, {second}")
        postgres_database.sql(
            "INSERT INTO activemq_acks VALUES ('topic://T', 'topic://T', 'c', 's', 'NOT i > 5', 0, 0, NULL)"
        )
        postgres_database.sql("INSERT INTO pybroker_acked VALUES ('topic://T', 'c', 's', 1, '', 'ID:a:1:1:1')")
        postgres_database.sql("INSERT INTO pybroker_no_local VALUES ('topic://T', 'c', 's')")
        postgres_database.sql("INSERT INTO pybroker_owners VALUES ('topic://T', 'c', 's', 'ann')")
        xid = key_of(XATransactionId(1, b"g", b"b"))
        postgres_database.sql(f"INSERT INTO pybroker_prepared VALUES ('{xid}', 1, false)")
        code, report = handback(postgres_database)
        assert code == 1
        assert kinds(report) == {
            "scheduling queue",
            "acknowledged apart",
            "in doubt without rows",
            "key",
            "selectors",
        }
        assert kinds(report, "setting") == {"priorities"}
        assert kinds(report, "note") >= {"noLocal", "owners"}
        (key,) = [each["remedy"] for each in report["findings"] if each["kind"] == "key"]
        postgres_database.sql(key)
        assert "key" not in kinds(handback(postgres_database)[1])

    def test_jobs_stay_where_the_lock_is_held(self, postgres_database: PostgresDatabase, tmp_path: Path) -> None:
        postgres_database.sql("INSERT INTO pybroker_jobs VALUES (1, 'ID:1', 0, '', 1, 0, 0, 9, 0, 'x')")
        postgres_database.sql("UPDATE activemq_lock SET broker_name = 'other', time = 9999999999999")
        done = CliRunner().invoke(
            commands, ["handback", postgres_database.url, "--jobs-to", str(tmp_path / "jobs"), "--yes"]
        )
        assert done.exit_code == 2
        assert "other holds the lock" in done.stderr
        assert postgres_database.sql("SELECT count(*) FROM pybroker_jobs") == "1"
        assert not (tmp_path / "jobs").exists()

    def test_jobs_stay_if_a_lease_begins_meanwhile(
        self, postgres_database: PostgresDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The examination counts messages, which takes minutes where there are many."""
        postgres_database.sql("INSERT INTO pybroker_jobs VALUES (1, 'ID:1', 0, '', 1, 0, 0, 9, 0, 'x')")
        examine = handback_database.examine

        def slowly(config: Config, target: ActiveMQVersion, *, is_in_use: bool = False) -> HandbackFacts:
            facts = examine(config, target, is_in_use=is_in_use)
            postgres_database.sql("UPDATE activemq_lock SET broker_name = 'other', time = 9999999999999")
            return facts

        monkeypatch.setattr(handback_database, "examine", slowly)
        arguments = ["handback", postgres_database.url, "--jobs-to", str(tmp_path / "jobs"), "--yes"]
        done = CliRunner().invoke(commands, arguments)
        assert done.exit_code == 2
        assert "the lock is held" in done.stderr
        assert postgres_database.sql("SELECT count(*) FROM pybroker_jobs") == "1"
        assert not (tmp_path / "jobs").exists()
        postgres_database.sql("UPDATE activemq_lock SET time = 1")  # a lease that ran out
        monkeypatch.undo()
        assert CliRunner().invoke(commands, arguments).exit_code == 0

    def test_arguments_for_files_are_refused(self, postgres_database: PostgresDatabase) -> None:
        with pytest.raises(Exception, match="tables are no files"):
            handback(postgres_database, "--move-to", "x")


def test_a_database_without_tables_is_refused(postgres_database: PostgresDatabase) -> None:
    done = CliRunner().invoke(commands, ["handback", postgres_database.url])
    assert done.exit_code == 2
    assert "there is no table activemq_" in done.stderr
