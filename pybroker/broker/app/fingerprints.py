"""Short digests of settings, users and rules, by which members find out if they agree. They hold no password.

A digest is that of a value's canonical form: names of fields and keys in order, sets sorted. Settings at their defaults
are left out, and so are those that may differ: names, places (paths, addresses, ports), secrets, logging, and what
depends on the machine. Of the users, names and groups count, and of a `users.toml` the salted hashes of the passwords,
from which nothing can be guessed without the file; passwords in clear, as a `users.properties` may have them, do not
count.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import partial
from typing import Any, Final, cast

from pybroker.broker.app.config import SETTINGS, Config, is_table
from pybroker.broker.app.security_files import SecurityFiles
from pybroker.broker.app.setting import address, path, port
from pybroker.broker.domain.rules import Rules
from pybroker.security.accounts import Account, Accounts
from pybroker.security.certificate_users import CertificateUsers

OWN: Final = frozenset(
    {
        "store", "name", "bind", "openwire_url", "lock_url", "allow", "deny", "proxy_networks", "memory_limit",
        "spool_limit", "connections_max", "connections_reserved", "unconnected_max", "stop_timeout", "event_loop",
        "log_level", "log_format", "log_connections", "create_store", "create_tables", "management_tls", "listeners",
        "replicate", "replicate_port", "replicate_url", "replicate_promote", "replicate_discard",
    }
)  # fmt: skip
"""The settings that may differ from member to member, besides ports, paths and secrets."""

_PATH_KEYS: Final = ("tls_ca", "tls_certificate", "tls_key")
"""The keys of tables whose value is a path."""

_DIGEST_BYTES: Final = 4

Digests = dict[str, str]
"""Digests by the names of settings; those of the files are called `users`, `certificate users` and `rules`."""


def must_agree(name: str) -> bool:
    """Return True for a setting that has to be the same on all members."""
    setting = SETTINGS[name]
    return name not in OWN and not setting.is_secret and setting.read not in (path, port, address)


def settings_digests(config: Config) -> Digests:
    """Return the digests of the settings that are not at their defaults."""
    return {
        name: _digest(_given_table(config, name) if is_table(name) else value)
        for name, setting in SETTINGS.items()
        if must_agree(name) and (value := getattr(config, name)) != setting.default
    }


def _given_table(config: Config, name: str) -> object:
    """Return a table, or several, as given: without paths and passwords, and without the paths of the latter."""
    return _without_secrets(config.given[name])


def _without_secrets(given: object) -> object:
    if isinstance(given, list | tuple):
        return [_without_secrets(each) for each in cast("list[object]", given)]
    if not isinstance(given, Mapping):
        return given
    values = cast("Mapping[str, object]", given)
    return {key: value for key, value in values.items() if "password" not in key and key not in _PATH_KEYS}


class SecurityDigests:
    """The digests of users and rules, made when these have changed. Blocks for a moment if there are many."""

    def __init__(self, security: SecurityFiles) -> None:
        self._security = security
        self._known: dict[str, tuple[object, str]] = {}

    def digests(self) -> Digests:
        """Return the digests of what was read last."""
        security = self._security
        found: Digests = {}
        if security.users is not None:
            found["users"] = self._of("users", security.users.content)
        if security.certificates is not None:
            found["certificate users"] = self._of("certificate users", security.certificates.content)
        if security.rules is not None:
            found["rules"] = self._of("rules", security.rules.content)
        return found

    def _of(self, name: str, content: Accounts | CertificateUsers | Rules) -> str:
        known = self._known.get(name)
        if known is None or known[0] is not content:
            self._known[name] = known = (content, _digest(_significant(content)))
        return known[1]


def differing(own: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    """Return the names of what is not the same on two members."""
    return sorted(name for name in own.keys() | other.keys() if own.get(name) != other.get(name))


def _significant(content: Accounts | CertificateUsers | Rules) -> object:
    """Return what counts of a file: neither its form nor a password in clear."""
    if isinstance(content, Accounts):
        return {name: _of_account(account) for name, account in content.by_name.items()}
    if isinstance(content, CertificateUsers):
        return content.by_name
    return (content.rules, content.default, content.temporary)


def _of_account(account: Account) -> object:
    return (account.user.groups, None if account.is_plain else account.secret)


def _digest(value: object) -> str:
    text = json.dumps(_canonical(value), sort_keys=True).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=_DIGEST_BYTES).hexdigest()


def _canonical(value: Any) -> Any:
    """Return a value as JSON has it, the same in each process."""
    if isinstance(value, Enum):
        return value.name
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: _canonical(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        items = cast("Mapping[object, object]", value).items()
        return {str(key): _canonical(each) for key, each in items}
    if isinstance(value, frozenset | set):
        return sorted(map(partial(json.dumps, sort_keys=True), map(_canonical, cast("set[object]", value))))
    if isinstance(value, tuple | list):
        return [_canonical(each) for each in cast("list[object]", value)]
    return str(value)  # a date of TOML
