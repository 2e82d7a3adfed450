"""The properties that placeholders are filled in from, with the files that a configuration names for them.

The first of these that has a name counts: what the operator and ActiveMQ's launcher set, the files and values of the
beans that configure placeholders, and the environment.

Source: activemq-xml.md, section 2; ActiveMQ 5.17.2, tried; Spring's `PropertyPlaceholderConfigurer` and
`context:property-placeholder`, and jasypt's `EncryptablePropertyPlaceholderConfigurer`.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from pybroker.activemq_xml.directories import Directories
from pybroker.activemq_xml.elements import BEANS, XmlElement
from pybroker.activemq_xml.findings import Findings
from pybroker.activemq_xml.placeholders import UnresolvedPlaceholder, filled_in
from pybroker.activemq_xml.spring import properties_of, property_texts, simple_class
from pybroker.broker.domain.errors import MalformedData
from pybroker.security import jasypt
from pybroker.security.encrypted_properties import EncryptedProperties

_CONFIGURERS: Final = (
    "PropertyPlaceholderConfigurer",
    "PropertySourcesPlaceholderConfigurer",
    "EncryptablePropertyPlaceholderConfigurer",
)
_CONTEXT: Final = "http://www.springframework.org/schema/context"
_MASTER_PASSWORD: Final = "ACTIVEMQ_ENCRYPTION_PASSWORD"  # noqa: S105 - the name of a variable
_PROPERTIES: Final = "properties"
_NO_FORM: Final = "its properties are read from props, from a text and from files: write them in one of these forms"
_NOT_READ: Final = frozenset(
    {
        *("placeholderPrefix", "placeholderSuffix", "valueSeparator", "nullValue", "fileEncoding"),
        *("propertiesArray", "propertiesPersister", "systemPropertiesMode", "systemPropertiesModeName"),
    }
)
"""Properties of a bean that configures placeholders which change how these are filled in."""
_DEFAULT_MODE: Final = "SYSTEM_PROPERTIES_MODE_FALLBACK"

ReadFile = Callable[[Path], bytes]
"""Returns the content of a file.

Raises:
    OSError: it cannot be read.
