"""Interprets texts of `activemq.xml` without a file system."""

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

    def read_file(path: Path) -> bytes:
        if str(path) not in known:
            raise FileNotFoundError(2, "No such file or directory", str(path))
        return known[str(path)].encode()

    return interpret(FILE, properties or {}, environment or {}, demands, read_file)


def of_broker(attributes: str = "", content: str = CONNECTORS, **given: object) -> Reading:
    """Return what a broker means, with a store in memory and a connector unless others are given."""
    memory = "" if "persistent=" in attributes else 'persistent="false"'
    return interpreted(file(f'<broker xmlns="{CORE}" {memory} {attributes}>{content}</broker>'), **given)  # type: ignore[arg-type]


def file(content: str) -> str:
    """Return a file with content in Spring's `beans`, where placeholders are configured."""
    return f'<beans xmlns="{BEANS}"><bean class="a.PropertyPlaceholderConfigurer"/>{content}</beans>'


def places(reading: Reading, kind: FindingKind) -> list[str]:
    """Return the places of the findings of a kind."""
    return [each.at for each in reading.findings if each.kind is kind]


def reasons(reading: Reading, kind: FindingKind = FindingKind.REFUSED) -> list[str]:
    """Return the findings of a kind as text."""
    return [str(each) for each in reading.findings if each.kind is kind]
