"""A register in PostgreSQL 11 or newer: one row of the table `pybroker_replica`.

| column | type | |
|---|---|---|
| name | text, primary key | the name of the cluster |
| revision | bigint, from a sequence of its own | grows with each change, also after the row was deleted and created |
| value | text | the record |

```text
read    SELECT                                       on the primary only
swap    UPDATE … WHERE name = … AND revision = …     one statement, and so one transaction; INSERT for a first record
watch   LISTEN pybroker_replica, and a SELECT now and then
```

The trust is the database's: a failover to a replica that is not synchronous forgets the latest records. So a session
demands `synchronous_commit`, where a role or database has it off.
"""

import logging
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit, urlunsplit

import psycopg2  # type: ignore[import-untyped]

from pybroker.broker.domain.errors import ConfigError, DatabaseUnavailable, LockError, MalformedData
from pybroker.locks.election.record import RECORD_BYTES_MAX, ElectionRecord
from pybroker.locks.election.register import (
    ABSENT,
    RegisterCallback,
    RegisterMalformed,
    RegisterState,
    RegisterUnavailable,
    SwapResult,
)
from pybroker.locks.postgres.session import (
    DatabaseSession,
    DatabaseTarget,
    Interrupt,
    Interrupted,
    StatementRefused,
)
from pybroker.locks.postgres.table import require_primary
from pybroker.locks.postgres.timing import LEASE_SECONDS_MIN, Timing, now

_log = logging.getLogger(__name__)

_T = TypeVar("_T")

TABLE = "pybroker_replica"
"""Name of the table and of the notifications."""

_CREATE = f"CREATE TABLE {TABLE} (name text PRIMARY KEY, revision bigserial, value text NOT NULL)"
_HAS_TABLE = "SELECT to_regclass(%s) IS NOT NULL"
_ALREADY_THERE = ("42P07", "42710", "23505")
"""Table, sequence, or their rows in the catalogue: another member created them at the same time."""

# The value is cut by the server: what is longer is no record, and is refused without being read.
_READ = f"SELECT revision, left(value, {RECORD_BYTES_MAX + 1}) FROM {TABLE} WHERE name = %s"  # noqa: S608 - constants
_NEXT = f"nextval(pg_get_serial_sequence('{TABLE}', 'revision'))"
_UPDATE = f"""
WITH swapped AS (UPDATE {TABLE} SET revision = {_NEXT}, value = %s WHERE name = %s AND revision = %s RETURNING revision)
SELECT revision, pg_notify('{TABLE}', %s) FROM swapped
"""  # noqa: S608 - constants
_INSERT = f"""
WITH swapped AS (INSERT INTO {TABLE} (value, name) VALUES (%s, %s) ON CONFLICT DO NOTHING RETURNING revision)
SELECT revision, pg_notify('{TABLE}', %s) FROM swapped
"""  # noqa: S608 - constants
_SYNCHRONOUS = """
SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') <> 'remote_apply'
"""

_POLL_FACTOR = 4 / 3
"""A watch reads every third of a lease as well, for a time-out is a quarter of it."""


