"""Failpoints around everything a process does to its files: it is killed there, or the operation fails.

A failpoint is named after the moment, the operation and the kind of file, such as `after sync data`:

| part      | one of                                                                                       |
|-----------|----------------------------------------------------------------------------------------------|
| moment    | `before`, `after`                                                                            |
| operation | `create`, `write`, `sync`, `truncate`, `allocate`, `rename`, `unlink`                        |
| kind      | `data`, `copy` (in the making), `directory`, `reserve`, `index`, `archive`, `member`, `lock` |

They are around the calls of the operating system, not around our functions, so nothing can be forgotten; what a run
comes through is counted, and a test compares the names with the list of those that are tried.
"""

import errno
import os
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

KINDS = (
    ("/data-archive", "archive"),
    (".sealed", "copy"),
    ("pybroker.reserve", "reserve"),
    ("/lock", "lock"),
    ("/members", "member"),
    (".data", "index"),
    (".redo", "index"),
    (".free", "index"),
    (".log", "data"),
)


def path_of(target: Any) -> str:
    """Return the path of a path or of an open descriptor."""
    return str(Path(f"/proc/self/fd/{target}").readlink() if isinstance(target, int) else target)


def kind_of(target: object) -> str:
    """Return what kind of file a path or an open descriptor is; empty for one that is none of a store's."""
    path = path_of(target)
    for part, kind in KINDS:
        if part in path:
            return kind
    return "directory" if Path(path).name in ("kahadb", "scheduler", "store") else ""


@dataclass
class Failpoints:
    """An action at the n-th time this process comes to the named point, within a directory.

    Attributes:
        root: of the files that count.
        name: of the failpoint; others are only counted.
        ordinal: which time.
        number: the error that the operation fails with from then on; 0: the process is killed instead.
        reached: how often each was come to.
    """

    root: str
    name: str = ""
    ordinal: int = 1
    number: int = 0
    reached: Counter[str] = field(default_factory=Counter)

    def install(self) -> None:
        """Have this process's file operations come through here."""
        for name, operation in (
            ("pwritev", "write"),
            ("pwrite", "write"),
            ("fsync", "sync"),
            ("fdatasync", "sync"),
            ("ftruncate", "truncate"),
            ("posix_fallocate", "allocate"),
            ("unlink", "unlink"),
            ("rename", "rename"),
            ("replace", "rename"),
        ):
            setattr(os, name, self._around(getattr(os, name), operation))
        opens = os.open

        def open_descriptor(path: Any, flags: int, *rest: Any, **options: Any) -> int:
            return (creates if flags & os.O_CREAT else opens)(path, flags, *rest, **options)

        creates = self._around(opens, "create")
        os.open = open_descriptor

    def _around(self, call: Callable[..., Any], operation: str) -> Callable[..., Any]:
        def wrapped(target: Any, *rest: Any, **options: Any) -> Any:
            if not self._concerns(target):
                return call(target, *rest, **options)
            kind = kind_of(target)
            self.come_to(f"before {operation} {kind}")
            result = call(target, *rest, **options)
            self.come_to(f"after {operation} {kind}")
            return result

        return wrapped

    def _concerns(self, target: object) -> bool:
        path = path_of(target)
        return path.startswith(self.root) and bool(kind_of(target))

    def come_to(self, name: str) -> None:
        """Be at a failpoint."""
        self.reached[name] += 1
        if name == self.name and self.reached[name] >= self.ordinal:
            if not self.number:
                os.kill(os.getpid(), signal.SIGKILL)
            raise OSError(self.number, os.strerror(self.number))


def from_words(root: Path, words: str) -> Failpoints:
    """Return failpoints from `NAME:ORDINAL` or `NAME:ORDINAL:ERRNO`, as a child gets them."""
    name, ordinal, *number = words.split(":")
    return Failpoints(os.fspath(root), name, int(ordinal), getattr(errno, number[0]) if number else 0)
