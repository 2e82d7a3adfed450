"""The file systems of this machine, and what is known of their locks.

Source: Linux, proc(5), `/proc/self/mountinfo`; nfs(5); mount.ocfs2(8), mount.lustre(8), mount.cifs(8).
"""

import re
from pathlib import Path
from typing import Final, NamedTuple

MOUNTS: Final = Path("/proc/self/mountinfo")

_ESCAPED: Final = re.compile(r"\\([0-7]{3})")

NETWORK_TYPES: Final = ("nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "lustre", "gfs2", "ocfs2", "beegfs")
"""Types whose files several machines share; of FUSE each file system has a type of its own, `fuse.NAME`."""

LOST_TYPES: Final = ("tmpfs", "ramfs", "overlay", "aufs")
"""Types whose files end with the machine or the container."""


class Mount(NamedTuple):
    """One mounted file system.

    Attributes:
        point: where it is mounted.
        type: its type, such as `nfs4` or `ext4`.
        source: its device, or its server and path.
        options: its options, those of the mount and of the file system.
    """

    point: Path
    type: str
    source: str
    options: frozenset[str]

    @property
    def is_shared(self) -> bool:
        """True if other machines may have mounted it too."""
        return self.type in NETWORK_TYPES or self.type.startswith("fuse.")

    def option(self, name: str) -> str | None:
        """Return the value of an option, empty if it has none; None if it is not set."""
        for each in self.options:
            key, _, value = each.partition("=")
            if key == name:
                return value
        return None


def known() -> list[Mount]:
    """Return the mounts of this machine; none if it does not tell."""
    return parse(MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")) if MOUNTS.exists() else []


def parse(text: str) -> list[Mount]:
    """Return the mounts in the text of `mountinfo`."""
    found: list[Mount] = []
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        fields, (kind, source, options) = before.split(" "), after.split(" ", 2)
        point = Path(_unescaped(fields[4]))
        found.append(Mount(point, kind, _unescaped(source), frozenset([*fields[5].split(","), *options.split(",")])))
    return found


def mount_of(path: Path, mounts: list[Mount]) -> Mount | None:
    """Return the file system that a path is on; of two that are mounted at one place, the later."""
    real = path.resolve()
    found: Mount | None = None
    for each in mounts:
        if real.is_relative_to(each.point) and (found is None or len(each.point.parts) >= len(found.point.parts)):
            found = each
    return found


def _unescaped(text: str) -> str:
    """Return a text in which blanks and other characters are written as octal numbers."""
    return _ESCAPED.sub(lambda match: chr(int(match[1], 8)), text)
