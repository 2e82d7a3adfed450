# mypy: disable-error-code="arg-type"
"""A private PostgreSQL for tests: Debian's server, in a directory of its own, on a free port of the loopback.

    from tests.postgres_cluster import PostgresDatabase, postgres_cluster, postgres_database  # noqa: F401

    def test_something(postgres_database: PostgresDatabase) -> None:
        ... postgres_database.url ...

One server per test run, started by the first test that asks, gone with the process; one database per test. Users log
in with a password over TCP, as in life; the superuser `postgres` by the Unix socket. The server refuses to run as root,
so root runs it as the user `postgres`. Where there is no server, the test is skipped with one line of advice, or failed
under PYBROKER_TEST_STRICT=1.
"""

import atexit
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.in_memory import place
from tests.integration.cluster import free_port

USER, PASSWORD = "pybroker", "not a s3cret"
PASSWORD_IN_URL = "not%20a%20s3cret"

_ADVICE = "install postgresql (Debian, Ubuntu)"
_SETTINGS = {
    "listen_addresses": "'127.0.0.1'",
    "max_connections": "60",
    "shared_buffers": "'32MB'",
    "log_line_prefix": "'%m [%p] %a '",
    "log_connections": "on",
    "lc_messages": "'C'",
}
_UNSAFE = {"fsync": "off", "full_page_writes": "off"}
"""Here the machine itself never fails, and what only a failing machine loses costs a second for each database."""


class PostgresCluster:
    """A server and its directory.

    Args:
        binaries: the server's programs.
        is_durable: it is on the disk and waits for it, as for measurements; what is committed outlives the server's
            end either way.
    """

    def __init__(self, binaries: Path, *, is_durable: bool = True) -> None:
        self.binaries = binaries
        self.port = free_port()
        self.directory = Path(tempfile.mkdtemp(prefix="pybroker-postgres-", dir=None if is_durable else place()))
        self._names = count(1)
        self._process: subprocess.Popen[bytes] | None = None
        self.log = self.directory / "server.log"
        if os.geteuid() == 0:
            shutil.chown(self.directory, "postgres", "postgres")
        self.directory.chmod(0o755)
        data = str(self.directory / "data")
        self._run(
            "initdb",
            "--no-sync",
            "-D",
            data,
            "-U",
            "postgres",
            "-A",
            "scram-sha-256",
            "--auth-local=trust",
            "-E",
            "UTF8",
        )
        with (self.directory / "data" / "postgresql.conf").open("a") as file:
            settings = _SETTINGS if is_durable else _SETTINGS | _UNSAFE
            file.writelines(f"{name} = {value}\n" for name, value in settings.items())
        self.start()
        self.sql(f"CREATE ROLE {USER} LOGIN PASSWORD '{PASSWORD}'")

    def start(self) -> None:
        """Start the server and return once it serves."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command(
                    "postgres", "-D", str(self.directory / "data"), "-p", str(self.port), "-k", str(self.directory)
                ),
                stdout=log,
                stderr=log,
            )
        ready = ["pg_isready", "-q", "-h", str(self.directory), "-p", str(self.port)]
        while subprocess.run([self.binaries / ready[0], *ready[1:]], check=False).returncode != 0:
            assert self._process.poll() is None, f"PostgreSQL did not start:\n{self.log.read_text()}"

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop the server. SIGINT: its clients are cut off; SIGQUIT: as in a crash; SIGTERM: it waits for clients."""
        if self._process is not None:
            pid = (self.directory / "data" / "postmaster.pid").read_text().split()[0]
            os.kill(int(pid), how)
            self._process.wait()
            self._process = None

    def remove(self) -> None:
        """Stop the server and leave nothing behind."""
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.directory)

    def sql(self, statement: str, database: str = "postgres") -> str:
        """Execute as superuser; returns the rows, one per line, fields separated by `|`."""
        command = [self.binaries / "psql", "-qXAt", "-v", "ON_ERROR_STOP=1", "-U", "postgres"]
        command += ["-h", str(self.directory), "-p", str(self.port), "-d", database, "-c", statement]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{statement}: {done.stderr}"
        return done.stdout.strip()

    def url(self, database: str, *, port: int | None = None, user: str = USER) -> str:
        """Return where a database is, with password, as a user over TCP."""
        return f"postgresql://{user}:{PASSWORD_IN_URL}@127.0.0.1:{port or self.port}/{database}"

    def create_database(self) -> "PostgresDatabase":
        """Create an empty database that the user owns."""
        name = f"test_{next(self._names)}"
        self.sql(f"CREATE DATABASE {name} OWNER {USER}")
        return PostgresDatabase(self, name)

    def _run(self, *arguments: str) -> None:
        done = subprocess.run(self._command(*arguments), capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{arguments[0]} failed: {done.stderr}"

    def _command(self, program: str, *arguments: str) -> list[str]:
        command = [str(self.binaries / program), *arguments]
        if os.geteuid() != 0:
            return command
        return ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", *command]


class PostgresDatabase:
    """One test's database."""

    def __init__(self, cluster: PostgresCluster, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.url = cluster.url(name)

    def through(self, port: int) -> str:
        """Return the database's URL through a proxy on another port of the loopback."""
        return self.cluster.url(self.name, port=port)

    def sql(self, statement: str) -> str:
        """Execute as superuser; returns the rows, one per line, fields separated by `|`."""
        return self.cluster.sql(statement, self.name)

    def drop(self) -> None:
        """Drop it with its connections."""
        self.cluster.sql(f"DROP DATABASE {self.name} WITH (FORCE)")


def missing() -> str:
    """Return what is missing and how to get it, or an empty string."""
    if _binaries() is None:
        return f"no PostgreSQL server in /usr/lib/postgresql or on the PATH; {_ADVICE}"
    if os.geteuid() == 0:
        try:
            pwd.getpwnam("postgres")
        except KeyError:
            return f"PostgreSQL does not run as root, and there is no user postgres; {_ADVICE}"
        if shutil.which("setpriv") is None:
            return "PostgreSQL does not run as root, and there is no setpriv; install util-linux (Debian, Ubuntu)"
    return ""


def _binaries() -> Path | None:
    """Return the directory of the newest server."""

    def version(path: Path) -> float:
        return float(path.parent.name) if path.parent.name.replace(".", "", 1).isdecimal() else 0.0

    found = [path for path in Path("/usr/lib/postgresql").glob("*/bin") if (path / "initdb").is_file()]
    if found:
        return max(found, key=version)
    on_path = shutil.which("initdb")
    return Path(on_path).resolve().parent if on_path else None


@cache
def the_cluster(*, is_durable: bool = True) -> PostgresCluster:
    """Return this process's server, started by the first call."""
    binaries = _binaries()
    assert binaries is not None
    cluster = PostgresCluster(binaries, is_durable=is_durable)
    atexit.register(cluster.remove)
    return cluster


def require_postgres() -> None:
    """Skip the running test if there is no server; fail it where skipping is not allowed."""
    reason = missing()
    if reason and os.environ.get("PYBROKER_TEST_STRICT") == "1":
        pytest.fail(f"PYBROKER_TEST_STRICT=1 and {reason}", pytrace=False)
    if reason:
        pytest.skip(reason)


@pytest.fixture(scope="session")
def postgres_cluster() -> PostgresCluster:
    """The run's server. A test that stops it starts it again."""
    require_postgres()
    return the_cluster(is_durable=False)


@pytest.fixture
def postgres_database(postgres_cluster: Any) -> Iterator[PostgresDatabase]:
    """An empty database."""
    database = postgres_cluster.create_database()
    yield database
    database.drop()
