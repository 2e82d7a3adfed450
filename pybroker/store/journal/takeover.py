"""The steps by which a new master takes a directory of data files over: claim the next number, seal what was open.

```text
new master      claim c  ->  read all below c  ->  seal the file below c  ->  write into c
former master   write into f, sync  ->  is f + 1 taken, or the file at f's path another?  ->  confirm
```

The claim comes before the last read, and the former master looks behind its sync. So if it found its next number free
the claim came later, and the read found the batch; decision 030 has the whole argument. What it depends on here:

* No higher number exists when the claim has been made. A list of files can be old when its highest number is used.
* A claim is never taken back, whatever fails behind it. With a gap below another claim a former master would go on.
"""

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path

from pybroker.broker.domain.errors import JournalCorrupt, StoreUnavailable
from pybroker.store.journal.files import JournalFiles
from pybroker.store.journal.format import EOF_MARKER
from pybroker.store.journal.reader import data_files, read_start
from pybroker.store.journal.reserve import Reserve

CLAIMS_MAX = 10
"""Numbers that a new master tries to get. A second one takes a former master that fills a data file in this moment."""

logger = logging.getLogger(__name__)


def make_directory(directory: Path, *, may_create: bool) -> None:
    """Make sure that a journal's directory is there, and a journal in it unless a new one may be begun.

    Args:
        directory: the journal's.
        may_create: where there is no journal, make the directory, and those that it is in.

    Raises:
        StoreUnavailable: there is no journal. Its file system is not mounted, or somebody has moved it away.
        OSError: the directory cannot be made.
    """
    if may_create:
        directory.mkdir(parents=True, exist_ok=True)
    elif not data_files(directory):
        raise StoreUnavailable(
            f"{directory}: no journal is there any more, and no new one is begun in its place",
            path=str(directory),
            hint="mount the file system, or put the directory back; where it was removed on purpose, start this "
            "member again with create_store",
        )


def claim_next(
    files: JournalFiles, claim: Callable[[int], None], *, check: Callable[[], None], read_on: Callable[[], None]
) -> int:
    """Claim the number behind the highest, and return it: no former master can begin another data file from here on.

    A former master that has lost the lock without noticing may just have taken that number. The lock says whose it is:
    while it is ours, whatever is there was there before us.

    Args:
        files: the journal's directory.
        claim: creates the data file of that number, exclusively.
        check: the lock's fence.
        read_on: called before another try, because there is another file to read.

    Raises:
        LockNotHeld: the lock was lost.
        StoreUnavailable: other processes create data files all the time.
        OSError: the file cannot be created.
    """
    directory = files.directory
    for attempt in range(CLAIMS_MAX):
        check()
        if attempt:
            read_on()
        file_id = max(data_files(directory), default=0) + 1
        try:
            claim(file_id)
        except FileExistsError:
            name = files.path(file_id).name
            logger.warning(
                "%s: %s is there already, begun by a former master that has lost its lock or by an earlier try of this "
                "one, as on a full disk: the next number is taken",
                directory,
                name,
            )
            continue
        highest = max(data_files(directory), default=0)
        if highest == file_id:
            return file_id
        logger.warning("%s: db-%d.log was begun before %s: once more", directory, highest, files.path(file_id).name)
    raise StoreUnavailable(
        f"{directory}: data files appear faster than one can be begun",
        path=str(directory),
        hint="find out which process writes here without the lock",
    )


def seal(files: JournalFiles, file_id: int, end: int, reserve: Reserve, *, flaw: Callable[[bytes], int | None]) -> None:
    """Replace a data file by a copy that ends at its logical end; the copy is compared with what was replayed first.

    Args:
        files: the journal's directory.
        file_id: the data file.
        end: its logical end.
        reserve: spent when the disk is full.
        flaw: returns the offset from which on bytes differ from those that were replayed; None when none do.

    Raises:
        JournalCorrupt: the file is read in another way than before; nothing was replaced.
        OSError: it cannot be read, or the copy cannot be written.
    """
    path = files.path(file_id)
    content = read_start(path, end)
    offset = flaw(content)
    if offset is not None:
        raise _changed(path, offset)
    reserve.spend_on(partial(files.replace, file_id, (content, EOF_MARKER)))


def _changed(path: Path, offset: int) -> JournalCorrupt:
    return JournalCorrupt(
        "the file holds other bytes than a moment ago, when it was replayed",
        path=str(path),
        offset=offset,
        hint="the disk is failing, or another process writes to the file; it was left as it is",
    )
