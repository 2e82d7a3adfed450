"""Opens files for reading without waiting, and only regular ones.

A pipe under the name of a data file, or of a file that a configuration names, would block its reader forever, and a
device would give bytes without end.
"""

import errno
import os
import stat
from pathlib import Path


def descriptor(path: str | Path) -> int:
    """Return a descriptor of a regular file, for reading.

    Raises:
        OSError: it cannot be opened, or is no regular file.
    """
    return opener(os.fspath(path), os.O_RDONLY | os.O_CLOEXEC)


def opener(path: str, flags: int) -> int:
    """Open a regular file: for the argument `opener` of `open`.

    Raises:
        OSError: it cannot be opened, or is no regular file.
    """
    try:
        opened = os.open(path, flags | os.O_NONBLOCK)
    except BlockingIOError:  # not a pipe: a regular file with a lease, such as an NFS server's, which is given up soon
        opened = os.open(path, flags)
    mode = os.fstat(opened).st_mode
    if stat.S_ISREG(mode):
        return opened
    os.close(opened)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    raise OSError(errno.EINVAL, "it is no regular file", path)
