r"""The id of a store in a cluster, in the file `replica/store.json`.

```text
{"format": 1, "store": "s-91…", "cluster": "6f1c…", "epoch": 43, "inode": 1234, "boot": "…", "is_durable": true,
 "election": "…", "damaged": [[0, 12]]}\n
```

The id is the store's and not the member's: the register names stores that have everything that was confirmed, and an
exchanged or emptied disk has not. So another id is made

* when the file is missing, or unusable;
* when its inode number is another than the one in it: the directory was copied, or restored file by file;
* when the machine was started again since, and the store may have lost what it had confirmed: its writes were not
  synced at once (`sync` other than `always`), and it was not closed in order.

In the last two cases it stays in its cluster, and becomes a copy there like a new member's store.

Source: specification of replication, 3.1.
"""

import json
import logging
import os
import re
import secrets
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from pybroker import regular
from pybroker.broker.domain.errors import StoreUnavailable
from pybroker.broker.domain.replica.operations import Journal
from pybroker.store.journal.files import OS, JournalFiles, System
from pybroker.store.replica import DIRECTORY

FILE_NAME: Final = "store.json"
BOOT_ID_PATH: Final = Path("/proc/sys/kernel/random/boot_id")

_BYTES_MAX: Final = 16 << 10
_ELECTION_MAX: Final = 4000
_DAMAGED_MAX: Final = 100
_TEXT: Final = re.compile(r"[!-~]{0,250}")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaIdentity:
    """The identity of a store.

    Attributes:
        store: its id.
        cluster: the id of its cluster; empty for none yet.
        epoch: the last epoch that it knows of; 0 for none.
        boot: identifies the machine's start at which it was used last; empty: unknown.
        election: where the cluster's register is, as its master has told it last (`ElectionPlace`); empty: never.
        is_durable: it has not lost anything if the machine fails: writes are synced at once, or it was closed in order.
        damaged: its data files that differed from the master's when they were compared last; of many, the first ones.
    """

    store: str
    cluster: str = ""
    epoch: int = 0
    boot: str = ""
    election: str = ""
    is_durable: bool = True
    damaged: tuple[tuple[Journal, int], ...] = ()


def boot_id() -> str:
    """Return what identifies this start of the machine; empty if the system does not tell."""
    try:
        return BOOT_ID_PATH.read_text("ascii").strip()
    except OSError:
        return ""


class IdentityFile:
    """The file of one store. Blocks.

    Args:
        root: the store's directory.
        boot: identifies this start of the machine, see `boot_id`.
        system: the operating system's files.
    """

    def __init__(self, root: Path, *, boot: str, system: System = OS) -> None:
        self._directory = root / DIRECTORY
        self._path = self._directory / FILE_NAME
        self._boot = boot
        self._system = system

    def load(self, *, is_durable: bool) -> ReplicaIdentity:
        """Return the store's identity, making a new id where the stored one is not to be used. It is on disk on return.

        Args:
            is_durable: this run syncs its writes at once.

        Raises:
            StoreUnavailable: the file cannot be read, or written.
        """
        found = self._usable()
        if not found.store:
            found = replace(found, store=f"s-{secrets.token_hex(12)}")
            _log.info("%s: the id of this store is %s from now on", self._path, found.store)
        identity = replace(found, boot=self._boot, is_durable=is_durable)
        self.keep(identity)
        return identity

    def peek(self) -> ReplicaIdentity | None:
        """Return the stored identity, and change nothing; None if there is none to be used.

        Raises:
            StoreUnavailable: the file cannot be read: there may be one.
        """
        try:
            return self._read()[0]
        except (FileNotFoundError, ValueError, KeyError, TypeError, RecursionError):
            return None
        except OSError as error:
            raise self._unavailable("read", error) from error

    def keep(self, identity: ReplicaIdentity) -> None:
        """Replace the stored identity: another cluster or epoch, or the end in order. It is on disk on return.

        Raises:
            StoreUnavailable: it cannot be written.
        """
        values: dict[str, object] = {
            "format": 1,
            "store": identity.store,
            "cluster": identity.cluster,
            "epoch": identity.epoch,
            "boot": identity.boot,
            "is_durable": identity.is_durable,
            "election": identity.election[:_ELECTION_MAX],
            "damaged": identity.damaged[:_DAMAGED_MAX],
        }
        copy = self._path.with_name(FILE_NAME + ".new")
        try:
            self._make_directory()
            descriptor = self._system.open(copy, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
            try:
                values["inode"] = os.fstat(descriptor).st_ino
                content = json.dumps(values).encode() + b"\n"
                JournalFiles(self._directory, self._system).write(descriptor, (content,), 0)
                self._system.fsync(descriptor)
            finally:
                self._system.close(descriptor)
            self._system.replace(copy, self._path)
            JournalFiles(self._directory, self._system).sync_directory()
        except OSError as error:
            raise self._unavailable("written", error) from error

    def _usable(self) -> ReplicaIdentity:
        """Return the stored identity, without its id if that is another store's, or stands for what this one lost."""
        none = ReplicaIdentity(store="")
        try:
            found, inode = self._read()
        except FileNotFoundError:
            return none
        except OSError as error:
            raise self._unavailable("read", error) from error
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            _log.warning("%s holds no store's id, so another one is made: %s", self._path, error)
            return none
        if inode != self._path.stat().st_ino:
            _log.warning("%s was copied or restored, so this store gets another id than %s", self._path, found.store)
            return replace(found, store="")
        if not found.is_durable and (not self._boot or found.boot != self._boot):
            _log.warning(
                "%s: the machine was started again, and sync was not always: the store may have lost what it had "
                "confirmed, so it gets another id than %s",
                self._path,
                found.store,
            )
            return replace(found, store="")
        return found

    def _read(self) -> tuple[ReplicaIdentity, int]:
        with open(self._path, "rb", opener=regular.opener) as stream:
            values: Any = json.loads(stream.read(_BYTES_MAX))
        if values["format"] != 1:
            raise ValueError(f"format {values['format']!r} is not known")
        identity = ReplicaIdentity(
            store=_checked(values["store"]),
            cluster=_checked(values["cluster"]),
            epoch=int(values["epoch"]),
            boot=_checked(values["boot"]),
            election=str(values.get("election", "")),
            is_durable=values["is_durable"] is True,
            damaged=tuple((Journal(journal), int(number)) for journal, number in values.get("damaged", ())),
        )
        if not identity.store:
            raise ValueError("the id is empty")
        return identity, int(values["inode"])

    def _make_directory(self) -> None:
        if not self._directory.is_dir():
            self._system.makedirs(self._directory, exist_ok=True)
            JournalFiles(self._directory.parent, self._system).sync_directory()

    def _unavailable(self, done: str, error: OSError) -> StoreUnavailable:
        return StoreUnavailable(
            f"{self._path} cannot be {done}: {error.strerror or error}",
            path=str(self._path),
            hint="a store without its id cannot take part in a cluster",
        )


def _checked(value: object) -> str:
    if not isinstance(value, str) or not _TEXT.fullmatch(value):
        raise ValueError("not a text, or too long, or with characters that ids do not have")
    return value
