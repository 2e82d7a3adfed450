"""`pybroker start` with the lock in a database and the journal on a shared directory: failover, and what is refused."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pybroker.locks.postgres.timing import now
from tests.integration.cluster import Pair
from tests.integration.forked import run_forked
from tests.integration.stomp_client import Disconnected, StompClient
from tests.pace import in_time
from tests.postgres_cluster import PASSWORD, PASSWORD_IN_URL, PostgresDatabase, postgres_cluster, postgres_database

__all__ = ["postgres_cluster", "postgres_database"]

LEASE_SECONDS = 3.0


@pytest.fixture(params=["row", "lease", "advisory"])
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def times() -> tuple[str, ...]:
    """Options for a lock's lease, and perhaps for its renewal."""
    return ("--lock-lease", f"{LEASE_SECONDS:g}s")


@pytest.fixture
def pair(kind: str, postgres_database: PostgresDatabase, tmp_path: Path, times: tuple[str, ...]) -> Iterator[Pair]:
    lock = ("--lock", f"postgres-{kind}", "--lock-url", postgres_database.url, *times)
    with Pair(tmp_path / "store", *lock) as pair:
        pair.wait_for_standby()
        yield pair


def send(port: int, body: bytes) -> None:
    client = StompClient(port)
    answer = client.request("SEND", body, destination="/queue/orders", persistent="true")
    client.close()
    assert answer.command == "RECEIPT"


def received(port: int, count: int) -> list[bytes]:
    client = StompClient(port)
    client.send("SUBSCRIBE", id="1", destination="/queue/orders", ack="client")
    bodies = [client.read().body for _ in range(count)]
    client.close()
    return bodies


def report(what: str, kind: str, seconds: float) -> None:
    print(f"\n{what:<58} {kind:<9} {seconds * 1000:8.1f} ms   (lease {LEASE_SECONDS:g} s)")


def assert_no_password(text: str) -> None:
    for secret in (PASSWORD, PASSWORD_IN_URL):
        assert secret not in text


# ---------------------------------------------------------------- failover


def test_standby_serves_what_a_killed_master_accepted(pair: Pair, kind: str) -> None:
    master, standby = pair.wait_for_master(), pair.wait_for_standby()
    send(master.port, b"accepted")
    master.kill()
    killed_at = now()
    standby.wait_for("listening on")
    seconds = now() - killed_at
    report("kill -9 of the master to the standby's listeners", kind, seconds)
    assert in_time(seconds, LEASE_SECONDS + 1 if kind == "lease" else 1)
    assert received(standby.port, 1) == [b"accepted"]


def test_orderly_stop_hands_over_at_once(pair: Pair, kind: str) -> None:
    master, standby = pair.wait_for_master(), pair.wait_for_standby()
    send(master.port, b"accepted")
    began_at = now()
    assert master.terminate() == 0
    standby.wait_for("listening on")
    seconds = now() - began_at
    report("SIGTERM of the master to the standby's listeners", kind, seconds)
    assert in_time(seconds, LEASE_SECONDS / 2), "a lease is given back, not left to run out"
    assert received(standby.port, 1) == [b"accepted"]


def test_frozen_and_thawed_master_confirms_nothing(pair: Pair, kind: str) -> None:
    """Its clients' messages lie in its sockets when it wakes up; none gets a receipt, and it stands by again."""
    master, standby = pair.wait_for_master(), pair.wait_for_standby()
    client = StompClient(master.port)
    assert client.request("SEND", b"before", destination="/queue/orders", persistent="true").command == "RECEIPT"
    master.process.send_signal(signal.SIGSTOP)
    for number in range(20):
        client.send("SEND", b"late", destination="/queue/orders", persistent="true", receipt=str(number))
    standby.wait_for("listening on")
    send(standby.port, b"after")
    master.process.send_signal(signal.SIGCONT)
    master.wait_for("standing by again after losing the lock")
    with pytest.raises(Disconnected):
        client.read()
    client.close()
    assert received(standby.port, 2) == [b"before", b"after"]


@pytest.mark.parametrize("times", [("--lock-lease", "30s", "--lock-renew", "500ms")], ids=["longer than a restart"])
def test_restart_of_the_database_is_survived(pair: Pair, kind: str, postgres_database: PostgresDatabase) -> None:
    """Clients notice nothing with a lease; otherwise there is a master again in a moment. No member ends."""
    master = pair.wait_for_master()
    send(master.port, b"before")
    cluster = postgres_database.cluster
    began_at = now()
    cluster.stop(signal.SIGINT)
    cluster.start()
    if kind == "lease":
        master.wait_for("renewed")
        send(master.port, b"after")
        assert received(master.port, 2) == [b"before", b"after"]
        return
    master.wait_for("standing by again after losing the lock")
    successor = pair.wait_for_master()
    report("begin of the database's restart to a master's listeners", kind, now() - began_at)
    assert received(successor.port, 1) == [b"before"]
    assert all(node.process.poll() is None for node in pair.nodes.values())


