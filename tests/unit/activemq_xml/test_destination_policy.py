"""`destinationPolicy` of activemq.xml, and the `[[policies]]` that mean the same."""

from typing import Any

import pytest

from pybroker.activemq_xml.findings import FindingKind
from pybroker.activemq_xml.reading import Reading
from pybroker.broker.app.config import Config
from tests.unit.activemq_xml.reading_bench import of_body, places, refusals

PURGES = 'schedulePeriodForDestinationPurge="10000"'


def policy_map(entries: str, default: str = "") -> str:
    defaults = f"<defaultEntry>{default}</defaultEntry>" if default else ""
    return (
        f"<destinationPolicy><policyMap><policyEntries>{entries}</policyEntries>{defaults}</policyMap>"
        "</destinationPolicy>"
    )


def of_entry(attributes: str, body: str = "", broker: str = "") -> tuple[dict[str, Any], Reading]:
    """Return what an entry for the queue Q means, without the queue, and all that was read."""
    reading = of_body(policy_map(f'<policyEntry queue="Q" {attributes}>{body}</policyEntry>'), broker)
    (entry,) = reading.settings["policies"]
    assert entry.pop("queue") == "Q"
    Config(**reading.settings)
    return entry, reading


@pytest.mark.parametrize(
    ("attributes", "entry"),
    [
        ('memoryLimit="64 MB"', {"memory_limit": "64mb"}),
        ('memoryLimit="0"', {"memory_limit": "0"}),
        ('producerFlowControl="false"', {"producer_flow_control": False}),
        ('sendFailIfNoSpace="true"', {"send_fail_if_no_space": True}),
        ('sendFailIfNoSpaceAfterTimeout="3000"', {"send_fail_if_no_space_after_timeout": "3s"}),
        ('sendFailIfNoSpaceAfterTimeout="0"', {"send_fail_if_no_space_after_timeout": "0s"}),
        ('sendFailIfNoSpaceAfterTimeout="-1"', {}),
        ('prioritizedMessages="1"', {"prioritized_messages": True}),
        ('strictOrderDispatch="true"', {"strict_order_dispatch": True}),
        ('allConsumersExclusiveByDefault="true"', {"all_consumers_exclusive_by_default": True}),
        ('useConsumerPriority="false"', {"use_consumer_priority": False}),
        ('alwaysRetroactive="true"', {"always_retroactive": True}),
        ('queuePrefetch="1" topicPrefetch="0"', {"queue_prefetch": 1, "topic_prefetch": 0}),
        ('queueBrowserPrefetch="7"', {"queue_browser_prefetch": 7}),
        ('maxBrowsePageSize="400"', {"max_browse_page_size": 400}),
        ('maxBrowsePageSize="-1"', {"max_browse_page_size": 0}),
        ('consumersBeforeDispatchStarts="2"', {"consumers_before_dispatch_starts": 2}),
        ('timeBeforeDispatchStarts="1500"', {"time_before_dispatch_starts": "1.5s"}),
        ('timeBeforeDispatchStarts="-1"', {"time_before_dispatch_starts": "0s"}),
        ('durableTopicPrefetch="8"', {"durable_topic_prefetch": 8}),
        ('sendAdvisoryIfNoConsumers="true"', {"send_advisory_if_no_consumers": True}),
        ('advisoryForSlowConsumers="true"', {"advisory_for_slow_consumers": True}),
        ('advisoryForDiscardingMessages="true"', {"advisory_for_discarding_messages": True}),
        ('advisoryForFastProducers="true"', {"advisory_for_fast_producers": True}),
        ('advisoryWhenFull="true"', {"advisory_when_full": True}),
        ('advisoryForDelivery="true"', {"advisory_for_delivery": True}),
        ('advisoryForConsumed="true"', {"advisory_for_consumed": True}),
        ('includeBodyForAdvisory="true"', {"include_body_for_advisory": True}),
        ('expireMessagesPeriod="30000"', {"expire_messages_period": "30s"}),
        ('expireMessagesPeriod="0"', {"expire_messages_period": "0s"}),
        ('expireMessagesPeriod="-1"', {"expire_messages_period": "0s"}),
        ('gcInactiveDestinations="false"', {"gc_inactive_destinations": False}),
    ],
)
def test_an_attribute_is_a_field_of_its_name(attributes: str, entry: dict[str, Any]) -> None:
    found, reading = of_entry(attributes)
    assert found == entry
    assert not [*reading.findings]


