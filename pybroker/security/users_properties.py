"""ActiveMQ's `users.properties` and `groups.properties`, read as they are.

```text
users.properties      user=password, or user=ENC(base64)
groups.properties     group=user1,user2
```

As in ActiveMQ, blanks behind a password belong to it, and members of a group are not trimmed: in `trim=system, u` the
user `u` is no member. A file that seems to mean otherwise gets a warning.

Source: `PropertiesLoginModule` of ActiveMQ 5.17; security.md, section 5.
"""

from collections.abc import Callable, Mapping
from typing import Final

from pybroker.broker.domain.errors import ConfigError
from pybroker.broker.domain.security import User
from pybroker.security.accounts import Account, Accounts
from pybroker.security.files import Content
from pybroker.security.jasypt import encrypted_part
from pybroker.security.java_properties import MalformedProperties, parse

_SHOWN_MAX: Final = 20
"""The names that a warning shows."""

Decrypt = Callable[[str], str]
"""Decrypts what is within `ENC(…)`; raises `ValueError`."""


def read(users: Content, groups: Content | None, decrypt: Decrypt) -> Accounts:
    """Return the accounts of both files; without the second no user belongs to a group.

    Raises:
        ConfigError: a file does not parse, a user has no password, or one does not decrypt.
    """
    entries = _entries(users, "users_file")
    if not entries:  # a file that is being written, rather than one for no users
        raise ConfigError(f"{users.path} has no users", setting="users_file")
    members: Mapping[str, tuple[str, int]] = {} if groups is None else _entries(groups, "groups_file")
    warnings = [*users.warnings, *(groups.warnings if groups is not None else ())]
    groups_of: dict[str, set[str]] = {}
    for group, (text, line) in members.items():
        for member in text.split(","):
            groups_of.setdefault(member, set()).add(group)
            if member not in entries and member.strip() in entries:
                where = f"{groups.path}, line {line}" if groups is not None else ""
                warnings.append(f"{where}: {member.strip()!r} is no member of {group}, because of the blank beside it")
    if groups is not None and (
        missing := sorted(each for each in groups_of if each.strip() and each.strip() not in entries)
    ):
        named = ", ".join(map(repr, missing[:_SHOWN_MAX])) + (", …" if len(missing) > _SHOWN_MAX else "")
        warnings.append(f"{groups.path} has members who are no users of {users.path}: {named}")
    warnings += [
        f"{users.path}, line {line}: the password of {name!r} ends with a blank, which belongs to it"
        for name, (text, line) in entries.items()
        if text != text.rstrip() and encrypted_part(text) is None
    ]
    accounts = {
        name: Account(
            User(name, frozenset(groups_of.get(name, ()))), _secret(users, name, *entry, decrypt), is_plain=True
        )
        for name, entry in entries.items()
    }
    return Accounts(accounts, tuple(warnings))


def _entries(content: Content, setting: str) -> Mapping[str, tuple[str, int]]:
    try:
        return parse(content.data)
    except MalformedProperties as error:
        raise ConfigError(f"{content.path}, line {error.line}: {error}", setting=setting) from error


def _secret(users: Content, name: str, text: str, line: int, decrypt: Decrypt) -> str:
    if not text:
        raise ConfigError(
            f"{users.path}, line {line}: user {name!r} has no password",
            setting="users_file",
            hint="give it one, or remove the user",
        )
    if (encrypted := encrypted_part(text)) is not None:
        try:
            return decrypt(encrypted)
        except ValueError as error:
            raise ConfigError(
                f"{users.path}, line {line}: the password of {name!r} does not decrypt: {error}", setting="users_file"
            ) from error
    return text
