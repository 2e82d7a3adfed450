"""A store in a database, before a broker uses it: can it be reached, are its tables there, may they be used.

Tables that are missing are created here, all in one transaction, before anybody takes a lock: so whatever is wrong is
found while nothing has changed.
"""

import logging

from pybroker.broker.app.config import Config
from pybroker.broker.app.wiring import database_url, is_prioritized, needs_driver
from pybroker.broker.domain.errors import ConfigError
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
"""Settings that are a journal's."""

_RIGHTS = ("SELECT", "INSERT", "UPDATE", "DELETE")

_MISSING_RIGHTS = """
SELECT c.relname::text, string_agg(wanted, ', ' ORDER BY position), current_user::text
FROM pg_class c CROSS JOIN unnest(%s) WITH ORDINALITY AS rights (wanted, position)
WHERE c.relname::text = ANY(%s) AND pg_table_is_visible(c.oid) AND c.relkind IN ('r', 'p')
AND NOT has_table_privilege(c.oid, wanted) AND NOT (c.relname = 'activemq_lock' AND wanted IN ('INSERT', 'DELETE'))
GROUP BY c.relname ORDER BY c.relname
"""

_log = logging.getLogger(__name__)


def check(config: Config) -> None:
    """Look at the database, and create the tables that are missing if that is allowed. Blocks.

    Raises:
        ConfigError: the URL is none, the driver is not installed, or rights are missing.
        StoreUnavailable: nobody answers there, or only reads; tables are missing, or are not ActiveMQ's.
    """
    with needs_driver("a store in a database", "store"):
        from pybroker.locks.postgres.provider import Database
        from pybroker.store.jdbc.postgres import Connection
        from pybroker.store.jdbc.schema import COLUMNS, OWN, ensure

    url = database_url(config.store, config.name)
    Database(url, Timing.of(config.lock_lease), setting="store").open().close()
    connection = Connection(url)
    try:
        tables = [*COLUMNS, *OWN]
        missing = connection.rows(_MISSING_RIGHTS, (list(_RIGHTS), tables))
        if missing:
            raise _forbidden(connection.name, missing)
        ensure(connection, prioritized=is_prioritized(config), may_create=config.create_tables)
    finally:
        connection.close()


def is_away(error: Exception) -> bool:
    """Tell whether an error of the store or the lock may be gone the next time."""
    from pybroker.locks.postgres.session import DatabaseUnreachable
    from pybroker.store.jdbc.postgres import DatabaseAway

    return isinstance(error, DatabaseAway | DatabaseUnreachable)


def warn_of_unused(config: Config) -> None:
    """Log which settings are set and have no effect."""
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