@pytest.mark.parametrize(
    ("attributes", "place", "why"),
    [
        ('memoryLimit="1.5 gb"', "memoryLimit", "it must be a size"),
        ('queuePrefetch="-1"', "queuePrefetch", "pybroker allows 0 to"),
        ('expireMessagesPeriod="999"', "expireMessagesPeriod", "once a second at most"),
        ('deadLetterStrategy="x"', "deadLetterStrategy", "it must be #ID"),
        ('deadLetterStrategy="#x"', "deadLetterStrategy", "it refers to no bean"),
        ('topic="T"', "topic", "queue and topic are both there"),
    ],
)
def test_a_value_that_cannot_be_is_refused(attributes: str, place: str, why: str) -> None:
    (found,) = refusals(of_body(policy_map(f'<policyEntry queue="Q" {attributes}/>')))
    assert found.startswith(f"policyEntry[Q]@{place}: ")
    assert why in found


@pytest.mark.parametrize(
    ("body", "entry"),
    [
        (
            "<deadLetterStrategy><individualDeadLetterStrategy/></deadLetterStrategy>",
            {"dead_letter_strategy": "individual"},
        ),
        (
            '<deadLetterStrategy><individualDeadLetterStrategy queueSuffix=".DLQ" queuePrefix="" topicPrefix="T."'
            ' useQueueForTopicMessages="false" destinationPerDurableSubscriber="true" enableAudit="false"'
            ' maxAuditDepth="10" maxProducersToAudit="5" expiration="86400000"/></deadLetterStrategy>',
            {
                "dead_letter_strategy": {
                    "type": "individual",
                    "queue_suffix": ".DLQ",
                    "queue_prefix": "",
                    "topic_prefix": "T.",
                    "use_queue_for_topic_messages": False,
                    "destination_per_durable_subscriber": True,
                    "enable_audit": False,
                    "max_audit_depth": 10,
                    "max_producers_to_audit": 5,
                    "expiration": "24h",
                }
            },
        ),
        ("<deadLetterStrategy><sharedDeadLetterStrategy/></deadLetterStrategy>", {"dead_letter_strategy": "shared"}),
        (
            '<deadLetterStrategy><sharedDeadLetterStrategy processExpired="false"><deadLetterQueue>'
            '<queue physicalName="my.dlq"/></deadLetterQueue></sharedDeadLetterStrategy></deadLetterStrategy>',
            {"dead_letter_strategy": {"type": "shared", "process_expired": False, "dead_letter_queue": "my.dlq"}},
        ),
        (
            "<deadLetterStrategy><sharedDeadLetterStrategy><deadLetterQueue>"
            '<topic physicalName="my.dlq"/></deadLetterQueue></sharedDeadLetterStrategy></deadLetterStrategy>',
            {"dead_letter_strategy": {"type": "shared", "dead_letter_queue": "topic://my.dlq"}},
        ),
        ("<deadLetterStrategy><discarding/></deadLetterStrategy>", {"dead_letter_strategy": "discarding"}),
        (
            "<pendingMessageLimitStrategy><constantPendingMessageLimitStrategy limit='50'/>"
            "</pendingMessageLimitStrategy>",
            {"pending_message_limit_strategy": 50},
        ),
        (
            "<pendingMessageLimitStrategy><constantPendingMessageLimitStrategy/></pendingMessageLimitStrategy>",
            {"pending_message_limit_strategy": -1},
        ),
        (
            "<pendingMessageLimitStrategy><prefetchRatePendingMessageLimitStrategy/></pendingMessageLimitStrategy>",
            {"pending_message_limit_strategy": "prefetch_rate"},
        ),
        (
            "<messageEvictionStrategy><oldestMessageEvictionStrategy/></messageEvictionStrategy>",
            {"message_eviction_strategy": "oldest"},
        ),
        (
            "<networkBridgeFilterFactory><conditionalNetworkBridgeFilterFactory replayWhenNoConsumers='true'"
            " replayDelay='500' rateLimit='10' rateDuration='2000' selectorAware='true'/></networkBridgeFilterFactory>",
            {
                "network_bridge_filter_factory": {
                    "type": "conditional",
                    "replay_when_no_consumers": True,
                    "replay_delay": "500ms",
                    "rate_limit": 10,
                    "rate_duration": "2s",
                    "selector_aware": True,
                }
            },
        ),
        (
            "<networkBridgeFilterFactory><defaultNetworkBridgeFilterFactory/></networkBridgeFilterFactory>",
            {"network_bridge_filter_factory": "default"},
        ),
        (
            "<subscriptionRecoveryPolicy><noSubscriptionRecoveryPolicy/></subscriptionRecoveryPolicy>",
            {"subscription_recovery_policy": "no"},
        ),
        (
            "<subscriptionRecoveryPolicy><lastImageSubscriptionRecoveryPolicy/></subscriptionRecoveryPolicy>",
            {"subscription_recovery_policy": "last_image"},
        ),
        (
            "<subscriptionRecoveryPolicy><fixedCountSubscriptionRecoveryPolicy maximumSize='20'/>"
            "</subscriptionRecoveryPolicy>",
            {"subscription_recovery_policy": {"type": "fixed_count", "maximum_size": 20}},
        ),
        (
            "<subscriptionRecoveryPolicy><fixedSizedSubscriptionRecoveryPolicy maximumSize='131072'/>"
            "</subscriptionRecoveryPolicy>",
            {"subscription_recovery_policy": {"type": "fixed_sized", "maximum_size": "128kb"}},
        ),
        (
            "<subscriptionRecoveryPolicy><retainedMessageSubscriptionRecoveryPolicy><wrapped>"
            "<lastImageSubscriptionRecoveryPolicy/></wrapped></retainedMessageSubscriptionRecoveryPolicy>"
            "</subscriptionRecoveryPolicy>",
            {"subscription_recovery_policy": "last_image"},
        ),
        (
            "<subscriptionRecoveryPolicy><retainedMessageSubscriptionRecoveryPolicy/></subscriptionRecoveryPolicy>",
            {},
        ),
    ],
)
def test_a_strategy_is_its_type_with_its_attributes(body: str, entry: dict[str, Any]) -> None:
    found, reading = of_entry("", body)
    assert found == entry
    assert not [*reading.findings]


