"""Names of the directories in a store, which is laid out like ActiveMQ's data directory.

ActiveMQ's journal is in the directory that `kahaDB directory=…` names: `kahadb` in its distribution, `KahaDB` by
default, or any other. A broker knows the name by its setting `journal_directory`; a tool that was given no more than
the store's directory finds it here.
"""

from pathlib import Path
from typing import Final

JOURNAL: Final = "kahadb"
"""The default of the journal's directory."""

SCHEDULER: Final = "scheduler"
"""The directory of scheduled messages."""

MEMBERS: Final = "members"
"""The directory of the members' status."""

ITSELF: Final = "."
"""The name of a journal's directory that is the store's own."""


def is_journal_name(name: str) -> bool:
    """Return True for what can be the name of a journal's directory in a store: one that is no path, and not taken."""
    if name == ITSELF:
        return True
    return name not in ("", "..", SCHEDULER, MEMBERS) and not any(each in name for each in "/\\\0")


def has_data_files(directory: Path) -> bool:
    """Return True when a directory holds data files of a journal."""
    return any(directory.glob("db-*.log"))


def find_journal(root: Path) -> Path:
    """Return the directory of the journal in a store whose settings are not known; it need not exist.

    It is the store's own where that has data files, or else the one called `kahadb`, in upper or lower case; of two
    that differ in case alone, the one with data files. Where there is none, it is the only one that has data files.
    """
    if has_data_files(root):
        return root
    named = [path for path in _directories(root) if path.name.casefold() == JOURNAL]
    named.sort(key=lambda path: (not has_data_files(path), path.name != JOURNAL))
    if named:
        return named[0]
    filled = [path for path in _directories(root) if path.name not in (SCHEDULER, MEMBERS) and has_data_files(path)]
    return filled[0] if len(filled) == 1 else root / JOURNAL


def differing_in_case(journal: Path) -> list[Path]:
    """Return the directories with data files whose names differ from a journal's in upper and lower case alone."""
    alike = [path for path in _directories(journal.parent) if path.name.casefold() == journal.name.casefold()]
    return [path for path in alike if path.name != journal.name and has_data_files(path)]


def _directories(root: Path) -> list[Path]:
    return sorted(path for path in root.glob("*") if path.is_dir())
