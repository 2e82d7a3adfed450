"""`plugins` of activemq.xml but for logins and rights, and the sections for what runs beside the broker."""

from typing import Any

import pytest

from pybroker.activemq_xml.findings import FindingKind
from pybroker.broker.app.config import Config
from tests.unit.activemq_xml.reading_bench import of_body, places, refusals

SCHEDULER = 'schedulerSupport="true"'


def plugins(body: str) -> str:
    return f"<plugins>{body}</plugins>"


def redelivery(entries: str, default: str = "", attributes: str = "") -> str:
    defaults = f"<defaultEntry>{default}</defaultEntry>" if default else ""
    return plugins(
        f"<redeliveryPlugin {attributes}><redeliveryPolicyMap><redeliveryPolicyMap><redeliveryPolicyEntries>{entries}"
        f"</redeliveryPolicyEntries>{defaults}</redeliveryPolicyMap></redeliveryPolicyMap></redeliveryPlugin>"
    )


@pytest.mark.parametrize(
    ("plugin", "settings"),
    [
        ("<statisticsBrokerPlugin/>", {"statistics": True}),
        ('<s:bean class="org.apache.activemq.plugin.StatisticsBrokerPlugin" id="statPlugin"/>', {"statistics": True}),
        ("<timeStampingBrokerPlugin/>", {"time_stamping": True}),
        (
            '<timeStampingBrokerPlugin zeroExpirationOverride="60000" ttlCeiling="30000" futureOnly="true"'
            ' processNetworkMessages="true"/>',
            {
                "time_stamping": {
                    "zero_expiration_override": "1min",
                    "ttl_ceiling": "30s",
                    "future_only": True,
                    "process_network_messages": True,
                }
            },
        ),
        ("<forcePersistencyModeBrokerPlugin/>", {"force_persistency_mode": "non_persistent"}),
        ('<forcePersistencyModeBrokerPlugin persistenceFlag="true"/>', {"force_persistency_mode": "persistent"}),
        ("<discardingDLQBrokerPlugin/>", {"discarding_dead_letters": True}),
        (
            '<discardingDLQBrokerPlugin dropAll="false" dropOnly="A\\..* B" dropTemporaryTopics="false"/>',
            {
                "discarding_dead_letters": {
                    "drop_all": False,
                    "drop_only": "A\\..* B",
                    "drop_temporary_topics": False,
                }
            },
        ),
        (
            '<s:bean class="org.apache.activemq.plugin.ForcePersistencyModeBrokerPlugin">'
            '<s:property name="persistenceFlag" value="true"/></s:bean>',
            {"force_persistency_mode": "persistent"},
        ),
        ('<s:ref bean="stamps"/>', {"time_stamping": {"ttl_ceiling": "1s"}}),
    ],
)
def test_a_plugin_is_a_setting(plugin: str, settings: dict[str, Any]) -> None:
    reading = of_body(plugins(plugin), beside='<a:timeStampingBrokerPlugin id="stamps" ttlCeiling="1000"/>')
    assert {name: reading.settings.get(name) for name in settings} == settings
    assert not refusals(reading)
    Config(**reading.settings)


def test_dropping_some_letters_needs_that_not_all_are_dropped() -> None:
    reading = of_body(plugins('<discardingDLQBrokerPlugin dropOnly="A" reportInterval="5"/>'))
    assert reading.settings["discarding_dead_letters"] is True
    assert places(reading, FindingKind.IGNORED) == [
        "discardingDLQBrokerPlugin@reportInterval",
        "discardingDLQBrokerPlugin@dropOnly",
    ]
    assert places(reading, FindingKind.WARNING) == ["discardingDLQBrokerPlugin"]


@pytest.mark.parametrize(
    "name",
    [
        *("loggingBrokerPlugin", "traceBrokerPathPlugin", "connectionDotFilePlugin", "destinationDotFilePlugin"),
        *("multicastTraceBrokerPlugin", "udpTraceBrokerPlugin"),
    ],
)
def test_a_plugin_for_traces_is_ignored(name: str) -> None:
    assert [(each.kind, each.at) for each in of_body(plugins(f"<{name}/>")).findings] == [(FindingKind.IGNORED, name)]


@pytest.mark.parametrize("name", ["runtimeConfigurationPlugin", "virtualSelectorCacheBrokerPlugin"])
def test_a_plugin_that_clients_hardly_notice_is_a_warning(name: str) -> None:
    assert places(of_body(plugins(f"<{name}/>")), FindingKind.WARNING) == [name]