class PostgresRegister:
    """A `Register` in PostgreSQL."""

    def __init__(self, url: str, *, timeout_seconds: float, setting: str = "replicate") -> None:
        """Create the register. Nothing is connected.

        Args:
            url: a URL of libpq, with `cluster=NAME` among its options.
            timeout_seconds: how long a call may take: a quarter of the lease.
            setting: the setting that the URL comes from.

        Raises:
            ConfigError: the URL is not valid.
        """
        self._url = url
        self._setting = setting
        self._timeout_seconds = timeout_seconds
        plain, self._cluster = _without_cluster(url, setting)
        self._target = DatabaseTarget(plain, setting)
        self._timing = Timing.of(max(LEASE_SECONDS_MIN, 4 * timeout_seconds))
        self._interrupt: Interrupt | None = None
        self._session: DatabaseSession | None = None
        self._watches: list[PostgresWatch] = []

    @property
    def name(self) -> str:
        """The URL without secrets."""
        return f"{self._target.name}?cluster={self._cluster}"

    @property
    def cluster(self) -> str:
        """The name of the cluster."""
        return self._cluster

    @property
    def timeout_seconds(self) -> float:
        """How long a call may take."""
        return self._timeout_seconds

    def read(self) -> RegisterState:
        """Return the present content; see `Register`."""
        return self._run(self._read)

    def swap(self, revision: int, record: ElectionRecord) -> SwapResult:
        """Change the record if its revision is still this one; see `Register`."""
        value = record.encode().decode()

        def change(session: DatabaseSession, deadline: float) -> SwapResult:
            if revision:
                found = session.run(_UPDATE, value, self._cluster, revision, self._cluster, seconds=deadline - now())
            else:
                found = session.run(_INSERT, value, self._cluster, self._cluster, seconds=deadline - now())
            if found:
                return SwapResult(True, RegisterState(found[0][0], record))
            return SwapResult(False, self._read(session, deadline))

        return self._run(change)

    def watch(self, callback: RegisterCallback) -> "PostgresWatch":
        """Call back at changes; see `Register`."""
        reader = PostgresRegister(self._url, timeout_seconds=self._timeout_seconds, setting=self._setting)
        self._watches.append(PostgresWatch(reader, callback))
        return self._watches[-1]

    def guardian_access(self) -> Mapping[str, Any]:
        """Return what a guardian needs, with the password; see `Register`."""
        milliseconds = math.ceil(self._timeout_seconds * 1000)
        parameters = {"application_name": "pybroker guardian"} | self._target.parameters
        options = f"-c statement_timeout={milliseconds} -c synchronous_commit=on -c standard_conforming_strings=on"
        parameters["options"] = f"{parameters.get('options', '')} {options}".strip()
        parameters["connect_timeout"] = str(max(2, math.ceil(self._timeout_seconds)))  # libpq takes whole seconds
        return {
            "kind": "postgresql",
            "parameters": parameters,
            "cluster": self._cluster,
            "read": _READ,
            "update": _UPDATE,
            "path": [str(Path(psycopg2.__file__).parent.parent)],
        }

    def close(self) -> None:
        """Close the sessions, and end the watches. May be repeated."""
        while self._watches:
            self._watches.pop().close()
        self._close_session()

    # ------------------------------------------------------------ for the watch

    def interrupt_with(self, interrupt: Interrupt) -> None:
        """Choose what interrupts the calls."""
        self._interrupt = interrupt

    def listen(self) -> DatabaseSession:
        """Return the session, which is notified of changes.

        Raises:
            RegisterUnavailable: no answer in time.
            ConfigError: the server refuses the user.
            Interrupted: the interrupt was set.
        """

        def listen(session: DatabaseSession, deadline: float) -> DatabaseSession:
            session.run(f"LISTEN {TABLE}", seconds=deadline - now())
            return session

        return self._run(listen)

    # ------------------------------------------------------------ sessions

    def _run(self, work: Callable[[DatabaseSession, float], _T]) -> _T:
        """Do something on a session within the time-out, and translate what fails."""
        deadline = now() + self._timeout_seconds
        try:
            return work(self._opened(deadline), deadline)
        except DatabaseUnavailable as error:
            self._close_session()
            raise RegisterUnavailable(self.name, error.reason) from error
        except StatementRefused as error:
            self._close_session()
            raise RegisterUnavailable(self.name, str(error)) from error
        except ConfigError as error:
            self._close_session()
            hint = f"GRANT SELECT, INSERT, UPDATE ON {TABLE}, and USAGE ON its sequence, to the user"
            raise ConfigError(error.reason, setting=self._setting, hint=hint) from error
        except Interrupted:
            self._close_session()
            raise

    def _opened(self, deadline: float) -> DatabaseSession:
        session = self._session
        if session is not None and not session.is_closed:
            return session
        session = DatabaseSession(self._target, self._timing, seconds=deadline - now(), interrupt=self._interrupt)
        try:
            require_primary(session)
            session.run(_SYNCHRONOUS, seconds=deadline - now())
            self._require_table(session, deadline)
        except BaseException:
            session.close()
            raise
        self._session = session
        return session

    def _require_table(self, session: DatabaseSession, deadline: float) -> None:
        ((exists,),) = session.run(_HAS_TABLE, TABLE, seconds=deadline - now())
        if exists:
            return
        try:
            session.run(_CREATE, seconds=deadline - now())
        except StatementRefused as error:
            if error.state not in _ALREADY_THERE:
                raise

    def _read(self, session: DatabaseSession, deadline: float) -> RegisterState:
        rows: Sequence[tuple[Any, ...]] = session.run(_READ, self._cluster, seconds=deadline - now())
        if not rows:
            return ABSENT
        ((revision, value),) = rows
        try:
            return RegisterState(revision, ElectionRecord.decode(value.encode()))
        except MalformedData as error:
            raise RegisterMalformed(f"{self.name}: the row of {TABLE} is no record: {error}") from error

    def _close_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()


class PostgresWatch:
    """A session that listens, opened again after every failure."""

    def __init__(self, register: PostgresRegister, callback: RegisterCallback) -> None:
        """Start the thread.

        Args:
            register: reads; owned from here on.
            callback: called with each content that differs from the one before.
        """
        self._register = register
        self._callback = callback
        self._interrupt = Interrupt()
        self._logged = ""
        self._has_read = False
        register.interrupt_with(self._interrupt)
        self._thread = threading.Thread(target=self._run, name=f"watch {register.name}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread. May be repeated."""
        self._interrupt.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while True:
                try:
                    self._follow()
                except (LockError, DatabaseUnavailable, ConfigError) as error:
                    # What fails before a read is logged by the member, which reads as well.
                    if self._has_read and str(error) != self._logged:
                        self._logged = str(error)
                        _log.warning("changes of the register are seen later, as the watch has failed: %s", error)
                    self._interrupt.wait(self._register.timeout_seconds)
        except Interrupted:
            pass  # closed
        finally:
            self._register.close()

    def _follow(self) -> None:
        self._has_read = False
        session = self._register.listen()
        seen: RegisterState | None = None
        while True:
            state = self._register.read()
            if state != seen:
                self._callback(state)
            seen, self._logged, self._has_read = state, "", True
            if not session.take_notifications():  # else one came with the answer, after the read perhaps
                session.idle(self._register.timeout_seconds * _POLL_FACTOR, self._interrupt)


def _without_cluster(url: str, setting: str) -> tuple[str, str]:
    """Return the URL as libpq accepts it, and the name of the cluster."""
    parts = urlsplit(url)
    options = [option for option in parts.query.split("&") if option]
    names = [unquote(option.partition("=")[2]) for option in options if option.startswith("cluster=")]
    if len(names) > 1:
        raise ConfigError("its URL names more than one cluster", setting=setting, hint="write ?cluster=NAME once")
    left = "&".join(option for option in options if not option.startswith("cluster="))  # as they are: libpq reads them
    return urlunsplit(parts._replace(query=left)), names[0] if names and names[0] else "pybroker"
