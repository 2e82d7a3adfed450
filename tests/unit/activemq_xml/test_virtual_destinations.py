"""`destinationInterceptors` and `destinations` of activemq.xml."""

from typing import Any

import pytest

from pybroker.activemq_xml.findings import FindingKind
from pybroker.broker.app.config import Config
from tests.unit.activemq_xml.reading_bench import of_body, places, refusals


def interceptors(body: str) -> str:
    return (
        "<destinationInterceptors><virtualDestinationInterceptor><virtualDestinations>"
        f"{body}</virtualDestinations></virtualDestinationInterceptor></destinationInterceptors>"
    )


def composite(targets: str, attributes: str = 'name="C"', element: str = "compositeQueue") -> str:
    return interceptors(f"<{element} {attributes}><forwardTo>{targets}</forwardTo></{element}>")


@pytest.mark.parametrize(
    ("attributes", "entries"),
    [
        ("", [{"name": ">"}]),
        ('name="A.>" prefix="Group.*." postfix=".x"', [{"name": "A.>", "prefix": "Group.*.", "postfix": ".x"}]),
        ('name="A" local="true"', [{"name": "A", "local": True}]),
        ('name="A,B" selectorAware="true"', [{"name": name, "selector_aware": True} for name in "AB"]),
    ],
)
def test_a_virtual_topic_is_an_entry(attributes: str, entries: list[dict[str, Any]]) -> None:
    reading = of_body(interceptors(f"<virtualTopic {attributes}/>"))
    assert reading.settings["virtual_topics"] == entries
    assert not [*reading.findings]
    Config(**reading.settings)


@pytest.mark.parametrize(
    ("attribute", "same"),
    [("dropOnResourceLimit", "false"), ("setOriginalDestination", "true")],
)
def test_a_virtual_topic_that_differs_is_a_warning(attribute: str, same: str) -> None:
    other = {"true": "false", "false": "true"}[same]
    for value, warnings in ((same, []), (other, [f"virtualTopic[A]@{attribute}"])):
        reading = of_body(interceptors(f'<virtualTopic name="A" {attribute}="{value}"/>'))
        assert places(reading, FindingKind.WARNING) == warnings


@pytest.mark.parametrize(
    "body",
    [
        "<destinationInterceptors/>",
        "<destinationInterceptors><mirroredQueue/></destinationInterceptors>",
        composite('<queue physicalName="A"/>'),
    ],
)
def test_interceptors_replace_activemqs_own_virtual_topics(body: str) -> None:
    assert of_body(body).settings["virtual_topics"] == []


@pytest.mark.parametrize("name", ["useMirroredQueues", "useVirtualTopics"])
def test_with_interceptors_the_brokers_flags_have_no_effect(name: str) -> None:
    reading = of_body(interceptors("<virtualTopic/>"), f'{name}="{str(name == "useMirroredQueues").lower()}"')
    assert reading.settings["virtual_topics"] == [{"name": ">"}]
    assert "mirrored_queues" not in reading.settings
    assert places(reading, FindingKind.IGNORED) == [f"broker@{name}"]


@pytest.mark.parametrize(
    ("attributes", "entry"),
    [("", {"prefix": "VirtualTopic.Mirror."}), ('postfix=".x"', {"postfix": ".x"}), ('prefix="M."', {"prefix": "M."})],
)
def test_mirrored_queues_are_a_table(attributes: str, entry: dict[str, str]) -> None:
    reading = of_body(f"<destinationInterceptors><mirroredQueue {attributes}/></destinationInterceptors>")
    assert reading.settings["mirrored_queues"] == entry
    Config(**reading.settings)


