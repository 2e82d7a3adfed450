"""Reads the files of users, and finds out if they have changed."""

import codecs
import os
import pwd
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pybroker import regular
from pybroker.broker.domain.errors import ConfigError

FILE_BYTES_MAX: Final = 16 << 20
"""The limit to a file: some 100,000 users."""


@dataclass(frozen=True, slots=True)
class Content:
    """A file that was read.

    Attributes:
        path: its name.
        data: its bytes.
        warnings: about its permissions.
    """

    path: Path
    data: bytes = field(repr=False)
    warnings: tuple[str, ...] = ()


def read(path: Path, *, setting: str, has_passwords: bool) -> Content:
    """Read a file whole, and check its permissions.

    Args:
        path: the file.
        setting: the setting that names it.
        has_passwords: passwords are in it as they are, so that its owner alone may read it.

    Raises:
        ConfigError: it cannot be read, is too long, or others may read its passwords.
    """
    try:
        with open(path, "rb", opener=regular.opener) as file:
            status = os.fstat(file.fileno())
            data = file.read(FILE_BYTES_MAX + 1).removeprefix(codecs.BOM_UTF8)  # editors of Windows write it
    except OSError as error:
        hint = ""
        if setting == "users_file" and isinstance(error, FileNotFoundError):
            hint = f"create it with `pybroker user add NAME --file {path}`"
        raise ConfigError(f"{path} cannot be read: {error.strerror}", setting=setting, hint=hint) from error
    if len(data) > FILE_BYTES_MAX:
        raise ConfigError(f"{path} has more than {FILE_BYTES_MAX >> 20} MB", setting=setting)
    if has_passwords and status.st_mode & (stat.S_IRGRP | stat.S_IROTH):
        raise ConfigError(
            f"{path} has passwords in clear, and others than its owner may read it",
            setting=setting,
            hint=f"chmod 600 {path}, once it belongs to the user that the brokers run as: its owner is "
            f"{_name_of(status.st_uid)}",
        )
    warnings: tuple[str, ...] = ()
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        warnings = (f"{path} may be changed by others than its owner: chmod go-w {path}",)
    return Content(path, data, warnings)


def stamp(path: Path) -> tuple[int, ...] | None:
    """Return what differs after a change of a file; None if there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino, status.st_mode


def _name_of(user: int) -> str:
    """Return the name of a user; the number if it has none, as in a container."""
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"user {user}"
