"""A connection to PostgreSQL with timeouts on every call and errors of one line that never have the password.

The one module here that imports the driver. Connections are in autocommit mode. Several statements in one `execute` are
one transaction that the server opens itself, in one message to it: a client that is frozen or cut off cannot leave it
half done with its locks held.

Both ends are configured to detect a dead link. libpq's timeouts bound how long this side believes in it; what is set on
the session bounds how long the server keeps its locks, and is longer, so that this side gives up first:

| | this side | the server |
| --- | --- | --- |
| nothing under way | keepalives after 2 s, every 1 s, 2 times | after 4 s, every 1 s, 3 times |
| an answer, or data, outstanding | `tcp_user_timeout` 4 s | 7 s |
| connecting | `connect_timeout` 5 s | |
| a statement that takes too long, by its size | given up after 9.5 s | `statement_timeout` 9 s |
| a transaction left open | | `idle_in_transaction_session_timeout` 10 s |

Parameters in the URL (`?connect_timeout=2`) take precedence.

Source: PostgreSQL 15, libpq parameters, "Client Connection Defaults"; psycopg2 2.9.
"""

import contextlib
import io
import logging
import math
import os
import socket
from binascii import hexlify
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, NamedTuple

import psycopg2  # type: ignore[import-untyped]
import psycopg2.extensions  # type: ignore[import-untyped]
from psycopg2 import errorcodes

from pybroker.broker.domain.errors import ConfigError, DatabaseUnavailable, LockNotHeld, StoreError, StoreUnavailable
from pybroker.store.jdbc.watchdog import Watchdog

CLIENT_DEFAULTS = {
    "application_name": "pybroker",
    "keepalives": "1",
    "keepalives_idle": "2",
    "keepalives_interval": "1",
    "keepalives_count": "2",
    "tcp_user_timeout": "4000",
}
STRINGS = "-c standard_conforming_strings=on"
"""Overrides the settings of role and database: the driver reads it once, when it connects, to choose its quoting."""
REQUIRED = {"standard_conforming_strings": "on", "client_encoding": "UTF8"}
"""Settings that the server must have. It reports both when connected and whenever they change."""
SESSION = (
    "SET tcp_keepalives_idle = 4; SET tcp_keepalives_interval = 1; SET tcp_keepalives_count = 3;"
    "SET client_min_messages = warning;"
    # After a wait for a lock, a statement must see what the one who had it has done: fence, creation of tables.
    "SET default_transaction_isolation = 'read committed';"
    "SET tcp_user_timeout = 7000; SET statement_timeout = 9000; SET idle_in_transaction_session_timeout = 10000;"
    # From version 14 on the server checks during a long statement that its client is still there.
    "SELECT set_config(name, '1000', false) FROM pg_settings WHERE name = 'client_connection_check_interval';"
    # What was acknowledged must survive a crash of the server; stronger settings than `on` stay.
    "SELECT set_config('synchronous_commit', 'on', false)"
    " WHERE current_setting('synchronous_commit') IN ('off', 'local');"
    "SELECT pg_is_in_recovery(), pg_backend_pid()"
)
SERVER = "SELECT left(pg_walfile_name(pg_current_wal_lsn()), 8) || ' of ' || system_identifier FROM pg_control_system()"
"""The timeline, which is another once a replica was promoted or a backup restored, and whose copy the database is."""
IS_REPLICATED = "SELECT current_setting('synchronous_standby_names') <> ''"
ROWS_PER_FETCH = 10_000
STATEMENT_SECONDS = 9.5
"""After that this side gives up. The server does so before, where it can be heard."""
BYTES_PER_SECOND_MIN = 256 << 10
"""Bytes for which a statement's deadline grows by one second. That is 2,600 changed rows; a server that was busy with
other work was seen to change 5,000."""

