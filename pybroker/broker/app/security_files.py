"""The files of users and of rules: reads those that the settings name, and reads them again when they change."""

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, Generic, Protocol, TypeVar

from pybroker.broker.app.config import Config
from pybroker.broker.domain.errors import ConfigError, RequirementMissing
from pybroker.broker.domain.rules import Rules
from pybroker.security import certificate_users, files, jasypt, rules_toml, users_properties, users_toml
from pybroker.security.accounts import Accounts
from pybroker.security.anonymous import AnonymousPolicy
from pybroker.security.certificate_users import CertificateUsers

POLL_SECONDS: Final = 0.5
"""The interval at which the files are looked at. A change is read when the next look finds the same: a file that is
written in place may be half there at the first."""

ENCRYPTION_VARIABLE: Final = "ACTIVEMQ_ENCRYPTION_PASSWORD"
"""The environment variable with the master password of `ENC(…)` values, as ActiveMQ calls it."""

_SHOWN_MAX: Final = 20
"""The groups that the log names in one line."""

_log = logging.getLogger(__name__)

_Stamps = list[tuple[int, ...] | None]


def read_users(config: Config) -> Accounts:
    """Read the users; the settings name a file.

    Raises:
        ConfigError: a file cannot be used; the error names file, line and remedy.
    """
    accounts = _read_accounts(config)
    guest = config.guest.name
    if config.anonymous_policy is AnonymousPolicy.REFUSED or guest not in accounts.by_name:
        return accounts
    warning = f"{config.users_file} has a user {guest!r}, as clients without a login are called: set anonymous_user"
    return replace(accounts, warnings=(*accounts.warnings, warning))


def _read_accounts(config: Config) -> Accounts:
    assert config.users_file is not None, "there are users"
    if config.users_file.suffix == ".toml":
        return users_toml.read(files.read(config.users_file, setting="users_file", has_passwords=False))
    users = files.read(config.users_file, setting="users_file", has_passwords=True)
    groups = (
        files.read(config.groups_file, setting="groups_file", has_passwords=False)
        if config.groups_file is not None
        else None
    )
    return users_properties.read(users, groups, partial(decrypt_value, config.encryption_algorithm))


def read_rules(config: Config) -> Rules:
    """Read the rules; the settings name a file.

    Raises:
        ConfigError: the file cannot be used; the error names file, line and remedy.
    """
    assert config.rules_file is not None, "there are rules"
    return rules_toml.read(files.read(config.rules_file, setting="rules_file", has_passwords=False))


def read_certificate_users(config: Config) -> CertificateUsers:
    """Read the users who are known by their certificates; the settings name a file.

    Raises:
        ConfigError: a file cannot be used; the error names file, line and remedy.
    """
    assert config.certificate_users_file is not None, "there are such users"
    users = files.read(config.certificate_users_file, setting="certificate_users_file", has_passwords=False)
    groups = None
    if config.certificate_groups_file is not None:
        groups = files.read(config.certificate_groups_file, setting="certificate_groups_file", has_passwords=False)
    return certificate_users.read(users, groups)


def decrypt_value(algorithm: str, text: str) -> str:
    """Decrypt what is within `ENC(…)`, with the master password of the environment.

    Raises:
        ValueError: it does not decrypt, there is no such password, or the package `cryptography` is not installed.
    """
    master = os.environ.get(ENCRYPTION_VARIABLE)
    if not master:
        raise ValueError(f"the environment has no {ENCRYPTION_VARIABLE}")
    try:
        return jasypt.decrypt(text, master, algorithm)
    except RequirementMissing as error:
        raise ValueError(str(error)) from error


