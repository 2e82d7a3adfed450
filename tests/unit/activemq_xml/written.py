"""Configurations written for one test, and what is read of them."""

import os
from collections.abc import Mapping
from pathlib import Path

from pybroker.activemq_xml.broker_element import Demands
from pybroker.activemq_xml.elements import BEANS, CORE
from pybroker.activemq_xml.findings import FindingKind
from pybroker.activemq_xml.interpretation import interpret
from pybroker.activemq_xml.reading import Reading

FILE = Path("/opt/amq/conf/activemq.xml")
CONNECTORS = '<transportConnectors><transportConnector name="o" uri="tcp://0.0.0.0:61616"/></transportConnectors>'


def read_files(files: Mapping[str, str], *, demands: Demands | None = None, **environment: str) -> Reading:
    """Return what is read of files by name; they are in `/opt/amq/conf`, and the first is the configuration."""

    def read_file(path: Path) -> bytes:
        text = files.get(os.path.relpath(path, FILE.parent))
        if text is None:
            raise FileNotFoundError(2, "No such file or directory")
        return text.encode()

    return interpret(FILE.parent / next(iter(files)), {}, environment, demands or Demands(), read_file)


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


def places(reading: Reading, kind: FindingKind) -> set[str]:
    """Return the places of the findings of a kind."""
    return {each.at for each in reading.findings if each.kind is kind}


def reasons(reading: Reading, at: str) -> str:
    """Return what is found about a place."""
    return "; ".join(each.why for each in reading.findings if each.at == at)
