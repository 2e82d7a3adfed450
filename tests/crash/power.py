"""A disk whose power can be cut: ext4 on a loop device, told to stop at once, as file system developers test theirs.

What was not synced is in the kernel's memory alone and is lost, and of the file system's own journal what was not
written. The next mount finds what a machine finds that has power again. To be had by root alone.
"""

import fcntl
import os
import struct
import subprocess
from pathlib import Path
from typing import Final, Self

_SHUTDOWN: Final = 0x8004587D
"""EXT4_IOC_SHUTDOWN, _IOR('X', 125, __u32)."""

_WITHOUT_FLUSHING_THE_LOG: Final = 2
_IMAGE_BYTES: Final = 96 << 20


class PowerlessDisk:
    """A file system of its own, until closed.

    Attributes:
        where: the directory that it is mounted at.
    """

    def __init__(self, directory: Path, name: str) -> None:
        """Make it and mount it.

        Args:
            directory: for its image and its mount point.
            name: of the mount point.

        Raises:
            CalledProcessError: this user, or this machine, cannot do so.
        """
        self._image = directory / f"{name}.image"
        with self._image.open("wb") as file:
            file.truncate(_IMAGE_BYTES)
        self.where = directory / name
        self.where.mkdir()
        self._is_mounted = False
        _run("mkfs.ext4", "-q", "-F", str(self._image))
        self._mount()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_mounted:
            _run("umount", "--lazy", str(self.where))

    def cut(self) -> None:
        """Cut the power: every call fails from now on, and nothing is written any more."""
        descriptor = os.open(self.where, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, _SHUTDOWN, struct.pack("I", _WITHOUT_FLUSHING_THE_LOG))
        finally:
            os.close(descriptor)

    def restore(self) -> None:
        """Have power again. No process has a file open there."""
        _run("umount", str(self.where))
        self._is_mounted = False
        self._mount()

    def _mount(self) -> None:
        _run("mount", "-o", "loop", str(self._image), str(self.where))
        self._is_mounted = True


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)
