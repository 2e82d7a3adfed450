"""Each attribute and property of the schema means something, or is a finding: nothing is left out silently."""

from collections.abc import Iterator

import pytest

from pybroker.activemq_xml.findings import FindingKind
from pybroker.activemq_xml.schema import beans
from pybroker.broker.app.config import Config
from tests.unit.activemq_xml.reading_bench import of_body, refusals

PLACE = "@"
"""The place of a bean in the text around it."""


def _policy(inside: str = PLACE) -> str:
    return (
        "<destinationPolicy><policyMap><policyEntries><policyEntry queue='Q'>"
        f"{inside}</policyEntry></policyEntries></policyMap></destinationPolicy>"
    )


def _interceptor(inside: str = PLACE) -> str:
    return (
        "<destinationInterceptors><virtualDestinationInterceptor><virtualDestinations>"
        f"{inside}</virtualDestinations></virtualDestinationInterceptor></destinationInterceptors>"
    )


PLUGINS = f"<plugins>{PLACE}</plugins>"
FORWARDS = _interceptor(f"<compositeQueue name='C'><forwardTo>{PLACE}</forwardTo></compositeQueue>")
REDELIVERIES = (
    f"<plugins><redeliveryPlugin><redeliveryPolicyMap>{PLACE}</redeliveryPolicyMap></redeliveryPlugin></plugins>"
)

BEANS = {
    "policyMap": f"<destinationPolicy>{PLACE}</destinationPolicy>",
    "policyEntry": (
        f"<destinationPolicy><policyMap><policyEntries>{PLACE}</policyEntries></policyMap></destinationPolicy>"
    ),
    **dict.fromkeys(
        ("sharedDeadLetterStrategy", "individualDeadLetterStrategy", "discarding"),
        _policy(f"<deadLetterStrategy>{PLACE}</deadLetterStrategy>"),
    ),
    **dict.fromkeys(
        ("constantPendingMessageLimitStrategy", "prefetchRatePendingMessageLimitStrategy"),
        _policy(f"<pendingMessageLimitStrategy>{PLACE}</pendingMessageLimitStrategy>"),
    ),
    **dict.fromkeys(
        (
            *("oldestMessageEvictionStrategy", "oldestMessageWithLowestPriorityEvictionStrategy"),
            "uniquePropertyMessageEvictionStrategy",
        ),
        _policy(f"<messageEvictionStrategy>{PLACE}</messageEvictionStrategy>"),
    ),
    **dict.fromkeys(
        (
            *("noSubscriptionRecoveryPolicy", "lastImageSubscriptionRecoveryPolicy"),
            *("fixedCountSubscriptionRecoveryPolicy", "fixedSizedSubscriptionRecoveryPolicy"),
            "timedSubscriptionRecoveryPolicy",
        ),
        _policy(f"<subscriptionRecoveryPolicy>{PLACE}</subscriptionRecoveryPolicy>"),
    ),
    **dict.fromkeys(
        ("conditionalNetworkBridgeFilterFactory", "defaultNetworkBridgeFilterFactory"),
        _policy(f"<networkBridgeFilterFactory>{PLACE}</networkBridgeFilterFactory>"),
    ),
    **dict.fromkeys(("queue", "topic", "tempQueue", "tempTopic"), f"<destinations>{PLACE}</destinations>"),
    "networkConnector": f"<networkConnectors>{PLACE}</networkConnectors>",
    "virtualDestinationInterceptor": f"<destinationInterceptors>{PLACE}</destinationInterceptors>",
    "mirroredQueue": f"<destinationInterceptors>{PLACE}</destinationInterceptors>",
    **dict.fromkeys(("virtualTopic", "compositeQueue", "compositeTopic"), _interceptor()),
    "filteredDestination": FORWARDS,
    **dict.fromkeys(
        (
            *("statisticsBrokerPlugin", "timeStampingBrokerPlugin", "forcePersistencyModeBrokerPlugin"),
            *("discardingDLQBrokerPlugin", "redeliveryPlugin", "destinationsPlugin"),
        ),
        PLUGINS,
    ),
    "redeliveryPolicyMap": REDELIVERIES,
    "redeliveryPolicy": REDELIVERIES.replace(
        PLACE,
        f"<redeliveryPolicyMap><redeliveryPolicyEntries>{PLACE}</redeliveryPolicyEntries></redeliveryPolicyMap>",
    ),
    **dict.fromkeys(
        ("defaultIOExceptionHandler", "leaseLockerIOExceptionHandler", "jDBCIOExceptionHandler"),
        f"<ioExceptionHandler>{PLACE}</ioExceptionHandler>",
    ),
}
"""The beans that are read, with the text around them."""

