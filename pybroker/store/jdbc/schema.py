"""The tables: ActiveMQ's three, exactly, and nine of our own beside them, which no ActiveMQ looks at.

| table of our own | what it holds |
| --- | --- |
| `pybroker_epoch` | one row: how often the store was taken over (see `fence`), and the last clean stop's record |
| `pybroker_acked` | acknowledgements of durable subscriptions ahead of `last_acked_id`, see `contents` |
| `pybroker_producers` | a log of producers' last sequence numbers, as JSON, for duplicates |
| `pybroker_prepared` | transactions in doubt in the order of their preparation |
| `pybroker_jobs` | scheduled messages, which ActiveMQ keeps in files |
| `pybroker_job_producers` | the same log as `pybroker_producers`, of what was scheduled |
| `pybroker_no_local` | durable subscriptions with `noLocal`, for which ActiveMQ's table has no column |
| `pybroker_owners` | the users of durable subscriptions, for the same reason |
| `pybroker_broker` | one row: the broker's id and name, the same for each master |

All are created in one transaction: all of them, or none. Tables that are there are used if they have the columns that
ActiveMQ's have. The key of `activemq_acks` comes in two shapes. ActiveMQ 5.17 means to have the priority in it and, on
PostgreSQL, fails to: with the three columns that are left it cannot hold a row per priority.

Source: ActiveMQ 5.17, `Statements`, `PostgresqlJDBCAdapter`.
"""

from pybroker.broker.domain.errors import StoreUnavailable
from pybroker.store.jdbc.postgres import DatabaseConnection

VERSION = 1
"""Version of our own tables. A store of a later one is refused."""

SCHEMA_LOCK = 0x7079_6272_6F6B
"""An advisory lock on creating tables, for members that start at the same moment: `pybrok`."""

