"""Broken variants of the broker, each of which a scenario must catch: one mistake that someone might make.

They break what the production code calls, not the simulation, so that a scenario which finds them would find the same
mistake in the code.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from pybroker.broker.core.consumer import BrokerConsumer as CoreConsumer
from pybroker.broker.core.piecewise import Steps
from pybroker.broker.core.scheduler import Scheduler
from pybroker.store.journal.appender import JournalSettings
from pybroker.store.journal.files import JournalFiles
from pybroker.store.journal.follower import Follower
from pybroker.store.journal.store import JournalStore
from pybroker.store.scheduler.store import JournalJobStore
from pybroker.transports.server import Server
from tests.simulation.election_variants import ELECTION_VARIANTS
from tests.simulation.forced_variants import FORCED_VARIANTS


def _no_sync(self: JournalFiles, descriptor: int) -> None:
    """Take what is written for what lasts."""


def _retried_sync(self: JournalFiles, descriptor: int) -> None:
    try:
        self._os.fdatasync(descriptor)
    except OSError:
        self._os.fdatasync(descriptor)


def _no_directory_sync(self: JournalFiles, path: Path) -> None:
    """Take a name for what lasts."""


def _no_new_owner(self: JournalFiles, name: str, own: os.stat_result, *, next_name: str = "") -> str:
    """Check the lock alone."""
    return ""


def _no_seal(self: JournalFiles, file_id: int, *content: Any) -> None:
    """Leave a former master's file where it can write to it."""


def _shared_create(self: JournalFiles, file_id: int, preallocate_bytes: int = 0, *, is_claim: bool = False) -> int:
    with suppress(FileNotFoundError):
        self._os.unlink(self.path(file_id))
    return _create(self, file_id, preallocate_bytes, is_claim=is_claim)


_create = JournalFiles.create


