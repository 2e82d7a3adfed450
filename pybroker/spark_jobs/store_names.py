"""Display names for several stores on one page: equal names of different stores are distinguished. Pure."""

from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Row


class StoreNames:
    """Names of destinations and files, with their store's where there is more than one."""

    def __init__(self, directories: Iterable[str]) -> None:
        """Take the journals' directories."""
        self._short = short_names(directories)

    def __call__(self, row: "Row") -> str:
        """Return a destination's name: a queue's bare, others with their kind."""
        bare = row.destination if row.destination_type == "queue" else f"{row.destination_type}://{row.destination}"
        return self.of(row.directory, bare)

    def of(self, directory: str, text: str) -> str:
        """Return a text about a store's contents, with the store's name."""
        short = self._short.get(directory)
        return f"{text} ({short})" if short and len(self._short) > 1 else text

    def store(self, directory: str) -> str:
        """Return a store's own name: its directory, as short as it differs from the others'."""
        return self._short.get(directory, directory)


def short_names(directories: Iterable[str]) -> Mapping[str, str]:
    """Return the part of each path in which it differs from the others; one alone is named in full."""
    paths = {each: PurePath(each).parts for each in dict.fromkeys(directories)}
    if len(paths) < 2:
        return {each: each for each in paths}
    start = _common(list(paths.values()))
    end = _common([parts[start:][::-1] for parts in paths.values()])
    short = {each: str(PurePath(*parts[start : len(parts) - end])) for each, parts in paths.items()}
    # One path may lie within another, and have no part outside it.
    return short if all(name != "." for name in short.values()) else {each: each for each in paths}


def _common(paths: list[tuple[str, ...]]) -> int:
    """Return with how many equal parts all paths begin."""
    count = 0
    for parts in zip(*paths, strict=False):
        if len(set(parts)) > 1:
            break
        count += 1
    return count