POOLED_HINT = "let the pooler give each client its own session (pool_mode = session), or connect directly"
HINTS = {
    errorcodes.INSUFFICIENT_PRIVILEGE: "grant the store's role CREATE on the schema, and all rights on its tables",
    errorcodes.READ_ONLY_SQL_TRANSACTION: "the database takes no writes: name the primary server in the store's URL",
    errorcodes.DISK_FULL: "the database's disk is full: free space",
    errorcodes.QUERY_CANCELED: "the database was too slow, or another session locks the tables: see pg_stat_activity",
    errorcodes.INVALID_SQL_STATEMENT_NAME: POOLED_HINT,
    errorcodes.UNDEFINED_TABLE: "the tables are not there: allow them to be created, or correct the schema",
}
POOLED_TRIES = 3
"""Poolers differ in which of their sessions they give out next."""
CONNECT_HINT = "check host, port, database, user and password in the store's URL, and that PostgreSQL runs there"
POOLER_HINT = "let the pooler pass the session's options on, or ignore them: ignore_startup_parameters = options"
READING_HINT = (
    "as the role's owner: ALTER ROLE … RESET that setting, and the same for the database; and let no pooler set it"
)
FENCED = errorcodes.DIVISION_BY_ZERO
"""Errors by which the fence in a transaction fails (see `fence`)."""
PASSING = ("08", "40", "53", "57", "58", errorcodes.LOCK_NOT_AVAILABLE, errorcodes.READ_ONLY_SQL_TRANSACTION)
"""Beginnings of errors that may be gone the next time: connection, conflict, resources, shutdown and start, the
server's own disk; and a server that is about to become the primary."""
CONNECT_SECONDS = 5.0
CONNECT_SECONDS_MIN = 2
"""libpq waits that long at least."""


COPY_BYTES = 64 * 1024
"""Bytes passed to libpq at a time."""

_watchdog = Watchdog()
logger = logging.getLogger(__name__)


class DatabaseFull(DatabaseUnavailable):
    """The server's disk is full. The transaction was rolled back."""


class Copy(NamedTuple):
    """Statements of which one is a `COPY … FROM STDIN (FORMAT binary)`, and what it copies.

    ```text
    +--------------------------+--------+------+------------+-----+---------+
    | signature, flags, header | fields | size | field      |  …  | trailer |
    | 11 bytes, u32 0, u32 0   | i16    | i32  | size bytes |     | i16 -1  |
    +--------------------------+--------+------+------------+-----+---------+
                               `------- a row, again and again ---´
    ```
    """

    sql: bytes
    data: bytes


def statement_seconds(byte_count: int) -> float:
    """Return how long what moves so many bytes may take; a changed row counts for some."""
    return STATEMENT_SECONDS + byte_count // BYTES_PER_SECOND_MIN


def server_timeout(seconds: float) -> int:
    """Return the server's `statement_timeout`, in milliseconds, for what this side waits for so long."""
    return round((seconds - 0.5) * 1000)


def quoted(text: str) -> bytes:
    """Return a text as SQL that means the same with and without `standard_conforming_strings`.

    Raises:
        ValueError: it has a character that PostgreSQL's text cannot hold.
    """
    if "\0" in text:
        raise ValueError("a string literal cannot contain NUL (0x00) characters")
    inner = text.encode().replace(b"'", b"''")
    return b"E'%b'" % inner.replace(b"\\", b"\\\\") if b"\\" in inner else b"'%b'" % inner


def quoted_bytes(data: bytes) -> bytes:
    """Return bytes as SQL that means the same with and without `standard_conforming_strings`."""
    return b"E'\\\\x%b'" % hexlify(data)


class _Sql:
    """A value that is SQL already, as the driver's protocol for adapters has it."""

    __slots__ = ("_sql",)

    def __init__(self, sql: bytes) -> None:
        self._sql = sql

    def __conform__(self, _protocol: object) -> "_Sql":
        return self

    def getquoted(self) -> bytes:
        """Return the SQL."""
        return self._sql


