"""The last question of every test that wrote a store: does `pybroker journal check` find damage in it?"""

from pathlib import Path

from pybroker.store.journal.collector import DAMAGED_DIRECTORY
from pybroker.store.journal.reader import data_files
from pybroker.store.journal.tools.check import check
from pybroker.store.journal.tools.findings import Level
from pybroker.store.journal.tools.journal_snapshot import JournalSnapshot

SET_ASIDE = ("data-archive", DAMAGED_DIRECTORY)


def assert_sound(directory: Path, *, in_use: bool = False, but: str = "") -> None:
    """Check a journal, or all journals of a broker's data directory; one at least has to be there.

    Args:
        directory: of data files, or the one with `kahadb` in it, and perhaps `scheduler`.
        in_use: a master has it open.
        but: a kind of finding to be overlooked.
    """
    journals = [each for each in (directory, directory / "kahadb", directory / "scheduler") if _is_journal(each)]
    assert journals, f"no journal in {directory}"
    for journal in journals:
        with JournalSnapshot(journal) as snapshot:
            found = check(snapshot, in_use=in_use)
        damages = [each for each in found.findings if each.level is Level.DAMAGE and each.kind != but]
        assert not damages, "\n".join(f"{each.path}, offset {each.offset}: {each.what}" for each in damages)


def assert_all_sound(directory: Path, *, but: str = "") -> None:
    """Check all journals below a test's directory; where a test has left none there is nothing to check.

    What was set aside is a part of a journal, and no journal.

    Args:
        directory: the test's.
        but: a finding that is what the test wants to have, `damaged record` for instance.
    """
    found = {path.parent for path in directory.rglob("db-*.log")}
    for journal in sorted(each for each in found if each.name not in SET_ASIDE):
        assert_sound(journal, in_use=True, but=but)


def _is_journal(directory: Path) -> bool:
    return directory.is_dir() and bool(data_files(directory))