MESSAGES = """
CREATE TABLE activemq_msgs (
    id bigint NOT NULL, container varchar(250) NOT NULL, msgid_prod varchar(250), msgid_seq bigint,
    expiration bigint, msg bytea, priority bigint, xid varchar(250), PRIMARY KEY (id));
CREATE INDEX activemq_msgs_midx ON activemq_msgs (msgid_prod, msgid_seq);
CREATE INDEX activemq_msgs_cidx ON activemq_msgs (container);
CREATE INDEX activemq_msgs_eidx ON activemq_msgs (expiration);
CREATE INDEX activemq_msgs_pidx ON activemq_msgs (priority);
CREATE INDEX activemq_msgs_xidx ON activemq_msgs (xid);
CREATE INDEX activemq_msgs_iidx ON activemq_msgs (id, xid, container);
"""
ACKS = """
CREATE TABLE activemq_acks (
    container varchar(250) NOT NULL, sub_dest varchar(250), client_id varchar(250) NOT NULL,
    sub_name varchar(250) NOT NULL, selector varchar(250), last_acked_id bigint,
    priority bigint DEFAULT 5 NOT NULL, xid varchar(250),
    CONSTRAINT pk_activemq_acks PRIMARY KEY (%s));
CREATE INDEX activemq_acks_xidx ON activemq_acks (xid);
"""
KEY = "container, client_id, sub_name"
LOCK = """
CREATE TABLE activemq_lock (id bigint NOT NULL, time bigint, broker_name varchar(250), PRIMARY KEY (id));
INSERT INTO activemq_lock (id) VALUES (1);
"""
OWN = {
    "pybroker_epoch": """
CREATE TABLE pybroker_epoch (
    id integer PRIMARY KEY CHECK (id = 1), version integer NOT NULL, epoch bigint NOT NULL,
    attempt bigint NOT NULL, job_attempt bigint NOT NULL,
    delivered text, stopped_count bigint NOT NULL, stopped_id bigint NOT NULL);
INSERT INTO pybroker_epoch VALUES (1, 1, 0, 0, 0, '[]', 0, 0);
""",
    "pybroker_acked": """
CREATE TABLE pybroker_acked (
    container varchar(250) NOT NULL, client_id varchar(250) NOT NULL, sub_name varchar(250) NOT NULL,
    id bigint NOT NULL, xid varchar(250) NOT NULL, message_id text NOT NULL,
    PRIMARY KEY (container, client_id, sub_name, id, xid));
""",
    "pybroker_producers": """
CREATE TABLE pybroker_producers (id bigint PRIMARY KEY, sequences text NOT NULL);
""",
    "pybroker_prepared": """
CREATE TABLE pybroker_prepared (xid varchar(250) PRIMARY KEY, position bigint NOT NULL, marked boolean NOT NULL);
""",
    "pybroker_jobs": """
CREATE TABLE pybroker_jobs (
    id bigint PRIMARY KEY, job_id text NOT NULL, start_time bigint NOT NULL, cron text NOT NULL,
    delay bigint NOT NULL, period bigint NOT NULL, repeat bigint NOT NULL,
    next_time bigint NOT NULL, run_count bigint NOT NULL, msg bytea NOT NULL);
""",
    "pybroker_job_producers": """
CREATE TABLE pybroker_job_producers (id bigint PRIMARY KEY, sequences text NOT NULL);
""",
    "pybroker_no_local": f"""
CREATE TABLE pybroker_no_local (
    container varchar(250), client_id varchar(250), sub_name varchar(250), PRIMARY KEY ({KEY}));
""",
    "pybroker_owners": f"""
CREATE TABLE pybroker_owners (
    container varchar(250), client_id varchar(250), sub_name varchar(250), user_name text NOT NULL,
    PRIMARY KEY ({KEY}));
""",
    "pybroker_broker": """
CREATE TABLE pybroker_broker (
    id integer PRIMARY KEY CHECK (id = 1), broker_id text NOT NULL, broker_name text NOT NULL);
""",
}
COLUMNS = {
    "activemq_msgs": {
        "id": "int8",
        "container": "varchar",
        "msgid_prod": "varchar",
        "msgid_seq": "int8",
        "expiration": "int8",
        "msg": "bytea",
        "priority": "int8",
        "xid": "varchar",
    },
    "activemq_acks": {
        "container": "varchar",
        "sub_dest": "varchar",
        "client_id": "varchar",
        "sub_name": "varchar",
        "selector": "varchar",
        "last_acked_id": "int8",
        "priority": "int8",
        "xid": "varchar",
    },
    "activemq_lock": {"id": "int8", "time": "int8", "broker_name": "varchar"},
}
"""Columns used of ActiveMQ's tables. Older ones lack `xid`; other adapters' have another type for `msg`."""

_FOUND = """
SELECT c.relname::text, a.attname::text, t.typname::text
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
JOIN pg_type t ON t.oid = a.atttypid
WHERE c.relname::text = ANY(%s) AND pg_table_is_visible(c.oid) AND c.relkind IN ('r', 'p')
"""
_KEY_COLUMNS = """
SELECT count(*) FROM pg_index i, unnest(i.indkey) WHERE i.indisprimary AND i.indrelid = 'activemq_acks'::regclass
"""

_MAY_CREATE = """
SELECT quote_ident(current_user), quote_ident(current_schema()), has_schema_privilege(current_schema()::text, 'CREATE')
"""
"""PostgreSQL creates a table in the first schema of `search_path` that is there."""


def ensure(connection: DatabaseConnection, *, prioritized: bool = False, may_create: bool = True) -> bool:
    """Find or create the tables. Blocks.

    Args:
        connection: to the database.
        prioritized: create the key that takes a row per priority.
        may_create: create missing tables.

    Returns:
        True when `activemq_acks` takes a row per priority.

    Raises:
        StoreUnavailable: they cannot be created, or are not such tables.
    """
    missing = missing_tables(connection)
    if missing and not may_create:
        hint = "allow the broker to create tables, or create them"
        raise StoreUnavailable(f"{connection.name}: there is no table {missing[0]}", path=connection.name, hint=hint)
    if missing:
        _create(connection, prioritized=prioritized)
        _check_version(connection)  # another member may have created them
    ((key_columns,),) = connection.rows(_KEY_COLUMNS)
    return bool(key_columns != len(KEY.split(", ")))