NECESSARY = {
    "policyEntry": {"queue": "Q"},
    "redeliveryPolicy": {"queue": "Q"},
    "networkConnector": {"uri": "static:(tcp://other:61616)"},
    **{each: {"physicalName": "D"} for each in ("queue", "topic", "tempQueue", "tempTopic")},
    **{each: {"name": "C"} for each in ("compositeQueue", "compositeTopic")},
    "filteredDestination": {"queue": "F"},
}
"""The attributes that a bean needs."""

VALUES = {"boolean": "true", "integer": "7", "long": "5000", "short": "7", "double": "2.5", "string": "V"}


def _attributes() -> Iterator[tuple[str, str]]:
    return ((bean, name) for bean in BEANS for name in beans()[bean]["attributes"])


def _properties() -> Iterator[tuple[str, str]]:
    return ((bean, name) for bean in BEANS for name in beans()[bean]["properties"])


def _outcome(bean: str, attributes: dict[str, str], inside: str = "") -> tuple[object, list[tuple[str, str]]]:
    """Return the settings of a file with a bean, and its findings."""
    given = " ".join(f'{name}="{value}"' for name, value in {**NECESSARY.get(bean, {}), **attributes}.items())
    text = BEANS[bean].replace(PLACE, f"<{bean} {given}>{inside}</{bean}>")
    files = {"/opt/amq/V": "queue://A", "/opt/amq/activemq-data/localhost/destinations": "queue://B"}
    reading = of_body(text, 'schedulerSupport="true" schedulePeriodForDestinationPurge="1000"', files=files)
    findings = [(each.at, each.why) for each in reading.findings]
    assert not [place for place, why in findings if why == "pybroker does not support it"], "it is not classified"
    return {**reading.settings, "secrets": reading.secrets}, findings


@pytest.mark.parametrize(("bean", "name"), [*_attributes()])
def test_an_attribute_is_read_or_found(bean: str, name: str) -> None:
    value = VALUES[beans()[bean]["attributes"][name]]
    assert _outcome(bean, {name: value}) != _outcome(bean, {})


@pytest.mark.parametrize(("bean", "name"), [*_properties()])
def test_a_property_is_read_or_found(bean: str, name: str) -> None:
    inside = f'<{name}><s:bean class="own.Bean"/></{name}>'
    assert _outcome(bean, {}, inside) != _outcome(bean, {})


@pytest.mark.parametrize(("bean", "name"), [*_attributes()])
@pytest.mark.parametrize("value", ["", "-9", "maybe", "${unknown}", "#nothing", ",", "99999999999999999999"])
def test_no_value_ends_the_reading(bean: str, name: str, value: str) -> None:
    _outcome(bean, {name: value})


@pytest.mark.parametrize("bean", [*BEANS])
@pytest.mark.parametrize("other", ["queue", "policyEntry", "sslContext"])
def test_a_bean_in_the_wrong_place_is_refused(bean: str, other: str) -> None:
    assert refusals(of_body(BEANS[bean].replace(PLACE, f"<{other}/>")))