def test_a_composite_forwards_to_its_targets() -> None:
    reading = of_body(
        composite(
            '<queue physicalName="A, topic://B"/><topic physicalName="T"/><filteredDestination queue="F"/>'
            '<filteredDestination topic="G" selector="a > 1"/>'
            '<filteredDestination selector="b"><destination><queue physicalName="H"/></destination>'
            '</filteredDestination><s:ref bean="beside"/>',
            'name="C.>" forwardOnly="true" sendWhenNotMatched="true" concurrentSend="true" copyMessage="true"',
            "compositeTopic",
        ),
        beside='<a:queue id="beside" physicalName="R"/>',
    )
    assert reading.settings["composite_topics"] == [
        {
            "name": "C.>",
            "forward_to": [
                "queue://A",
                "topic://B",
                "topic://T",
                "queue://F",
                {"topic": "G", "selector": "a > 1"},
                {"queue": "H", "selector": "b"},
                "queue://R",
            ],
            "forward_only": True,
            "send_when_not_matched": True,
        }
    ]
    assert not refusals(reading)
    Config(**reading.settings)


def test_a_composite_with_two_names_is_two_entries() -> None:
    reading = of_body(composite('<queue physicalName="A"/>', 'name="C,D"'))
    assert [each["name"] for each in reading.settings["composite_queues"]] == ["C", "D"]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (composite('<queue physicalName="A"/>', ""), "compositeQueue: it has no name"),
        (interceptors('<compositeQueue name="C"/>'), "compositeQueue[C]: it forwards to 0 destinations"),
        (composite('<queue physicalName="C"/>'), "compositeQueue[C]: it forwards to itself"),
        (composite('<queue physicalName="A.>"/>'), "queue[A.>]: a target is one queue"),
        (composite('<tempQueue physicalName="t"/>'), "tempQueue[t]: a target is one queue"),
        (composite("<queue/>"), "queue: it has no physicalName"),
        (composite('<filteredDestination selector="x"/>'), "filteredDestination: it must have one"),
        (composite('<filteredDestination queue="A" topic="B"/>'), "filteredDestination[A]: it must have one"),
        (composite('<filteredDestination queue="A" filter="#f"/>'), "filteredDestination[A]@filter: a filter"),
        (composite('<s:bean class="own.Target"/>'), "forwardTo/bean: it is no destination"),
        (interceptors('<virtualTopic prefix=""/>'), "virtualTopic@prefix: queues need a prefix"),
        (interceptors('<virtualTopic name=" "/>'), "virtualTopic[ ]@name: the destination's name is empty"),
        (interceptors('<s:bean class="own.VirtualTopic"/>'), "virtualDestinations/bean: an interceptor of its own"),
        (
            '<destinationInterceptors><s:bean class="own.Interceptor"/></destinationInterceptors>',
            "destinationInterceptors/bean: an interceptor of its own class",
        ),
        (
            '<destinationInterceptors><mirroredQueue/><mirroredQueue prefix="x"/></destinationInterceptors>',
            "mirroredQueue: queues have one mirror only",
        ),
    ],
)
def test_what_would_send_messages_elsewhere_is_refused(body: str, why: str) -> None:
    assert any(found.startswith(why) for found in refusals(of_body(body)))


# ---------------------------------------------------------------- destinations


def test_destinations_are_there_from_the_start() -> None:
    reading = of_body(
        '<destinations><queue physicalName="A"/><topic physicalName="A"/><queue physicalName="B,A?x=y"/>'
        '<topic physicalName="ActiveMQ.Advisory.Queue"/></destinations>'
    )
    assert reading.settings["destinations"] == ["queue://A", "topic://A", "queue://B"]
    assert not [*reading.findings]
    Config(**reading.settings)


@pytest.mark.parametrize("element", ['tempQueue physicalName="t"', 'queue physicalName="A.>"'])
def test_a_destination_that_cannot_be_from_the_start_is_a_warning(element: str) -> None:
    reading = of_body(f"<destinations><{element}/></destinations>")
    assert len(places(reading, FindingKind.WARNING)) == 1
    assert "destinations" not in reading.settings


def test_a_destination_without_a_name_is_refused() -> None:
    """ActiveMQ ends with a NullPointerException."""
    assert refusals(of_body('<destinations><queue name="A"/></destinations>')) == [
        "queue[A]: it has no physicalName: ActiveMQ does not start with it"
    ]
