"""Reads `authorizationPlugin`: the rights that groups have.

An entry that gives no right to any group has no effect, as entries only add rights. Names and patterns are checked by
the reader of pybroker's own file of rules, so that what is read here can be written there.

Source: activemq-xml.md, section 8; security.md, section 4.1; `AuthorizationBroker` and `DefaultAuthorizationMap`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from pybroker.activemq_xml.elements import XmlElement
from pybroker.activemq_xml.protection import ConfiguredGrants, ConfiguredRights, ConfiguredRule, names_in
from pybroker.activemq_xml.reading import (
    Handler,
    Reading,
    Rules,
    read_attributes,
    read_properties,
    refused,
    refused_element,
    silent,
    warned,
)
from pybroker.activemq_xml.rights_file import written
from pybroker.broker.domain.errors import ConfigError
from pybroker.security import rules_toml
from pybroker.security.files import Content

_GROUP: Final = ("org.apache.activemq.jaas.GroupPrincipal",)
_BY_REFERENCE: Final = "a reference to a bean of its own class is not followed, and rights would be missing"
_PRINCIPALS: Final = "principals as beans are not read: write read, write and admin with names of groups"
_TEMPORARY: Final = "without effect in ActiveMQ: tempDestinationAuthorizationEntry is for temporary destinations"

_OTHER_CLASS: Final = "pybroker's rules are for groups, and not for principals of another class"

PLUGIN: Final[Rules] = {"map": refused(_BY_REFERENCE)}
MAP: Final[Rules] = {
    **dict.fromkeys(("defaultEntry", "tempDestinationAuthorizationEntry"), refused(_BY_REFERENCE)),
    "groupClass": refused(_OTHER_CLASS, unless=_GROUP),
}
ENTRY: Final[Rules] = {
    # Read by `_grants` and `_names`:
    **dict.fromkeys(("read", "write", "admin", "queue", "topic", "destination"), silent),
    **dict.fromkeys(("tempQueue", "tempTopic"), warned(_TEMPORARY)),
    "groupClass": refused(_OTHER_CLASS, unless=_GROUP),
}
TEMPORARY: Final[Rules] = {
    **ENTRY,
    **dict.fromkeys(
        ("queue", "topic", "destination", "tempQueue", "tempTopic"),
        warned("without effect in ActiveMQ: this entry is for all temporary destinations"),
    ),
}
_PRINCIPAL_HANDLERS: Final[Mapping[str, Handler]] = dict.fromkeys(
    ("adminACLs", "readACLs", "writeACLs"), refused_element(_PRINCIPALS)
)
_MAPS: Final[Mapping[str, str]] = {
    "cachedLDAPAuthorizationMap": "rights are not read from an LDAP directory: write them into the file",
    "lDAPAuthorizationMap": "rights are not read from an LDAP directory: write them into the file",
    "simpleAuthorizationMap": "write an authorizationMap, whose entries have names of groups",
}


def read_plugin(reading: Reading, element: XmlElement) -> None:
    """Read the element `authorizationPlugin`."""
    first = reading.protection.rights_plugin
    if first is not None:
        reading.findings.refuse(element, f"line {first.line} has the rights: write one plugin for them")
        return
    reading.protection = replace(reading.protection, rights_plugin=element)
    read_attributes(reading, element, PLUGIN)
    read_properties(reading, element, {"map": _read_map})
    if reading.protection.rights is None and not any(each.name == "map" for each in element.children):
        reading.findings.refuse(element, "it has no map: no client could do anything")


def _read_map(reading: Reading, element: XmlElement) -> None:
    for each in element.children:
        if each.name == "authorizationMap":
            _read_authorization_map(reading, each)
        else:
            reading.findings.refuse(each, _MAPS.get(each.name, "a map of its own class is not read"))
    if not element.children:
        reading.findings.refuse(element, "it is empty: no client could do anything")


def _read_authorization_map(reading: Reading, element: XmlElement) -> None:
    read_attributes(reading, element, MAP)
    rules: list[ConfiguredRule] = []
    default: list[ConfiguredGrants] = []
    temporary: list[ConfiguredGrants] = []
    read_properties(
        reading,
        element,
        {
            "authorizationEntries": partial(_read_entries, rules=rules),
            "entries": partial(_read_entries, rules=rules),
            "defaultEntry": partial(_read_single, rules=ENTRY, found=default),
            "tempDestinationAuthorizationEntry": partial(_read_single, rules=TEMPORARY, found=temporary),
        },
    )
    rights = ConfiguredRights(
        rules=tuple(rules),
        default=default[-1] if default else ConfiguredGrants(),
        temporary=temporary[-1] if temporary else None,
    )
    if not rights.rules and not rights.default:
        reading.findings.refuse(element, "it gives no right to any group: no client could do anything")
    elif len(rights.rules) > rules_toml.RULES_MAX:
        reading.findings.refuse(element, f"it has more than {rules_toml.RULES_MAX:,} entries")
    reading.protection = replace(reading.protection, rights=rights)


def _read_entries(reading: Reading, element: XmlElement, *, rules: list[ConfiguredRule]) -> None:
    for each in element.children:
        if each.name not in ("authorizationEntry", "tempDestinationAuthorizationEntry"):
            reading.findings.refuse(each, "an entry of its own class is not read")
            continue
        read_attributes(reading, each, ENTRY)
        nested: list[XmlElement] = []
        read_properties(
            reading, each, {**_PRINCIPAL_HANDLERS, "destination": partial(_collect_destinations, found=nested)}
        )
        grants = _grants(each)
        names = [*_names(reading, each), *_nested_names(reading, nested)]
        if not names:
            if not {"tempQueue", "tempTopic"} & each.attributes.keys():
                reading.findings.warn(each, "it names no destination, and so has no effect")
        elif not grants:
            reading.findings.ignore(each, "it gives no right to any group")
        else:
            made = (ConfiguredRule(kind=kind, pattern=name, grants=grants) for kind, name in names)
            rules.extend(rule for rule in made if _is_valid(reading, each, rule))


def _collect_destinations(_reading: Reading, element: XmlElement, *, found: list[XmlElement]) -> None:
    found.extend(element.children)


def _read_single(reading: Reading, element: XmlElement, *, rules: Rules, found: list[ConfiguredGrants]) -> None:
    for each in element.children:
        read_attributes(reading, each, rules)
        read_properties(
            reading, each, {**_PRINCIPAL_HANDLERS, "destination": refused_element("it is not for one destination")}
        )
        grants = _grants(each)
        found.append(grants)
        if grants:  # a name that is valid, as the groups alone are to be checked
            _is_valid(reading, each, ConfiguredRule(kind="queue", pattern=">", grants=grants))


def _grants(element: XmlElement) -> ConfiguredGrants:
    read, write, admin = (names_in(element.attributes.get(right, "")) for right in ("read", "write", "admin"))
    return ConfiguredGrants(read=read, write=write, admin=admin)


def _names(reading: Reading, element: XmlElement) -> Iterator[tuple[str, str]]:
    """Return the destinations that attributes name, as kind and name; the parts of a composite are as many."""
    for kind in ("queue", "topic"):
        yield from ((kind, name) for name in names_in(element.attributes.get(kind, "")))
    text = element.attributes.get("destination", "").strip()
    if text:
        kind, separator, name = text.partition("://")
        if separator and kind in ("queue", "topic"):
            yield from ((kind, each) for each in names_in(name))
        else:
            reading.findings.refuse(element, "write queue or topic with its name", "destination")


def _nested_names(reading: Reading, elements: list[XmlElement]) -> Iterator[tuple[str, str]]:
    for each in elements:
        if each.name in ("queue", "topic"):
            yield from ((each.name, name) for name in names_in(each.attributes.get("physicalName", "")))
        else:
            reading.findings.refuse(each, "write a queue or a topic with its physicalName")


def _is_valid(reading: Reading, element: XmlElement, rule: ConfiguredRule) -> bool:
    """Return True if pybroker's file of rules may have a rule; otherwise it is refused."""
    text = written(ConfiguredRights(rules=(rule,)))
    try:
        rules_toml.read(Content(Path("it"), text.encode()))
    except ConfigError as error:
        reading.findings.refuse(element, error.reason.rpartition(": ")[2], rule.kind)
        return False
    return True
