"""The broker's own attributes, its limits, and that no attribute of ActiveMQ is left out."""

import pytest

from pybroker.activemq_xml import broker_element, connectors, schema, system_usage
from pybroker.activemq_xml.elements import BEANS
from pybroker.activemq_xml.findings import FindingKind
from pybroker.activemq_xml.reading import Rules
from tests.unit.activemq_xml.reading_bench import CONNECTORS, of_broker, places, reasons, why_at

USAGE = CONNECTORS + "<systemUsage><systemUsage {}>{}</systemUsage></systemUsage>"


@pytest.mark.parametrize(
    ("bean", "rules"),
    [
        ("broker", broker_element.ATTRIBUTES),
        ("transportConnector", connectors.ATTRIBUTES),
        ("systemUsage", system_usage.USAGE),
        ("memoryUsage", system_usage.MEMORY),
        ("storeUsage", system_usage.STORE),
        ("tempUsage", system_usage.TEMPORARY),
    ],
)
def test_each_attribute_has_a_rule(bean: str, rules: Rules) -> None:
    assert set(schema.beans()[bean]["attributes"]) - rules.keys() == set()


class TestTheName:
    @pytest.mark.parametrize(
        ("attributes", "expected"),
        [
            ("", (None, None)),
            ('brokerName="localhost"', (None, None)),
            ('brokerName="a b"', ("a_b", "a_b")),
            ('brokerName="-x"', ("-x", None)),
        ],
    )
    def test_it_is_that_of_broker_and_member(self, attributes: str, expected: tuple[str | None, str | None]) -> None:
        settings = of_broker(attributes).settings
        assert (settings.get("broker_name"), settings.get("name")) == expected


@pytest.mark.parametrize(
    ("attribute", "name", "value"),
    [
        ('populateJMSXUserID="true"', "populate_jmsx_user_id", True),
        ('schedulePeriodForDestinationPurge="10000"', "destination_purge_interval", "10s"),
        ('schedulePeriodForDestinationPurge="0"', "destination_purge_interval", "0s"),
        ('offlineDurableSubscriberTimeout="86400000"', "offline_durable_subscriber_timeout", "24h"),
        ('offlineDurableSubscriberTimeout="-1"', "offline_durable_subscriber_timeout", None),
        ('offlineDurableSubscriberTaskSchedule="60000"', "offline_durable_subscriber_task_schedule", "1min"),
        ('useVirtualDestSubs="true"', "use_virtual_dest_subs", True),
        ('useVirtualDestSubsOnCreation="true"', "use_virtual_dest_subs_on_creation", True),
        ('useMirroredQueues="true"', "mirrored_queues", {"prefix": "VirtualTopic.Mirror."}),
        ('useVirtualTopics="false"', "virtual_topics", []),
        ('schedulerSupport="true"', "scheduler", True),
        ('schedulerSupport="false"', "scheduler", False),
        ("", "scheduler", False),
        ("", "topic_pending_limit", -1),
    ],
)
def test_an_attribute_is_a_setting(attribute: str, name: str, value: object) -> None:
    reading = of_broker(attribute)
    assert reading.settings.get(name) == value
    assert reasons(reading) == []


@pytest.mark.parametrize(
    ("attribute", "kind"),
    [
        ('useJmx="false"', FindingKind.IGNORED),
        ('advisorySupport="true"', FindingKind.SAME),
        ('advisorySupport="false"', FindingKind.WARNING),
        ('keepDurableSubsActive="false"', FindingKind.WARNING),
        ('waitForSlave="true"', FindingKind.WARNING),
        ('deleteAllMessagesOnStartup="true"', FindingKind.IGNORED),
        ('messageAuthorizationPolicy="#x"', FindingKind.REFUSED),
        ('offlineDurableSubscriberTimeout="soon"', FindingKind.REFUSED),
    ],
)
def test_an_attribute_is_a_finding(attribute: str, kind: FindingKind) -> None:
    assert places(of_broker(attribute), kind) == [f"broker@{attribute.partition('=')[0]}"]


