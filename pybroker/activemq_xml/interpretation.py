"""Interprets an `activemq.xml`: the equivalent settings of pybroker, and the findings.

Source: activemq-xml.md; sections are named in the modules that read them.
"""

from collections.abc import Mapping
from pathlib import Path

from pybroker.activemq_xml import broker_element, configuration_file, store_directories
from pybroker.activemq_xml.broker_element import Demands
from pybroker.activemq_xml.file_reading import read_bytes
from pybroker.activemq_xml.findings import Findings
from pybroker.activemq_xml.properties import ReadFile
from pybroker.activemq_xml.reading import CheckSelector, Reading
from pybroker.activemq_xml.store_directories import FindOthers


def interpret(
    path: Path,
    properties: Mapping[str, str],
    environment: Mapping[str, str],
    demands: Demands,
    read_file: ReadFile = read_bytes,
    find_others: FindOthers | None = None,
    check_selector: CheckSelector = str,
) -> Reading:
    """Return what a file means.

    Args:
        path: the file.
        properties: properties that the operator sets, such as `activemq.data`.
        environment: the variables of the environment.
        demands: what the operator asks for besides.
        read_file: reads it, and those that it names; no other file is opened.
        find_others: looks for another journal beside that of a new store; None: nothing is looked for.
        check_selector: checks selectors; by default any is valid.

    Raises:
        ConfigError: it cannot be read, or does not parse, or has not one broker.
    """
    findings = Findings()
    file = configuration_file.read(path, findings, properties, environment, read_file)
    reading = Reading(file, findings, check_selector=check_selector)
    broker_element.read(reading, demands)
    if find_others is not None:
        store_directories.check(reading, find_others)
    return reading
