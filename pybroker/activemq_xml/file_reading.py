"""Reads whole files that a configuration names, within a limit: a name may be that of anything."""

import errno
from pathlib import Path

from pybroker import regular
from pybroker.security.files import FILE_BYTES_MAX


def read_bytes(path: Path) -> bytes:
    """Return the content of a file.

    Raises:
        OSError: it cannot be read, is no regular file, or has more than `FILE_BYTES_MAX` bytes.
    """
    with open(path, "rb", opener=regular.opener) as file:
        data = file.read(FILE_BYTES_MAX + 1)
    if len(data) > FILE_BYTES_MAX:
        raise OSError(errno.EFBIG, f"it has more than {FILE_BYTES_MAX >> 20} MiB", str(path))
    return data
