"""Interprets the text of a broker, as if it were a file."""

from collections.abc import Mapping
from pathlib import Path

from pybroker.activemq_xml.broker_element import Demands
from pybroker.activemq_xml.elements import BEANS, CORE
from pybroker.activemq_xml.findings import FindingKind
from pybroker.activemq_xml.interpretation import interpret
from pybroker.activemq_xml.reading import Reading

PATH = Path("/opt/amq/conf/activemq.xml")
CONNECTORS = '<transportConnectors><transportConnector uri="tcp://0.0.0.0:61616"/></transportConnectors>'


def interpreted(
    body: str, attributes: str = "", *, beside: str = "", files: Mapping[str, str] | None = None
) -> Reading:
    """Return what a broker means whose store is memory.

    Args:
        body: the elements in it, besides a connector; the prefix `s:` is that of Spring's beans.
        attributes: its attributes, besides `persistent`.
        beside: the beans beside it, with the prefix `a:` for ActiveMQ's.
        files: the texts of other files, by path.
    """
    text = (
        f'<s:beans xmlns:s="{BEANS}" xmlns:a="{CORE}">{beside}'
        f'<broker xmlns="{CORE}" persistent="false" {attributes}>\n{body}\n{CONNECTORS}</broker></s:beans>'
    )

    def read_file(path: Path) -> bytes:
        if path == PATH:
            return text.encode()
        if files is None or str(path) not in files:
            raise FileNotFoundError(2, "No such file", str(path))
        return files[str(path)].encode()

    return interpret(PATH, {}, {}, Demands(), read_file)


def at(reading: Reading, kind: FindingKind) -> list[str]:
    """Return the places of the findings of a kind."""
    return [each.at for each in reading.findings if each.kind is kind]


def refusals(reading: Reading) -> list[str]:
    """Return the places and reasons of what is refused."""
    return [f"{each.at}: {each.why}" for each in reading.findings if each.kind is FindingKind.REFUSED]