class _Entries(Protocol):
    """The entries of a file, such as users or rules."""

    def __len__(self) -> int:
        """Return the number of its entries."""
        ...

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about the file, for the log."""
        ...


ContentT = TypeVar("ContentT", bound=_Entries)


class WatchedFiles(Generic[ContentT]):
    """Files that are read again when they have changed.

    Attributes:
        content: what they hold.
        version: the number of times that they were read again because they had changed.
        changed: called with it, on the event loop, after they were read again; None while no broker serves.
    """

    def __init__(self, what: str, paths: Sequence[Path | None], read: Callable[[], ContentT]) -> None:
        """Read the files.

        Args:
            what: what they hold, for the log.
            paths: the files; the log names the first. None: there is no such file.
            read: reads them.

        Raises:
            ConfigError: a file cannot be used.
        """
        self.changed: Callable[[ContentT], object] | None = None
        self._what = what
        self._paths = [path for path in paths if path is not None]
        self._read = read
        self._read_stamps = self._seen_stamps = self._stamps()  # before the files: a change meanwhile is seen as one
        self._logged = ""
        self.version = 0
        self.content = read()
        self._warn()

    async def watch(self) -> None:
        """Look for changes until cancelled."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            content = await asyncio.to_thread(self.refresh)  # the files may be long, and on a share that hangs
            if content is not None and self.changed is not None:
                try:
                    self.changed(content)
                except Exception:  # the next change is to be seen all the same
                    _log.exception("other %s did not take effect", self._what)

    def refresh(self) -> ContentT | None:
        """Return the content if the files have changed; if these cannot be used, the former content stays. Blocks."""
        stamps, before = self._stamps(), self._seen_stamps
        self._seen_stamps = stamps
        if stamps == self._read_stamps or stamps != before:
            return None
        try:
            content = self._read()
        except Exception as error:
            if not isinstance(error.__cause__, OSError):  # what cannot be read now is tried again
                self._read_stamps = stamps
            self._log_once(error)
            return None
        was_unusable, self._logged = bool(self._logged), ""
        self._read_stamps = stamps
        if content == self.content:
            if was_unusable:
                _log.info("%s can be used again: the %s are as they were", self._paths[0], self._what)
            return None
        self.content = content
        self.version += 1
        self._warn()
        _log.info("%s was read again: %d %s", self._paths[0], len(content), self._what)
        return content

    def _log_once(self, error: Exception) -> None:
        """Log once why the files cannot be used."""
        reason = str(error) if isinstance(error, ConfigError) else repr(error)
        if reason != self._logged:
            self._logged = reason
            _log.error("the %s stay as they were: %s", self._what, reason)

    def _stamps(self) -> _Stamps:
        return [files.stamp(path) for path in self._paths]

    def _warn(self) -> None:
        for warning in self.content.warnings:
            _log.warning("%s", warning)


class SecurityFiles:
    """The files that the settings name.

    Attributes:
        users: the users who log in; None: none do.
        certificates: those who are known by their certificates; None: certificates are not looked at.
        rules: the rules; None: every user may do everything.
    """

    def __init__(self, config: Config) -> None:
        """Read the files, and log what they hold.

        Raises:
            ConfigError: a file cannot be used.
        """
        self.users = self.certificates = self.rules = None
        if config.users_file is not None:
            paths = (config.users_file, config.groups_file)
            self.users = WatchedFiles("users", paths, partial(read_users, config))
            _log.info("logins: %d users of %s", len(self.users.content), config.users_file)
        if config.certificate_users_file is not None:
            paths = (config.certificate_users_file, config.certificate_groups_file)
            read = partial(read_certificate_users, config)
            self.certificates = WatchedFiles("users with certificates", paths, read)
            _log.info("certificates: %d users of %s", len(self.certificates.content), config.certificate_users_file)
        if config.rules_file is not None:
            self.rules = WatchedFiles("rules", (config.rules_file,), partial(self._read_rules, config))
            _log.info("rights: %d rules of %s", len(self.rules.content), config.rules_file)

    async def watch(self) -> None:
        """Look for changes until cancelled."""
        watched = [each.watch() for each in (self.users, self.certificates, self.rules) if each is not None]
        await asyncio.gather(*watched)

    def stop_telling(self) -> None:
        """Call back no longer: no broker serves."""
        for each in (self.users, self.certificates, self.rules):
            if each is not None:
                each.changed = None

    def _read_rules(self, config: Config) -> Rules:
        """Read the rules, and log the groups in them that no user belongs to: most likely they are misspelt."""
        rules = read_rules(config)
        if config.ldap is not None:  # which groups there are, the directory alone knows
            return rules
        known = set(config.guest.groups)
        if self.users is not None:
            known.update(*(account.user.groups for account in self.users.content.by_name.values()))
        if self.certificates is not None:
            known.update(*(user.groups for _, user in self.certificates.content.by_name.values()))
        if unknown := rules_toml.unknown_groups(rules, known):
            named = ", ".join(map(repr, unknown[:_SHOWN_MAX])) + (", …" if len(unknown) > _SHOWN_MAX else "")
            _log.warning("%s gives rights to groups to which no user belongs: %s", config.rules_file, named)
        return rules
