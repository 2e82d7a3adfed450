"""Checks of a store in a database before a broker uses it: connection, tables, privileges.

Missing tables are created here, all in one transaction, before the lock is acquired: so every problem is found before
anything has changed.
"""

import logging
from contextlib import closing

from pybroker.broker.app.config import Config
from pybroker.broker.app.wiring import database_url, is_prioritized, needs_driver
from pybroker.broker.domain.errors import ConfigError, DatabaseUnavailable
from pybroker.locks.postgres.timing import Timing

UNUSED = (
    "sync",
    "sync_interval",
    "journal_file_max",
    "journal_batch_max",
    "journal_preallocate",
    "store_limit",
    "disk_reserve",
    "archive",
)
"""Settings that have no effect without a journal."""

_RIGHTS = ("SELECT", "INSERT", "UPDATE", "DELETE")

_MISSING_RIGHTS = """
SELECT c.relname::text, string_agg(wanted, ', ' ORDER BY position), current_user::text
FROM pg_class c CROSS JOIN unnest(%s) WITH ORDINALITY AS rights (wanted, position)
WHERE c.relname::text = ANY(%s) AND pg_table_is_visible(c.oid) AND c.relkind IN ('r', 'p')
AND NOT has_table_privilege(c.oid, wanted) AND NOT (c.relname = 'activemq_lock' AND wanted IN ('INSERT', 'DELETE'))
GROUP BY c.relname ORDER BY c.relname
"""

_log = logging.getLogger(__name__)


def check(config: Config, *, may_change: bool = True) -> None:
    """Check the database, and create missing tables if that is allowed. Blocks.

    Args:
        config: the settings.
        may_change: create them now; if not, look only whether a start could.

    Raises:
        ConfigError: the URL is not valid, the driver is not installed, or privileges are missing.
        StoreUnavailable: there is no answer, or the server is read-only; tables are missing, or are not ActiveMQ's.
    """
    with needs_driver("a store in a database", "store"):
        from pybroker.locks.postgres.provider import Database
        from pybroker.store.jdbc.postgres import DatabaseConnection
        from pybroker.store.jdbc.schema import COLUMNS, OWN, ensure, missing_tables, require_creatable

    url = database_url(config.store, config.name)
    Database(url, Timing.of(config.lock_lease), setting="store").open().close()
    with closing(DatabaseConnection(url)) as connection:
        tables = [*COLUMNS, *OWN]
        missing = connection.rows(_MISSING_RIGHTS, (list(_RIGHTS), tables))
        if missing:
            raise _forbidden(connection.name, missing)
        if may_change or not config.create_tables:
            ensure(connection, prioritized=is_prioritized(config), may_create=config.create_tables)
        elif missing_tables(connection):
            require_creatable(connection)


def tables_to_create(config: Config) -> list[str]:
    """Return the names of the tables that a start would create. Blocks, and changes nothing.

    Raises:
        ConfigError: the URL is not valid, or the driver is not installed.
        StoreUnavailable: there is no answer, or tables are not ActiveMQ's.
    """
    with needs_driver("a store in a database", "store"):
        from pybroker.store.jdbc.postgres import DatabaseConnection
        from pybroker.store.jdbc.schema import missing_tables

    with closing(DatabaseConnection(database_url(config.store, config.name))) as connection:
        return missing_tables(connection)


def is_away(error: Exception) -> bool:
    """Return True for an error of the store or the lock after which another attempt may succeed."""
    return isinstance(error, DatabaseUnavailable)


def warn_of_unused(config: Config) -> None:
    """Log the settings that have no effect."""
    unused = [name for name in UNUSED if name in config.given]
    if unused:
        _log.warning("a store in a database has no journal: of no effect are %s", ", ".join(unused))


def _forbidden(where: str, missing: list[tuple[str, str, str]]) -> ConfigError:
    table, rights, user = missing[0]
    return ConfigError(
        f"{where}: {user} may not {rights} on {table}",
        setting="store",
        hint=f"as the owner: GRANT {rights} ON {', '.join(name for name, _, _ in missing)} TO {user}",
    )
