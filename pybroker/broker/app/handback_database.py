"""Examines a store in a database for `pybroker handback`, and writes its scheduled messages into files for ActiveMQ.

Source: ActiveMQ 5.17, `JDBCPersistenceAdapter`, `Statements`: its own three tables are all that it looks at.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pybroker.broker.app import database_status
from pybroker.broker.app.activemq_target import ActiveMQVersion
from pybroker.broker.app.config import Config
from pybroker.broker.app.handback import DatabaseFacts, HandbackFacts, StoreContents
from pybroker.broker.app.handback_examination import refused_selectors
from pybroker.broker.app.stores import place_of
from pybroker.broker.app.wiring import database_url, needs_driver
from pybroker.broker.core.scheduling_queue import SCHEDULING_QUEUE
from pybroker.broker.domain.errors import StoreUnavailable
from pybroker.broker.domain.jobs import Job

if TYPE_CHECKING:
    from pybroker.store.jdbc.postgres import DatabaseConnection

_REMEDY: Final = "stop every member of the store first"

_SECONDS: Final = 600.0
"""The time for one query: a table of all messages is counted."""

_TABLES = """
SELECT relname::text FROM pg_class
WHERE relname::text = ANY(%s) AND pg_table_is_visible(oid) AND relkind IN ('r', 'p') ORDER BY relname
"""
_MESSAGES = """
SELECT count(*) FILTER (WHERE xid IS NULL), coalesce(max(octet_length(msg)), 0),
  coalesce(bool_or(priority <> 0), false),
  count(*) FILTER (WHERE container = %s AND xid IS NULL), count(*) FILTER (WHERE container = %s AND xid LIKE %s)
