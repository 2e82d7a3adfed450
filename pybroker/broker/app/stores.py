"""The setting `store`: a directory, a database or memory; and the checks that the settings of its lock go with it."""

import re
from typing import Final

from pybroker.broker.app.setting import text
from pybroker.broker.domain.errors import ConfigError
from pybroker.locks.postgres.timing import Timing
from pybroker.store.directories import is_journal_name

MEMORY_STORE: Final = "memory:"

_POSTGRES_SCHEMES: Final = ("postgresql://", "postgres://")
_SCHEME: Final = re.compile(r"[A-Za-z][\w+.-]*:(?=/|$)")
"""The beginning of a store that is no path: `memori:`, `postgresql:/u@h/d`, `file:/data`."""


def store(value: object) -> str:
    """Return the text of the setting `store`."""
    given = text(value)
    if not given:
        raise ValueError("write a directory, or `memory:`")
    if "://" in given and not is_database(given):
        raise ValueError(
            f"{given.partition('://')[0]}:// is not a store of this version: write a directory, or "
            "postgresql://USER@HOST:5432/DATABASE"
        )
    if given != MEMORY_STORE and (scheme := _SCHEME.match(given)) and not is_database(given):
        raise ValueError(
            f"a store cannot begin with `{scheme[0]}`: write a directory (./{scheme[0]} for one of that name), "
            "`memory:`, or postgresql://USER@HOST:5432/DATABASE"
        )
    return given


def journal_name(value: object) -> str:
    """Return the text of the setting `journal_directory`."""
    given = text(value)
    if not is_journal_name(given):
        raise ValueError(
            "write the name of a directory in the store's, such as KahaDB, without a path; "
            "`scheduler` and `members` are taken"
        )
    return given


def is_database(given: str) -> bool:
    """Return True if a store is a database."""
    return given.startswith(_POSTGRES_SCHEMES)


def is_in_database(lock: str) -> bool:
    """Return True for a kind of lock in a database."""
    return lock.startswith("postgres-")


def check_store(given: str, lock: str, lock_url: str | None, grace: float | None, *, may_create: bool) -> None:
    """Check that the settings of a database go with its lock; the last two are `database_grace`, `create_store`.

    Raises:
        ValueError: they do not.
    """
    if not is_database(given):
        if grace is not None:
            raise ValueError("database_grace goes with a store in a database")
        return
    if not may_create:
        raise ValueError("create_store goes with a store in a directory: for a database, set create_tables")
    if not is_in_database(lock):
        raise ValueError(
            f"lock = {lock} does not guard a store in a database: leave it out, or write postgres-row, "
            "postgres-lease or postgres-advisory"
        )
    if place_of(given) != place_of(lock_url or ""):
        raise ValueError(
            "store and lock_url are two databases, and a lock in one does not guard the other from those who "
            "lock there: leave lock_url out"
        )


def check_lock(lock: str, lock_url: str | None, grace: float | None, timing: tuple[float, float | None]) -> None:
    """Check the settings of a lock in a database; `timing` has `lock_lease` and `lock_renew`, `grace` the database's.

    Raises:
        ValueError: they cannot be used.
    """
    if is_in_database(lock):
        if not lock_url:
            raise ValueError(f"lock = {lock} needs a database: set lock_url")
        if not is_database(lock_url):
            raise ValueError("lock_url is not that of a database: write postgresql://USER@HOST:5432/DATABASE")
        try:
            grace_max = Timing.of(*timing).grace_seconds_max
        except ConfigError as error:
            raise ValueError(str(error)) from error
        if grace is not None and grace > grace_max:
            raise ValueError(
                f"database_grace must be at most {grace_max:g}s: then another member may have the "
                "lock; or raise lock_lease"
            )
    elif lock_url:
        raise ValueError(f"lock_url goes with the locks of a database: set lock to postgres-row, not {lock}")


def place_of(url: str) -> tuple[str, str]:
    """Return server and database of a URL, without user and options."""
    authority, _, rest = url.partition("://")[2].partition("/")
    return authority.rpartition("@")[2], re.split("[?#]", rest)[0]


def without_secrets(given: str) -> str:
    """Return a store's name for texts: of a database, its server and its name alone."""
    return f"postgresql://{'/'.join(place_of(given))}" if is_database(given) else given