def missing_tables(connection: DatabaseConnection) -> list[str]:
    """Return the names of the tables that are missing, ActiveMQ's first. Blocks, and changes nothing.

    Raises:
        StoreUnavailable: the server cannot be used, or tables that are there are not such tables.
    """
    _check_server(connection)
    found = _found(connection)
    _check_columns(connection, found)
    if "pybroker_epoch" in found:
        _check_version(connection)
    return [name for name in (*COLUMNS, *OWN) if name not in found]


def require_creatable(connection: DatabaseConnection) -> None:
    """Check that the role may create tables. Blocks, and changes nothing.

    Raises:
        StoreUnavailable: it may not.
    """
    ((role, schema, may_create),) = connection.rows(_MAY_CREATE)
    if schema is None:
        raise StoreUnavailable(
            f"{connection.name}: tables are missing, and {role} has no schema to create them in",
            path=connection.name,
            hint="create the schema, or set search_path for the role",
        )
    if not may_create:
        raise StoreUnavailable(
            f"{connection.name}: tables are missing, and {role} may not create them in the schema {schema}",
            path=connection.name,
            hint=f"as the schema's owner: GRANT CREATE ON SCHEMA {schema} TO {role}",
        )


def _check_server(connection: DatabaseConnection) -> None:
    ((encoding, read_only),) = connection.rows(
        "SELECT current_setting('server_encoding'), current_setting('transaction_read_only')"
    )
    if read_only == "on":
        hint = "name the primary server, and a role that may write, in the store's URL"
        raise StoreUnavailable(f"{connection.name}: the database takes no writes", path=connection.name, hint=hint)
    if encoding not in ("UTF8", "SQL_ASCII"):
        hint = "create the database again with ENCODING 'UTF8'"
        message = f"{connection.name}: the database's encoding {encoding} cannot hold every name"
        raise StoreUnavailable(message, path=connection.name, hint=hint)


def _check_version(connection: DatabaseConnection) -> None:
    ((version,),) = connection.rows("SELECT coalesce(max(version), 0) FROM pybroker_epoch")
    if version > VERSION:
        raise StoreUnavailable(
            f"{connection.name}: the tables are of version {version}, this broker knows {VERSION}",
            path=connection.name,
            hint="run the newer pybroker that wrote them",
        )


def _create(connection: DatabaseConnection, *, prioritized: bool) -> None:
    """Create missing tables, in one transaction, while no other member does."""
    connection.execute(f"BEGIN; SELECT pg_advisory_xact_lock({SCHEMA_LOCK})")
    try:
        found = _found(connection)
        ours = {
            "activemq_msgs": MESSAGES,
            "activemq_acks": ACKS % (f"{KEY}, priority" if prioritized else KEY),
            "activemq_lock": LOCK,
            **OWN,
        }
        sql = "".join(create for name, create in ours.items() if name not in found)
        connection.execute(f"{sql}; COMMIT")
    except BaseException:
        connection.close()  # with it goes whatever was created
        raise


def _found(connection: DatabaseConnection) -> dict[str, dict[str, str]]:
    """Return the columns of those tables that are there."""
    found: dict[str, dict[str, str]] = {}
    for table, column, kind in connection.rows(_FOUND, ([*COLUMNS, *OWN],)):
        found.setdefault(table, {})[column] = kind
    return found


def _check_columns(connection: DatabaseConnection, found: dict[str, dict[str, str]]) -> None:
    """Refuse tables that have the names of ActiveMQ's and are others."""
    for table, columns in COLUMNS.items():
        for column, kind in columns.items() if table in found else ():
            is_ = found[table].get(column)
            if is_ != kind:
                what = "is missing" if is_ is None else f"is {is_} instead of {kind}"
                raise StoreUnavailable(
                    f"{connection.name}: the table {table} is not ActiveMQ 5.17's for PostgreSQL: {column} {what}",
                    path=connection.name,
                    hint="upgrade it with ActiveMQ, or use another database or schema",
                )
