"""Interprets texts of `activemq.xml` without a file system."""

import os
from collections.abc import Mapping
from pathlib import Path

from pybroker.activemq_xml.broker_element import Demands
from pybroker.activemq_xml.elements import BEANS, CORE
from pybroker.activemq_xml.findings import FindingKind
from pybroker.activemq_xml.interpretation import interpret
from pybroker.activemq_xml.reading import Reading

FILE = Path("/opt/amq/conf/activemq.xml")
CONNECTORS = (
    '<transportConnectors><transportConnector name="openwire" uri="tcp://0.0.0.0:61616"/></transportConnectors>'
)


def interpreted(
    text: str,
    *,
    demands: Demands = Demands(),  # noqa: B008 - frozen
    properties: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    files: Mapping[str, str] | None = None,
) -> Reading:
    """Return what a text means.

    Args:
        text: the whole file.
        demands: what the operator asks for.
        properties: what the operator sets.
        environment: the environment.
        files: other files, by their paths.
    """
    known = {str(FILE): text} | dict(files or {})
    return _interpreted(FILE, known, demands, properties, environment)


def _interpreted(
    path: Path,
    files: Mapping[str, str],
    demands: Demands | None,
    properties: Mapping[str, str] | None,
    environment: Mapping[str, str] | None,
) -> Reading:
    def read_file(path: Path) -> bytes:
        if str(path) not in files:
            raise FileNotFoundError(2, "No such file or directory", str(path))
        return files[str(path)].encode()

    return interpret(path, properties or {}, environment or {}, demands or Demands(), read_file)


def read_files(files: Mapping[str, str], *, demands: Demands | None = None, **environment: str) -> Reading:
    """Return what is read of files by name; they are in `/opt/amq/conf`, and the first is the configuration."""
    known = {os.path.normpath(FILE.parent / name): text for name, text in files.items()}
    return _interpreted(FILE.parent / next(iter(files)), known, demands, {}, environment)


def of_broker(attributes: str = "", content: str = CONNECTORS, **given: object) -> Reading:
    """Return what a broker means, with a store in memory and a connector unless others are given."""
    memory = "" if "persistent=" in attributes else 'persistent="false"'
    return interpreted(file(f'<broker xmlns="{CORE}" {memory} {attributes}>{content}</broker>'), **given)  # type: ignore[arg-type]


def file(content: str) -> str:
    """Return a file with content in Spring's `beans`, where placeholders are configured."""
    return f'<beans xmlns="{BEANS}"><bean class="a.PropertyPlaceholderConfigurer"/>{content}</beans>'


def text_of(body: str, *, attributes: str = "", beside: str = "") -> str:
    """Return a configuration with a broker; it has a connector, and a configurer of placeholders."""
    return (
        f'<beans xmlns="{BEANS}">\n'
        '<bean class="org.springframework.beans.factory.config.PropertyPlaceholderConfigurer"/>\n'
        f'{beside}\n<broker xmlns="{CORE}" {attributes}>\n{body}\n{CONNECTORS}\n</broker></beans>'
    )


def read(
    body: str, *, attributes: str = "", beside: str = "", demands: Demands | None = None, **environment: str
) -> Reading:
    """Return what is read of one broker."""
    text = text_of(body, attributes=attributes, beside=beside)
    return read_files({FILE.name: text}, demands=demands, **environment)


def imported(*elements: str) -> str:
    """Return a file of beans."""
    return f'<beans xmlns="{BEANS}">{"".join(elements)}</beans>'


def distinct_places(reading: Reading, kind: FindingKind) -> set[str]:
    """Return the places of the findings of a kind, each once."""
    return set(places(reading, kind))


def why_at(reading: Reading, at: str) -> str:
    """Return what is found about a place."""
    return "; ".join(each.why for each in reading.findings if each.at == at)


def places(reading: Reading, kind: FindingKind) -> list[str]:
    """Return the places of the findings of a kind."""
    return [each.at for each in reading.findings if each.kind is kind]


def reasons(reading: Reading, kind: FindingKind = FindingKind.REFUSED) -> list[str]:
    """Return the findings of a kind as text."""
    return [str(each) for each in reading.findings if each.kind is kind]


def of_body(body: str, attributes: str = "", *, beside: str = "", files: Mapping[str, str] | None = None) -> Reading:
    """Return what a broker means whose store is memory.

    Args:
        body: the elements in it, besides a connector; the prefix `s:` is that of Spring's beans.
        attributes: its attributes, besides `persistent`.
        beside: the beans beside it, with the prefix `a:` for ActiveMQ's.
        files: the texts of other files, by path.
    """
    return interpreted(
        f'<s:beans xmlns:s="{BEANS}" xmlns:a="{CORE}">{beside}'
        f'<broker xmlns="{CORE}" persistent="false" {attributes}>\n{body}\n{CONNECTORS}</broker></s:beans>',
        files=files,
    )


def refusals(reading: Reading) -> list[str]:
    """Return the places and reasons of what is refused."""
    return [f"{each.at}: {each.why}" for each in reading.findings if each.kind is FindingKind.REFUSED]
