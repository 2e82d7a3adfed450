"""Reads an `LDAPLoginModule` into the table `ldap`, whose names are those of its options in snake case.

Source: `LDAPLoginModule` of ActiveMQ 5.17; security.md, section 5.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from pybroker.activemq_xml.elements import XmlElement
from pybroker.activemq_xml.login_config import JaasModule
from pybroker.activemq_xml.reading import Reading
from pybroker.security.jasypt import encrypted_part
from pybroker.security.ldap_settings import checked_filter, parse_urls


def _text(value: str) -> str:
    return value


def _flag(value: str) -> bool:
    return value.strip().lower() == "true"


def _user_filter(value: str) -> str:
    return checked_filter(value, needs="0")


def _role_filter(value: str) -> str:
    return checked_filter(value, needs="01")


_OPTIONS: Final[dict[str, tuple[str, Callable[[str], object]]]] = {
    "connectionUsername": ("connection_username", _text),
    "userBase": ("user_base", _text),
    "userSearchMatching": ("user_search_matching", _user_filter),
    "userSearchSubtree": ("user_search_subtree", _flag),
    "userRoleName": ("user_role_name", _text),
    "roleBase": ("role_base", _text),
    "roleName": ("role_name", _text),
    "roleSearchMatching": ("role_search_matching", _role_filter),
    "roleSearchSubtree": ("role_search_subtree", _flag),
    "expandRoles": ("expand_roles", _flag),
    "expandRolesMatching": ("expand_roles_matching", _user_filter),
}
_READ: Final = frozenset(("connectionURL", "connectionPassword", "connectionProtocol", "authentication"))
_IGNORED: Final = frozenset(("debug", "initialContextFactory", "connectionTimeout", "connectionPool"))
_NEEDED: Final = ("connectionURL", "connectionUsername", "connectionPassword", "userBase", "userSearchMatching")


def read(reading: Reading, element: XmlElement, where: str, module: JaasModule) -> None:
    """Read a module.

    Args:
        reading: gets the table, and the password as which users are searched.
        element: the plugin.
        where: the place of the module, for findings.
        module: the module.
    """
    options = module.options
    missing = [each for each in _NEEDED if not options.get(each)]
    if missing:
        reading.findings.refuse(element, f"{where} needs {', '.join(missing)}: users are not searched anonymously")
        return
    if options.get("authentication", "simple") != "simple":
        reading.findings.refuse(element, f"{where}: of authentication pybroker has simple alone")
        return
    password = options["connectionPassword"]
    if encrypted_part(password) is not None:
        reading.findings.refuse(element, f"{where}: connectionPassword is ENC(…), which is not decrypted here")
        return
    try:
        table = _table(module)
    except ValueError as error:
        reading.findings.refuse(element, f"{where}: {error}")
        return
    for each in sorted(options.keys() - _OPTIONS.keys() - _READ - _IGNORED):
        reading.findings.warn(element, f"{where} has the option {each}, which has no effect")
    if not table.get("start_tls", True):
        reading.findings.warn(element, f"{where}: passwords go to the LDAP server in clear: set ldap.start_tls")
    reading.set("ldap", table, element)
    reading.protection = replace(reading.protection, ldap_password=password)


def _table(module: JaasModule) -> dict[str, Any]:
    """Return the table.

    Raises:
        ValueError: an option is not valid.
    """
    options = module.options
    urls = parse_urls(options["connectionURL"])
    table: dict[str, Any] = {"connection_url": options["connectionURL"]}
    if any(each.scheme == "ldap" for each in urls):
        table["start_tls"] = False  # as in ActiveMQ, whose servers may not have it
    for name, (own, convert) in _OPTIONS.items():
        if name in options:
            try:
                table[own] = convert(options[name])
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from error
    return table