@pytest.mark.parametrize(
    ("plugin", "place"),
    [
        ("<partitionBrokerPlugin/>", "partitionBrokerPlugin"),
        ('<destinationPathSeparatorPlugin pathSeparator="/"/>', "destinationPathSeparatorPlugin"),
        ('<s:bean class="own.Plugin"/>', "plugins/bean"),
        ('<s:bean class="org.apache.activemq.plugin.Unknown"/>', "plugins/bean"),
        ('<s:bean class="org.apache.activemq.plugin.StatisticsBrokerPlugin" init-method="x"/>', "plugins/bean"),
        (
            '<s:bean class="org.apache.activemq.plugin.StatisticsBrokerPlugin"><s:property name="a" ref="b"/></s:bean>',
            "plugins/bean",
        ),
        ('<s:ref bean="own"/>', "ref"),
        ('<s:ref bean="nothing"/>', "ref"),
        ('<x:plugin xmlns:x="urn:x"/>', "plugins/plugin"),
        ('<timeStampingBrokerPlugin ttlCeiling="-1"/>', "timeStampingBrokerPlugin@ttlCeiling"),
    ],
)
def test_a_plugin_that_is_not_run_is_refused(plugin: str, place: str) -> None:
    reading = of_body(plugins(plugin), beside='<s:bean id="own" class="own.Plugin"/>')
    assert places(reading, FindingKind.REFUSED) == [place]


@pytest.mark.parametrize(
    "name",
    ["simpleAuthenticationPlugin", "jaasCertificateAuthenticationPlugin", "authorizationPlugin"],
)
def test_security_is_never_left_out_silently(name: str) -> None:
    reading = of_body(plugins(f"<{name}/>"))
    is_protected = reading.protection.users is not None or reading.protection.rights is not None
    assert name in places(reading, FindingKind.REFUSED) or is_protected


# ---------------------------------------------------------------- redelivery


def test_plugin_that_is_misspelt_is_refused_once() -> None:
    """With the nearest name alone: it is no class of its own."""
    (found,) = refusals(of_body("<plugins><statisticBrokerPlugin/></plugins>"))
    assert found.startswith("statisticBrokerPlugin: plugins of broker cannot hold statisticBrokerPlugin; did you mean ")


def test_redelivery_has_policies() -> None:
    reading = of_body(
        redelivery(
            '<redeliveryPolicy queue="A.>,B" maximumRedeliveries="-1" initialRedeliveryDelay="5000"'
            ' redeliveryDelay="10000" useExponentialBackOff="true" backOffMultiplier="2.0"'
            ' maximumRedeliveryDelay="60000" useCollisionAvoidance="true" collisionAvoidancePercent="20"'
            ' preDispatchCheck="false"/>'
            '<redeliveryPolicy maximumRedeliveryDelay="-1" backOffMultiplier="0.5"><destination>'
            '<queue physicalName="C"/></destination></redeliveryPolicy>',
            '<redeliveryPolicy maximumRedeliveries="4"/>',
            'fallbackToDeadLetter="false" sendToDlqIfMaxRetriesExceeded="true"',
        ),
        SCHEDULER,
    )
    policy = {
        "maximum_redeliveries": -1,
        "initial_redelivery_delay": "5s",
        "redelivery_delay": "10s",
        "use_exponential_back_off": True,
        "back_off_multiplier": 2.0,
        "maximum_redelivery_delay": "1min",
        "use_collision_avoidance": True,
        "collision_avoidance_percent": 20,
    }
    assert reading.settings["redelivery"] == {
        "fallback_to_dead_letter": False,
        "send_to_dlq_if_max_retries_exceeded": True,
        "policies": [
            {"queue": "A.>", **policy},
            {"queue": "B", **policy},
            {"queue": "C", "back_off_multiplier": 1.0},
            {"maximum_redeliveries": 4},
        ],
    }
    assert not refusals(reading)
    assert places(reading, FindingKind.WARNING) == ["defaultEntry"], "it is for topics too in ActiveMQ"
    Config(**reading.settings)


def test_redelivery_without_policies_drops_if_it_is_told_to() -> None:
    body = plugins('<redeliveryPlugin fallbackToDeadLetter="false"/>')
    reading = of_body(body, SCHEDULER)
    assert reading.settings["redelivery"] == {"fallback_to_dead_letter": False}
    Config(**reading.settings)


