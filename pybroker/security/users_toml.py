"""pybroker's own file of users, whose passwords are hashed.

```toml
[users.alice]
password = "$argon2id$v=19$m=19456,t=2,p=1$…"
groups = ["admins", "orders"]
```

`pybroker user add` and the like write it. Source: security.md, section 8.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, cast

from pybroker.broker.domain.errors import ConfigError
from pybroker.broker.domain.security import User
from pybroker.security import hashes
from pybroker.security.accounts import NAME_MAX, Account, Accounts
from pybroker.security.files import Content

_HEADER: Final = (
    "# Users of a pybroker. `pybroker user` changes it, and keeps no other comments.\n"
    "# The broker reads it again within two seconds of a change.\n"
)
_PLAIN_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")
_KEYS: Final = frozenset(("password", "groups"))


def read(content: Content) -> Accounts:
    """Return the accounts of a file.

    Raises:
        ConfigError: the file has no such accounts; the error names file, user and remedy.
    """
    import tomllib  # which a broker without such a file does not need

    try:
        tables = tomllib.loads(content.data.decode())
    except (ValueError, RecursionError) as error:  # TOML that is none, and what the parser of Python cannot take
        raise _error(content.path, f"it is no TOML: {error}") from error
    users = _table(tables.pop("users", None))
    if tables or users is None:
        raise _error(content.path, "it has tables [users.NAME], or [users] alone for no users, and nothing else")
    accounts = {name: _account(content.path, name, fields) for name, fields in users.items()}
    return Accounts(accounts, content.warnings)


def _table(value: object) -> dict[str, object] | None:
    """Return a value that is a table; None if it is none."""
    return cast("dict[str, object]", value) if isinstance(value, dict) else None


def _account(path: Path, name: str, value: object) -> Account:
    where = f"[users.{_key(name)}]"
    check_name(name, path, where)
    fields = _table(value)
    if fields is None or fields.keys() - _KEYS:
        raise _error(path, f"{where} has `password` and `groups`, and nothing else")
    secret, groups = fields.get("password"), fields.get("groups", [])
    if not isinstance(secret, str):
        raise _error(path, f"{where} has no `password`: write its hash there with `pybroker user passwd {name}`")
    try:
        hashes.require_valid(secret)
    except hashes.InvalidHash as error:
        raise _error(path, f"the password of {where} is no hash: {error}") from error
    names = cast("list[object]", groups) if isinstance(groups, list) else [groups]
    known = frozenset(each for each in names if isinstance(each, str))
    if names is not groups or not all(isinstance(each, str) for each in names):
        raise _error(path, f"`groups` of {where} is a list of names")
    for group in known:
        check_name(group, path, f"a group of {where}")
    return Account(User(name, known), secret)


def check_name(name: str, path: Path, what: str) -> None:
    """Check the name of a user or a group.

    Raises:
        ConfigError: it cannot be used.
    """
    if not name or len(name) > NAME_MAX or not name.isprintable() or name != name.strip():
        raise _error(
            path, f"{what}: a name has 1 to {NAME_MAX} characters, no control characters, and no blanks around it"
        )


def written(accounts: Mapping[str, Account]) -> str:
    """Return the file with these accounts, whose passwords are hashed."""
    tables = [
        f"\n[users.{_key(name)}]\npassword = {_string(account.secret)}\n"
        f"groups = [{', '.join(map(_string, sorted(account.user.groups)))}]\n"
        for name, account in sorted(accounts.items())
    ]
    return _HEADER + ("".join(tables) or "\n[users]\n")


def _key(name: str) -> str:
    return name if _PLAIN_KEY.fullmatch(name) else _string(name)


def _string(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _error(path: Path, message: str) -> ConfigError:
    return ConfigError(f"{path}: {message}", setting="users_file")
