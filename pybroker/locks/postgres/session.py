"""A PostgreSQL session with a deadline on every step, that another thread can interrupt.

psycopg2's blocking calls can neither be bounded nor interrupted: a black-holed link holds them until TCP gives up. So
the connection is used in its asynchronous mode, and this module waits for the socket itself, for the deadline, and for
a `Bell`. A statement that was given up leaves the connection in the middle of an answer, so it is closed; the server
sees the end of the stream and rolls back.

Nothing here shows a password: the target is named by host, port and database only, and the driver's messages are
searched for it.
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

from pybroker.broker.domain.errors import BrokerError, ConfigError, LockError, StoreUnavailable
from pybroker.locks.postgres.timing import CONNECT_SECONDS, Timing, now

_psycopg2: Any = _untyped  # the driver has no types
_extensions: Any = _untyped_extensions

SCHEMES = ("postgresql://", "postgres://")

LOCK_NOT_AVAILABLE = "55P03"
"""Sqlstate of NOWAIT where somebody has the lock, and of lock_timeout."""

_READ_ONLY = "25006"
_FORBIDDEN = "42501"
_UNAVAILABLE = ("08", "53", "57P", "58")
"""Beginnings of sqlstates that pass: connection, resources, shutdown and start, the server's own disk."""

_CANCELED = "57014"
"""Of `pg_cancel_backend`, which monitors send to whoever waits long, and of `statement_timeout`."""

_PASSING = (_CANCELED, LOCK_NOT_AVAILABLE, "40")
"""Beginnings of sqlstates of statements that may be tried again: the last is of deadlocks and conflicts."""

_STRINGS = "-c standard_conforming_strings=on"
"""Goes before what role and database say: the driver looks at it once, when it connects, to choose how it quotes."""

# {setting} is where the URL stands.
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


class DatabaseUnreachable(StoreUnavailable):
    """No connection, or it broke, or nothing came in time: to try again later may help.

    Attributes:
        reason: what happened, without where and what to do.
    """

    def __init__(self, where: str, reason: str, *, hint: str = "check server and network") -> None:
        """Describe it by the server's or libpq's words, where there are any."""
        super().__init__(f"{where}: {reason}", path=where, hint=hint)
        self.reason = reason


class Interrupted(Exception):
    """A wait was ended from another thread."""


class Bell:
    """Wakes a thread that waits for a socket. It rings until it is silenced."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        for fd in (self._read, self._write):
            weakref.finalize(self, os.close, fd)

    def fileno(self) -> int:
        """Return what is readable while it rings."""
        return self._read

    def ring(self) -> None:
        """Wake who waits, or whoever waits next."""
        if not self.is_ringing():
            os.write(self._write, b"!")

    def silence(self) -> None:
        """Let the next wait be one."""
        while self.is_ringing():
            os.read(self._read, 64)

    def is_ringing(self) -> bool:
        """Tell whether a wait would end at once."""
        return bool(_ready(0.0, {self._read: select.POLLIN}))

    def pause(self, seconds: float) -> None:
        """Wait for some time.

        Raises:
            Interrupted: it rang.
        """
        if _ready(seconds, {self._read: select.POLLIN}):
            raise Interrupted


class Target:
    """Where a URL leads: what the driver is told, and what people are."""

    def __init__(self, url: str, setting: str = "lock_url") -> None:
        """Read a libpq URL, without connecting; `setting` is its name as the user knows it.

        Raises:
            ConfigError: it is none; the message does not quote it.
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
        """Return the text with the passwords in it made unreadable."""
        for key in ("password", "sslpassword"):
            secret = self.parameters.get(key)
            for form in {secret, quote(secret, safe="")} if secret else ():
                text = text.replace(form, "***")
        return text


