"""Takes a directory of data files over from a former master, for messages and for scheduled messages.

```text
step                                                       what a failure, or a kill, leaves behind
1  read all data files                                     the directory as it was
2  claim c, the number behind the highest                  the same, and an empty file c from here on
   call the fence, remove unfinished copies
3  read the rest of the files below c, and report
4  call the fence, remove ActiveMQ's index               a journal without an index: ActiveMQ makes it again
5  seal the files below c that may have been written last  some sealed; the next master seals them and c
6  begin: write into c                                     a torn tail in c
```

```text
new master      claim c  ->  read all below c  ->  seal the file below c  ->  write into c
former master   write into f, sync  ->  is f + 1 taken, or the file at f's path another?  ->  confirm
```

The claim precedes the last read, and the former master checks after its sync. So if it found its next number free, the
claim came later and the read found the batch; decision 030 has the whole argument. It is safe to take over from a
killed ActiveMQ as well as from a frozen pybroker:

* **A new data file.** The highest id plus one, created exclusively. Nothing is ever appended to a former master's file:
  its tail may be torn, and an ordinary record in a compacted file is lost to ActiveMQ's recovery. No higher number
  exists when the claim has been made: a list of files can be old when its highest number is used. If a former master
  was quicker, the new one reads on and takes the next number.
  In a cluster that replicates its store the register of the election gives the number, with a gap below it. There the
  directory has one user, who holds its lock all the time, and a number that is taken ends the promotion.
* **A claim that stays**, whatever fails after it. With a gap below another claim a former master would go on.
* **A sealed last file.** The file that was written last is replaced by a copy that ends at the logical end that was
  read, after it was compared with that. That cuts off a torn tail, and also a former master that is still alive: it
  then writes into a file without a name, which no later recovery finds. Empty files, of masters that only claimed a
  number, are sealed likewise.
* **No copy of a former master.** One that was frozen between its check and the renaming of a copy must not replace what
  was read. Unfinished copies are removed between claim and last read: its renaming then fails, or came before the read.
  It makes no other copy, since its next check finds the claim; and no two masters' copies have the same name.
* **No index.** ActiveMQ's describes the journal as it was; after any file was cut or removed it would refuse to start,
  so the index goes first. ActiveMQ makes it again from the journal.

On a full disk claim and seal spend the reserve, so that the new master can serve consumers, who free space.
"""

import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from pybroker.broker.domain.errors import JournalCorrupt, StoreUnavailable
from pybroker.store.journal.appender import as_store_unavailable
from pybroker.store.journal.collector import DAMAGED_DIRECTORY
from pybroker.store.journal.files import JournalFiles
from pybroker.store.journal.format import EOF_MARKER
from pybroker.store.journal.reader import Damage, data_files, read_start
from pybroker.store.journal.reserve import Reserve
from pybroker.store.journal.writer import JournalWriter

CLAIMS_MAX = 10
"""Numbers that a new master tries to claim. It needs a second one if a former master just began a data file."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEnd:
    """The end of a journal as it was read, for sealing it.

    Attributes:
        damages: bytes that should have been usable, and are not: something was lost.
        torn_tails: unusable bytes where the last write may have been going on: nothing there was ever acknowledged.
        open_ends: the files that may have been written last, with their logical ends.
        is_clean: the last record is a clean stop's, so no process writes any more.
        flaw: returns from which offset on the bytes of one of these files differ from those that were read, None when
            none do.
    """

    damages: Sequence[Damage]
    torn_tails: Sequence[Damage]
    open_ends: Mapping[int, int]
    is_clean: bool
    flaw: Callable[[int, bytes], int | None]


class StoreReading(Protocol):
    """A store's reader of the journal that it takes over. Changes nothing on disk."""

    def read(self) -> None:
        """Read the journal; called again for each number that another master claimed first."""
        ...

    def finish(self, below: int) -> JournalEnd:
        """Read the rest of the files below a claimed number: no former master can create another one."""
        ...


R = TypeVar("R", bound=StoreReading)