@pytest.mark.parametrize(
    ("body", "place"),
    [
        (
            '<messageEvictionStrategy><uniquePropertyMessageEvictionStrategy propertyName="p"/>'
            "</messageEvictionStrategy>",
            "messageEvictionStrategy/uniquePropertyMessageEvictionStrategy",
        ),
        (
            '<subscriptionRecoveryPolicy><queryBasedSubscriptionRecoveryPolicy query="#q"/>'
            "</subscriptionRecoveryPolicy>",
            "subscriptionRecoveryPolicy/queryBasedSubscriptionRecoveryPolicy",
        ),
        (
            "<dispatchPolicy><priorityNetworkDispatchPolicy/></dispatchPolicy>",
            "dispatchPolicy/priorityNetworkDispatchPolicy",
        ),
        (
            "<slowConsumerStrategy><abortSlowConsumerStrategy/></slowConsumerStrategy>",
            "slowConsumerStrategy/abortSlowConsumerStrategy",
        ),
    ],
)
def test_a_strategy_that_is_not_there_is_a_warning(body: str, place: str) -> None:
    assert places(of_entry("", body)[1], FindingKind.WARNING) == [place]


@pytest.mark.parametrize(
    ("attributes", "same"),
    [
        ("storeUsageHighWaterMark", "100"),
        ("persistJMSRedelivered", "false"),
        ("usePrefetchExtension", "true"),
        ("maxDestinations", "-1"),
    ],
)
def test_an_attribute_that_is_not_there_is_a_warning_unless_it_is_the_default(attributes: str, same: str) -> None:
    other = {"true": "false", "false": "true"}.get(same, "7")
    assert places(of_entry(f'{attributes}="{same}"')[1], FindingKind.WARNING) == []
    assert places(of_entry(f'{attributes}="{other}"')[1], FindingKind.WARNING) == [f"policyEntry[Q]@{attributes}"]


def test_a_dead_letter_strategy_without_a_place_of_its_own_is_refused() -> None:
    (found,) = refusals(
        of_body(
            policy_map(
                '<policyEntry queue="Q"><deadLetterStrategy><individualDeadLetterStrategy queuePrefix=""/>'
                "</deadLetterStrategy></policyEntry>"
            )
        )
    )
    assert found.startswith("individualDeadLetterStrategy@queuePrefix: a queue would be its own")


