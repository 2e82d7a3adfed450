"""Reads the settings of anonymous access.

Source: `simpleAuthenticationPlugin` and `GuestLoginModule` of ActiveMQ 5.17; security.md, section 5.
"""

from pathlib import Path
from typing import Final

from pybroker.activemq_xml.elements import XmlElement
from pybroker.activemq_xml.login_config import JaasModule
from pybroker.activemq_xml.reading import Reading
from pybroker.broker.domain.errors import ConfigError
from pybroker.security import users_toml

_USER: Final = "org.apache.activemq.jaas.guest.user"
_GROUP: Final = "org.apache.activemq.jaas.guest.group"
GUEST_OPTIONS: Final = frozenset(("debug", "credentialsInvalidate", _USER, _GROUP))


def set_anonymous(reading: Reading, element: XmlElement, user: str, group: str) -> bool:
    """Let clients without a login in from everywhere; return False if they are refused by their names.

    Args:
        reading: gets the settings.
        element: the plugin.
        user: the name that they have.
        group: the group that they belong to.
    """
    try:
        users_toml.check_name(user, Path(element.name), "the user of clients without a login")
        users_toml.check_name(group, Path(element.name), "the group of clients without a login")
    except ConfigError as error:
        reading.findings.refuse(element, error.reason)
        return False
    if "," in group:
        reading.findings.refuse(element, f"the group {group!r} of clients without a login has a comma")
        return False
    reading.set("anonymous", "everywhere", element)
    reading.set("anonymous_user", user, element)
    reading.set("anonymous_groups", group, element)
    return True


def takes_all(module: JaasModule) -> bool:
    """Return True for a `GuestLoginModule` that lets clients in whatever password they give."""
    if module.simple_name != "GuestLoginModule":
        return False
    return module.options.get("credentialsInvalidate", "false").lower() != "true"


def read_guest(reading: Reading, element: XmlElement, where: str, module: JaasModule) -> None:
    """Read a `GuestLoginModule`.

    With `credentialsInvalidate` it lets those in who give no password; without it all, so it must be the last.

    Args:
        reading: gets the settings; those of modules before it are there.
        element: the plugin.
        where: the place of the module, for findings.
        module: the module.
    """
    options = module.options
    if not set_anonymous(reading, element, options.get(_USER, "guest"), options.get(_GROUP, "guests")):
        return
    if takes_all(module) and ("users_file" in reading.settings or "ldap" in reading.settings):
        reading.set("anonymous_if_refused", True, element)
        reading.findings.warn(element, f"{where}: a client with a wrong password is a guest, as in ActiveMQ")
