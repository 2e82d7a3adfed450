"""Descriptors that a test has left open. A count proves nothing, for garbage of other tests goes at any moment."""

from pathlib import Path


def targets(process: int | str = "self") -> list[str]:
    """Return what a process has open, as the links of its descriptors name it: paths, "socket:[inode]" and the like."""
    found = []
    for entry in Path(f"/proc/{process}/fd").iterdir():
        try:
            found.append(str(entry.readlink()))
        except FileNotFoundError:  # closed meanwhile, as the descriptor that lists the directory may be
            continue
    return found


def open_in(directory: Path) -> list[str]:
    """Return what this process has open of what is in a directory: names, those of deleted files too."""
    return [path.name for path in map(Path, targets()) if path.parent == directory]
