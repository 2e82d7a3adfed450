"""Reads a file: the broker in it, with placeholders filled in, the beans beside it, and what ActiveMQ would refuse.

Source: activemq-xml.md, section 2.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pybroker.activemq_xml import bean_names, schema
from pybroker.activemq_xml.directories import Directories, launcher_properties
from pybroker.activemq_xml.elements import BEANS, CORE, MalformedXml, XmlElement, parse
from pybroker.activemq_xml.file_reading import read_bytes
from pybroker.activemq_xml.findings import Findings, place
from pybroker.activemq_xml.imports import ImportedFile, read_imports
from pybroker.activemq_xml.placeholders import UnresolvedPlaceholder, filled_in
from pybroker.activemq_xml.properties import Properties, ReadFile, inline_properties, is_configurer, read_files
from pybroker.activemq_xml.reference_syntax import find_references
from pybroker.activemq_xml.spring import identities
from pybroker.broker.domain.errors import ConfigError, MalformedData

_TEMPLATE: Final = re.compile(r"%\w+%|#{3,}")
"""Marks of tools that fill in a file before ActiveMQ reads it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigurationFile:
    """The parsed content of a configuration.

    Attributes:
        path: the file.
        directories: those to which names in it are relative.
        broker: its broker; placeholders are filled in where they have a value.
        beans: Spring's beans by the names that refer to them.
        others: what is beside the broker and has no such name, but for what configures placeholders.
        of_machine: values with something of the environment, as (element's line, element's column, attribute): they may
            differ between the members of a pair.
        imports: the files that it imports, with placeholders filled in where they have a value.
        read_file: reads other files.
        properties: the properties of Java that ActiveMQ is started with; some may be secrets.
    """

    path: Path
    directories: Directories
    broker: XmlElement
    beans: Mapping[str, XmlElement]
    others: tuple[XmlElement, ...]
    of_machine: frozenset[tuple[int, int, str]]
    imports: tuple[ImportedFile, ...]
    read_file: ReadFile
    properties: Mapping[str, str] = field(repr=False)

    def bean(self, name: str) -> XmlElement | None:
        """Return the bean of a name, of this file or of one that it imports; None if they have none."""
        everywhere = (self.beans, *(each.beans() for each in self.imports))
        return next((beans[name] for beans in everywhere if name in beans), None)

    def may_differ(self, element: XmlElement, attribute: str) -> bool:
        """Return True if the members of a pair may have different values, since it came from the environment."""
        return (element.line, element.column, attribute) in self.of_machine


def read(
    path: Path,
    findings: Findings,
    properties: Mapping[str, str],
    environment: Mapping[str, str],
    read_file: ReadFile = read_bytes,
) -> ConfigurationFile:
    """Read a file.

    Args:
        path: its name.
        findings: get what is found.
        properties: properties that the operator sets, by name.
        environment: the variables of the environment.
        read_file: reads it, and those that it names.

    Raises:
        ConfigError: it cannot be read, or does not parse, or has not one broker.
    """
    try:
        root = parse(read_file(path))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}", setting="--activemq-xml") from error
    except MalformedXml as error:
        raise ConfigError(f"{path}: {error}", setting="--activemq-xml") from error
    broker = _broker(path, root)
    bean_names.check(root, findings)
    known = launcher_properties(path, properties)
    directories = Directories(Path(known["activemq.base"]), Path(known["activemq.conf"]))
    sources = Properties(known, environment)
    imports = read_imports(root, path, sources, directories, read_file)
    read_files(_with_configurers(root, imports), sources, environment, directories, read_file, findings)
    of_machine = _fill_in(root, sources, findings)
    for each in imports:
        _fill_in_known(each.root, sources)
    for found in schema.check(broker):
        findings.add(found)
    _find_templates(broker, findings)
    beside = (
        [each for each in root.children if each is not broker and not is_configurer(each)] if root is not broker else []
    )
    return ConfigurationFile(
        path=path,
        directories=directories,
        broker=broker,
        beans={name: each for each in beside for name in identities(each)},
        others=tuple(each for each in beside if not any(identities(each))),
        of_machine=of_machine,
        imports=imports,
        read_file=read_file,
        properties=known,
    )


