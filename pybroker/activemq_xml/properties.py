"""The properties that placeholders are filled in from, with the files that a configuration names for them.

The first of these that has a name counts: what the operator and ActiveMQ's launcher set, the files of the beans that
configure placeholders, and the environment.

Source: activemq-xml.md, section 2; Spring's `PropertyPlaceholderConfigurer`, `context:property-placeholder`, and
jasypt's `EncryptablePropertyPlaceholderConfigurer`.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from pybroker.activemq_xml.directories import Directories
from pybroker.activemq_xml.elements import BEANS, XmlElement
from pybroker.activemq_xml.findings import Findings
from pybroker.activemq_xml.placeholders import UnresolvedPlaceholder, filled_in
from pybroker.activemq_xml.spring import property_texts, simple_class
from pybroker.activemq_xml.values import flag
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

    def add_file(self, values: Mapping[str, str]) -> None:
        """Add the values of a file; the file that was added last counts first."""
        self._files.insert(0, values)

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
    """Add the files of all beans that configure placeholders to the properties, and the findings about them."""
    algorithm = next((found for each in root if (found := _algorithm(each, properties))), jasypt.ALGORITHMS[0])
    decrypt = partial(_decrypt, environment.get(_MASTER_PASSWORD, ""), algorithm)
    configurers = [each for each in root if is_configurer(each)]
    for element in configurers:
        for location in _locations(element):
            path = directories.path(location)
            try:
                path = directories.path(filled_in(location, properties))
                properties.add_file(EncryptedProperties(read_file(path), decrypt))
            except FileNotFoundError:
                if not _may_be_missing(element):
                    findings.refuse(
                        element, f"there is no properties file {path}, without which ActiveMQ does not start"
                    )
            except OSError as error:
                findings.refuse(element, f"the properties file {path} cannot be read: {error.strerror}")
            except MalformedData as error:
                findings.refuse(element, f"the properties file {path} cannot be used: {error}")
    if not configurers and any("${" in value for each in root for value in (*each.attributes.values(), each.text)):
        findings.warn(
            root, "ActiveMQ leaves ${…} as they are, since no bean configures placeholders; they are filled in here"
        )


def _locations(element: XmlElement) -> list[str]:
    if element.namespace == _CONTEXT:
        return [each.strip() for each in element.attributes.get("location", "").split(",") if each.strip()]
    return [*property_texts(element, "location"), *property_texts(element, "locations")]


def _may_be_missing(element: XmlElement) -> bool:
    given = element.attributes.get("ignore-resource-not-found", "false")
    return flag(next(iter(property_texts(element, "ignoreResourceNotFound")), given))


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