LONG = """
<destinationPolicy><policyMap><policyEntries>
  <policyEntry queue="ORDERS.>,BILLS" memoryLimit="64mb" producerFlowControl="true" sendFailIfNoSpace="false"
    prioritizedMessages="true" strictOrderDispatch="true" allConsumersExclusiveByDefault="true"
    useConsumerPriority="false" queuePrefetch="10" queueBrowserPrefetch="20" alwaysRetroactive="true"
    expireMessagesPeriod="1000" gcInactiveDestinations="true" inactiveTimoutBeforeGC="1"
    sendAdvisoryIfNoConsumers="true" advisoryForSlowConsumers="true" advisoryForDiscardingMessages="true"
    advisoryForFastProducers="true" advisoryWhenFull="true" advisoryForDelivery="true" advisoryForConsumed="true"
    includeBodyForAdvisory="true">
    <deadLetterStrategy><individualDeadLetterStrategy queuePrefix="DLQ." queueSuffix=".q" topicPrefix="T."
      topicSuffix=".t" useQueueForQueueMessages="true" useQueueForTopicMessages="true" processExpired="false"
      destinationPerDurableSubscriber="true" processNonPersistent="true" enableAudit="true" maxAuditDepth="1"
      maxProducersToAudit="1" expiration="1"/></deadLetterStrategy>
  </policyEntry>
  <policyEntry topic="A" topicPrefetch="1" durableTopicPrefetch="2">
    <pendingMessageLimitStrategy><constantPendingMessageLimitStrategy limit="0"/></pendingMessageLimitStrategy>
    <messageEvictionStrategy><oldestMessageEvictionStrategy/></messageEvictionStrategy>
    <subscriptionRecoveryPolicy><fixedCountSubscriptionRecoveryPolicy maximumSize="1"/></subscriptionRecoveryPolicy>
    <deadLetterStrategy><sharedDeadLetterStrategy processExpired="true"><deadLetterQueue><queue physicalName="D"/>
    </deadLetterQueue></sharedDeadLetterStrategy></deadLetterStrategy>
  </policyEntry>
  <policyEntry topic="B">
    <pendingMessageLimitStrategy><prefetchRatePendingMessageLimitStrategy multiplier="0"/></pendingMessageLimitStrategy>
    <subscriptionRecoveryPolicy><fixedSizedSubscriptionRecoveryPolicy maximumSize="1"/></subscriptionRecoveryPolicy>
  </policyEntry>
  <policyEntry topic="C"><subscriptionRecoveryPolicy><timedSubscriptionRecoveryPolicy recoverDuration="1"/>
    </subscriptionRecoveryPolicy></policyEntry>
  <policyEntry tempQueue="true"><deadLetterStrategy><discarding/></deadLetterStrategy></policyEntry>
  <policyEntry tempTopic="true"><subscriptionRecoveryPolicy><lastImageSubscriptionRecoveryPolicy/>
    </subscriptionRecoveryPolicy></policyEntry>
</policyEntries></policyMap></destinationPolicy>
<destinations><queue physicalName="Q"/><topic physicalName="T"/></destinations>
<destinationInterceptors>
  <mirroredQueue prefix="M." postfix=".m" copyMessage="false"/>
  <virtualDestinationInterceptor><virtualDestinations>
    <virtualTopic name="E.>" prefix="G.*." postfix=".x" selectorAware="true" local="true"/>
    <compositeQueue name="CQ" forwardOnly="false" sendWhenNotMatched="true"><forwardTo>
      <filteredDestination queue="X" selector="a = 'b' AND c BETWEEN 1 AND 2"/></forwardTo></compositeQueue>
    <compositeTopic name="CT.*" forwardOnly="true"><forwardTo><queue physicalName="Y"/></forwardTo></compositeTopic>
  </virtualDestinations></virtualDestinationInterceptor>
</destinationInterceptors>
<systemUsage><systemUsage sendFailIfNoSpace="true"/></systemUsage>
<plugins>
  <statisticsBrokerPlugin/>
  <timeStampingBrokerPlugin zeroExpirationOverride="0" ttlCeiling="1" futureOnly="true" processNetworkMessages="true"/>
  <forcePersistencyModeBrokerPlugin persistenceFlag="true"/>
  <discardingDLQBrokerPlugin dropAll="false" dropTemporaryTopics="false" dropTemporaryQueues="true" dropOnly="A.* B"/>
  <redeliveryPlugin sendToDlqIfMaxRetriesExceeded="false" fallbackToDeadLetter="false"><redeliveryPolicyMap>
    <redeliveryPolicyMap><redeliveryPolicyEntries><redeliveryPolicy queue="Q.>" maximumRedeliveries="-1"
      initialRedeliveryDelay="1000" redeliveryDelay="1000" maximumRedeliveryDelay="1000" backOffMultiplier="0"
      useExponentialBackOff="true" useCollisionAvoidance="true" collisionAvoidancePercent="100"/>
    </redeliveryPolicyEntries><defaultEntry><redeliveryPolicy/></defaultEntry></redeliveryPolicyMap>
  </redeliveryPolicyMap></redeliveryPlugin>
</plugins>
"""
"""Every element and attribute that is a setting."""


def test_a_file_with_everything_loads() -> None:
    reading = of_body(LONG, 'schedulerSupport="true" schedulePeriodForDestinationPurge="10000"')
    assert not refusals(reading)
    assert [each.at for each in reading.findings if each.kind is FindingKind.WARNING] == [
        "discardingDLQBrokerPlugin",
        "defaultEntry",
    ]
    config = Config(**reading.settings)
    assert len(config.policies) == 8
    assert {name for name in reading.settings if not reading.origins[name].line} == set()
