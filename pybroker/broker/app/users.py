"""The users of a broker: reads the files that the settings name, and reads them again when they change."""

import asyncio
import logging
import os
from collections.abc import Callable
from functools import partial
from typing import Final

from pybroker.broker.app.config import Config
from pybroker.broker.domain.errors import ConfigError, RequirementMissing
from pybroker.security import files, jasypt, users_properties, users_toml
from pybroker.security.accounts import Accounts

POLL_SECONDS: Final = 0.5
"""The interval at which the files are looked at. A change is read when the next look finds the same: a file that is
written in place may be half there at the first."""

ENCRYPTION_VARIABLE: Final = "ACTIVEMQ_ENCRYPTION_PASSWORD"
"""The environment variable with the master password of `ENC(…)` values, as ActiveMQ calls it."""

_log = logging.getLogger(__name__)

_Stamps = list[tuple[int, ...] | None]


def read(config: Config) -> Accounts:
    """Read the users; the settings name a file.

    Raises:
        ConfigError: a file cannot be used; the error names file, line and remedy.
    """
    assert config.users_file is not None, "there are users"
    if config.users_file.suffix == ".toml":
        return users_toml.read(files.read(config.users_file, setting="users_file", has_passwords=False))
    users = files.read(config.users_file, setting="users_file", has_passwords=True)
    groups = (
        files.read(config.groups_file, setting="groups_file", has_passwords=False)
        if config.groups_file is not None
        else None
    )
    return users_properties.read(users, groups, partial(_decrypt, config.encryption_algorithm))


def _decrypt(algorithm: str, text: str) -> str:
    master = os.environ.get(ENCRYPTION_VARIABLE)
    if not master:
        raise ValueError(f"the environment has no {ENCRYPTION_VARIABLE}")
    try:
        return jasypt.decrypt(text, master, algorithm)
    except RequirementMissing as error:
        raise ValueError(str(error)) from error


class UserFiles:
    """The files of users, which are read again when they have changed.

    Attributes:
        accounts: the users.
        changed: called with them, on the event loop, after they were read again; None while no broker serves.
    """

    def __init__(self, config: Config) -> None:
        """Read the files.

        Raises:
            ConfigError: a file cannot be used.
        """
        self.changed: Callable[[Accounts], object] | None = None
        self._config = config
        self._read_stamps = self._seen_stamps = self._stamps()  # before the files: a change meanwhile is seen as one
        self._logged = ""
        self.accounts = read(config)
        self._warn()

    async def watch(self) -> None:
        """Look for changes until cancelled."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            accounts = await asyncio.to_thread(self.refresh)  # the files may be long, and on a share that hangs
            if accounts is not None and self.changed is not None:
                self.changed(accounts)

    def refresh(self) -> Accounts | None:
        """Return the users if the files have changed; if these cannot be used, the former users stay. Blocks."""
        stamps, before = self._stamps(), self._seen_stamps
        self._seen_stamps = stamps
        if stamps == self._read_stamps or stamps != before:
            return None
        try:
            accounts = read(self._config)
        except Exception as error:
            if not isinstance(error.__cause__, OSError):  # what cannot be read now is tried again
                self._read_stamps = stamps
            self._log_once(error)
            return None
        self._read_stamps, self._logged = stamps, ""
        if accounts == self.accounts:
            return None
        self.accounts = accounts
        self._warn()
        _log.info("%s was read again: %d users", self._config.users_file, len(accounts.by_name))
        return accounts

    def _log_once(self, error: Exception) -> None:
        """Log once why the files cannot be used."""
        reason = str(error) if isinstance(error, ConfigError) else repr(error)
        if reason != self._logged:
            self._logged = reason
            _log.error("the users stay as they were: %s", reason)

    def _stamps(self) -> _Stamps:
        paths = (self._config.users_file, self._config.groups_file)
        return [files.stamp(path) for path in paths if path is not None]

    def _warn(self) -> None:
        for warning in self.accounts.warnings:
            _log.warning("%s", warning)
