"""Users, authorization rules and key stores of a configuration. `derived_files` writes them to files.

No value with a password shows it in its `repr`.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pybroker.activemq_xml.elements import XmlElement


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredUser:
    """A user whose password is in the file.

    Attributes:
        name: its name.
        password: its password, which is not empty.
        groups: its groups.
    """

    name: str
    password: str = field(repr=False)
    groups: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredGrants:
    """The groups that have each right, each once and in the order of the file.

    Attributes:
        read: may consume and browse.
        write: may send.
        admin: may create and remove destinations.
    """

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    admin: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Return True if any group has a right."""
        return bool(self.read or self.write or self.admin)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredRule:
    """The rights to one name or pattern.

    Attributes:
        kind: `queue` or `topic`.
        pattern: the name or pattern.
        grants: the rights.
    """

    kind: str
    pattern: str
    grants: ConfiguredGrants


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredRights:
    """The authorization rules of a configuration.

    Attributes:
        rules: those to queues and topics.
        default: those to every queue and topic, in addition.
        temporary: those to temporary destinations; None: every user has all of them.
    """

    rules: tuple[ConfiguredRule, ...] = ()
    default: ConfiguredGrants = ConfiguredGrants()
    temporary: ConfiguredGrants | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredStore:
    """A key store.

    Attributes:
        path: the file.
        type: its type as the file has it, in upper case; the content decides.
        password: its password.
        key_password: that of its private keys; None: the same.
        element: the element that names it.
        attribute: the attribute that names it; empty if no attribute does.
        class_path: the file that counts if `path` is not there; None: there is no other.
    """

    path: Path
    type: str
    password: str = field(repr=False)
    key_password: str | None = field(default=None, repr=False)
    element: XmlElement = field(repr=False)
    attribute: str
    class_path: Path | None = None

    @property
    def file(self) -> Path:
        """The file to read; `path` if neither is there."""
        if self.class_path is not None and not self.path.exists() and self.class_path.exists():
            return self.class_path
        return self.path


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredTls:
    """The key stores of listeners with TLS.

    Attributes:
        key_store: has the broker's private key.
        trust_store: has the authorities that vouch for clients; None: clients are not asked for certificates.
        key_alias: the private key of the store that is used; None: the only one.
    """

    key_store: ConfiguredStore
    trust_store: ConfiguredStore | None
    key_alias: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Protection:
    """Users, authorization rules and key stores of a configuration.

    Attributes:
        login_plugin: the element of the plugin that logs clients in; None: there is none.
        rights_plugin: the element of the plugin that checks rights; None: there is none.
        users: the users of the file, by name; None: it has none of its own.
        rights: the rights; None: every client may do everything.
        has_certificate_users: clients with TLS are known by their certificates alone.
        ldap_password: the password as which users are searched in an LDAP directory; None: there is no directory.
        tls: the key stores of listeners with TLS; None: there are no such listeners, or no key store for them.
    """

    login_plugin: XmlElement | None = field(default=None, repr=False)
    rights_plugin: XmlElement | None = field(default=None, repr=False)
    users: tuple[ConfiguredUser, ...] | None = None
    rights: ConfiguredRights | None = None
    has_certificate_users: bool = False
    ldap_password: str | None = field(default=None, repr=False)
    tls: ConfiguredTls | None = None


NO_PROTECTION: Final = Protection()
"""The protection of a configuration without users, rules and key stores."""


def names_in(text: str) -> tuple[str, ...]:
    """Return the names of a comma list, each once and in order, without blanks around them."""
    parts = [each.strip() for each in text.split(",")]
    return tuple(dict.fromkeys([each for each in parts if each]))
