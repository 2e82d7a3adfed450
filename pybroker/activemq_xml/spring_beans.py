"""Reads imported files, and beans of Spring and of applications.

An application within the broker is not run. A bean that the broker refers to must not be left out silently.

Source: activemq-xml.md, section 2.
"""

from collections.abc import Iterator
from typing import Final

from pybroker.activemq_xml import references
from pybroker.activemq_xml.elements import BEANS, CORE, XmlElement
from pybroker.activemq_xml.findings import FindingKind, place
from pybroker.activemq_xml.imports import ImportedFile
from pybroker.activemq_xml.properties import is_configurer
from pybroker.activemq_xml.reading import Reading
from pybroker.activemq_xml.spring import identities, property_texts, simple_class

_CYCLIC: Final = "it imports itself, or a file that imports it; ActiveMQ 5.17 refuses it too: remove the import"
_DECRYPTED: Final = "ENC(…) values are decrypted with the variable ACTIVEMQ_ENCRYPTION_PASSWORD"
_WITHOUT_EFFECT: Final = {
    "Log4jLogQuery": "it is for ActiveMQ's console",
    "SpringContextHook": "there is no Spring to shut down",
    "ConfigurationProperties": "it is for Java",
    "StandardPBEStringEncryptor": _DECRYPTED,
    "EnvironmentStringPBEConfig": _DECRYPTED,
    "SimpleStringPBEConfig": _DECRYPTED,
}
"""Classes of beans without an effect, and why."""

_NOT_RUN: Final = "it is not run: no application runs within pybroker"
_UNUSED_DATABASE: Final = "nothing in the broker refers to it, so that no store is in its database"
_DATABASE_WITHOUT_EFFECT: Final = "what refers to it has no effect, so that no store is in its database"
_JETTY: Final = "jetty"
_ALL_ADDRESSES: Final = "0.0.0.0"  # noqa: S104 - Jetty's default, kept as a hint
_OF_SPRING: Final = ("description", "alias", "import")


def read(reading: Reading) -> None:
    """Read all that is beside the broker, after its sections, which follow references."""
    _check_references(reading)
    for imported in reading.file.imports:
        _read_import(reading, imported)
    beside = {id(each): each for each in (*reading.file.others, *reading.file.beans.values())}
    for each in beside.values():
        if not _is_of_spring(each) and not _is_followed(reading, each):
            _read_bean(reading, each)


def _is_of_spring(element: XmlElement) -> bool:
    return (element.namespace == BEANS and element.name in _OF_SPRING) or is_configurer(element)


def _is_followed(reading: Reading, element: XmlElement) -> bool:
    return any(name in reading.followed for name in identities(element))


def _place_of(element: XmlElement) -> str:
    name = next(identities(element), "") or simple_class(element)
    return f"{element.name}[{name}]" if name else element.name


def _read_bean(reading: Reading, element: XmlElement) -> None:
    at = _place_of(element)
    if why := _WITHOUT_EFFECT.get(simple_class(element)):
        reading.findings.ignore(element, why, at=at)
    elif not _is_refused(reading, at):
        reading.findings.warn(element, _why_left_out(reading, element), at=at)


def _why_left_out(reading: Reading, element: XmlElement) -> str:
    if not simple_class(element).endswith("DataSource"):
        return _NOT_RUN
    referred = {name for _, _, name in _references(reading.file.broker)}
    return _UNUSED_DATABASE if referred.isdisjoint(identities(element)) else _DATABASE_WITHOUT_EFFECT


def _is_refused(reading: Reading, at: str) -> bool:
    return any(each.at == at and each.kind is FindingKind.REFUSED for each in reading.findings)


def _check_references(reading: Reading) -> None:
    """Refuse beans that the broker refers to and no section has read, unless they have no effect."""
    own = {name for each in reading.file.broker for name in identities(each) if each.namespace == CORE}
    without_effect = {each.at for each in reading.findings if each.kind is FindingKind.IGNORED}
    for element, attribute, name in _references(reading.file.broker):
        at = place(element, attribute)
        if name in reading.followed or name in own or not without_effect.isdisjoint((at, place(element))):
            continue
        target = reading.file.bean(name)
        if target is None:
            _refuse_unknown(reading, element, attribute)
        elif simple_class(target) not in _WITHOUT_EFFECT:
            why = f"{at} in line {element.line} refers to it, and it is not read"
            reading.findings.refuse(target, why, at=_place_of(target))


def _references(broker: XmlElement) -> Iterator[tuple[XmlElement, str, str]]:
    """Return the references in a broker as (element, attribute, name), with no attribute for an element `ref`."""
    for element in broker:
        if name := references.name_of(element):
            yield element, "", name
        elif element.namespace == CORE:
            for attribute in element.references:
                yield element, attribute, references.name_in(element, attribute)


def _refuse_unknown(reading: Reading, element: XmlElement, attribute: str) -> None:
    """Refuse a reference to a bean that was not found; it is not named, since it may be a secret that begins with #."""
    at = place(element, attribute)
    unread = [each for each in reading.file.imports if each.failure and not each.name.startswith(_JETTY)]
    for each in unread:
        why = f"it cannot be read ({each.failure}), and may have the bean that {at} in line {element.line} refers to"
        reading.findings.refuse(each.element, why, at=_import_place(each))
    if not unread and not _is_refused(reading, at):
        reading.findings.refuse(
            element, "a value that begins with # names a bean, and there is none of that name", at=at
        )


def _import_place(imported: ImportedFile) -> str:
    return f"import {imported.name}"


def _read_import(reading: Reading, imported: ImportedFile) -> None:
    at = _import_place(imported)
    if imported.is_cyclic:
        reading.findings.refuse(imported.element, _CYCLIC, at=at)
    elif imported.name.startswith(_JETTY):
        reading.console = (_console(imported.root) if imported.root else "") or reading.console
        reading.findings.ignore(imported.element, "the console is what `management` serves", at=at)
    elif imported.root is None:
        if not _is_refused(reading, at):
            reading.findings.warn(imported.element, f"it cannot be read ({imported.failure}), and is left out", at=at)
    elif all(_is_without_effect(reading, each) for each in imported.root.children):
        reading.findings.ignore(imported.element, "all that the broker refers to in it is read", at=at)
    else:
        reading.findings.warn(imported.element, f"what it has beside the broker's beans is left out: {_NOT_RUN}", at=at)


def _is_without_effect(reading: Reading, element: XmlElement) -> bool:
    return _is_of_spring(element) or _is_followed(reading, element) or simple_class(element) in _WITHOUT_EFFECT


def _console(root: XmlElement) -> str:
    """Return the address of ActiveMQ's console in its `jetty.xml`, `HOST:PORT`; empty if it is not there."""
    beans = [each for each in root if each.name == "bean"]
    ports = [each for each in beans if simple_class(each) == "WebConsolePort"]
    ports += [each for each in beans if simple_class(each) in ("ServerConnector", "SelectChannelConnector")]
    for each in ports:
        host, port = ("".join(property_texts(each, name)) for name in ("host", "port"))
        if port.isascii() and port.isdigit() and not set(host) & set("${#}"):
            host = host or _ALL_ADDRESSES
            return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return ""
