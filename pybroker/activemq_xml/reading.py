"""The reading of a file into settings: each attribute has a rule, and each setting knows the place that it came from.

The rules of an element are a mapping from its attributes to what they mean. An attribute that the schema knows and the
rules do not is a warning, so that nothing is left out silently.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pybroker.activemq_xml import schema
from pybroker.activemq_xml.configuration_file import ConfigurationFile
from pybroker.activemq_xml.elements import CORE, XmlElement
from pybroker.activemq_xml.findings import Findings, place
from pybroker.activemq_xml.protection import NO_PROTECTION, Protection

CheckSelector = Callable[[str], object]
"""Checks a selector.

Raises:
    ValueError: it is not valid; the text has the column in it.
"""


@dataclass(frozen=True, slots=True)
class SettingOrigin:
    """The place that a setting came from.

    Attributes:
        at: see `ConfigurationFinding`.
        line: the line of the element, from 1.
    """

    at: str
    line: int


@dataclass(slots=True)
class Reading:
    """The settings and findings that were read from a configuration.

    Attributes:
        file: the file.
        findings: what was found about it.
        settings: pybroker's settings and tables by name, as TOML has them.
        origins: the places of these settings.
        entry_origins: the places of the entries of those that are lists, in their order.
        client_auth: `need` or `want`, if a listener with TLS asks clients for a certificate; else empty.
        is_in_memory: the store is memory, whatever the file says of one.
        are_full_sends_refused: a send is refused where there is no space, whatever the destination's policy.
        space_timeout: the duration after which a send without space is refused, if its policy has none; empty: none.
        secrets: environment variables for settings that are not to be written down, such as the password of a database.
        followed: the names of beans beside the broker that were read, since something refers to them.
        console: the address of ActiveMQ's web console, `HOST:PORT`, as `management` has it; empty if it is not known.
        protection: users, rights and key stores, which stand in files of their own: see `derived_files`.
        check_selector: raises `ValueError` for a selector that is not valid.
    """

    file: ConfigurationFile
    findings: Findings
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    origins: dict[str, SettingOrigin] = field(default_factory=dict[str, SettingOrigin])
    entry_origins: dict[str, list[SettingOrigin]] = field(default_factory=dict[str, list[SettingOrigin]])
    client_auth: str = ""
    is_in_memory: bool = False
    are_full_sends_refused: bool = False
    space_timeout: str = ""
    secrets: dict[str, str] = field(default_factory=dict[str, str], repr=False)
    followed: set[str] = field(default_factory=set[str])
    console: str = ""
    protection: Protection = NO_PROTECTION
    check_selector: CheckSelector = str

    @property
    def is_in_directory(self) -> bool:
        """True if the store is a directory, as far as it is known."""
        store = self.settings.get("store", "")
        return isinstance(store, str) and bool(store) and store != "memory:" and "://" not in store

    def set(self, setting: str, value: object, element: XmlElement, attribute: str = "", *, at: str = "") -> None:
        """Set a setting; the arguments behind it are those of `Findings.ignore`."""
        self.settings[setting] = value
        self.entry_origins.pop(setting, None)
        self.origins[setting] = SettingOrigin(at or place(element, attribute), element.line)

    def append(self, table: str, entry: object, element: XmlElement) -> None:
        """Append an entry to a setting that is a list, such as `policies`."""
        origin = SettingOrigin(place(element), element.line)
        self.settings.setdefault(table, []).append(entry)
        self.entry_origins.setdefault(table, []).append(origin)
        self.origins.setdefault(table, origin)


Rule = Callable[[Reading, XmlElement, str], None]
"""Reads the attribute of a name of an element.

Raises:
    ValueError: its value is not valid; the text does not hold the value.
"""

Rules = Mapping[str, Rule]


def ignored(why: str) -> Rule:
    """Return the rule of an attribute without effect."""

    def read(reading: Reading, element: XmlElement, name: str) -> None:
        reading.findings.ignore(element, why, name)

    return read


def silent(_reading: Reading, _element: XmlElement, _name: str) -> None:
    """Read an attribute that another rule, or the element's own reader, takes care of."""


def warned(why: str, *, unless: Collection[str] = ()) -> Rule:
    """Return the rule of an attribute whose values mean something else here, but for those that are the same."""
    return _unless(unless, lambda findings, element, name: findings.warn(element, why, name))


def refused(why: str, *, unless: Collection[str] = ()) -> Rule:
    """Return the rule of an attribute that must not be read over, but for values that mean the same here."""
    return _unless(unless, lambda findings, element, name: findings.refuse(element, why, name))


def _unless(values: Collection[str], add: Callable[[Findings, XmlElement, str], None]) -> Rule:
    def read(reading: Reading, element: XmlElement, name: str) -> None:
        if element.attributes[name].strip() in values:
            reading.findings.same(element, name)
        else:
            add(reading.findings, element, name)

    return read


def setting(name: str, convert: Callable[[str], object]) -> Rule:
    """Return the rule of an attribute that is a setting of pybroker."""

    def read(reading: Reading, element: XmlElement, attribute: str) -> None:
        reading.set(name, convert(element.attributes[attribute]), element, attribute)

    return read


FALSE: Final = ("false", "0")
TRUE: Final = ("true", "1")


def read_attributes(reading: Reading, element: XmlElement, rules: Rules) -> None:
    """Read the attributes of a bean of the core namespace, in the order of the file.

    Those that the schema does not know, or whose values it does not allow, are left out: they are refused already.
    """
    bean = schema.beans().get(element.name)
    known = bean["attributes"] if bean else {}
    for name in element.attributes:
        if name not in known or reading.findings.is_refused(element, name):
            continue
        rule = rules.get(name)
        if rule is None:
            reading.findings.warn(element, "pybroker does not support it", name)
            continue
        try:
            rule(reading, element, name)
        except ValueError as error:
            reading.findings.refuse(element, f"{name}: {error}", name)


Handler = Callable[[Reading, XmlElement], None]
"""Reads a property element of a bean: one that has no attributes, and holds beans."""


def read_properties(reading: Reading, element: XmlElement, handlers: Mapping[str, Handler]) -> None:
    """Read the property elements of a bean; those without a handler are warnings.

    ActiveMQ takes the last of those with the same name, and leaves out the others.
    """
    bean = schema.beans().get(element.name)
    known = bean["properties"] if bean else {}
    last = {child.name: child for child in element.children if child.namespace == CORE}
    for child in element.children:
        if child.namespace != CORE or child.name not in known:
            continue
        if child is not last[child.name]:
            reading.findings.refuse(child, "it is there again below, and ActiveMQ takes the last one alone: merge them")
            continue
        handler = handlers.get(child.name)
        if handler is None:
            reading.findings.warn(child, "pybroker does not support it")
        else:
            handler(reading, child)


def ignored_element(why: str) -> Handler:
    """Return the handler of an element without effect."""

    def read(reading: Reading, element: XmlElement) -> None:
        reading.findings.ignore(element, why)

    return read


def silent_element(_reading: Reading, _element: XmlElement) -> None:
    """Read an element that the reader of the bean takes care of."""


def refused_element(why: str) -> Handler:
    """Return the handler of an element that must not be read over."""

    def read(reading: Reading, element: XmlElement) -> None:
        reading.findings.refuse(element, why)

    return read
