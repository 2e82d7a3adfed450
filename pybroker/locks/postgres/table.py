"""ActiveMQ's table `activemq_lock`: verified, or created as ActiveMQ does.

| column | type | |
|---|---|---|
| id | bigint, primary key | 1, in the only row |
| time | bigint | end of the lease, milliseconds since 1970; null or 0: no lease |
| broker_name | varchar(250) | holder of the lease; null: no holder |
"""

from pybroker.broker.domain.errors import ConfigError, StoreUnavailable
from pybroker.locks.postgres.session import DatabaseSession, StatementRefused, read_only

TABLE = "activemq_lock"

NOW_MS = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
"""The database's clock, which all members share however much their own clocks differ."""

_COLUMNS = {"id": "bigint", "time": "bigint", "broker_name": "character varying"}

_FIND_COLUMNS = """
SELECT attname, split_part(format_type(atttypid, NULL), '(', 1) FROM pg_catalog.pg_attribute
WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped
"""
# One simple query, and so one transaction.
_CREATE = f"""
CREATE TABLE {TABLE} (id bigint NOT NULL, time bigint, broker_name varchar(250), PRIMARY KEY (id));
INSERT INTO {TABLE} (id) VALUES (1)
"""  # noqa: S608 - constants
_HAS_ROW = f"SELECT 1 FROM {TABLE} WHERE id = 1"  # noqa: S608 - constants
_ADD_ROW = f"INSERT INTO {TABLE} (id) VALUES (1) ON CONFLICT DO NOTHING"  # noqa: S608

_ALREADY_THERE = ("42P07", "42710", "23505")
"""Table, type, or their rows in the catalogue: another member created them at the same time."""


def require_primary(session: DatabaseSession) -> None:
    """Verify that the server accepts writes: a lock on a replica does not exclude members on the primary.

    Raises:
        DatabaseUnavailable: it is read-only at present.
    """
    ((recovering, reads_only),) = session.run(
        "SELECT pg_is_in_recovery(), current_setting('default_transaction_read_only') = 'on'"
    )
    if recovering or reads_only:
        session.close()
        raise read_only(session.target)


def require_table(session: DatabaseSession, *, may_create: bool = True) -> None:
    """Verify that the table and its row exist, or create them.

    Raises:
        ConfigError: the table may not be created or used.
        StoreUnavailable: a table of that name has other columns.
    """
    columns = dict(session.run(_FIND_COLUMNS, TABLE))
    if not columns and not may_create:
        hint = "leave create_tables out, or create the table"
        raise ConfigError(f"there is no table {TABLE}", setting="create_tables", hint=hint)
    if not columns:
        if _create(session):
            return
        columns = dict(session.run(_FIND_COLUMNS, TABLE))
    if {name: columns.get(name) for name in _COLUMNS} != _COLUMNS:
        wanted = ", ".join(f"{name} {kind}" for name, kind in _COLUMNS.items())
        raise StoreUnavailable(
            f"{session.target.name}: {TABLE} is not ActiveMQ's table, which has {wanted}",
            path=session.target.name,
            hint=f"name another database in {session.target.setting}, or rename that table",
        )
    if not session.run(_HAS_ROW):
        session.run(_ADD_ROW)


def _create(session: DatabaseSession) -> bool:
    """Create the table. Return False when another member created it at the same time."""
    try:
        session.run(_CREATE)
    except StatementRefused as error:
        if error.state in _ALREADY_THERE:
            return False
        raise ConfigError(
            f"{TABLE} cannot be created: {error}",
            setting=session.target.setting,
            hint="create the user's schema, or set search_path for the user",
        ) from error
    return True
