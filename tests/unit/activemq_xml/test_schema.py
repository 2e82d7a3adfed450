"""The schema of ActiveMQ 5.17: its facts, and what it refuses."""

import pytest

from pybroker.activemq_xml.elements import CORE, parse
from pybroker.activemq_xml.findings import ConfigurationFinding, FindingKind
from pybroker.activemq_xml.schema import beans, check
from tests.unit.activemq_xml import activemq_xsd


def findings(body: str, attributes: str = "") -> list[ConfigurationFinding]:
    return [*check(parse(f'<broker xmlns="{CORE}" {attributes}>\n{body}\n</broker>'.encode()))]


@pytest.mark.component("activemq")
def test_the_facts_are_those_of_activemq() -> None:
    assert beans() == activemq_xsd.facts()


def test_a_usual_file_is_accepted() -> None:
    attributes = 'brokerName="a" useJmx="true" xmlns:b="http://www.springframework.org/schema/beans"'
    assert not findings(
        """<systemUsage><systemUsage sendFailIfNoSpace="1"><memoryUsage><memoryUsage percentOfJvmHeap=" 70 "/>
        </memoryUsage></systemUsage></systemUsage>
        <plugins><statisticsBrokerPlugin id="s"/><b:bean class="own.Plugin" any="thing"/></plugins>
        <shutdownHooks><bean xmlns="http://www.springframework.org/schema/beans" class="own.Hook"/></shutdownHooks>
        <persistenceAdapter><kahaDB directory="d"><locker><shared-file-locker/></locker></kahaDB></persistenceAdapter>
        <transportConnectors><transportConnector name="x" uri="tcp://0.0.0.0:1"/></transportConnectors>""",
        attributes,
    )


@pytest.mark.parametrize(
    ("body", "at", "why"),
    [
        ("<queues/>", "queues", "broker has no element queues; ActiveMQ 5.17 refuses it too"),
        (
            '<transportConnector name="x"/>',
            "transportConnector[x]",
            "broker has no element transportConnector: write it within transportConnectors",
        ),
        (
            '<systemUsage sendFailIfNoSpace="true"/>',
            "systemUsage",
            "systemUsage of broker has no attributes: it holds an element that has them",
        ),
        (
            "<persistenceAdapter><kahadb/></persistenceAdapter>",
            "kahadb",
            "persistenceAdapter of broker cannot hold kahadb; did you mean kahaDB?",
        ),
        (
            '<transportConnectors><transportConnector name="x" URI="tcp://a"/></transportConnectors>',
            "transportConnector[x]@URI",
            "transportConnector has no attribute URI; did you mean uri?",
        ),
        (
            '<destinationPolicy><policyMap><policyEntries><policyEntry queue="A.>" producerFlowControl="maybe"/>'
            "</policyEntries></policyMap></destinationPolicy>",
            "policyEntry[A.>]@producerFlowControl",
            "producerFlowControl must be true or false",
        ),
        (
            '<destinationPolicy><policyMap><policyEntries><policyEntry topic=">" queuePrefetch="1e3"/>'
            "</policyEntries></policyMap></destinationPolicy>",
            "policyEntry[>]@queuePrefetch",
            "queuePrefetch must be a whole number",
        ),
    ],
)
def test_what_activemq_does_not_know_is_refused_with_the_nearest_name(body: str, at: str, why: str) -> None:
    assert findings(body) == [ConfigurationFinding(FindingKind.REFUSED, at, why, 2)]


def test_attribute_of_an_earlier_version_is_named_as_such() -> None:
    (found,) = check(parse(f'<broker xmlns="{CORE}" masterConnectorURI="tcp://m:61616"/>'.encode()))
    assert found.why.startswith("broker has no attribute masterConnectorURI: it is of pure master/slave, which ")
    assert "did you mean" not in found.why


def test_all_faults_are_found_at_once() -> None:
    found = findings("<a/>\n<plugins><b/></plugins>", 'brokername="x"')
    assert [(each.at, each.line) for each in found] == [("broker@brokername", 1), ("a", 2), ("b", 3)]


def test_a_value_is_never_shown() -> None:
    (found,) = findings("", 'dedicatedTaskRunner="secret"')
    assert "secret" not in found.why


def test_an_unknown_root_is_refused() -> None:
    (found,) = check(parse(f'<brokers xmlns="{CORE}"/>'.encode()))
    assert found.why == "ActiveMQ has no element brokers; did you mean broker?"
