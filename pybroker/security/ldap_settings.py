"""How users are found in an LDAP directory: the values of the settings, checked.

The names are those of ActiveMQ's `LDAPLoginModule`, and so are the defaults of its flags. In a filter `{0}` stands for
the name of the user or, where groups are searched, for the distinguished name (DN) of the member; and `{1}` there for
the name of the user.

Source: `LDAPLoginModule` of ActiveMQ 5.17; RFC 4515; security.md, section 5.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

_PORTS: Final = {"ldap": 389, "ldaps": 636}
_PLACEHOLDER: Final = re.compile(r"\{([01])\}")
_ESCAPED: Final = {ord(each): f"\\{ord(each):02x}" for each in "\\*()\0"}


class LdapUrl(NamedTuple):
    """The place of a server.

    Attributes:
        scheme: `ldaps` for TLS from the first byte, or `ldap`.
        host: its name or address, which its certificate must have.
        port: its port.
    """

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        """Return the URL."""
        return f"{self.scheme}://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LdapSettings:
    """Servers, and how users and their groups are found there.

    Attributes:
        connection_url: the servers, which are tried in this order.
        connection_username: the DN as which the broker searches.
        connection_password_file: the file with its password, which is read for each connection.
        start_tls: turn on TLS on connections of `ldap://`.
        tls_ca: PEM file with the authorities that vouch for the servers; None: the system's.
        timeout: the seconds to wait for a connection, and for each part of an answer.
        refresh: the seconds from one look at the groups of users to the next.
        user_base: the DN below which users are.
        user_search_matching: the filter that finds a user.
        user_search_subtree: search all levels below, and not one alone.
        user_role_name: the attribute of a user's entry with names of groups, such as `memberOf`.
        role_base: the DN below which groups are; None: they are not searched.
        role_name: the attribute with the name of a group.
        role_search_matching: the filter that finds the groups of a user.
        role_search_subtree: search all levels below, and not one alone.
        expand_roles: search the groups of groups, too.
        expand_roles_matching: the filter that finds those of which a group is a member.
    """

    connection_url: tuple[LdapUrl, ...]
    connection_username: str
    user_base: str
    connection_password_file: Path | None = None
    start_tls: bool = True
    tls_ca: Path | None = None
    timeout: float = 5.0
    refresh: float = 60.0
    user_search_matching: str = "(uid={0})"
    user_search_subtree: bool = False
    user_role_name: str | None = None
    role_base: str | None = None
    role_name: str = "cn"
    role_search_matching: str = "(member={0})"
    role_search_subtree: bool = False
    expand_roles: bool = False
    expand_roles_matching: str = "(member={0})"

    @property
    def clear_urls(self) -> list[LdapUrl]:
        """The servers to which passwords go in clear."""
        return [url for url in self.connection_url if url.scheme == "ldap" and not self.start_tls]


def parse_urls(text: str) -> tuple[LdapUrl, ...]:
    """Return the servers of a list, such as `ldaps://a.example.org, ldaps://b.example.org:3269`.

    Raises:
        ValueError: one is not the URL of a server.
    """
    found: list[LdapUrl] = []
    for each in text.replace(",", " ").split():
        try:
            parts = urlsplit(each)
            port = parts.port or _PORTS[parts.scheme]
        except (ValueError, KeyError) as error:
            raise ValueError(f"{each!r} is no URL such as ldaps://ldap.example.org") from error
        if not parts.hostname or parts.path.strip("/") or parts.query or parts.username or parts.password:
            raise ValueError("a URL has a server and maybe a port, such as ldaps://ldap.example.org:636, and no more")
        found.append(LdapUrl(parts.scheme, parts.hostname, port))
    if not found:
        raise ValueError("write at least one URL, such as ldaps://ldap.example.org")
    return tuple(found)


def checked_filter(template: str, *, needs: str = "0") -> str:
    """Return a filter with placeholders.

    Args:
        template: the filter.
        needs: the placeholders of which it must have one: without, it finds the same for all users.

    Raises:
        ValueError: it is none.
    """
    if not set(_PLACEHOLDER.findall(template)) & set(needs):
        raise ValueError(f"a filter has {' or '.join(f'{{{each}}}' for each in needs)}, such as (uid={{0}})")
    rest = _PLACEHOLDER.sub("", template)
    if "{" in rest or "}" in rest:
        raise ValueError("a filter has no braces but {0} and {1}: write others as \\7b and \\7d")
    if not template.startswith("(") or template.count("(") != template.count(")"):
        raise ValueError("a filter is in parentheses, such as (uid={0})")
    return template


def filled(template: str, values: Mapping[str, str]) -> str:
    """Return a filter with values in place of `{0}` and `{1}`, none of which can change what the filter means."""
    return _PLACEHOLDER.sub(lambda match: values[match[1]].translate(_ESCAPED), template)