FROM activemq_msgs
"""
_SUBSCRIPTIONS = "SELECT count(DISTINCT (container, client_id, sub_name)) FROM activemq_acks WHERE priority <> %s"
_SELECTORS = "SELECT client_id, sub_name, selector FROM activemq_acks WHERE selector IS NOT NULL"
_XIDS = """
SELECT xid FROM activemq_msgs WHERE xid IS NOT NULL UNION SELECT xid FROM activemq_acks WHERE xid IS NOT NULL
"""
_APART = """
SELECT count(*) FROM pybroker_acked a WHERE xid = '' AND EXISTS (SELECT 1 FROM activemq_msgs m WHERE m.id = a.id)
"""
_KEY = """
SELECT count(*) FROM pg_index i, unnest(i.indkey) WHERE i.indisprimary AND i.indrelid = 'activemq_acks'::regclass
"""
_JOBS = """
SELECT job_id, start_time, cron, delay, period, repeat, next_time, run_count, msg FROM pybroker_jobs ORDER BY id
"""
_HOLD = """
BEGIN; SET LOCAL idle_in_transaction_session_timeout = 0;
SELECT pg_try_advisory_xact_lock(%s, %s) FROM activemq_lock WHERE id = 1 FOR UPDATE NOWAIT
"""
_LEASES = "SELECT count(*) FROM activemq_lock WHERE id = 1 AND broker_name IS NOT NULL AND time >="
_KEY_COLUMNS_WITH_PRIORITY: Final = 4


def examine(config: Config, target: ActiveMQVersion, *, is_in_use: bool = False) -> HandbackFacts:
    """Gather the facts about a store in a database. Blocks.

    Args:
        config: the settings of the members.
        target: the ActiveMQ that is to open the store.
        is_in_use: members may use the store meanwhile.

    Raises:
        ConfigError: the URL is not valid, or the driver is not installed.
        StoreUnavailable: the store is in use, it cannot be reached or read, or there are no tables of ActiveMQ's.
    """
    if not is_in_use:
        _require_free(config.store)
    connection = _connect(config)
    try:
        return replace(_facts(config, target, connection), is_in_use=is_in_use)
    finally:
        connection.close()


def export_jobs(config: Config, facts: HandbackFacts, directory: Path) -> HandbackFacts:
    """Write the scheduled messages into a new directory, delete them in the database, and return the facts after that.

    They are on disk before they are deleted. No member becomes master meanwhile.

    Raises:
        StoreUnavailable: the store is in use, the database fails, or the directory cannot be written.
    """
    from pybroker.locks.postgres.advisory import KEY
    from pybroker.locks.postgres.table import NOW_MS
    from pybroker.store.scheduler.new_journal import write_jobs

    place = facts.place
    assert isinstance(place, DatabaseFacts), "the store is in a database"
    connection = _connect(config)
    try:
        # A lease is no lock of the database: it may have been taken since the examination.
        if connection.rows(_HOLD, KEY) != [(True,)] or connection.rows(f"{_LEASES} {NOW_MS}") != [(0,)]:
            raise StoreUnavailable(f"{connection.name}: the lock is held", path=connection.name, hint=_REMEDY)
        write_jobs(directory, _jobs(connection))
        connection.execute("DELETE FROM pybroker_jobs; COMMIT", seconds=_SECONDS)
    finally:
        connection.close()
    return replace(facts, place=replace(place, jobs=0, exported_jobs=place.jobs, scheduler=directory))


def _require_free(store: str) -> None:
    """Check that no member of a store is alive, and that its lock is free.

    Raises:
        StoreUnavailable: it is in use.
    """
    status = database_status.read(store)
    if status.members:
        names = ", ".join(f"{each.name} (as {each.role.lower()}, on {each.host})" for each in status.members)
        raise StoreUnavailable(f"{status.store}: alive are {names}", path=status.store, hint=_REMEDY)
    if status.holder:
        raise StoreUnavailable(f"{status.store}: {status.holder} holds the lock", path=status.store, hint=_REMEDY)


def _connect(config: Config) -> "DatabaseConnection":
    with needs_driver("a store in a database", "store"):
        from pybroker.store.jdbc.postgres import DatabaseConnection

    return DatabaseConnection(database_url(config.store, config.name, "handback"))


def _facts(config: Config, target: ActiveMQVersion, connection: "DatabaseConnection") -> HandbackFacts:
    from pybroker.store.jdbc.recovery import KEPT_PRIORITY
    from pybroker.store.jdbc.schema import COLUMNS, OWN
    from pybroker.store.jdbc.xid import SENT_PREFIX, decode

    def count(sql: str, *values: Any) -> int:
        ((found,),) = connection.rows(sql, values, seconds=_SECONDS)
        return int(found)

    there = [name for (name,) in connection.rows(_TABLES, ([*COLUMNS, *OWN],))]
    if missing := [name for name in COLUMNS if name not in there]:
        hint = "name the database that pybroker has used"
        raise StoreUnavailable(f"{connection.name}: there is no table {missing[0]}", path=connection.name, hint=hint)
    own = {name: count(f"SELECT count(*) FROM {name}") for name in OWN if name in there}  # noqa: S608 - known names
    queue = str(SCHEDULING_QUEUE)
    ((messages, largest, has_priorities, scheduling, scheduling_in_doubt),) = connection.rows(
        _MESSAGES, (queue, queue, f"{SENT_PREFIX}%"), seconds=_SECONDS
    )
    in_doubt = {decode(xid).transaction for (xid,) in connection.rows(_XIDS, seconds=_SECONDS)}
    prepared = connection.rows("SELECT xid, marked FROM pybroker_prepared") if "pybroker_prepared" in own else []
    unmarked = {decode(xid).transaction for xid, is_marked in prepared if not is_marked} - in_doubt
    names = connection.rows("SELECT broker_name FROM pybroker_broker") if own.get("pybroker_broker") else []
    place = DatabaseFacts(
        name="/".join(place_of(config.store)),
        jobs=own.get("pybroker_jobs", 0),
        apart=count(_APART) if "pybroker_acked" in own else 0,
        unmarked=len(unmarked),
        no_local=own.get("pybroker_no_local", 0),
        own_tables=list(own),
        has_priority_key=count(_KEY) == _KEY_COLUMNS_WITH_PRIORITY,
        lock=config.lock,
        lease_ms=round(config.lock_lease * 1000),
    )
    contents = StoreContents(
        messages=messages,
        largest_bytes=largest,
        subscriptions=count(_SUBSCRIPTIONS, KEPT_PRIORITY),
        owned=own.get("pybroker_owners", 0),
        refused=refused_selectors((f"{client}:{name}", text) for client, name, text in connection.rows(_SELECTORS)),
        has_priorities=has_priorities,
        in_doubt=sorted(str(each) for each in in_doubt),
        scheduling=scheduling,
        scheduling_in_doubt=scheduling_in_doubt,
    )
    return HandbackFacts(
        store=config.store,
        broker_name=names[0][0] if names else config.broker_name,
        target=target,
        contents=contents,
        place=place,
    )


def _jobs(connection: "DatabaseConnection") -> Iterator[Job]:
    for rows in connection.stream(_JOBS, seconds=_SECONDS):
        for job_id, start_time, cron, delay, period, repeat, next_time, run_count, data in rows:
            yield Job(
                job_id=job_id,
                start_time=start_time,
                cron=cron,
                delay=delay,
                period=period,
                repeat=repeat,
                next_time=next_time,
                run_count=run_count,
                data=bytes(data),
            )
