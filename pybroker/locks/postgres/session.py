"""A PostgreSQL session with a deadline on each step, that another thread can interrupt.

psycopg2's blocking calls have no deadline and cannot be interrupted: on a link that drops packets they block until TCP
gives up. So the connection is used in its asynchronous mode, and this module waits for the socket, the deadline and an
`Interrupt`. A statement that was given up leaves its connection in the middle of an answer, so the connection is
closed; the server sees the end of the stream and rolls back.

No message contains a password: the target is named by host, port and database only, and passwords are removed from the
driver's messages.
"""

import math
import os
import re
import select
import weakref
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import psycopg2 as _untyped  # type: ignore[import-untyped]
import psycopg2.extensions as _untyped_extensions  # type: ignore[import-untyped]

from pybroker import fork_guard
from pybroker.broker.domain.errors import BrokerError, ConfigError, DatabaseUnavailable, LockError
from pybroker.errors import PybrokerError
from pybroker.locks.postgres.timing import CONNECT_SECONDS, Timing, now

_psycopg2: Any = _untyped  # the driver has no types
_extensions: Any = _untyped_extensions

SCHEMES = ("postgresql://", "postgres://")

LOCK_NOT_AVAILABLE = "55P03"
"""The sqlstate of NOWAIT on a lock that is held, and of lock_timeout."""

_READ_ONLY = "25006"
_FORBIDDEN = "42501"
_UNAVAILABLE = ("08", "53", "57P", "58")
"""Prefixes of transient sqlstates: connection, resources, shutdown and start, the server's disk."""

_CANCELED = "57014"
"""The sqlstate of `pg_cancel_backend`, which monitors send to long waits, and of `statement_timeout`."""

_TRANSIENT = (_CANCELED, LOCK_NOT_AVAILABLE, "40")
"""Prefixes of sqlstates after which a statement may be tried again; 40 is for deadlocks and conflicts."""

_STRINGS = "-c standard_conforming_strings=on"
"""Overrides the settings of role and database, since the driver chooses how it quotes once, when it connects."""

# {setting} is the name of the setting with the URL.
_REMEDIES = (
    ("password authentication failed", "check user and password in {setting}, or its passfile"),
    ("no password supplied", "put the password into {setting}, or into a file that PGPASSFILE names"),
    ("no pg_hba.conf entry", "allow this host, user and database in the server's pg_hba.conf"),
    ("too many", "raise max_connections on the server, or the CONNECTION LIMIT of the user or the database"),
    ('role "', "create the user, or name another one in {setting}"),
    ('database "', "create the database, or name another one in {setting}"),
    ("translate host name", "check the host's name in {setting}"),
    ("refused", "start PostgreSQL there, let it listen on that address, and check host and port in {setting}"),
    ("No such file", "start PostgreSQL there, and check host and port in {setting}"),
    ("SSL", "check sslmode in {setting} against what the server offers"),
    ("startup parameter", "let the pooler pass options on, or ignore them: ignore_startup_parameters = options"),
    ("certificate", "check sslmode and sslrootcert in {setting}"),
)


class Interrupted(PybrokerError):
    """A wait was ended by another thread."""


class Interrupt:
    """Ends waits for a socket from another thread: an event with a descriptor to poll. It stays set until cleared."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        for fd in (self._read, self._write):
            weakref.finalize(self, os.close, fd)

    def fileno(self) -> int:
        """Return a descriptor that is readable while the event is set."""
        return self._read

    def set(self) -> None:
        """Interrupt the present wait, or the next one."""
        if not self.is_set():
            os.write(self._write, b"!")

    def clear(self) -> None:
        """Clear the event."""
        while self.is_set():
            os.read(self._read, 64)

    def is_set(self) -> bool:
        """Return True if a wait would end at once."""
        return bool(_ready(0.0, {self._read: select.POLLIN}))

    def wait(self, seconds: float) -> None:
        """Wait for some time.

        Raises:
            Interrupted: the event was set.
        """
        if _ready(seconds, {self._read: select.POLLIN}):
            raise Interrupted


class DatabaseTarget:
    """The server and database of a URL: the driver's parameters, and a name for messages."""

    def __init__(self, url: str, setting: str = "lock_url") -> None:
        """Parse a libpq URL, without connecting; `setting` is the setting it comes from.

        Raises:
            ConfigError: it is not valid. The message does not quote it.
        """
        self.setting = setting
        if not url.startswith(SCHEMES):
            raise self._no_url("it must begin with postgresql://")
        authority = re.split(r"[/?#]", url.split("://", 1)[1], maxsplit=1)[0]
        if authority.count("@") > 1:
            raise self._no_url("there is more than one @ before the host: write those of user and password as %40")
        try:
            self.parameters: dict[str, str] = dict(_extensions.parse_dsn(url))
        except _psycopg2.Error:
            # libpq's message may quote a piece of the password; the cause is dropped with it.
            raise self._no_url("write special characters of user and password as %XX, and check the options") from None
        hosts = self.parameters.get("host", "localhost").split(",")
        ports = self.parameters.get("port", "5432").split(",")
        ports += ports[-1:] * (len(hosts) - len(ports))
        where = ",".join(_in_url(host, port or "5432") for host, port in zip(hosts, ports, strict=False))
        self.name = f"postgresql://{where}/{self.parameters.get('dbname', '')}"

    def _no_url(self, what: str) -> ConfigError:
        hint = "write postgresql://USER@HOST:5432/DATABASE"
        return ConfigError(f"this is not the URL of a PostgreSQL database: {what}", setting=self.setting, hint=hint)

    def without_secrets(self, text: str) -> str:
        """Return the text with its passwords replaced by asterisks."""
        for key in ("password", "sslpassword"):
            secret = self.parameters.get(key)
            for form in {secret, quote(secret, safe="")} if secret else ():
                text = text.replace(form, "***")
        return text