def _broker(path: Path, root: XmlElement) -> XmlElement:
    if root.name == "broker" and root.namespace == CORE:
        return root
    if root.name != "beans" or root.namespace != BEANS:
        raise ConfigError(
            f"{path}: the root element is {root.name}, and neither Spring's beans nor ActiveMQ's broker",
            setting="--activemq-xml",
        )
    brokers = [each for each in root.children if each.name == "broker" and each.namespace == CORE]
    if len(brokers) != 1:
        lines = ", ".join(f"line {each.line}" for each in brokers)
        count = f"{len(brokers)} elements broker ({lines})" if brokers else f"no element broker of the namespace {CORE}"
        raise ConfigError(f"{path} has {count}: write one", setting="--activemq-xml")
    return brokers[0]


def _with_configurers(root: XmlElement, imports: tuple[ImportedFile, ...]) -> XmlElement:
    """Return an element that holds a file and those imports that configure placeholders, for all of them."""
    roots = [each.root for each in imports if each.root is not None and any(map(is_configurer, each.root))]
    return XmlElement(root.name, root.namespace, {}, root.line, root.column, [root, *roots])


def _fill_in_known(root: XmlElement | None, properties: Properties) -> None:
    """Fill in the placeholders of an imported file that have values: little of it is read, and that is looked at."""
    for element in root or ():
        find_references(element)
        for name, value in element.attributes.items():
            element.attributes[name] = _filled_if_known(value, properties)
        for name, value in element.references.items():
            element.references[name] = _filled_if_known(value, properties)
        element.text = _filled_if_known(element.text, properties)


def _filled_if_known(text: str, properties: Properties) -> str:
    try:
        return filled_in(text, properties) if "${" in text else text
    except MalformedData:  # the reader of the value refuses one that is not filled in
        return text


def _fill_in(root: XmlElement, properties: Properties, findings: Findings) -> frozenset[tuple[int, int, str]]:
    """Fill in all placeholders; return the attributes whose values depend on the environment."""
    of_machine: set[tuple[int, int, str]] = set()
    of_configurers = {id(each) for each in inline_properties(root)}
    for element in root:
        if id(element) in of_configurers:
            continue  # each value is filled in where it is used
        find_references(element, findings)
        for name, value in element.attributes.items():
            properties.of_environment.clear()
            element.attributes[name] = _filled(element, name, value, properties, findings)
            if properties.of_environment:
                of_machine.add((element.line, element.column, name))
            if name in element.references:
                element.references[name] = element.attributes[name].removeprefix("#")
        element.text = _filled(element, "", element.text, properties, findings)
    return frozenset(of_machine)


def _filled(element: XmlElement, attribute: str, text: str, properties: Properties, findings: Findings) -> str:
    if "${" not in text:
        return text
    try:
        return filled_in(text, properties)
    except UnresolvedPlaceholder as error:
        remedy = f"; set it with --property {error.name}=VALUE, or in the environment" if error.is_unknown else ""
        findings.refuse(element, f"{error}{remedy}", attribute)
    except MalformedData as error:
        findings.refuse(element, f"a property has no usable value: {error}", attribute)
    return text


def _find_templates(broker: XmlElement, findings: Findings) -> None:
    for element in broker:
        for name, value in element.attributes.items():
            if "#{" in value:
                why = "pybroker does not evaluate #{…}: write the value, or ${NAME} for a property or a variable"
                findings.refuse(element, why, name)
            elif _TEMPLATE.search(value):
                findings.refuse(element, f"{place(element, name)} is a template that was not filled in", name)