def test_redelivery_without_anything_has_no_effect() -> None:
    reading = of_body(plugins("<redeliveryPlugin/>"), SCHEDULER)
    assert "redelivery" not in reading.settings
    assert places(reading, FindingKind.IGNORED) == ["redeliveryPlugin"]


@pytest.mark.parametrize(
    ("policy", "place", "why"),
    [
        ('topic="T"', "redeliveryPolicy[T]", "messages of queues that stay"),
        ('tempQueue="true"', "redeliveryPolicy", "messages of queues that stay"),
        ("", "redeliveryPolicy", "it names no queue"),
        ('queue="A" initialRedeliveryDelay="500"', "redeliveryPolicy[A]@initialRedeliveryDelay", "allows 1000 to"),
        ('queue="A" maximumRedeliveryDelay="500"', "redeliveryPolicy[A]@maximumRedeliveryDelay", "allows 1000 to"),
        ('queue="A" backOffMultiplier="1e6"', "redeliveryPolicy[A]@backOffMultiplier", "at most 1000"),
    ],
)
def test_a_redelivery_that_cannot_be_is_refused(policy: str, place: str, why: str) -> None:
    (found,) = refusals(of_body(redelivery(f"<redeliveryPolicy {policy}/>"), SCHEDULER))
    assert found.startswith(f"{place}: ")
    assert why in found


def test_redelivery_needs_the_scheduler() -> None:
    """ActiveMQ does not start without it either."""
    reading = of_body(redelivery('<redeliveryPolicy queue="A"/>'))
    assert places(reading, FindingKind.REFUSED) == ["redeliveryPlugin"]
    assert "redelivery" not in reading.settings


# ---------------------------------------------------------------- destinations


@pytest.mark.parametrize(
    ("attributes", "path"),
    [("", "/opt/amq/activemq-data/localhost/destinations"), ('location="/etc/names"', "/etc/names")],
)
def test_destinations_are_read_from_activemqs_file(attributes: str, path: str) -> None:
    text = "queue://A\ntopic://B\n\ntopic://ActiveMQ.Advisory.Queue\ntemp-queue://ID:x\nC\n"
    reading = of_body(plugins(f"<destinationsPlugin {attributes}/>"), files={path: text})
    assert reading.settings["destinations"] == ["queue://A", "topic://B", "queue://C"]
    assert places(reading, FindingKind.WARNING) == ["destinationsPlugin"]
    Config(**reading.settings)


def test_a_missing_file_of_destinations_is_a_warning() -> None:
    reading = of_body(plugins("<destinationsPlugin/>"))
    assert "destinations" not in reading.settings
    assert places(reading, FindingKind.WARNING) == ["destinationsPlugin"]


def test_a_file_of_destinations_with_an_empty_name_is_refused() -> None:
    reading = of_body(plugins('<destinationsPlugin location="/d"/>'), files={"/d": "queue://\n"})
    assert places(reading, FindingKind.REFUSED) == ["destinationsPlugin"]


# ---------------------------------------------------------------- beside the broker


@pytest.mark.parametrize(
    "name",
    [
        *("jmsBridgeConnectors", "proxyConnectors", "services", "messageAuthorizationPolicy", "regionBroker"),
        *("transportConnectorURIs", "networkConnectorURIs"),
    ],
)
def test_what_would_not_run_beside_the_broker_is_refused(name: str) -> None:
    assert places(of_body(f"<{name}/>"), FindingKind.REFUSED) == [name]


@pytest.mark.parametrize(
    ("handler", "warnings"),
    [
        ('<defaultIOExceptionHandler ignoreAllErrors="false" stopStartConnectors="true"/>', []),
        ('<leaseLockerIOExceptionHandler ignoreAllErrors="true"/>', ["leaseLockerIOExceptionHandler@ignoreAllErrors"]),
        ('<s:bean class="own.Handler"/>', ["ioExceptionHandler/bean"]),
    ],
)
def test_a_handler_of_errors_is_a_warning_if_it_goes_on(handler: str, warnings: list[str]) -> None:
    reading = of_body(f"<ioExceptionHandler>{handler}</ioExceptionHandler>")
    assert places(reading, FindingKind.WARNING) == warnings
    assert not refusals(reading)