"""


class Properties(Mapping[str, str]):
    """The properties of one configuration.

    Attributes:
        of_environment: names that were looked up and came from the environment, which may differ between members.
    """

    def __init__(self, first: Mapping[str, str], environment: Mapping[str, str]) -> None:
        self._files: list[Mapping[str, str]] = []
        self._first, self._environment = first, environment
        self.of_environment: set[str] = set()

    def add(self, values: Mapping[str, str]) -> None:
        """Add the values of a file, or of a bean; those that were added before them count first."""
        self._files.append(values)

    def __getitem__(self, name: str) -> str:
        """Return a value.

        Raises:
            KeyError: nothing has the name.
            MalformedProperties: it is encrypted, and does not decrypt.
        """
        for values in (self._first, *self._files):
            if name in values:
                return values[name]
        value = self._environment[name]
        self.of_environment.add(name)
        return value

    def __iter__(self) -> Iterator[str]:
        """Return the names."""
        return iter(dict.fromkeys(name for values in self._sources for name in values))

    def __len__(self) -> int:
        """Return the number of names."""
        return len(list(iter(self)))

    @property
    def _sources(self) -> tuple[Mapping[str, str], ...]:
        return (self._first, *self._files, self._environment)


def is_configurer(element: XmlElement) -> bool:
    """Return True for a bean that configures placeholders."""
    if element.namespace == _CONTEXT:
        return element.name == "property-placeholder"
    return element.namespace == BEANS and simple_class(element) in _CONFIGURERS


def read_files(
    root: XmlElement,
    properties: Properties,
    environment: Mapping[str, str],
    directories: Directories,
    read_file: ReadFile,
    findings: Findings,
) -> None:
    """Add the files and values of all beans that configure placeholders to the properties, and the findings about them.

    Of several such beans the first has the first word, of its files the last, and its own values come after its files
    unless it has `localOverride`.
    """
    algorithm = next((found for each in root if (found := _algorithm(each, properties))), jasypt.ALGORITHMS[0])
    decrypt = partial(_decrypt, environment.get(_MASTER_PASSWORD, ""), algorithm)
    configurers = [each for each in root if is_configurer(each)]
    for element in configurers:
        given = _Given(root, decrypt, findings, element)
        of_files = list(_of_files(given, properties, directories, read_file))
        inline = [] if element.namespace == _CONTEXT else list(_inline(given))
        is_first = _is_true(next(iter(property_texts(element, "localOverride")), "false"))
        for values in (*inline, *reversed(of_files)) if is_first else (*reversed(of_files), *inline):
            properties.add(values)
        for name in _NOT_READ & properties_of(element).keys():
            if property_texts(element, name) != [_DEFAULT_MODE]:
                findings.warn(element, f"{name} is not read: ${{…}} are filled in as without it")
        if element.namespace == _CONTEXT and "properties-ref" in element.attributes:
            findings.refuse(element, _NO_FORM, "properties-ref")
    if not configurers and any("${" in value for each in root for value in (*each.attributes.values(), each.text)):
        findings.warn(
            root, "ActiveMQ leaves ${…} as they are, since no bean configures placeholders; they are filled in here"
        )


def inline_properties(root: XmlElement) -> Iterator[XmlElement]:
    """Return the elements with the values that beans which configure placeholders have themselves."""
    for each in root:
        if is_configurer(each) and (found := properties_of(each).get(_PROPERTIES)) is not None:
            yield from found


@dataclass(frozen=True, slots=True)
class _Given:
    """A bean that configures placeholders, and what its values need.

    Attributes:
        root: the file.
        decrypt: decrypts what is within `ENC(…)`.
        findings: get what is found.
        element: the bean.
    """

    root: XmlElement
    decrypt: Callable[[str], str]
    findings: Findings
    element: XmlElement


def _of_files(
    given: _Given, properties: Properties, directories: Directories, read_file: ReadFile
) -> Iterator[EncryptedProperties]:
    element, findings = given.element, given.findings
    for location in _locations(element):
        path = directories.path(location)
        try:
            path = directories.path(filled_in(location, properties))
            yield EncryptedProperties(read_file(path), given.decrypt)
        except FileNotFoundError:
            if not _may_be_missing(element):
                findings.refuse(element, f"there is no properties file {path}, without which ActiveMQ does not start")
        except OSError as error:
            findings.refuse(element, f"the properties file {path} cannot be read: {error.strerror}")
        except MalformedData as error:
            findings.refuse(element, f"the properties file {path} cannot be used: {error}")


def _inline(given: _Given) -> Iterator[EncryptedProperties]:
    """Return the values that a bean has itself: a text in the format of a properties file, or `props`."""
    held = properties_of(given.element).get(_PROPERTIES)
    if held is None:
        return
    try:
        if "value" in held.attributes:
            yield EncryptedProperties(_of_java(held.attributes["value"]), given.decrypt)
            return
        for each in held.children:
            if each.namespace != BEANS or each.name not in ("value", "props"):
                break
            if each.name == "value":
                yield EncryptedProperties(_of_java(each.text), given.decrypt)
            else:
                entries = {prop.attributes.get("key", ""): (prop.text, prop.line) for prop in each.children}
                yield EncryptedProperties.of(entries, given.decrypt)
        else:
            if held.children:
                return
        given.findings.refuse(given.element, _NO_FORM)
    except MalformedData as error:
        given.findings.refuse(given.element, f"its properties cannot be used: {error}")


def _of_java(text: str) -> bytes:
    """Return a text as Spring passes it to Java: characters that Latin-1 has not become `?`."""
    return text.encode("iso-8859-1", "replace")


def _locations(element: XmlElement) -> list[str]:
    if element.namespace == _CONTEXT:
        return [each.strip() for each in element.attributes.get("location", "").split(",") if each.strip()]
    return [*property_texts(element, "location"), *property_texts(element, "locations")]


def _may_be_missing(element: XmlElement) -> bool:
    given = element.attributes.get("ignore-resource-not-found", "false")
    return _is_true(next(iter(property_texts(element, "ignoreResourceNotFound")), given))


def _is_true(value: str) -> bool:
    """Return the value of a boolean as Spring reads it."""
    return value.strip().lower() in ("true", "on", "yes", "1")


def _algorithm(element: XmlElement, properties: Mapping[str, str]) -> str | None:
    for text in property_texts(element, "algorithm") if element.namespace == BEANS else ():
        try:
            return filled_in(text, properties)
        except UnresolvedPlaceholder:
            return None  # `configuration_file` refuses the unresolved placeholder
    return None


def _decrypt(master: str, algorithm: str, text: str) -> str:
    if not master:
        raise ValueError(f"the environment variable {_MASTER_PASSWORD} with the master password is not set")
    return jasypt.decrypt(text, master, algorithm)