def _adapted(value: Any) -> Any:
    """Return a value with texts and bytes quoted here: the driver's way depends on how the session began."""
    if isinstance(value, str):
        return _Sql(quoted(value))
    return _Sql(quoted_bytes(value)) if isinstance(value, bytes) else value


class DatabaseConnection:
    """One session. For one thread at a time; `interrupt` may come from another.

    Args:
        url: `postgresql://user:password@host:port/database?parameters`, or libpq's `key=value` form.
        seconds: how long to wait for a server; at least two.
        server: the `server` of a former connection; empty: any.

    Raises:
        ConfigError: the URL makes no sense.
        DatabaseUnavailable: no server answers there, or it refuses the connection, or it is a replica.
        LockNotHeld: it is another server than the former one, or a replica that was promoted since.
        StoreUnavailable: its settings cannot be used.
    """

    def __init__(self, url: str, *, seconds: float = CONNECT_SECONDS, server: str = "") -> None:
        given = parse(url)
        self.name = describe(url)
        """Its address, for logs and errors."""
        self._secret = given.get("password", "")
        patience = max(CONNECT_SECONDS_MIN, math.ceil(seconds))
        arguments: Any = {**CLIENT_DEFAULTS, "connect_timeout": str(patience), **given}
        arguments["client_encoding"] = REQUIRED["client_encoding"]  # no other has every name's characters
        arguments["options"] = f"{given.get('options', '')} {STRINGS}".strip()
        try:
            self._connection: Any = psycopg2.connect(**arguments)
        except (psycopg2.Error, UnicodeError) as error:
            text = self._one_line(str(error))
            hint = POOLER_HINT if "startup parameter" in text else CONNECT_HINT
            raise DatabaseUnavailable(self.name, text, hint=hint) from None  # it may quote the URL
        self._connection.autocommit = True
        self._is_late = False
        self._quoting: Any = self._connection.cursor()
        self._is_set_up = False
        self.server = ""
        """Id of the database server and of its timeline; empty if it reports none."""
        self.backend_pid = 0
        """The server's process."""
        try:
            self._set_up(server)
        except BaseException:
            self.close()
            raise
        self._is_set_up = True

    def _set_up(self, server: str) -> None:
        self.require_reading()
        ((is_replica, self.backend_pid),) = self.rows(SESSION)
        if is_replica:
            message = "this is a replica, which may lag behind"
            raise DatabaseUnavailable(self.name, message, hint=HINTS[errorcodes.READ_ONLY_SQL_TRANSACTION])
        self.server = self._read_server()
        if server and self.server and self.server != server:
            raise LockNotHeld(
                f"{self.name}: this is timeline {self.server}, and not {server} as before: a replica was promoted, or a"
                " backup restored; unless it was replicated synchronously, what was confirmed last may be missing there"
            )
        self._connection.notices.clear()

    def _read_server(self) -> str:
        try:
            ((found,),) = self.rows(SERVER)
        except DatabaseUnavailable:
            raise
        except StoreUnavailable as error:  # a service that hides its log, or rights that were revoked
            logger.debug("the server does not say which it is: %s", error)
            return ""
        return str(found)

    @property
    def is_pooled(self) -> bool:
        """True when a pooler stands between: it announced another process than that which answers."""
        return bool(self._connection.info.backend_pid != self.backend_pid)

    def require_reading(self) -> None:
        """Check that the server reads strings as they are quoted here, without a round trip.

        Raises:
            StoreUnavailable: it does not.
        """
        for name, wanted in REQUIRED.items():
            found = self._connection.get_parameter_status(name)
            if found != wanted:
                message = f"{self.name}: the session has {name} = {found}, and not {wanted}"
                raise StoreUnavailable(message, path=self.name, hint=READING_HINT)

    def execute(self, sql: str | bytes | Copy, *, seconds: float | None = STATEMENT_SECONDS) -> None:
        """Run statements, as one transaction unless they contain their own.

        Args:
            sql: one or several, or a copy.
            seconds: how long to wait for the answer; None: as long as the kernel believes in the link.

        Raises:
            DatabaseUnavailable: they failed, and may not the next time; or their outcome is unknown.
            DatabaseFull: the disk has no space for them.
            StoreUnavailable: they failed.
            LockNotHeld: the fence in them is closed.
        """
        with self.translated(), self._watched(seconds), self._connection.cursor() as cursor:
            if isinstance(sql, Copy):
                cursor.copy_expert(sql.sql, io.BytesIO(sql.data), COPY_BYTES)
            else:
                cursor.execute(sql)
        self._heed_warnings()

    def rows(
        self, sql: str, values: Sequence[Any] = (), *, seconds: float = STATEMENT_SECONDS
    ) -> list[tuple[Any, ...]]:
        """Run statements and return the rows of the last one; with more `seconds`, as one transaction. As `execute`."""
        if seconds > STATEMENT_SECONDS:
            sql = f"SET LOCAL statement_timeout = {server_timeout(seconds)};{sql}"
        with self.translated(), self._watched(seconds), self._connection.cursor() as cursor:
            cursor.execute(sql, [_adapted(each) for each in values] or None)
            found: list[tuple[Any, ...]] = cursor.fetchall()
        self._heed_warnings()
        return found

    def _heed_warnings(self) -> None:
        """Take a commit for uncertain that did not wait for its synchronous replica.

        When that wait is cancelled, the server reports success with a warning, whose text is in the server's language.
        The transaction is committed there and may be nowhere else. A later commit that does wait settles both.

        Raises:
            DatabaseUnavailable: replication is synchronous, and there was a warning; the connection is closed.
        """
        notices = self._connection.notices
        if not notices or not self._is_set_up:
            return
        text = self._one_line(" ".join(notices))
        notices.clear()
        with self.translated(), self._watched(STATEMENT_SECONDS), self._connection.cursor() as cursor:
            cursor.execute(IS_REPLICATED)
            ((is_replicated,),) = cursor.fetchall()
        logger.warning("%s: %s", self.name, text)
        if is_replicated:
            self.close()
            hint = "check the synchronous replica"
            raise DatabaseUnavailable(self.name, f"it is uncertain if this is replicated: {text}", hint=hint)

    @property
    def is_in_transaction(self) -> bool:
        """True while a transaction is open, be it a failed one."""
        return bool(self._connection.info.transaction_status != psycopg2.extensions.TRANSACTION_STATUS_IDLE)

    @contextlib.contextmanager
    def snapshot(self) -> Generator[None, None, None]:
        """Let all reads inside see the database at one moment, in one transaction."""
        self.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        try:
            yield
        except BaseException:
            self.close()  # a reader that fails opens the store again
            raise
        self.execute("COMMIT")

    def stream(self, sql: str, *, seconds: float = STATEMENT_SECONDS) -> Iterator[Sequence[tuple[Any, ...]]]:
        """Yield rows by the ten thousand, inside `snapshot`: the server keeps the rest. Each lot has so long."""
        self.execute(f"DECLARE stream NO SCROLL CURSOR FOR {sql}")
        while True:
            rows = self.rows(f"FETCH {ROWS_PER_FETCH} FROM stream", seconds=seconds)
            if not rows:
                break
            yield rows
        self.execute("CLOSE stream")

    def literal(self, template: str, row: Sequence[Any]) -> bytes:
        """Return a template with values put in, quoted as they must be. To be called inside `translated`."""
        text: bytes = self._quoting.mogrify(template, [_adapted(each) for each in row])
        return text

    def interrupt(self) -> None:
        """Cut the link, from another thread: whatever is under way there fails at once."""
        with contextlib.suppress(OSError, psycopg2.Error):  # it is closed already
            descriptor = os.dup(self._connection.fileno())
            with socket.socket(fileno=descriptor) as link:
                link.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End the session; harmless when repeated."""
        self._connection.close()

    @property
    def is_closed(self) -> bool:
        """True if no statement can be run any more."""
        return bool(self._connection.closed)

    @contextlib.contextmanager
    def _watched(self, seconds: float | None) -> Generator[None, None, None]:
        if seconds is not None:
            _watchdog.begin(id(self), seconds, self._out_of_time)
        try:
            yield
        finally:
            _watchdog.done(id(self))

    def _out_of_time(self) -> None:
        self._is_late = True
        self.interrupt()

    @contextlib.contextmanager
    def translated(self) -> Generator[None, None, None]:
        """Turn the driver's errors into the broker's, without the rows and the password they may quote."""
        try:
            yield
        except psycopg2.Error as error:
            raise self._explained(error) from None  # the driver's error quotes rows, bodies included
        except (ValueError, UnicodeError) as error:  # NUL, or half a character, which PostgreSQL's text cannot hold
            raise StoreUnavailable(f"{self.name}: a text cannot be stored: {error}", path=self.name) from error

    def _explained(self, error: Any) -> StoreError | LockNotHeld:
        """Return the message for an operator: the server's primary message, which quotes no values."""
        if error.pgcode == FENCED:
            return LockNotHeld(f"{self.name}: another broker has taken the database over")
        if self._is_late:
            hint = "check the database, and the network to it"
            return DatabaseUnavailable(self.name, "no answer in time", hint=hint)
        text = (error.diag.message_primary if error.pgcode else None) or str(error)
        hint = HINTS.get(error.pgcode, "") if error.pgcode else "the connection was lost: see the server's log"
        reason, code = self._one_line(text), error.pgcode or ""
        if code == errorcodes.DISK_FULL:
            return DatabaseFull(self.name, reason, hint=hint)
        if self.is_closed or not code or code.startswith(PASSING):
            return DatabaseUnavailable(self.name, reason, hint=hint)
        return StoreUnavailable(f"{self.name}: {reason}", path=self.name, hint=hint)

    def _one_line(self, text: str) -> str:
        """Return a message without line breaks and without the password."""
        line = " ".join(text.split())
        return line.replace(self._secret, "***") if self._secret else line