def test_a_strategy_of_an_own_class_is_refused() -> None:
    (found,) = refusals(
        of_body(
            policy_map(
                '<policyEntry queue="Q"><deadLetterStrategy><s:bean class="own.Strategy"/></deadLetterStrategy>'
                "</policyEntry>"
            )
        )
    )
    assert found == "deadLetterStrategy/bean: a strategy of its own class is not run"


def test_a_strategy_beside_the_broker_is_found() -> None:
    reading = of_body(
        policy_map(
            '<policyEntry queue="A" deadLetterStrategy="#letters"/>'
            '<policyEntry queue="B"><deadLetterStrategy><s:ref bean="letters"/></deadLetterStrategy></policyEntry>'
            '<policyEntry queue="C"><deadLetterStrategy><sharedDeadLetterStrategy deadLetterQueue="#dlq"/>'
            "</deadLetterStrategy></policyEntry>"
        ),
        beside='<a:individualDeadLetterStrategy id="letters" queuePrefix="X."/><a:queue id="dlq" physicalName="D"/>',
    )
    individual = {"type": "individual", "queue_prefix": "X."}
    assert reading.settings["policies"] == [
        {"queue": "A", "dead_letter_strategy": individual},
        {"queue": "B", "dead_letter_strategy": individual},
        {"queue": "C", "dead_letter_strategy": {"type": "shared", "dead_letter_queue": "D"}},
    ]
    assert not refusals(reading)


def test_a_bean_of_springs_of_a_known_class_is_read() -> None:
    entry, reading = of_entry(
        "",
        '<pendingMessageLimitStrategy><s:bean class="org.apache.activemq.broker.region.policy.'
        'ConstantPendingMessageLimitStrategy"><s:property name="limit" value="9"/></s:bean>'
        "</pendingMessageLimitStrategy>",
    )
    assert entry == {"pending_message_limit_strategy": 9}
    assert not refusals(reading)


def test_a_bean_beside_the_broker_is_checked_too() -> None:
    (found,) = refusals(
        of_body(
            policy_map('<policyEntry queue="A" deadLetterStrategy="#letters"/>'),
            beside='<a:individualDeadLetterStrategy id="letters" queueprefix="X."/>',
        )
    )
    assert "did you mean queuePrefix?" in found


@pytest.mark.parametrize(
    ("attributes", "body", "targets"),
    [
        ('topic="T.>"', "", [{"topic": "T.>"}]),
        ('tempQueue="true"', "", [{"temp_queue": ">"}]),
        ('tempTopic="true" tempQueue="false"', "", [{"temp_topic": ">"}]),
        ('queue="A.>, B,topic://C"', "", [{"queue": "A.>"}, {"queue": "B"}, {"topic": "C"}]),
        ("", '<destination><queue physicalName="D"/></destination>', [{"queue": "D"}]),
    ],
)
def test_an_entry_has_a_target(attributes: str, body: str, targets: list[dict[str, str]]) -> None:
    reading = of_body(policy_map(f'<policyEntry {attributes} memoryLimit="1mb">{body}</policyEntry>'))
    assert reading.settings["policies"] == [{**each, "memory_limit": "1mb"} for each in targets]
    assert not refusals(reading)
    Config(**reading.settings)


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ("<policyEntry/>", "it names no queue or topic"),
        ('<policyEntry queue=" "/>', "the destination's name is empty"),
        ('<policyEntry queue=","/>', "the destination's name lists no names"),
        ("<policyEntry><destination><queue/></destination></policyEntry>", "it has no physicalName"),
    ],
)
def test_an_entry_without_a_target_is_refused(entry: str, why: str) -> None:
    assert any(why in found for found in refusals(of_body(policy_map(entry))))


def test_the_default_entry_has_no_target() -> None:
    reading = of_body(policy_map('<policyEntry queue="A"/>', '<policyEntry queue="B" queuePrefetch="5"/>'))
    assert reading.settings["policies"] == [{"queue": "A"}, {"queue_prefetch": 5}]


def test_a_list_that_is_there_twice_is_refused() -> None:
    lists = "".join(f'<policyEntries><policyEntry queue="{name}"/></policyEntries>' for name in "AB")
    reading = of_body(f"<destinationPolicy><policyMap>{lists}</policyMap></destinationPolicy>")
    assert places(reading, FindingKind.REFUSED) == ["policyEntries"]
    assert reading.settings["policies"] == [{"queue": "B"}], "ActiveMQ takes the last one alone"