def _in_url(host: str, port: str) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class DatabaseSession:
    """A connection, used by one thread at a time."""

    def __init__(
        self,
        target: DatabaseTarget,
        timing: Timing,
        *,
        seconds: float = CONNECT_SECONDS,
        interrupt: Interrupt | None = None,
    ) -> None:
        """Connect, and set the session's time-outs on the server.

        Args:
            target: the server and database.
            timing: the time-outs.
            seconds: how long connecting may take.
            interrupt: ends waits of this session early.

        Raises:
            DatabaseUnavailable: no connection. The hint has the remedy for known messages.
            ConfigError: the server reads string literals in another way than the driver writes them.
            Interrupted: the interrupt was set.
        """
        self.target = target
        self._interrupt = interrupt
        parameters = {"application_name": "pybroker"} | timing.client_parameters() | target.parameters
        parameters["options"] = f"{parameters.get('options', '')} {_STRINGS}".strip()
        deadline = now() + seconds
        try:
            self._connection: Any = _psycopg2.connect(**parameters, async_=True)
        except _psycopg2.Error as error:
            raise self._unreachable(error) from None
        fork_guard.guard_session(self)
        try:
            self._finish(deadline)
            self._require_standard_strings()
            self.set(timing.server_settings())
        except _psycopg2.Error as error:
            self.close()
            raise self._unreachable(error) from None
        except BaseException:
            self.close()
            raise

    @property
    def is_closed(self) -> bool:
        """True after `close`, or once the connection was found to be broken."""
        return bool(self._connection.closed)

    @property
    def backend_pid(self) -> int:
        """The process id of the server's backend, as in `pg_stat_activity`."""
        return int(self._connection.info.backend_pid)

    def backend(self) -> tuple[int, str]:
        """Return the backend's process id and start time, which together are unique to a session."""
        statement = "SELECT pid, backend_start::text FROM pg_stat_activity WHERE pid = pg_backend_pid()"
        ((pid, start),) = self.run(statement)
        return pid, start

    def end_backend(self, backend: tuple[int, str]) -> bool:
        """End another session of the same user. Return False when it has ended already."""
        self.run("ROLLBACK")  # of a refused statement's transaction, if there is one
        statement = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = %s AND backend_start::text = %s"
        return bool(self.run(statement, *backend))

    def set(self, settings: Mapping[str, str]) -> None:
        """Change settings of this session. Settings that the server does not know are left out."""
        self.run(
            "SELECT set_config(name, value, false) FROM unnest(%s, %s) AS wanted (name, value) "
            "JOIN pg_catalog.pg_settings USING (name)",
            list(settings),
            list(settings.values()),
        )

    def run(self, statement: str, *arguments: object, seconds: float = CONNECT_SECONDS) -> Sequence[tuple[Any, ...]]:
        """Execute a statement and return its rows.

        Raises:
            DatabaseUnavailable: the connection broke, or the answer came too late; the session is closed.
            StatementRefused: the server refused the statement; the session stays open.
            ConfigError: rights are missing, the server is read-only, or it would misread string literals.
            Interrupted: the interrupt was set; the session is closed.
        """
        deadline = now() + seconds
        if arguments:
            self._require_standard_strings()
        try:
            cursor = self._connection.cursor()
            cursor.execute(statement, arguments or None)
            self._finish(deadline)
            rows: Sequence[tuple[Any, ...]] = cursor.fetchall() if cursor.description else ()
        except _psycopg2.Error as error:
            raise self._translated(error) from None
        except (Interrupted, DatabaseUnavailable):
            self.close()
            raise
        return rows

    def idle(self, seconds: float, interrupt: Interrupt) -> None:
        """Wait, and return early when the server sends anything, which mostly is the end of the session.

        Raises:
            Interrupted: the interrupt was set.
        """
        ready = _ready(seconds, {self._connection.fileno(): select.POLLIN, interrupt.fileno(): select.POLLIN})
        if interrupt.fileno() in ready:
            raise Interrupted

    def take_notifications(self) -> int:
        """Return how many notifications came since the last call, for a session that listens.

        One that came right behind an answer was read from the socket together with it, so that waiting for the socket
        would not show it.

        Raises:
            DatabaseUnavailable: the connection broke; the session is closed.
        """
        try:
            self._connection.poll()
        except _psycopg2.Error as error:
            raise self._translated(error) from None
        count = len(self._connection.notifies)
        self._connection.notifies.clear()
        return count

    def set_interrupt(self, interrupt: Interrupt | None) -> None:
        """Choose what interrupts later statements; None: nothing does."""
        self._interrupt = interrupt

    def close(self) -> None:
        """Close the session. The server rolls back and releases its locks. May be repeated."""
        fork_guard.release_session(self)
        self._connection.close()

    def close_inherited(self) -> None:
        """Close an inherited socket in a forked child. Nothing is sent: the session is the parent's."""
        if not self._connection.closed and (fd := self._connection.fileno()) >= 0:
            os.close(fd)

    def _require_standard_strings(self) -> None:
        """Verify that the server reads string literals as the driver quotes them, without a round trip."""
        found = self._connection.get_parameter_status("standard_conforming_strings")
        if found != "on":
            hint = "ALTER ROLE … RESET it, and the same for the database; and let no pooler set it"
            message = f"{self.target.name}: the session has standard_conforming_strings = {found}, and not on"
            raise ConfigError(message, setting=self.target.setting, hint=hint)

    # ------------------------------------------------------------ waiting

    def _finish(self, deadline: float) -> None:
        """Drive the connection until its present operation is complete."""
        while (state := self._connection.poll()) != _extensions.POLL_OK:
            wanted = {self._connection.fileno(): select.POLLIN if state == _extensions.POLL_READ else select.POLLOUT}
            if self._interrupt is not None:
                wanted[self._interrupt.fileno()] = select.POLLIN
            left = deadline - now()
            ready = _ready(left, wanted) if left > 0 else ()
            if self._interrupt is not None and self._interrupt.fileno() in ready:
                raise Interrupted
            if not ready:
                raise DatabaseUnavailable(self.target.name, "no answer in time")

    # ------------------------------------------------------------ errors

    def _translated(self, error: Any) -> BrokerError:
        """Return our error for an error of the driver, and close a broken session."""
        state: str = error.pgcode or ""
        name, message = self.target.name, _first_line(self.target.without_secrets(str(error)))
        if state == _READ_ONLY:
            return read_only(self.target)
        if state == _FORBIDDEN:
            return ConfigError(
                f"{name}: {message}",
                setting=self.target.setting,
                hint="as the table's owner: GRANT SELECT, INSERT, UPDATE ON activemq_lock TO the user; or let the user "
                "create it: GRANT CREATE ON SCHEMA public TO the user",
            )
        if not state or state.startswith(_UNAVAILABLE) or self._connection.closed:
            self.close()
            return self._unreachable(error)
        return StatementRefused(f"{name}: {message}", state)

    def _unreachable(self, error: Any) -> DatabaseUnavailable:
        message = _first_line(self.target.without_secrets(str(error)))
        remedy = "check server, network, and the URL in {setting}"
        hint = next((found for sign, found in _REMEDIES if sign in message), remedy)
        return DatabaseUnavailable(self.target.name, message, hint=hint.format(setting=self.target.setting))


class StatementRefused(LockError):
    """A statement that the server refused.

    Attributes:
        state: the sqlstate.
    """

    def __init__(self, message: str, state: str) -> None:
        """Create the error with the server's message."""
        super().__init__(message)
        self.state = state

    @property
    def is_transient(self) -> bool:
        """True if the cause is temporary, such as another member's lock or an operator's cancel."""
        return self.state.startswith(_TRANSIENT)


def read_only(target: DatabaseTarget) -> DatabaseUnavailable:
    """Return the error for a read-only server or session: a replica may become the primary later."""
    return DatabaseUnavailable(
        target.name,
        "the database is read-only",
        hint=f"name the primary in {target.setting}, or all servers with ?target_session_attrs=read-write, and make "
        "sure that default_transaction_read_only is off",
    )


def _first_line(message: str) -> str:
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return lines[0] if lines else "the connection was closed"


def _ready(seconds: float, wanted: Mapping[int, int]) -> set[int]:
    """Wait for descriptors and return those that are ready; none when the time is over."""
    poller = select.poll()
    for fd, events in wanted.items():
        poller.register(fd, events)
    return {fd for fd, _ in poller.poll(max(0, math.ceil(seconds * 1000)))}