def _put_unsynced(
    self: JournalFiles, path: Path, content: Sequence[bytes | memoryview], fence: Callable[[], None] = lambda: None
) -> None:
    copy = path.with_name(f"{path.name}.{self._newest_own}.sealed")
    descriptor = self._os.open(copy, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
    self.write(descriptor, content, 0)
    self._os.close(descriptor)
    fence()
    self._os.replace(copy, path)
    self.sync_directory()


def _confirm_at_once(self: JournalStore, callback: Callable[[], None]) -> None:
    callback()


def _confirm_at_next_turn(self: JournalStore, callback: Callable[[], None]) -> None:
    self._runtime.call_soon(callback)


_add = JournalStore.add


def _add_at_once(self: JournalStore, message: Any, transaction: Any = None) -> bool:
    return _add(self, message)


_remove = JournalStore.remove


def _remove_at_once(self: JournalStore, destination: Any, message_id: str, transaction: Any = None, **how: Any) -> None:
    _remove(self, destination, message_id, **how)


_settings = JournalSettings.__init__


def _unchecked(self: JournalSettings, **options: Any) -> None:
    _settings(self, **options | {"checksum": False})


def _no_catching_up(self: Follower, progress: Any = None) -> None:
    """Serve what was followed so far."""


_giving_back = CoreConsumer._giving_back


def _seen_by_no_one(self: CoreConsumer, seen_to: int) -> Steps:
    return _giving_back(self, 0)


def _forgetful(self: JournalStore, producer_id: str) -> int:
    return -1


def _no_remove(self: JournalStore, *what: Any, **how: Any) -> None:
    """Acknowledge in memory alone."""


def _no_subscription(self: JournalStore, subscription: Any, *, retroactive: bool = False) -> Sequence[str]:
    """Keep a durable subscription in memory alone."""
    return ()


def _no_acknowledgement(self: JournalStore, *what: Any, **how: Any) -> None:
    """Acknowledge for a durable subscription in memory alone."""


def _confirm_jobs_at_once(self: JournalJobStore, callback: Callable[[], None]) -> None:
    callback()


_fire = Scheduler.fire


def _fire_early(self: Scheduler, now: int) -> None:
    _fire(self, now + 100)


def _no_prepare(self: JournalStore, transaction: Any) -> None:
    """Prepare in memory alone."""


def _clients_kept(self: Server) -> None:
    self.close_listeners()


class Variant(NamedTuple):
    """A mistake.

    Attributes:
        scenario: in which it must show.
        meaning: what is broken.
        owner: the class or module that has it.
        attribute: of that class or module.
        instead: what takes its place.
    """

    scenario: str
    meaning: str
    owner: Any
    attribute: str
    instead: Any


VARIANTS: dict[str, Variant] = {
    "no-sync": Variant("store", "confirms what is written and not synced", JournalFiles, "sync", _no_sync),
    "sync-retried": Variant("store", "believes a sync that follows a failed one", JournalFiles, "sync", _retried_sync),
    "no-directory-sync": Variant(
        "store", "syncs files, and not their names", JournalFiles, "_sync_directory", _no_directory_sync
    ),
    "lock-alone": Variant(
        "store", "believes in its lock, and does not look at the journal", JournalFiles, "find_new_owner", _no_new_owner
    ),
    "no-seal": Variant("store", "lets a former master go on in its file", JournalFiles, "replace", _no_seal),
    "number-shared": Variant(
        "store", "takes a data file's number that another master has", JournalFiles, "create", _shared_create
    ),
    "seal-unsynced": Variant("store", "renames a copy that is not synced", JournalFiles, "put", _put_unsynced),
    "durable-at-once": Variant("store", "confirms what is not written", JournalStore, "when_durable", _confirm_at_once),
    "sent-at-next-turn": Variant(
        "store",
        "confirms a send once it is handed over to be written",
        JournalStore,
        "when_confirmed",
        _confirm_at_next_turn,
    ),
    "add-before-commit": Variant("store", "sends before the commit", JournalStore, "add", _add_at_once),
    "remove-before-commit": Variant("store", "acknowledges before the commit", JournalStore, "remove", _remove_at_once),
    "no-checksum": Variant("store", "takes a torn batch for a whole one", JournalSettings, "__init__", _unchecked),
    "standby-not-caught-up": Variant(
        "store", "serves what its standby has read so far", Follower, "catch_up", _no_catching_up
    ),
    "confirmed-at-once": Variant(
        "cluster", "answers before it writes", JournalStore, "when_confirmed", _confirm_at_next_turn
    ),
    "commits-in-parts": Variant("cluster", "sends before the commit", JournalStore, "add", _add_at_once),
    "consumed-in-memory": Variant("cluster", "does not write acknowledgements", JournalStore, "remove", _no_remove),
    "redelivered-unmarked": Variant(
        "cluster", "gives out again as if for the first time", CoreConsumer, "_giving_back", _seen_by_no_one
    ),
    "producers-forgotten": Variant(
        "cluster", "stores again what was consumed", JournalStore, "last_sequence", _forgetful
    ),
    "never-synced": Variant("cluster", "answers what is written and not synced", JournalFiles, "sync", _no_sync),
    "subscribed-in-memory": Variant(
        "cluster", "does not write durable subscriptions", JournalStore, "subscribe", _no_subscription
    ),
    "subscribers-forgotten": Variant(
        "cluster",
        "does not write what durable subscriptions acknowledge",
        JournalStore,
        "acknowledge",
        _no_acknowledgement,
    ),
    "scheduled-at-once": Variant(
        "cluster",
        "confirms scheduled messages before it writes them",
        JournalJobStore,
        "when_durable",
        _confirm_jobs_at_once,
    ),
    "scheduled-early": Variant("cluster", "sends scheduled messages before their time", Scheduler, "fire", _fire_early),
    "prepared-in-memory": Variant("cluster", "does not write what was prepared", JournalStore, "prepare", _no_prepare),
    "clients-kept": Variant("cluster", "steps back and serves its clients", Server, "abort", _clients_kept),
}
"""Variants by name."""

VARIANTS.update((name, Variant("election", *parts)) for name, parts in ELECTION_VARIANTS.items())
VARIANTS.update((name, Variant("forced-promotion", *parts)) for name, parts in FORCED_VARIANTS.items())


@contextmanager
def broken(name: str | None) -> Iterator[None]:
    """Break the broker for a time; None: never."""
    if name is None:
        yield
        return
    variant = VARIANTS[name]
    with patch.object(variant.owner, variant.attribute, variant.instead):
        yield
