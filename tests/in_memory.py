"""A file system in memory, for files of tests that no disk's pace belongs to: what is synced there costs nothing."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

_PLACE = Path("/dev/shm")

_FREE_BYTES_MIN = 1 << 30
"""A container's has 64 MB by default; a database alone takes some 8 MB, and its server's log 80 MB."""


def place() -> Path:
    """Return where to make files: in memory if there is space, or else where they usually are."""
    if os.access(_PLACE, os.W_OK) and shutil.disk_usage(_PLACE).free > _FREE_BYTES_MIN:
        return _PLACE
    return Path(tempfile.gettempdir())


@contextlib.contextmanager
def temporary_files() -> Iterator[None]:
    """Have temporary files made there until the end, by this process and those that it starts; none is left behind."""
    with tempfile.TemporaryDirectory(prefix="pybroker-tests-", dir=place()) as directory:
        former, former_default = os.environ.get("TMPDIR"), tempfile.tempdir
        os.environ["TMPDIR"] = tempfile.tempdir = directory
        try:
            yield
        finally:
            tempfile.tempdir = former_default
            if former is None:
                del os.environ["TMPDIR"]
            else:
                os.environ["TMPDIR"] = former
