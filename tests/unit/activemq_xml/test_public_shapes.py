"""Elements and attributes that the configurations of public repositories have, each with what it is to give.

Source: activemq-xml.md, 1.1 and 1.2, which count them in 72 files of 64 repositories.
"""

import xml.etree.ElementTree as ET
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from pybroker.activemq_xml.elements import BEANS, CORE
from pybroker.activemq_xml.findings import FindingKind
from pybroker.activemq_xml.reading import Reading
from tests.unit.activemq_xml.reading_bench import CONNECTORS, FILE, file, interpreted

BASELINE: Final[Mapping[str, Any]] = {
    "store": "memory:",
    "bind": "0.0.0.0",
    "openwire": 61616,
    "stomp": "off",
    "scheduler": False,
    "topic_pending_limit": -1,
}
"""The settings of a broker with a connector and no store."""

IGNORED, WARNING, REFUSED = FindingKind.IGNORED, FindingKind.WARNING, FindingKind.REFUSED
Found = tuple[FindingKind, str]
CONF: Final = FILE.parent
LOGIN_CONFIG: Final = """
activemq { org.apache.activemq.jaas.PropertiesLoginModule required
    org.apache.activemq.jaas.properties.user="users.properties"
    org.apache.activemq.jaas.properties.group="groups.properties"; };
LDAPLogin { org.apache.activemq.jaas.LDAPLoginModule required connectionURL="ldap://h:389"; };
karaf { org.apache.karaf.jaas.modules.properties.PropertiesLoginModule required; };
activemq-cert { org.apache.activemq.jaas.TextFileCertificateLoginModule required
    org.apache.activemq.jaas.textfiledn.user="certificates.properties"
    org.apache.activemq.jaas.textfiledn.group="groups.properties"; };
"""
FILES: Final = {
    str(CONF / name): text
    for name, text in {
        "login.config": LOGIN_CONFIG,
        "users.properties": "system=manager\n",
        "certificates.properties": "client=CN=client, O=x\n",
        "groups.properties": "admins=system\n",
        "credentials.properties": "activemq.username=system\n",
    }.items()
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One part of a configuration.

    Attributes:
        content: the elements in the broker, besides connectors unless it has them.
        beside: the elements beside the broker.
        settings: those that it gives besides, or instead of, `BASELINE`.
        absent: those of `BASELINE` that it does not give.
        findings: all that is found about it, in the order of the file.
    """

    content: str = ""
    beside: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    absent: tuple[str, ...] = ()
    findings: tuple[Found, ...] = ()
    attributes: str = 'persistent="false"'

    @property
    def text(self) -> str:
        connectors = "" if "<transportConnectors>" in self.content else CONNECTORS
        return file(f'{self.beside}<broker xmlns="{CORE}" {self.attributes}>{self.content}{connectors}</broker>')


def policy(content: str, entry: str = 'queue=">"') -> str:
    entries = f"<policyEntries><policyEntry {entry}>{content}</policyEntry></policyEntries>"
    return f"<destinationPolicy><policyMap>{entries}</policyMap></destinationPolicy>"


def plugin(content: str) -> str:
    return f"<plugins>{content}</plugins>"


def store(content: str) -> str:
    return f"<persistenceAdapter>{content}</persistenceAdapter>"


USERS: Final = (
    "<simpleAuthenticationPlugin><users>"
    '<authenticationUser username="system" password="s3cret" groups="admins"/>'
    "</users></simpleAuthenticationPlugin>"
)
CLEAR: Final = (WARNING, "authenticationUser@password")
DATA_SOURCE: Final = (
    '<bean id="ds" class="org.apache.commons.dbcp2.BasicDataSource"><property name="url" value="jdbc:{}"/>'
    '<property name="username" value="amq"/><property name="maxTotal" value="20"/></bean>'
)
POSTGRES: Final = "postgresql://db:5432/amq"
BEAN: Final = f'<bean xmlns="{BEANS}" class="{{}}"/>'
NO_STORE: Final[Mapping[str, Any]] = {"attributes": "", "absent": ("store",)}

SHAPES: Final[Mapping[str, Shape]] = {
    "broker, transportConnectors, transportConnector": Shape(
        content='<transportConnectors><transportConnector name="openwire" '
        'uri="tcp://0.0.0.0:61616?maximumConnections=1000&amp;wireFormat.maxFrameSize=104857600"/>'
        '<transportConnector name="stomp" uri="stomp://0.0.0.0:61613?maximumConnections=1000"/></transportConnectors>',
        settings={
            "connections_max": 2000,
            "listeners": [
                {
                    "name": "openwire",
                    "protocol": "openwire",
                    "host": "0.0.0.0",
                    "port": 61616,
                    "connections_max": 1000,
                    "frame_max": "100mb",
                },
                {"name": "stomp", "protocol": "stomp", "host": "0.0.0.0", "port": 61613, "connections_max": 1000},
            ],
        },
        absent=("bind", "openwire", "stomp"),
    ),
    "destinationPolicy, policyMap, policyEntries, policyEntry": Shape(
        content=policy("", 'topic="&gt;" producerFlowControl="true" memoryLimit="1mb"'),
        settings={"policies": [{"topic": ">", "producer_flow_control": True, "memory_limit": "1mb"}]},
    ),
    "persistenceAdapter": Shape(
        content=store("<memoryPersistenceAdapter/>"),
        attributes="",
    ),
    "systemUsage, memoryUsage, storeUsage, tempUsage": Shape(
        content='<systemUsage><systemUsage><memoryUsage><memoryUsage limit="64 mb"/></memoryUsage><storeUsage>'
        '<storeUsage limit="100 gb"/></storeUsage><tempUsage><tempUsage limit="50 gb"/></tempUsage>'
        "</systemUsage></systemUsage>",
        settings={"memory_limit": "64mb", "spool_limit": "50gb"},
        findings=((IGNORED, "storeUsage"),),
    ),
    "managementContext": Shape(
        content='<managementContext><managementContext createConnector="false"/></managementContext>',
        findings=((IGNORED, "managementContext"),),
    ),
    "managementContext with createConnector": Shape(
        content='<managementContext><managementContext createConnector="true"/></managementContext>',
        findings=((WARNING, "managementContext"),),
    ),
    "kahaDB": Shape(
        content=store('<kahaDB directory="${activemq.data}/kahadb"/>'),
        attributes="",
        settings={"store": "/opt/amq/data", "lock": "file"},
    ),
    "pendingMessageLimitStrategy, constantPendingMessageLimitStrategy": Shape(
        content=policy(
            "<pendingMessageLimitStrategy><constantPendingMessageLimitStrategy "
            'limit="1000"/></pendingMessageLimitStrategy>',
            'topic="&gt;"',
        ),
        settings={"policies": [{"topic": ">", "pending_message_limit_strategy": 1000}]},
    ),
    "shutdownHooks, SpringContextHook": Shape(
        content=f"<shutdownHooks>{BEAN.format('org.apache.activemq.hooks.SpringContextHook')}</shutdownHooks>",
        findings=((IGNORED, "shutdownHooks"),),
    ),
    "shutdownHooks with another bean": Shape(
        content=f"<shutdownHooks>{BEAN.format('org.example.Hook')}</shutdownHooks>",
        findings=((WARNING, "shutdownHooks"),),
    ),
    "plugins, simpleAuthenticationPlugin, users, authenticationUser": Shape(content=plugin(USERS), findings=(CLEAR,)),
    "authorizationPlugin, map, authorizationMap, authorizationEntries, authorizationEntry": Shape(
        content=plugin(
            f"{USERS}<authorizationPlugin><map><authorizationMap><authorizationEntries>"
            '<authorizationEntry queue="&gt;" read="admins" write="admins" admin="admins"/>'
            "</authorizationEntries></authorizationMap></map></authorizationPlugin>"
        ),
        # Without the right to create queues, a client could not use one again that was removed when idle.
        settings={"destination_purge_interval": "0s"},
        findings=(CLEAR,),
    ),
    "networkConnectors, networkConnector, staticallyIncludedDestinations, dynamicallyIncludedDestinations": Shape(
        content='<networkConnectors><networkConnector uri="static:(tcp://other:61616)"><staticallyIncludedDestinations>'
        '<queue physicalName="A"/></staticallyIncludedDestinations><dynamicallyIncludedDestinations>'
        '<topic physicalName="B"/></dynamicallyIncludedDestinations></networkConnector></networkConnectors>',
        settings={
            "network": [
                {
                    "name": "NC",
                    "uri": "static:(tcp://other:61616)",
                    "statically_included": ["queue://A"],
                    "dynamically_included": ["topic://B"],
                }
            ]
        },
    ),
    "sslContext": Shape(
        content='<sslContext><sslContext keyStore="file:${activemq.conf}/broker.p12" keyStoreType="PKCS12" '
        'keyStorePassword="s3cret"/></sslContext><transportConnectors>'
        '<transportConnector uri="ssl://0.0.0.0:61617"/></transportConnectors>',
        settings={"openwire": "off", "openwire_ssl": 61617},
        findings=((WARNING, "sslContext@keyStore"),),
    ),
    "statisticsBrokerPlugin": Shape(content=plugin("<statisticsBrokerPlugin/>"), settings={"statistics": True}),
    "jaasAuthenticationPlugin": Shape(
        content=plugin('<jaasAuthenticationPlugin configuration="activemq"/>'),
        settings={"users_file": f"{CONF}/users.properties", "groups_file": f"{CONF}/groups.properties"},
    ),
    "jaasAuthenticationPlugin with LDAP": Shape(
        content=plugin('<jaasAuthenticationPlugin configuration="LDAPLogin"/>'),
        findings=((REFUSED, "jaasAuthenticationPlugin"),),
    ),
    "jaasAuthenticationPlugin with the realm of Karaf": Shape(
        content=plugin('<jaasAuthenticationPlugin configuration="karaf"/>'),
        findings=((REFUSED, "jaasAuthenticationPlugin"),),
    ),
    "networkBridgeFilterFactory, conditionalNetworkBridgeFilterFactory": Shape(
        content=policy(
            '<networkBridgeFilterFactory><conditionalNetworkBridgeFilterFactory replayWhenNoConsumers="true"/>'
            "</networkBridgeFilterFactory>"
        ),
        settings={
            "policies": [
                {
                    "queue": ">",
                    "network_bridge_filter_factory": {"type": "conditional", "replay_when_no_consumers": True},
                }
            ]
        },
    ),
    "destinationInterceptors, virtualDestinationInterceptor, virtualDestinations, virtualTopic": Shape(
        content="<destinationInterceptors><virtualDestinationInterceptor><virtualDestinations>"
        '<virtualTopic name="VT.&gt;" prefix="C.*."/></virtualDestinations></virtualDestinationInterceptor>'
        "</destinationInterceptors>",
        settings={"virtual_topics": [{"name": "VT.>", "prefix": "C.*."}]},
    ),
    "pendingSubscriberPolicy, vmCursor, pendingQueuePolicy, vmQueueCursor, pendingDurableSubscriberPolicy": Shape(
        content=policy(
            "<pendingSubscriberPolicy><vmCursor/></pendingSubscriberPolicy><pendingQueuePolicy><vmQueueCursor/>"
            "</pendingQueuePolicy><pendingDurableSubscriberPolicy><vmDurableCursor/></pendingDurableSubscriberPolicy>"
        ),
        settings={"policies": [{"queue": ">"}]},
        findings=(
            (IGNORED, "pendingSubscriberPolicy/vmCursor"),
            (IGNORED, "pendingQueuePolicy/vmQueueCursor"),
            (IGNORED, "pendingDurableSubscriberPolicy/vmDurableCursor"),
        ),
    ),
    "fileCursor": Shape(
        content=policy("<pendingSubscriberPolicy><fileCursor/></pendingSubscriberPolicy>", 'topic="&gt;"'),
        settings={"policies": [{"topic": ">"}]},
        findings=((IGNORED, "pendingSubscriberPolicy/fileCursor"),),
    ),
    "deadLetterStrategy, individualDeadLetterStrategy": Shape(
        content=policy(
            '<deadLetterStrategy><individualDeadLetterStrategy queuePrefix="DLQ."/></deadLetterStrategy>',
        ),
        settings={
            "policies": [{"queue": ">", "dead_letter_strategy": {"type": "individual", "queue_prefix": "DLQ."}}],
        },
    ),
    "sharedDeadLetterStrategy": Shape(
        content=policy(
            '<deadLetterStrategy><sharedDeadLetterStrategy processExpired="false"/></deadLetterStrategy>',
        ),
        settings={
            "policies": [{"queue": ">", "dead_letter_strategy": {"type": "shared", "process_expired": False}}],
        },
    ),
    "destinations, queue, topic": Shape(
        content='<destinations><queue physicalName="A"/><topic physicalName="B"/></destinations>',
        settings={"destinations": ["queue://A", "topic://B"]},
    ),
    "jdbcPersistenceAdapter of PostgreSQL, locker, lease-database-locker": Shape(
        beside=DATA_SOURCE.format(POSTGRES),
        content=store(
            '<jdbcPersistenceAdapter dataSource="#ds"><locker><lease-database-locker/></locker>'
            "</jdbcPersistenceAdapter>"
        ),
        attributes="",
        settings={"store": "postgresql://amq@db:5432/amq", "lock": "postgres-lease", "lock_lease": "10s"},
        findings=(
            (IGNORED, "BasicDataSource.maxTotal"),
            (WARNING, "lease-database-locker"),
            (WARNING, "broker@brokerName"),
        ),
    ),
    "jdbcPersistenceAdapter of MySQL": Shape(
        beside=DATA_SOURCE.format("mysql://db/amq"),
        content=store('<jdbcPersistenceAdapter dataSource="#ds"/>'),
        findings=((IGNORED, "BasicDataSource.maxTotal"), (REFUSED, "BasicDataSource.url")),
        **NO_STORE,
    ),
    "jdbcPersistenceAdapter without a lock": Shape(
        beside=DATA_SOURCE.format(POSTGRES),
        content=store('<jdbcPersistenceAdapter dataSource="#ds" useDatabaseLock="false"/>'),
        attributes="",
        settings={"store": "postgresql://amq@db:5432/amq", "lock": "postgres-row"},
        findings=((REFUSED, "jdbcPersistenceAdapter@useDatabaseLock"), (IGNORED, "BasicDataSource.maxTotal")),
    ),
    "statements": Shape(
        beside=DATA_SOURCE.format(POSTGRES),
        content=store(
            '<jdbcPersistenceAdapter dataSource="#ds"><statements><statements tablePrefix="X_"/></statements>'
            "</jdbcPersistenceAdapter>"
        ),
        attributes="",
        settings={"store": "postgresql://amq@db:5432/amq", "lock": "postgres-row"},
        findings=((REFUSED, "statements@tablePrefix"), (IGNORED, "BasicDataSource.maxTotal")),
    ),
    "levelDB": Shape(
        content=store('<levelDB directory="d"/>'), findings=((REFUSED, "levelDB"), (REFUSED, "levelDB")), **NO_STORE
    ),
    "replicatedLevelDB": Shape(
        content=store('<replicatedLevelDB replicas="3" zkPassword="s3cret"/>'),
        findings=((REFUSED, "replicatedLevelDB"), (REFUSED, "replicatedLevelDB")),
        **NO_STORE,
    ),
    "timeStampingBrokerPlugin": Shape(
        content=plugin('<timeStampingBrokerPlugin zeroExpirationOverride="1000"/>'),
        settings={"time_stamping": {"zero_expiration_override": "1s"}},
    ),
    "loggingBrokerPlugin": Shape(
        content=plugin("<loggingBrokerPlugin/>"), findings=((IGNORED, "loggingBrokerPlugin"),)
    ),
    "discardingDLQBrokerPlugin": Shape(
        content=plugin("<discardingDLQBrokerPlugin/>"),
        settings={"discarding_dead_letters": True},
        findings=((WARNING, "discardingDLQBrokerPlugin"),),
    ),
    "forcePersistencyModeBrokerPlugin": Shape(
        content=plugin('<forcePersistencyModeBrokerPlugin persistenceFlag="true"/>'),
        settings={"force_persistency_mode": "persistent"},
    ),
    "runtimeConfigurationPlugin": Shape(
        content=plugin('<runtimeConfigurationPlugin checkPeriod="1000"/>'),
        findings=((WARNING, "runtimeConfigurationPlugin"),),
    ),
    "jaasCertificateAuthenticationPlugin": Shape(
        content=plugin('<jaasCertificateAuthenticationPlugin configuration="activemq-cert"/>')
        + CONNECTORS.replace("tcp://0.0.0.0:61616", "ssl://0.0.0.0:61617?needClientAuth=true")
        + '<sslContext><sslContext keyStore="k" trustStore="t"/></sslContext>',
        settings={
            "openwire": "off",
            "openwire_ssl": 61617,
            "certificate_users_file": f"{CONF}/certificates.properties",
            "certificate_groups_file": f"{CONF}/groups.properties",
        },
        findings=((WARNING, "sslContext@keyStore"),),
    ),
    "cachedLDAPAuthorizationMap": Shape(
        content=plugin(
            f"{USERS}<authorizationPlugin><map><cachedLDAPAuthorizationMap connectionURL='ldap://h:389'/></map>"
            "</authorizationPlugin>"
        ),
        settings={"destination_purge_interval": "0s"},
        findings=(CLEAR, (REFUSED, "cachedLDAPAuthorizationMap")),
    ),
    "mirroredQueue": Shape(
        content='<destinationInterceptors><mirroredQueue copyMessage="true" postfix=".m" prefix=""/>'
        "</destinationInterceptors>",
        settings={"virtual_topics": [], "mirrored_queues": {"prefix": "", "postfix": ".m"}},
        findings=((IGNORED, "mirroredQueue@copyMessage"),),
    ),
    "ioExceptionHandler, defaultIOExceptionHandler": Shape(
        content='<ioExceptionHandler><defaultIOExceptionHandler ignoreAllErrors="true"/></ioExceptionHandler>',
        findings=((IGNORED, "defaultIOExceptionHandler"), (WARNING, "defaultIOExceptionHandler@ignoreAllErrors")),
    ),
    "messageAuthorizationPolicy": Shape(
        content=f"<messageAuthorizationPolicy>{BEAN.format('org.example.Policy')}</messageAuthorizationPolicy>",
        findings=((REFUSED, "messageAuthorizationPolicy"),),
    ),
    "a plugin of its own class": Shape(
        content=plugin(BEAN.format("org.example.Plugin")), findings=((REFUSED, "plugins/bean"),)
    ),
    "beans, PropertyPlaceholderConfigurer, import, Log4jLogQuery": Shape(
        beside='<bean class="org.springframework.beans.factory.config.PropertyPlaceholderConfigurer"><property '
        'name="locations"><value>file:${activemq.conf}/credentials.properties</value></property></bean>'
        '<bean id="logQuery" class="io.fabric8.insight.log.log4j.Log4jLogQuery" lazy-init="false"/>'
        '<import resource="jetty.xml"/><import resource="camel.xml"/>',
        findings=((IGNORED, "import jetty.xml"), (WARNING, "import camel.xml"), (IGNORED, "bean[logQuery]")),
    ),
}
"""By the elements that a file has, those of the table's rows first."""

ROWS: Final = """
broker transportConnectors transportConnector | destinationPolicy policyMap policyEntries policyEntry |
persistenceAdapter | systemUsage memoryUsage storeUsage tempUsage | managementContext | kahaDB |
pendingMessageLimitStrategy constantPendingMessageLimitStrategy | shutdownHooks | plugins |
simpleAuthenticationPlugin users authenticationUser |
authorizationPlugin map authorizationMap authorizationEntries authorizationEntry |
networkConnectors networkConnector staticallyIncludedDestinations dynamicallyIncludedDestinations |
sslContext | statisticsBrokerPlugin | jaasAuthenticationPlugin |
networkBridgeFilterFactory conditionalNetworkBridgeFilterFactory |
destinationInterceptors virtualDestinationInterceptor virtualDestinations virtualTopic |
pendingSubscriberPolicy vmCursor fileCursor pendingQueuePolicy vmQueueCursor pendingDurableSubscriberPolicy |
deadLetterStrategy individualDeadLetterStrategy sharedDeadLetterStrategy | destinations queue topic |
jdbcPersistenceAdapter locker lease-database-locker statements | levelDB replicatedLevelDB |
timeStampingBrokerPlugin | loggingBrokerPlugin |
discardingDLQBrokerPlugin forcePersistencyModeBrokerPlugin runtimeConfigurationPlugin
jaasCertificateAuthenticationPlugin cachedLDAPAuthorizationMap mirroredQueue ioExceptionHandler
defaultIOExceptionHandler messageAuthorizationPolicy | beans bean import
"""
"""The elements of the table's rows, between bars."""


def found(reading: Reading) -> list[Found]:
    return [(each.kind, each.at) for each in reading.findings]


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_shape_gives_settings_and_findings(shape: Shape) -> None:
    reading = interpreted(shape.text, files=FILES)
    assert found(reading) == list(shape.findings)
    expected = {name: value for name, value in BASELINE.items() if name not in shape.absent} | dict(shape.settings)
    assert reading.settings == expected


@pytest.mark.parametrize("row", ROWS.split("|"), ids=lambda row: row.split()[0])
def test_each_row_of_the_table_has_a_shape(row: str) -> None:
    covered = {each.tag.rpartition("}")[2] for shape in SHAPES.values() for each in ET.fromstring(shape.text).iter()}
    assert covered.issuperset(row.split())


def test_every_refusal_of_a_shape_has_a_reason() -> None:
    for name, shape in SHAPES.items():
        for each in interpreted(shape.text, files=FILES).findings:
            assert str(each).startswith(f"line {each.line}: {each.at}: "), name
            assert len(each.why.split()) > 3, name


# ---------------------------------------------------------------- attributes, 1.2

BROKER: Final[tuple[tuple[str, Mapping[str, Any], FindingKind | None], ...]] = (
    ('brokerName="localhost"', {}, None),
    ('brokerName="orders"', {"broker_name": "orders", "name": "orders"}, None),
    ('dataDirectory="${activemq.data}"', {}, None),
    ('useJmx="true"', {}, IGNORED),
    ('schedulerSupport="true"', {"scheduler": True}, None),
    ('start="false"', {}, IGNORED),
    ('destroyApplicationContextOnStop="true"', {}, REFUSED),
    ('restartAllowed="false"', {}, IGNORED),
    ('brokerId="b"', {}, IGNORED),
    ('schedulePeriodForDestinationPurge="10000"', {"destination_purge_interval": "10s"}, None),
    ('advisorySupport="false"', {}, WARNING),
    ('cacheTempDestinations="true"', {}, IGNORED),
    ('splitSystemUsageForProducersConsumers="true"', {}, IGNORED),
    ('id="broker"', {}, None),
)
CONNECTOR: Final[tuple[tuple[str, FindingKind], ...]] = (
    ('discoveryUri="multicast://default"', WARNING),
    ('enableStatusMonitor="true"', IGNORED),
)
KAHADB: Final[tuple[tuple[str, Mapping[str, Any], FindingKind | None], ...]] = (
    ('preallocationStrategy="sparse_file"', {"journal_preallocate": True}, IGNORED),
    ('concurrentStoreAndDispatchQueues="false"', {}, IGNORED),
    ('journalDiskSyncStrategy="periodic"', {"sync": "periodic"}, None),
    ('journalDiskSyncInterval="1000"', {"sync_interval": "1s"}, None),
    ('journalMaxFileLength="32mb"', {"journal_file_max": "32mb"}, None),
    ('enableJournalDiskSyncs="false"', {"sync": "never"}, WARNING),
    ('lockKeepAlivePeriod="5000"', {}, IGNORED),
    ('indexCacheSize="1000"', {}, IGNORED),
)
POLICY: Final[tuple[tuple[str, Mapping[str, Any], FindingKind | None], ...]] = (
    ('producerFlowControl="false"', {"producer_flow_control": False}, None),
    ('memoryLimit="1mb"', {"memory_limit": "1mb"}, None),
    ('gcInactiveDestinations="true"', {}, IGNORED),
    ('inactiveTimoutBeforeGC="30000"', {}, IGNORED),
    ('maxBrowsePageSize="100"', {"max_browse_page_size": 100}, None),
    ('optimizedDispatch="true"', {}, IGNORED),
    ('queuePrefetch="1"', {"queue_prefetch": 1}, None),
    ('prioritizedMessages="true"', {"prioritized_messages": True}, None),
    ('cursorMemoryHighWaterMark="70"', {}, IGNORED),
    ('enableAudit="false"', {}, IGNORED),
    ('consumersBeforeDispatchStarts="2"', {"consumers_before_dispatch_starts": 2}, None),
    ('timeBeforeDispatchStarts="1000"', {"time_before_dispatch_starts": "1s"}, None),
)


def kinds(reading: Reading) -> list[FindingKind]:
    return [each.kind for each in reading.findings]


def only(kind: FindingKind | None) -> list[FindingKind]:
    return [] if kind is None else [kind]


@pytest.mark.parametrize(("attribute", "settings", "kind"), BROKER)
def test_attribute_of_a_broker(attribute: str, settings: Mapping[str, Any], kind: FindingKind | None) -> None:
    reading = interpreted(Shape(attributes=f'persistent="false" {attribute}').text)
    assert kinds(reading) == only(kind)
    assert reading.settings == {**BASELINE, **settings}


@pytest.mark.parametrize(("attribute", "kind"), CONNECTOR)
def test_attribute_of_a_connector(attribute: str, kind: FindingKind) -> None:
    connector = f'<transportConnector name="openwire" uri="tcp://0.0.0.0:61616" {attribute}/>'
    reading = interpreted(Shape(content=f"<transportConnectors>{connector}</transportConnectors>").text)
    assert kinds(reading) == [kind]
    assert reading.settings == BASELINE


@pytest.mark.parametrize(("attribute", "settings", "kind"), KAHADB)
def test_attribute_of_a_kahadb(attribute: str, settings: Mapping[str, Any], kind: FindingKind | None) -> None:
    reading = interpreted(Shape(content=store(f'<kahaDB directory="/d/kahadb" {attribute}/>'), attributes="").text)
    assert kinds(reading) == only(kind)
    assert reading.settings == {**BASELINE, "store": "/d", "lock": "file", **settings}


@pytest.mark.parametrize(("attribute", "settings", "kind"), POLICY)
def test_attribute_of_a_policy(attribute: str, settings: Mapping[str, Any], kind: FindingKind | None) -> None:
    reading = interpreted(Shape(content=policy("", f'queue="*.reply.&gt;" {attribute}')).text)
    assert kinds(reading) == only(kind)
    assert reading.settings == {**BASELINE, "policies": [{"queue": "*.reply.>", **settings}]}


@pytest.mark.parametrize("scheme", ["http", "https", "udp", "multicast"])
def test_scheme_that_is_not_served_is_a_warning_beside_others(scheme: str) -> None:
    more = f'<transportConnector name="other" uri="{scheme}://0.0.0.0:1"/></transportConnectors>'
    reading = interpreted(Shape(content=CONNECTORS.replace("</transportConnectors>", more)).text)
    assert found(reading) == [(WARNING, "transportConnector[other]")]
    assert reading.settings == BASELINE


@pytest.mark.parametrize(
    ("scheme", "setting"),
    [
        ("tcp", "openwire"),
        ("nio", "openwire"),
        ("ssl", "openwire_ssl"),
        ("nio+ssl", "openwire_ssl"),
        ("stomp", "stomp"),
        ("stomp+nio", "stomp"),
        ("stomp+ssl", "stomp_ssl"),
        ("stomp+nio+ssl", "stomp_ssl"),
    ],
)
def test_scheme_that_is_served_is_a_listener(scheme: str, setting: str) -> None:
    connector = f'<transportConnector uri="{scheme}://0.0.0.0:1"/>'
    reading = interpreted(Shape(content=f"<transportConnectors>{connector}</transportConnectors>").text)
    assert reading.settings[setting] == 1
    assert {name: reading.settings.get(name) for name in {"openwire", "stomp"} - {setting}} == dict.fromkeys(
        {"openwire", "stomp"} - {setting}, "off"
    )