def _in_url(host: str, port: str) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Session:
    """One connection, used by one thread at a time."""

    def __init__(
        self, target: Target, timing: Timing, *, seconds: float = CONNECT_SECONDS, bell: Bell | None = None
    ) -> None:
        """Connect and bound the server's side of the session.

        Args:
            target: where to.
            timing: what it is bounded by.
            seconds: how long that may take.
            bell: ends it early.

        Raises:
            DatabaseUnreachable: no connection; the hint says why, as far as the message tells.
            ConfigError: the server would read strings otherwise than the driver writes them.
            Interrupted: the bell rang.
        """
        self.target = target
        self._bell = bell
        parameters = {"application_name": "pybroker"} | timing.client_parameters() | target.parameters
        parameters["options"] = f"{parameters.get('options', '')} {_STRINGS}".strip()
        deadline = now() + seconds
        try:
            self._connection: Any = _psycopg2.connect(**parameters, async_=True)
        except _psycopg2.Error as error:
            raise self._unreachable(error) from None
        _sessions.add(self)
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
        """The server's process, as in `pg_stat_activity`."""
        return int(self._connection.info.backend_pid)

    def backend(self) -> tuple[int, str]:
        """Return the server's process and its start, which is another for every session."""
        statement = "SELECT pid, backend_start::text FROM pg_stat_activity WHERE pid = pg_backend_pid()"
        ((pid, start),) = self.run(statement)
        return pid, start

    def end_backend(self, backend: tuple[int, str]) -> bool:
        """End another session of the same user; False when it is gone already."""
        self.run("ROLLBACK")  # of what was refused before, or nothing
        statement = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = %s AND backend_start::text = %s"
        return bool(self.run(statement, *backend))

    def set(self, settings: Mapping[str, str]) -> None:
        """Change settings for this session, those that the server knows."""
        self.run(
            "SELECT set_config(name, value, false) FROM unnest(%s, %s) AS wanted (name, value) "
            "JOIN pg_catalog.pg_settings USING (name)",
            list(settings),
            list(settings.values()),
        )

    def run(self, statement: str, *arguments: object, seconds: float = CONNECT_SECONDS) -> Sequence[tuple[Any, ...]]:
        """Execute and return the rows: of an UPDATE those it returns.

        Raises:
            DatabaseUnreachable: the connection broke or nothing came in time; the session is closed.
            Refused: the server refused the statement; the session lives.
            ConfigError: it was refused for rights, or because the server only reads; or strings would be misread.
            Interrupted: the bell rang; the session is closed.
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
        except (Interrupted, DatabaseUnreachable):
            self.close()
            raise
        return rows

    def idle(self, seconds: float, bell: Bell) -> None:
        """Wait, and return early if the server says something unasked, which is mostly the end.

        Raises:
            Interrupted: the bell rang.
        """
        ready = _ready(seconds, {self._connection.fileno(): select.POLLIN, bell.fileno(): select.POLLIN})
        if bell.fileno() in ready:
            raise Interrupted

    def listen_to(self, bell: Bell | None) -> None:
        """Let another bell interrupt what is run from here on; None: nobody."""
        self._bell = bell

    def close(self) -> None:
        """End the session; the server rolls back and frees what it held. Harmless when repeated."""
        _sessions.discard(self)
        self._connection.close()

    def forget(self) -> None:
        """In a forked child: let go of the socket, without a word to the server, whose client is the parent."""
        if not self._connection.closed and (fd := self._connection.fileno()) >= 0:
            os.close(fd)

    def _require_standard_strings(self) -> None:
        """Make sure that the server reads strings as the driver quotes them; nothing is asked."""
        found = self._connection.get_parameter_status("standard_conforming_strings")
        if found != "on":
            hint = "ALTER ROLE … RESET it, and the same for the database; and let no pooler set it"
            message = f"{self.target.name}: the session has standard_conforming_strings = {found}, and not on"
            raise ConfigError(message, setting=self.target.setting, hint=hint)

    # ------------------------------------------------------------ waiting

    def _finish(self, deadline: float) -> None:
        """Drive the connection until what it is doing is done."""
        while (state := self._connection.poll()) != _extensions.POLL_OK:
            wanted = {self._connection.fileno(): select.POLLIN if state == _extensions.POLL_READ else select.POLLOUT}
            if self._bell is not None:
                wanted[self._bell.fileno()] = select.POLLIN
            left = deadline - now()
            ready = _ready(left, wanted) if left > 0 else ()
            if self._bell is not None and self._bell.fileno() in ready:
                raise Interrupted
            if not ready:
                raise DatabaseUnreachable(self.target.name, "no answer in time")

    # ------------------------------------------------------------ errors

    def _translated(self, error: Any) -> BrokerError:
        """Return our error for the driver's; a broken session is closed."""
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
        return Refused(f"{name}: {message}", state)

    def _unreachable(self, error: Any) -> DatabaseUnreachable:
        message = _first_line(self.target.without_secrets(str(error)))
        remedy = "check server, network, and the URL in {setting}"
        hint = next((found for sign, found in _REMEDIES if sign in message), remedy)
        return DatabaseUnreachable(self.target.name, message, hint=hint.format(setting=self.target.setting))


class Refused(LockError):
    """A statement that the server refused.

    Attributes:
        state: its sqlstate.
    """

    def __init__(self, message: str, state: str) -> None:
        """Describe it by the server's words."""
        super().__init__(message)
        self.state = state

    @property
    def may_pass(self) -> bool:
        """True for one that another member's, or an operator's, doing had refused, and not the statement itself."""
        return self.state.startswith(_PASSING)


def read_only(target: Target) -> DatabaseUnreachable:
    """Return the error for a server, or a session, that only reads: a replica, which may become the primary."""
    return DatabaseUnreachable(
        target.name,
        "the database is read-only",
        hint=f"name the primary in {target.setting}, or all servers with ?target_session_attrs=read-write, and make "
        "sure that default_transaction_read_only is off",
    )


def _first_line(message: str) -> str:
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return lines[0] if lines else "the connection was closed"


def _ready(seconds: float, wanted: Mapping[int, int]) -> set[int]:
    """Return which descriptors are ready, none when the time is over."""
    poller = select.poll()
    for fd, events in wanted.items():
        poller.register(fd, events)
    return {fd for fd, _ in poller.poll(max(0, math.ceil(seconds * 1000)))}


_sessions: "weakref.WeakSet[Session]" = weakref.WeakSet()


def _forget_in_child() -> None:
    """Close the sockets a forked child got: it would keep the lock alive after its parent's death."""
    for session in list(_sessions):
        session.forget()
    _sessions.clear()


os.register_at_fork(after_in_child=_forget_in_child)