def test_a_store_is_never_removed() -> None:
    reading = of_broker('deleteAllMessagesOnStartup="true" persistent="true"')
    assert "broker@deleteAllMessagesOnStartup" in places(reading, FindingKind.REFUSED)


class TestLimits:
    @pytest.mark.parametrize("limit", ["512 mb", "512MB", "536870912", "524288 Kb"])
    def test_memory(self, limit: str) -> None:
        usage = f'<memoryUsage><memoryUsage limit="{limit}"/></memoryUsage>'
        assert of_broker("", USAGE.format("", usage)).settings["memory_limit"] == "512mb"

    @pytest.mark.parametrize("limit", ["1.5 gb", "-1", "1  gb", "1 tb", ""])
    def test_what_activemq_does_not_read(self, limit: str) -> None:
        usage = f'<memoryUsage><memoryUsage limit="{limit}"/></memoryUsage>'
        assert places(of_broker("", USAGE.format("", usage)), FindingKind.REFUSED) == ["memoryUsage@limit"]

    @pytest.mark.parametrize(("percentage", "limit"), [("70", "0"), ("50", None)])
    def test_a_share_of_the_heap(self, percentage: str, limit: str | None) -> None:
        usage = f'<memoryUsage><memoryUsage percentOfJvmHeap="{percentage}"/></memoryUsage>'
        reading = of_broker("", USAGE.format("", usage))
        assert reading.settings.get("memory_limit") == limit
        assert places(reading, FindingKind.WARNING) == ["memoryUsage@percentOfJvmHeap"]

    def test_the_store_that_is_none_has_no_limit(self) -> None:
        usage = '<storeUsage><storeUsage limit="2 gb"/></storeUsage>'
        reading = of_broker("", USAGE.format("", usage))
        assert places(reading, FindingKind.IGNORED) == ["storeUsage"]
        reading = of_broker('persistent="true"', USAGE.format("", usage))
        assert reading.settings["store_limit"] == "2gb"

    def test_what_spools(self) -> None:
        usage = '<tempUsage><tempUsage limit="50 gb"/></tempUsage>'
        assert of_broker("", USAGE.format("", usage)).settings["spool_limit"] == "50gb"

    def test_sends_without_space(self) -> None:
        reading = of_broker("", USAGE.format('sendFailIfNoSpace="true" sendFailIfNoSpaceAfterTimeout="3000"', ""))
        assert (reading.are_full_sends_refused, reading.space_timeout) == (True, "3s")
        assert of_broker("", USAGE.format('sendFailIfNoSpaceAfterTimeout="0"', "")).space_timeout == ""
        reading = of_broker("", USAGE.format('sendFailIfNoSpaceAfterTimeout="-1"', ""))
        assert places(reading, FindingKind.REFUSED) == ["systemUsage@sendFailIfNoSpaceAfterTimeout"]


def with_property(parent: str, name: str) -> str:
    held = f'<property xmlns="{BEANS}" name="{name}"><map><entry key="a" value="b"/></map></property>'
    return f"<{parent}><{parent}>{held}</{parent}></{parent}>{CONNECTORS}"


def test_properties_of_jmx_have_no_effect() -> None:
    """As in the configuration with logins that ActiveMQ's distribution has as an example."""
    reading = of_broker(content=with_property("managementContext", "environment"))
    assert "property[environment]" in places(reading, FindingKind.IGNORED)
    assert not reasons(reading)


def test_property_of_jmx_that_activemq_has_not_is_refused() -> None:
    reading = of_broker(content=with_property("managementContext", "environments"))
    assert "did you mean environment?" in why_at(reading, "property[environments]")
    assert places(reading, FindingKind.REFUSED) == ["property[environments]"]


def test_property_of_another_bean_is_refused() -> None:
    reading = of_broker(content=with_property("systemUsage", "sendFailIfNoSpace"))
    assert places(reading, FindingKind.REFUSED) == ["property[sendFailIfNoSpace]"]
