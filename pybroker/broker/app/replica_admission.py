"""The first look of a starting member: does its store belong into the cluster that the election store names?

| the store                                | the register                     | |
|------------------------------------------|----------------------------------|------------------------------------|
| empty, or of this cluster                | anything                         | takes part                         |
| with messages, of no cluster             | no record                        | takes part: it becomes the first   |
| with messages, of no cluster             | a cluster that does not know it  | refused, or discarded              |
| of another cluster                       | a cluster                        | refused, or discarded              |

What is discarded is moved to `replica/discarded`, and stays there.

Source: specification of replication, 8.1.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pybroker.broker.domain.errors import BrokerError, LockError, StoreUnavailable
from pybroker.broker.domain.replica.operations import Journal
from pybroker.locks.election.record import ElectionRecord
from pybroker.locks.election.register import Register
from pybroker.store.directories import has_data_files
from pybroker.store.journal.files import OS, JournalFiles
from pybroker.store.journal.follower import Follower
from pybroker.store.replica import DIRECTORY
from pybroker.store.replica.discarded import DISCARDED
from pybroker.store.replica.identity import FILE_NAME, IdentityFile, ReplicaIdentity, boot_id

FOREIGN: Final = "store-"
"""Name of a discarded store, before its number: none of an epoch, whose files are removed when there are newer ones."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberStore:
    """A member's store at its start.

    Attributes:
        root: its directory.
        journals: the directories of its journals.
        identity: its id and its cluster; None: it has none yet.
    """

    root: Path
    journals: Mapping[Journal, Path]
    identity: ReplicaIdentity | None

    @property
    def has_messages(self) -> bool:
        """True if it has a journal."""
        return any(path.is_dir() and has_data_files(path) for path in self.journals.values())


def admit(root: Path, journals: Mapping[Journal, Path], register: Register, *, may_discard: bool) -> None:
    """Check that a store belongs into the cluster, or move it aside. Blocks for one call of the register.

    Args:
        root: the store's directory, whose lock is held.
        journals: the directories of its journals.
        register: the cluster's; stays open.
        may_discard: move a store that does not belong there to `replica/discarded`.

    Raises:
        StoreUnavailable: it does not belong there, or cannot be moved; or its id cannot be read.
    """
    store = MemberStore(root=root, journals=journals, identity=IdentityFile(root, boot=boot_id()).peek())
    if not store.has_messages and not (store.identity and store.identity.cluster):
        return
    try:
        record = register.read().record
    except (BrokerError, LockError) as error:
        if may_discard:
            raise StoreUnavailable(
                f"the election store does not answer, so that it is not known whether this store is to be discarded: "
                f"{error}",
                path=str(root),
                hint="start again once it does, or without replicate_discard",
            ) from error
        return  # the election waits for it, and says so
    sentence = reason_to_refuse(store, record, register.name)
    if not sentence:
        return
    if not may_discard:
        raise StoreUnavailable(sentence, path=str(root), hint="move it away, or add --replicate-discard")
    _log.warning("%s: it is discarded", sentence)
    try:
        discard(store)
    except OSError as error:
        raise StoreUnavailable(f"it cannot be moved to {DISCARDED}: {error}", path=str(root)) from error


def refusal(root: Path, journals: Mapping[Journal, Path], register: Register) -> str:
    """Return why a store does not belong into the cluster; empty if it does. Blocks for one call of the register.

    Raises:
        BrokerError: the election store cannot be read.
        StoreUnavailable: the store cannot.
    """
    record = register.read().record  # first: also a new store needs the election store
    identity = IdentityFile(root, boot=boot_id()).peek() if root.is_dir() else None
    store = MemberStore(root=root, journals=journals, identity=identity)
    if not store.has_messages and not (identity and identity.cluster):
        return ""
    return reason_to_refuse(store, record, register.name)


def reason_to_refuse(store: MemberStore, record: ElectionRecord | None, register: str) -> str:
    """Return why a store with messages does not belong into a cluster; empty if it does."""
    identity = store.identity
    if record is None or (identity is not None and identity.store in record.in_sync):
        return ""
    whom = f"cluster {record.name}, whose master is {record.master.name},"
    if identity is not None and identity.cluster:
        if identity.cluster == record.cluster:
            return ""
        return f"this store belongs to another cluster than that of the name {record.name} in {register}"
    count = message_count(store.journals[Journal.MESSAGES])
    if not count:
        return f"this store was begun outside {whom} and has no messages"
    messages = "1 message" if count == 1 else f"{count:,} messages"
    return f"this store has {messages} that {whom} does not know"


def message_count(journal: Path) -> int:
    """Return how many messages a journal has that no process writes.

    Raises:
        StoreError: it cannot be read.
    """
    if not has_data_files(journal):
        return 0
    follower = Follower(journal)
    follower.finish()
    return follower.message_count


def discard(store: MemberStore) -> Path:
    """Move a store's journals and its id aside, and return where to. What is open or locked there stays so.

    The id goes last: until then a next start finds the same store, and moves the rest.

    Raises:
        OSError: something cannot be moved.
    """
    parent = store.root / DIRECTORY / DISCARDED
    number = 1
    while (target := parent / f"{FOREIGN}{number}").exists():
        number += 1
    target.mkdir(parents=True)
    for path in store.journals.values():
        if not path.is_dir():
            continue
        kept = target / path.name
        kept.mkdir()
        for each in sorted(path.iterdir()):
            if each.is_file() and each.name != "lock":
                each.rename(kept / each.name)
        for directory in (kept, path):
            JournalFiles(directory, OS).sync_directory()
    identity = store.root / DIRECTORY / FILE_NAME
    if identity.exists():
        identity.rename(target / FILE_NAME)
    for directory in (target, parent, parent.parent, store.root):
        JournalFiles(directory, OS).sync_directory()
    _log.warning("the store that was here is kept in %s", target)
    return target