class TakeOver:
    """The steps of one take-over, in their order.

    Args:
        files: the journal's directory.
        new_writer: makes the writer that begins with the data file of that number, and is the store's from then on.
        check: the lock's fence.
        reserve: spent on a full disk.
        index_files: names of ActiveMQ's index.
        may_create: where there is no journal, begin one, and make its directory.
        first_file: the number to claim, which must be higher than all that are there; 0: the one behind the highest.
    """

    def __init__(
        self,
        files: JournalFiles,
        new_writer: Callable[[int], JournalWriter],
        *,
        check: Callable[[], None],
        reserve: Reserve,
        index_files: Sequence[str],
        may_create: bool,
        first_file: int = 0,
    ) -> None:
        self._files = files
        self._directory = files.directory
        self._new_writer = new_writer
        self._check = check
        self._reserve = reserve
        self._index_files = index_files
        self._may_create = may_create
        self._first_file = first_file

    def run(self, start_reading: Callable[[], R], begin: Callable[[R], None]) -> R:
        """Take the directory over, and return its reader. Blocks.

        Args:
            start_reading: creates the store's reader.
            begin: starts the writer, with what the store writes first.

        Raises:
            StoreUnavailable: the directory cannot be read or written, another process creates files in it, or there is
                no journal where there must be one.
            JournalCorrupt: the directory holds something else than a journal, or other bytes than a moment ago.
            LockNotHeld: the lock was lost on the way.
        """
        try:
            self._make_directory()
            reading = start_reading()
            reading.read()
            writer = self._claim_next(reading.read)
            with _closed_on_failure(writer):
                if unfinished := self._files.unfinished():
                    writer.fence()
                    self._files.remove(*unfinished)
                end = reading.finish(writer.file_id)
                self._report(end)
                writer.fence()
                self._files.remove(*(self._directory / name for name in self._index_files))
                self._seal(end, writer.fence)
                begin(reading)
        except OSError as error:
            raise as_store_unavailable(error, self._directory) from error
        return reading

    def _make_directory(self) -> None:
        """Check that the directory has a journal; create it if a new one may be begun."""
        if self._may_create:
            self._directory.mkdir(parents=True, exist_ok=True)
        elif not data_files(self._directory):
            raise StoreUnavailable(  # its file system is not mounted, or it was moved
                f"{self._directory}: the journal is missing, and no new one is begun in its place",
                path=str(self._directory),
                hint="mount the file system, or put the directory back; where it was removed on purpose, start this "
                "member again with create_store",
            )

    def _claim_next(self, read_on: Callable[[], None]) -> JournalWriter:
        """Claim the number behind the highest: no former master can create another data file after that.

        A former master that has lost the lock without noticing may just have taken that number. While the lock is
        ours, such a file is an earlier master's, and is read.
        """
        for attempt in range(CLAIMS_MAX):
            self._check()
            if attempt:
                read_on()
            file_id = self._next_number()
            name = self._files.path(file_id).name
            writer = self._new_writer(file_id)
            try:
                with _closed_on_failure(writer):
                    self._reserve.spend_on(writer.claim)
                    highest = max(data_files(self._directory), default=0)
            except FileExistsError:
                logger.warning(
                    "%s: %s is there already, begun by a former master that has lost its lock or by an earlier try of "
                    "this one, as on a full disk: the next number is taken",
                    self._directory,
                    name,
                )
                continue
            if highest == file_id:
                return writer
            writer.close_claim()
            logger.warning("%s: db-%d.log was begun before %s: once more", self._directory, highest, name)
        raise StoreUnavailable(
            f"{self._directory}: data files appear faster than one can be begun",
            path=str(self._directory),
            hint="find out which process writes here without the lock",
        )

    def _next_number(self) -> int:
        """Return the number to claim.

        Raises:
            StoreUnavailable: the number that was given is taken, or lower than one that is there.
        """
        highest = max(data_files(self._directory), default=0)
        if not self._first_file:
            return highest + 1
        if highest >= self._first_file:
            raise StoreUnavailable(
                f"{self._directory}: db-{highest}.log is there, and this promotion begins with "
                f"db-{self._first_file}.log",
                path=str(self._directory),
                hint="another process, or an earlier try, has begun it: the next promotion takes a higher number",
            )
        return self._first_file

    def _report(self, end: JournalEnd) -> None:
        for tail in end.torn_tails:
            logger.info("%s: the last write was torn, nothing in it was acknowledged: %s", self._directory, tail)
        for damage in end.damages:
            logger.error("%s: damaged: %s", self._directory, damage)

    def _seal(self, end: JournalEnd, fence: Callable[[], None]) -> None:
        """Replace the files that former masters may still write by copies that end at their logical ends."""
        torn = {tail.file_id for tail in end.torn_tails}
        for file_id, length in end.open_ends.items():
            if length and file_id not in torn and end.is_clean:
                if self._first_file:
                    self._finish(file_id, length, fence)
                continue
            path = self._files.path(file_id)
            if file_id in torn:
                self._keep_torn(path)
            fence()
            content = read_start(path, length)
            offset = end.flaw(file_id, content)
            if offset is not None:
                raise _changed(path, offset)
            self._reserve.spend_on(partial(self._files.replace, file_id, (content, EOF_MARKER), fence))

    def _finish(self, file_id: int, length: int, fence: Callable[[], None]) -> None:
        """Cut a member's copy of a file as the master has cut its own at its clean stop: the copy has room for more.

        Otherwise the next catch-up would, and a store snapshot that covers the file would be of no use any more.
        """
        fence()
        self._reserve.spend_on(partial(self._files.finish, file_id, length))

    def _keep_torn(self, path: Path) -> None:
        """Keep a copy of a file whose end is cut off: an apparent torn write may be damage to a complete one."""
        target = self._directory / DAMAGED_DIRECTORY
        try:
            self._files.link(path, target)
        except OSError as error:  # no space, or a file system without hard links
            logger.warning("%s: its torn end is cut off, and the file as it was could not be kept: %s", path, error)
        else:
            logger.info("%s: its torn end is cut off; the file as it was is in %s", path, target)


@contextmanager
def _closed_on_failure(writer: JournalWriter) -> Generator[None]:
    """Close a writer's claimed file if anything fails; the file stays."""
    try:
        yield
    except BaseException:
        writer.close_claim()
        raise


def _changed(path: Path, offset: int) -> JournalCorrupt:
    return JournalCorrupt(
        "the file holds other bytes than a moment ago, when it was replayed",
        path=str(path),
        offset=offset,
        hint="the disk is failing, or another process writes to the file; it was left as it is",
    )