def require_session(connection: DatabaseConnection, connect: Callable[[], DatabaseConnection]) -> None:
    """Refuse a pooler that pools by transaction: there each transaction may have another process of the server.

    Fence, settings and locks of a session would be another client's, or lost. Behind a pooler, others hold the process
    that served `connection` last inside a transaction, so that its next one gets another if it can. Blocks.

    Args:
        connection: not in a transaction.
        connect: opens another one.

    Raises:
        StoreUnavailable: the pooler does.
        DatabaseUnavailable: the server fails.
    """
    others: list[DatabaseConnection] = []
    try:
        while connection.is_pooled and len(others) < POOLED_TRIES:
            others.append(connect())
            others[-1].execute("BEGIN")
            if connection.rows("SELECT pg_backend_pid()") != [(connection.backend_pid,)]:
                message = f"{connection.name}: the pooler there pools by transaction"
                raise StoreUnavailable(message, path=connection.name, hint=POOLED_HINT)
    finally:
        for other in others:
            other.close()


def parse(url: str) -> dict[str, str]:
    """Return the connection parameters that a URL gives.

    Raises:
        ConfigError: it makes no sense. The error does not quote it: it may hold a password.
    """
    try:
        parameters: dict[str, str] = psycopg2.extensions.parse_dsn(url)
    except (psycopg2.Error, UnicodeError):
        hint = "write postgresql://user@host:5432/database, with %-escapes for special characters"
        raise ConfigError("the database's URL cannot be read", setting="store", hint=hint) from None
    return parameters


def describe(url: str) -> str:
    """Return where a URL leads, without user, password and parameters.

    Raises:
        ConfigError: the URL makes no sense.
    """
    given = parse(url)
    host = given.get("host") or given.get("hostaddr") or "localhost"
    port = f":{given['port']}" if "port" in given else ""
    return f"postgresql://{host}{port}/{given.get('dbname', '')}"
