"""Reads the plugins that log clients in and check their rights.

`complete` is called when all of the broker is read, as what these plugins need may stand behind them in the file.

Source: activemq-xml.md, section 8; security.md, sections 4 and 5.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from pybroker.activemq_xml import login_modules
from pybroker.activemq_xml.anonymous_clients import set_anonymous
from pybroker.activemq_xml.authorization import read_plugin
from pybroker.activemq_xml.elements import XmlElement
from pybroker.activemq_xml.protection import ConfiguredUser, names_in
from pybroker.activemq_xml.reading import (
    Handler,
    Reading,
    Rules,
    read_attributes,
    read_properties,
    refused,
    refused_element,
    silent,
)
from pybroker.activemq_xml.values import flag
from pybroker.broker.domain.errors import ConfigError
from pybroker.security import hashes, users_toml

_ANONYMOUS: Final = "anonymous"
"""ActiveMQ's default for the user and the group of clients without a login."""

_NO_MAPS: Final = "maps of Java are not read: write users with authenticationUser"

SIMPLE: Final[Rules] = {
    **dict.fromkeys(("anonymousAccessAllowed", "anonymousUser", "anonymousGroup"), silent),  # read by `_read_simple`
    **dict.fromkeys(("userGroups", "userPasswords"), refused(_NO_MAPS)),
}
USER: Final[Rules] = dict.fromkeys(("username", "password", "groups"), silent)  # read by `_user`
JAAS: Final[Rules] = dict.fromkeys(("configuration", "discoverLoginConfig"), silent)  # read by `_section`
DUAL: Final[Rules] = {**JAAS, "sslConfiguration": silent}


def _begin(reading: Reading, element: XmlElement) -> bool:
    """Return True for the first plugin that logs clients in; others are refused."""
    first = reading.protection.login_plugin
    if first is not None:
        reading.findings.refuse(element, f"{first.name} of line {first.line} logs clients in: one plugin can")
        return False
    reading.protection = replace(reading.protection, login_plugin=element)
    return True


# ---------------------------------------------------------------- users of the file


def _read_simple(reading: Reading, element: XmlElement) -> None:
    if not _begin(reading, element):
        return
    read_attributes(reading, element, SIMPLE)
    found: dict[str, ConfiguredUser] = {}

    def read_users(_reading: Reading, users: XmlElement) -> None:
        for each in users.children:
            if each.name != "authenticationUser":
                reading.findings.refuse(each, "a user of its own class is not read")
            elif (user := _user(reading, each)) is not None:
                found[user.name] = user

    read_properties(
        reading,
        element,
        {"users": read_users, **dict.fromkeys(("userGroups", "userPasswords"), refused_element(_NO_MAPS))},
    )
    reading.protection = replace(reading.protection, users=tuple(found.values()))
    if flag(element.attributes.get("anonymousAccessAllowed", "false")):
        set_anonymous(
            reading,
            element,
            element.attributes.get("anonymousUser", _ANONYMOUS),
            element.attributes.get("anonymousGroup", _ANONYMOUS),
        )


def _user(reading: Reading, element: XmlElement) -> ConfiguredUser | None:
    """Return a user; None if it cannot log in, or is refused."""
    read_attributes(reading, element, USER)
    name, password = element.attributes.get("username"), element.attributes.get("password")
    if name is None or password is None:
        missing = "username" if name is None else "password"
        reading.findings.warn(element, f"it is left out: without {missing} it cannot log in to ActiveMQ either")
        return None
    groups = frozenset(names_in(element.attributes.get("groups", "")))
    try:
        users_toml.check_name(name, Path("username"), "it")
        for each in groups:
            users_toml.check_name(each, Path("groups"), repr(each))
    except ConfigError as error:
        reading.findings.refuse(element, error.reason)
        return None
    try:
        hashes.checked(password)
    except ValueError as error:
        reading.findings.refuse(element, str(error), "password")
        return None
    if not any(each.at == "authenticationUser@password" for each in reading.findings):
        reading.findings.warn(
            element, "passwords are in clear here, and hashed in pybroker's users.toml: change them there", "password"
        )
    return ConfiguredUser(name=name, password=password, groups=groups)


# ---------------------------------------------------------------- users of a login.config


def _section(reading: Reading, element: XmlElement, rules: Rules, *, is_of_certificates: bool) -> None:
    if _begin(reading, element):
        read_attributes(reading, element, rules)
        name = element.attributes.get("configuration", "activemq-domain")
        login_modules.read_section(reading, element, name, is_of_certificates=is_of_certificates)


def _read_jaas(reading: Reading, element: XmlElement) -> None:
    _section(reading, element, JAAS, is_of_certificates=False)


def _read_certificates(reading: Reading, element: XmlElement) -> None:
    _section(reading, element, JAAS, is_of_certificates=True)


def _read_dual(reading: Reading, element: XmlElement) -> None:
    if _begin(reading, element):
        read_attributes(reading, element, DUAL)
        ssl = element.attributes.get("sslConfiguration", "activemq-ssl-domain")
        login_modules.read_section(reading, element, ssl, is_of_certificates=True)
        name = element.attributes.get("configuration", "activemq-domain")
        login_modules.read_section(reading, element, name, is_of_certificates=False)


HANDLERS: Final[Mapping[str, Handler]] = {
    "simpleAuthenticationPlugin": _read_simple,
    "jaasAuthenticationPlugin": _read_jaas,
    "jaasCertificateAuthenticationPlugin": _read_certificates,
    "jaasDualAuthenticationPlugin": _read_dual,
    "authorizationPlugin": read_plugin,
}
"""The readers of these plugins by the names of their elements."""


def complete(reading: Reading) -> None:
    """Check what can be known only when all of the broker is read."""
    protection = reading.protection
    if protection.rights_plugin is not None and protection.login_plugin is None:
        reading.findings.refuse(
            protection.rights_plugin, "no plugin logs clients in: ActiveMQ refuses all that they do then"
        )