def test_status_knows_that_a_lock_in_a_database_is_held(pair: Pair) -> None:
    status = pair.wait_for_status(lambda status: status["master"] is not None)
    assert (status["master"], status["locked"]) == (pair.wait_for_master().name, True)
    assert " in postgresql://127.0.0.1:" in status["lock"]
    for node in pair.nodes.values():
        node.terminate()
    assert pair.status()["locked"] is False


def test_password_is_in_no_log_and_not_in_status(pair: Pair) -> None:
    master = pair.wait_for_master()
    assert_no_password(json.dumps(pair.wait_for_status(lambda status: status["master"] == master.name)))
    master.terminate()
    for node in pair.nodes.values():
        assert_no_password("\n".join(node.lines))
    files = [path for path in Path(pair.store).rglob("*") if path.is_file() and path.stat().st_size < 1 << 20]
    assert files
    for path in files:
        assert PASSWORD_IN_URL.encode() not in path.read_bytes()


# ---------------------------------------------------------------- bad input


def start(tmp_path: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return run_forked("start", "--store", str(tmp_path / "store"), "--stomp", "0", "--openwire", "off", *arguments)


def assert_refused(done: "subprocess.CompletedProcess[str]", *words: str) -> None:
    """One line besides the log, with what is wrong and the remedy."""
    assert done.returncode in (1, 2)
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("pybroker: ")]
    for word in words:
        assert word in line
    assert_no_password(done.stdout)
    assert "Traceback" not in done.stdout


def test_unreachable_database(tmp_path: Path, postgres_database: PostgresDatabase) -> None:
    command = [sys.executable, "-m", "pybroker.broker.app.cli", "start", "--store", str(tmp_path / "store")]
    environment = {"PYBROKER_LOCK": "postgres-row", "PYBROKER_LOCK_URL": postgres_database.through(1)}
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("PYBROKER_", "PG"))}
    done = subprocess.run(
        [*command, "--stomp", "0", "--openwire", "off"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        env=clean | environment,
    )
    assert_refused(done, "refused", "start PostgreSQL there")


def test_wrong_password(tmp_path: Path, postgres_database: PostgresDatabase) -> None:
    url = postgres_database.url.replace(PASSWORD_IN_URL, "wr0ng")
    done = start(tmp_path, "--lock", "postgres-lease", "--lock-url", url)
    assert_refused(done, "password authentication failed", "check user and password")
    assert "wr0ng" not in done.stdout


def test_read_only_database(tmp_path: Path, postgres_database: PostgresDatabase) -> None:
    postgres_database.sql(f"ALTER DATABASE {postgres_database.name} SET default_transaction_read_only = on")
    done = start(tmp_path, "--lock", "postgres-row", "--lock-url", postgres_database.url)
    assert_refused(done, "read-only", "name the primary")


def test_missing_rights(tmp_path: Path, postgres_database: PostgresDatabase) -> None:
    postgres_database.sql(f"ALTER DATABASE {postgres_database.name} OWNER TO postgres")
    done = start(tmp_path, "--lock", "postgres-row", "--lock-url", postgres_database.url)
    assert_refused(done, "permission denied", "GRANT")
    assert postgres_database.sql("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == "0"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--lock", "postgres-row"], ["needs a database", "set lock_url"]),
        (["--lock-url", "postgresql://h/d"], ["set lock to postgres-row"]),
        (["--lock", "postgres-row", "--lock-url", "mysql://u:pw@h/d"], ["write postgresql://"]),
        (["--lock", "postgres-row", "--lock-url", "postgresql://u:p@pw@h/d"], ["%40"]),
        (
            ["--lock", "postgres-lease", "--lock-url", "postgresql://h/d", "--lock-lease", "5s", "--lock-renew", "5s"],
            ["may run out in between", "at most 2.5s"],
        ),
    ],
)
def test_settings_that_contradict_each_other(tmp_path: Path, arguments: list[str], words: list[str]) -> None:
    done = start(tmp_path, *arguments)
    assert done.returncode == 2
    assert_refused(done, *words)
    assert "pw@h" not in done.stdout