# ---------------------------------------------------------------- inactive destinations


def test_inactive_destinations_are_removed_after_activemqs_time() -> None:
    entry, _ = of_entry('gcInactiveDestinations="true"', broker=PURGES)
    assert entry == {"gc_inactive_destinations": True, "inactive_timeout_before_gc": "1min"}


@pytest.mark.parametrize("name", ["inactiveTimeoutBeforeGC", "inactiveTimoutBeforeGC"])
def test_both_spellings_of_the_timeout_count(name: str) -> None:
    entry, reading = of_entry(f'gcInactiveDestinations="true" {name}="300000"', broker=PURGES)
    assert entry == {"gc_inactive_destinations": True, "inactive_timeout_before_gc": "5min"}
    assert not [*reading.findings]


@pytest.mark.parametrize(
    ("attributes", "broker", "ignored"),
    [
        ('inactiveTimeoutBeforeGC="5000"', PURGES, ["inactiveTimeoutBeforeGC"]),
        (
            'gcInactiveDestinations="true" inactiveTimoutBeforeGC="5000"',
            "",
            ["gcInactiveDestinations", "inactiveTimoutBeforeGC"],
        ),
    ],
)
def test_a_timeout_without_effect_is_ignored(attributes: str, broker: str, ignored: list[str]) -> None:
    entry, reading = of_entry(attributes, broker=broker)
    assert entry == {}
    assert places(reading, FindingKind.IGNORED) == [f"policyEntry[Q]@{name}" for name in ignored]


@pytest.mark.parametrize(
    ("broker", "settings"),
    [
        (
            PURGES,
            {"policies": [{"queue": "A", "gc_inactive_destinations": False}, {"gc_inactive_destinations": False}]},
        ),
        ("", {"destination_purge_interval": "0s", "policies": [{"queue": "A"}]}),
    ],
)
def test_with_rights_no_destination_is_removed(broker: str, settings: dict[str, Any]) -> None:
    """A client that may send to a queue, but not create it, would be refused once it is gone."""
    found = of_body(
        policy_map('<policyEntry queue="A"/>') + "<plugins><authorizationPlugin/></plugins>", broker
    ).settings
    assert {name: found.get(name) for name in settings} == settings
    Config(**found)


# ---------------------------------------------------------------- no space


FULL = "<systemUsage><systemUsage sendFailIfNoSpace='true'/></systemUsage>"


def test_sends_without_space_are_refused_everywhere() -> None:
    entries = policy_map('<policyEntry queue="A"/><policyEntry queue="B" sendFailIfNoSpace="false"/>')
    assert of_body(entries + FULL).settings["policies"] == [
        {"queue": "A", "send_fail_if_no_space": True},
        {"queue": "B", "send_fail_if_no_space": False},
        {"send_fail_if_no_space": True},
    ]


def test_sends_without_space_are_refused_after_a_time_everywhere() -> None:
    after = "<systemUsage><systemUsage sendFailIfNoSpaceAfterTimeout='3000'/></systemUsage>"
    entries = (
        *('<policyEntry queue="A"/>', '<policyEntry queue="B" sendFailIfNoSpaceAfterTimeout="0"/>'),
        '<policyEntry queue="C" sendFailIfNoSpaceAfterTimeout="-1"/>',
    )
    name = "send_fail_if_no_space_after_timeout"
    assert of_body(policy_map("".join(entries)) + after).settings["policies"] == [
        {"queue": "A", name: "3s"},
        {"queue": "B", name: "0s"},
        {"queue": "C", name: "3s"},
        {name: "3s"},
    ]


def test_sends_without_space_are_refused_by_the_default_entry() -> None:
    entries = policy_map('<policyEntry queue="A"/>', '<policyEntry memoryLimit="1mb"/>')
    assert of_body(FULL + entries).settings["policies"][1:] == [{"memory_limit": "1mb", "send_fail_if_no_space": True}]


def test_sends_without_space_are_refused_without_any_policy() -> None:
    reading = of_body(FULL)
    assert reading.settings["policies"] == [{"send_fail_if_no_space": True}]
    assert "policies" in reading.origins
