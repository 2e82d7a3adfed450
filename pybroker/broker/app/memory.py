"""The memory available to this process: the machine's, or a control group's limit.

Source: cgroups(7); `memory.max` (version 2) and `memory.limit_in_bytes` (version 1) of the process's group and of each
one above it.
"""

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

DEFAULT_PERCENT = 70
"""Share of the memory that messages may take by default, as in ActiveMQ's stock configuration."""


def available_bytes(root: Path = Path("/")) -> int:
    """Return the bytes of memory that this process may use.

    Args:
        root: the directory with `proc` and `sys`.
    """
    return min((os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), *_group_limits(root)))


def default_limit(root: Path = Path("/")) -> int:
    """Return the memory that a broker's messages may take unless it is configured."""
    return available_bytes(root) * DEFAULT_PERCENT // 100


def _group_limits(root: Path) -> Iterator[int]:
    for directory, file_name in _group_directories(root):
        try:
            text = (directory / file_name).read_text(encoding="ascii").strip()
        except OSError:  # the topmost group has no limit, and a container may not see the ones above its own
            continue
        if text.isdigit():  # else "max"
            yield int(text)


def _group_directories(root: Path) -> Iterator[tuple[Path, str]]:
    """Yield the directories that may have limits, with the file's name."""
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:  # not Linux
        return
    mount = root / "sys/fs/cgroup"
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, name = rest.partition(":")
        path = PurePosixPath(name.lstrip("/"))
        for group in (path, *path.parents):
            if not controllers:
                yield mount / group, "memory.max"
            elif "memory" in controllers.split(","):
                yield mount / "memory" / group, "memory.limit_in_bytes"
