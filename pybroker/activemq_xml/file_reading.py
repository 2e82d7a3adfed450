"""Reads whole files that a configuration names, within a limit: a name may be that of a device that has no end."""

import errno
from pathlib import Path

from pybroker.security.files import FILE_BYTES_MAX


def read_bytes(path: Path) -> bytes:
    """Return the content of a file.

    Raises:
        OSError: it cannot be read, or has more than `FILE_BYTES_MAX` bytes.
    """
    with path.open("rb") as file:
        data = file.read(FILE_BYTES_MAX + 1)
    if len(data) > FILE_BYTES_MAX:
        raise OSError(errno.EFBIG, f"it has more than {FILE_BYTES_MAX >> 20} MiB", str(path))
    return data
