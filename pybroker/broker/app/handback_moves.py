"""Moves files of a store out of the way, or to where an ActiveMQ looks for them, for `pybroker handback`.

The caller holds the store's lock, as a master does. A move to another file system is a copy, which is on disk before
the original goes, and a directory goes as a whole. What is moved keeps its place below the target:

```text
STORE/members                  TARGET/members
STORE/kahadb/pybroker.broker   TARGET/kahadb/pybroker.broker
STORE/kahadb/db.data           TARGET/kahadb/db.data
```
"""

import errno
import os
import shutil
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from pybroker.broker.app.handback import JournalFacts
from pybroker.broker.domain.errors import ConfigError, StoreUnavailable

_MOVED: Final = ".moved-by-pybroker"
"""The end of the name of a directory whose copy is on disk, while it is removed."""


class FileMove(NamedTuple):
    """One file or directory that is to be moved.

    Attributes:
        source: its path.
        target: its path afterwards.
    """

    source: Path
    target: Path


def plan(place: JournalFacts, *, move_to: Path | None, jobs_to: Path | None) -> list[FileMove]:
    """Return what is to be moved, in that order.

    Args:
        place: the facts about the store.
        move_to: the directory for pybroker's own files, and for an index that does not fit the journal.
        jobs_to: the directory in which ActiveMQ is to find the scheduled messages.

    Raises:
        ConfigError: there is something at a target, or a target is within what is moved.
    """
    moves: list[FileMove] = []
    if jobs_to is not None:
        if not place.jobs.get(place.scheduler):
            raise ConfigError(
                f"there are no scheduled messages in {place.scheduler}", setting="--jobs-to", hint="leave it out"
            )
        moves.append(FileMove(place.scheduler, jobs_to.absolute()))
    if move_to is not None:
        moves += (
            FileMove(path, move_to.absolute() / _below(path, place))
            for path in (*place.stale_indexes, *place.own_files)
            if jobs_to is None or not path.absolute().is_relative_to(place.scheduler)
        )
    for move in moves:
        setting = "--jobs-to" if move.source == place.scheduler else "--move-to"
        if move.target.exists() and not _is_empty_directory(move.target):
            raise ConfigError(f"{move.target} exists", setting=setting, hint="name a new directory")
        if move.target.is_relative_to(move.source.absolute()):
            raise ConfigError(f"{move.target} is in {move.source}", setting=setting, hint="name another directory")
    return moves


def perform(moves: Sequence[FileMove], check: Callable[[], None]) -> None:
    """Move files. Blocks until all is on disk.

    Args:
        moves: the plan.
        check: the lock's fence, called before each.

    Raises:
        StoreUnavailable: one cannot be moved; those before it were.
        LockNotHeld: the lock was lost.
    """
    for move in moves:
        check()
        try:
            _move(*move)
        except OSError as error:
            raise StoreUnavailable(
                f"{move.source} cannot be moved to {move.target}: {error.strerror or error}",
                path=str(move.source),
                hint="what was moved before it stays there; correct the cause and run the command again, with "
                "another directory",
            ) from error


def after(place: JournalFacts, moves: Sequence[FileMove]) -> JournalFacts:
    """Return the facts about a store after these moves."""
    moved = {move.source: move.target for move in moves}
    is_there = partial(_is_there, set(moved))
    return replace(
        place,
        scheduler=moved.get(place.scheduler, place.scheduler),
        jobs={moved.get(directory, directory): count for directory, count in place.jobs.items()},
        stale_indexes=list(filter(is_there, place.stale_indexes)),
        own_files=list(filter(is_there, place.own_files)),
    )


def _is_there(moved: Collection[Path], path: Path) -> bool:
    return not any(path.absolute().is_relative_to(each.absolute()) for each in moved)


def _below(path: Path, place: JournalFacts) -> Path:
    """Return the place of a file below the target."""
    absolute, root = path.absolute(), place.root.absolute()
    if absolute.is_relative_to(root):
        return absolute.relative_to(root)
    return Path(absolute.parent.name, absolute.name)  # of scheduled messages in a directory of their own


def _is_empty_directory(path: Path) -> bool:
    return path.is_dir() and not any(path.iterdir())


def _move(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        source.rename(target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        _copy(source, target)
        _remove(source)
    for directory in (target.parent, source.parent):
        _sync(directory)


def _copy(source: Path, target: Path) -> None:
    """Copy to another file system, and return once the copy is on disk under its name."""
    unfinished = target.with_name(f"{target.name}.unfinished")
    if source.is_dir():
        shutil.copytree(source, unfinished)
    else:
        shutil.copy2(source, unfinished)
    for path in _all(unfinished):
        _sync(path)
    unfinished.rename(target)
    _sync(target.parent)


def _remove(source: Path) -> None:
    """Remove what was copied. A directory goes in one step: after a crash, a part of it would pass for the whole."""
    if not source.is_dir():
        source.unlink()
        return
    moved = source.with_name(f"{source.name}{_MOVED}")
    if moved.exists():  # of an earlier move that was interrupted
        shutil.rmtree(moved)
    source.rename(moved)
    _sync(source.parent)
    shutil.rmtree(moved)


def _all(path: Path) -> Iterator[Path]:
    """Yield a path, and all that is below it."""
    yield path
    if path.is_dir():
        yield from path.rglob("*")


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
