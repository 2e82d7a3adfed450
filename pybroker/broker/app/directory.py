"""The configuration's LDAP directory: the table `[ldap]`.

```toml
[ldap]
connection_url = "ldaps://ldap.example.org"
connection_username = "cn=pybroker,dc=example,dc=org"
user_base = "ou=people,dc=example,dc=org"
```

Names are those of ActiveMQ's `LDAPLoginModule` in snake case.
"""

import os
from pathlib import Path
from typing import Final

from pybroker.broker.app.setting import Setting, Table, path, text, yes_or_no
from pybroker.broker.domain.errors import ConfigError
from pybroker.security import files
from pybroker.security.ldap_settings import LdapSettings, LdapUrl, checked_filter, parse_urls
from pybroker.units import parse_duration as duration

PASSWORD_VARIABLE: Final = "PYBROKER_LDAP_PASSWORD"  # noqa: S105 - the name of a variable
"""The environment variable with the password of `connection_username`."""

_FLAG = Setting(yes_or_no)
_TEXT = Setting(text)


def _user(value: object) -> str:
    name = text(value)
    if not name:
        raise ValueError("it is empty, which is no user: a search without one is not offered")
    return name


def _urls(value: object) -> tuple[LdapUrl, ...]:
    return parse_urls(text(value))


def _user_filter(value: object) -> str:
    return checked_filter(text(value), needs="0")


def _role_filter(value: object) -> str:
    return checked_filter(text(value), needs="01")


LDAP: Final = Table(
    LdapSettings,
    {
        "connection_url": Setting(_urls, is_required=True),
        "connection_username": Setting(_user, is_required=True),
        "connection_password_file": Setting(path),
        "start_tls": _FLAG,
        "tls_ca": Setting(path),
        "timeout": Setting(duration, least=0.1, most=60),
        "refresh": Setting(duration, least=1, most=86400),
        "user_base": Setting(text, is_required=True),
        "user_search_matching": Setting(_user_filter),
        "user_search_subtree": _FLAG,
        "user_role_name": _TEXT,
        "role_base": _TEXT,
        "role_name": _TEXT,
        "role_search_matching": Setting(_role_filter),
        "role_search_subtree": _FLAG,
        "expand_roles": _FLAG,
        "expand_roles_matching": Setting(_user_filter),
    },
    ("authentication", "connection_protocol", "initial_context_factory"),
)
"""The `[ldap]` table."""


def read_password(file: Path | None) -> str:
    """Read the password as which the broker searches: from the file, or from the environment. Blocks.

    Raises:
        ConfigError: there is none, or others than the owner of the file may read it.
    """
    setting = "ldap.connection_password_file"
    if file is None:
        password = os.environ.get(PASSWORD_VARIABLE, "")
        if not password:
            raise ConfigError(f"it is not set, and neither is the variable {PASSWORD_VARIABLE}", setting=setting)
        return password
    try:
        password = files.read(file, setting=setting, has_passwords=True).data.decode().removesuffix("\n")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} is not in UTF-8", setting=setting) from error
    if not password:
        raise ConfigError(f"{file} is empty", setting=setting, hint="write the password of connection_username there")
    return password
