"""The connectors, as settings of one listener each, or as a table."""

import pytest

from pybroker.activemq_xml.broker_element import Demands
from pybroker.activemq_xml.connectors import CONNECTIONS_MAX
from pybroker.activemq_xml.findings import FindingKind
from pybroker.activemq_xml.reading import Reading
from pybroker.broker.app.config import Config
from pybroker.broker.app.listeners import PORTS
from pybroker.broker.domain.network.cluster import ClusterSettings
from tests.unit.activemq_xml.reading_bench import of_broker, places, reasons


def connectors(*uris: str, attributes: str = "", demands: Demands = Demands()) -> Reading:  # noqa: B008 - frozen
    elements = "".join(
        f'<transportConnector name="c{number}" uri="{uri.replace("&", "&amp;")}" {attributes}/>'
        for number, uri in enumerate(uris)
    )
    stores = {"javax.net.ssl.keyStore": "/broker.ks", "javax.net.ssl.trustStore": "/trust.ks"}
    return of_broker("", f"<transportConnectors>{elements}</transportConnectors>", demands=demands, properties=stores)


def listening(reading: Reading) -> dict[str, object]:
    names = ("bind", *PORTS, "listeners")
    return {name: reading.settings[name] for name in names if name in reading.settings}


class TestSettings:
    @pytest.mark.parametrize(
        ("uri", "expected"),
        [
            ("tcp://0.0.0.0:61616", {"bind": "0.0.0.0", "openwire": 61616, "stomp": "off"}),
            ("nio://h", {"bind": "h", "openwire": 61616, "stomp": "off"}),
            ("ssl://h:1", {"bind": "h", "openwire_ssl": 1, "openwire": "off", "stomp": "off"}),
            ("nio+ssl://h:1", {"bind": "h", "openwire_ssl": 1, "openwire": "off", "stomp": "off"}),
            ("tcp://[::]:61616", {"bind": "::", "openwire": 61616, "stomp": "off"}),
            ("stomp://[::1]", {"bind": "::1", "stomp": 61613, "openwire": "off"}),
            ("stomp+nio+ssl://h:0", {"bind": "h", "stomp_ssl": 0, "openwire": "off", "stomp": "off"}),
            ("auto+nio://h:2", {"bind": "h", "auto": 2, "openwire": "off", "stomp": "off"}),
            (
                "auto://h:2?auto.protocols=default,stomp,amqp",
                {"bind": "h", "auto": 2, "openwire": "off", "stomp": "off"},
            ),
            ("auto://h:2?auto.protocols=all", {"bind": "h", "auto": 2, "openwire": "off", "stomp": "off"}),
            ("auto://h:2?auto.protocols=stomp,ws", {"bind": "h", "stomp": 2, "openwire": "off"}),
            ("auto://h:2?auto.protocols=stomp,amqp", {"bind": "h", "auto": 2, "openwire": "off", "stomp": "off"}),
            ("auto://h:2?auto.protocols=amqp", {"bind": "h", "amqp": 2, "openwire": "off", "stomp": "off"}),
            ("amqp://h", {"bind": "h", "amqp": 5672, "openwire": "off", "stomp": "off"}),
            ("amqp+nio+ssl://h:2", {"bind": "h", "amqp_ssl": 2, "openwire": "off", "stomp": "off"}),
            ("auto://h:2?auto.protocols=stomp,mqtt", {"bind": "h", "auto": 2, "openwire": "off", "stomp": "off"}),
            ("auto://h:2?auto.protocols=mqtt", {"bind": "h", "mqtt": 2, "openwire": "off", "stomp": "off"}),
            ("mqtt://h", {"bind": "h", "mqtt": 1883, "openwire": "off", "stomp": "off"}),
            ("mqtt+nio+ssl://h:2", {"bind": "h", "mqtt_ssl": 2, "openwire": "off", "stomp": "off"}),
            (
                "auto+ssl://h:2?auto.protocols=default",
                {"bind": "h", "openwire_ssl": 2, "openwire": "off", "stomp": "off"},
            ),
            ("auto+ssl://h:2", {"bind": "h", "auto_ssl": 2, "openwire": "off", "stomp": "off"}),
        ],
    )
    def test_a_scheme_is_a_setting(self, uri: str, expected: dict[str, object]) -> None:
        reading = connectors(uri)
        assert listening(reading) == expected
        assert reasons(reading) == []

    def test_equal_limits_of_connections_are_added(self) -> None:
        reading = connectors("tcp://h:1?maximumConnections=1000", "stomp://h:2?maximumConnections=1000")
        assert reading.settings["connections_max"] == 2000
        assert "listeners" not in reading.settings

    def test_options_of_the_wire_format(self) -> None:
        reading = connectors(
            "tcp://h:1?wireFormat.maxFrameSize=104857600&wireFormat.maxInactivityDuration=60000"
            "&wireFormat.maxInactivityDurationInitalDelay=20000"
        )
        names = ("frame_max", "openwire_max_inactivity", "openwire_initial_delay")
        assert [reading.settings[name] for name in names] == ["100mb", "1min", "20s"]
        assert connectors("tcp://h:1?transport.useInactivityMonitor=false").settings["openwire_max_inactivity"] == "0s"

    def test_demands_of_tls(self) -> None:
        reading = connectors("ssl://h:1?transport.needClientAuth=true&transport.enabledProtocols=TLSv1.3")
        assert (reading.client_auth, reading.settings["tls_version_min"]) == ("need", "1.3")
        assert connectors("ssl://h:1?wantClientAuth=true").client_auth == "want"
        assert connectors("ssl://h:1?wantClientAuth=false").client_auth == ""

    def test_the_place_of_each_setting_is_known(self) -> None:
        origin = connectors("tcp://h:1").origins["openwire"]
        assert (origin.at, origin.line) == ("transportConnector[c0]@uri", 1)


class TestTheTable:
    @pytest.mark.parametrize(
        "uris",
        [
            ("tcp://h:1", "nio://h:2"),
            ("tcp://h:1", "stomp://i:2"),
            ("tcp://h:1?wireFormat.maxFrameSize=1000", "stomp://h:2"),
            ("ssl://h:1?needClientAuth=true", "stomp+ssl://h:2"),
            ("tcp://h:1?wireFormat.maxInactivityDuration=1000", "auto://h:2"),
            ("tcp://h:1?maximumConnections=1000", "stomp://h:2?maximumConnections=2"),
            ("tcp://h:1?maximumConnections=200", "stomp://h:2"),
        ],
    )
    def test_what_one_setting_for_all_would_not_say(self, uris: tuple[str, ...]) -> None:
        reading = connectors(*uris)
        assert set(listening(reading)) == {"listeners"}
        assert [each["name"] for each in reading.settings["listeners"]] == ["c0", "c1"]

    def test_an_entry_has_what_its_connector_has(self) -> None:
        reading = connectors("tcp://h:1?maximumConnections=7", "ssl://i:2?needClientAuth=true", "ssl://j:3")
        assert reading.settings["listeners"] == [
            {"name": "c0", "protocol": "openwire", "host": "h", "port": 1, "connections_max": 7},
            {"name": "c1", "protocol": "openwire", "host": "i", "port": 2, "tls": True, "tls_client_auth": "need"},
            {"name": "c2", "protocol": "openwire", "host": "j", "port": 3, "tls": True, "tls_client_auth": "none"},
        ]


class TestFindings:
    def test_other_protocols_are_not_opened(self) -> None:
        uris = ("tcp://h:1", "https://h:2", "udp://h:3", "http://h:5", "vm://x")
        reading = connectors(*uris)
        assert places(reading, FindingKind.WARNING) == [f"transportConnector[c{number}]" for number in range(1, 4)]
        assert places(reading, FindingKind.IGNORED) == ["transportConnector[c4]"]
        reading = connectors(*uris, demands=Demands(are_all_connectors_required=True))
        assert len(places(reading, FindingKind.REFUSED)) == 3

    def test_websocket_is_stomp_for_pages_of_its_host(self) -> None:
        reading = connectors(
            "tcp://h:1?wireFormat.maxFrameSize=1048576",
            "ws://h?wireFormat.maxFrameSize=104857600&websocket.maxIdleTime=1&websocket.maxTextMessageSize=9",
            demands=Demands(are_all_connectors_required=True),
        )
        assert listening(reading) == {"bind": "h", "openwire": 1, "stomp": "off", "ws": 61614}
        assert reading.settings["frame_max"] == "1mb"
        assert places(reading, FindingKind.WARNING) == ["transportConnector[c1]", "websocket.maxTextMessageSize"]
        assert places(reading, FindingKind.IGNORED) == ["wireFormat.maxFrameSize", "websocket.maxIdleTime"]
        assert any("list the origins of others in websocket_origins" in str(each) for each in reading.findings)

    def test_websocket_with_tls_has_the_stores_of_the_broker(self) -> None:
        reading = connectors(
            "stomp://h:1", "ws://h:2?maximumConnections=5", "wss://h:3?needClientAuth=true", "ws://h:4"
        )
        assert reading.settings["listeners"] == [
            {"name": "c0", "protocol": "stomp", "host": "h", "port": 1},
            {"name": "c1", "protocol": "ws", "host": "h", "port": 2, "connections_max": 5},
            {"name": "c2", "protocol": "ws", "host": "h", "port": 3, "tls": True, "tls_client_auth": "need"},
            {"name": "c3", "protocol": "ws", "host": "h", "port": 4},
        ]

    @pytest.mark.parametrize(
        ("uri", "reason"),
        [
            ("tcp://h:1?maximumConnections=many", "maximumConnections: it must be a whole number"),
            ("tcp://h:1?maximumConnections=-1", "maximumConnections: it must not be negative"),
            ("tcp://h:99999", "its port must be a number from 0 to 65535"),
            ("tcp:61616", "it must be SCHEME://HOST:PORT"),
            ("ssl://h:1?transport.enabledProtocols=TLSv1", "pybroker speaks TLS 1.2 and 1.3"),
            ("ssl://h:1?needClientAuth=yes", "needClientAuth: it must be true or false"),
            ("tcq://h:1", "ActiveMQ has no such scheme"),
            ("", "ActiveMQ has no such scheme"),
        ],
    )
    def test_what_is_refused(self, uri: str, reason: str) -> None:
        assert any(reason in each for each in reasons(connectors("stomp://h:9", uri)))

    def test_a_broker_without_a_connector_is_refused(self) -> None:
        assert "clients could not connect" in reasons(of_broker("", ""))[0]
        assert any("clients could not connect" in each for each in reasons(connectors("vm://x")))

    def test_options_without_effect(self) -> None:
        reading = connectors("tcp://h:1?transport.closeAsync=false&jms.prefetchPolicy.all=1&foo=1")
        assert places(reading, FindingKind.IGNORED) == ["transport.closeAsync", "jms.prefetchPolicy.all"]
        assert places(reading, FindingKind.WARNING) == ["foo"]

    def test_what_a_cluster_of_brokers_has(self) -> None:
        switches = ("updateClusterClients", "rebalanceClusterClients", "updateClusterClientsOnRemove")
        given = " ".join(f'{each}="true"' for each in switches)
        given += ' updateClusterFilter="east.*" discoveryUri="multicast://default"'
        reading = connectors("tcp://h:1", attributes=given)
        assert places(reading, FindingKind.WARNING) == ["transportConnector[c0]@discoveryUri"]
        assert Config(**reading.settings).cluster_settings == ClusterSettings(
            update_clients=True, rebalance_clients=True, update_on_remove=True, filter="east.*"
        )
        assert reading.origins["update_cluster_filter"].at == "transportConnector[c0]@updateClusterFilter"

    def test_a_cluster_concerns_openwire_alone(self) -> None:
        reading = connectors("stomp://h:1", attributes='updateClusterClients="true"')
        assert places(reading, FindingKind.IGNORED) == ["transportConnector[c0]@updateClusterClients"]
        assert "update_cluster_clients" not in reading.settings

    def test_a_filter_that_is_no_expression_is_refused(self) -> None:
        reading = connectors("tcp://h:1", attributes='updateClusterFilter="a("')
        assert reasons(reading) == [
            "line 1: transportConnector[c0]@updateClusterFilter: at character 2: a ( without its )"
        ]

    def test_a_switch_that_is_off_is_no_setting(self) -> None:
        reading = connectors("tcp://h:1", attributes='updateClusterClients="false"')
        assert "update_cluster_clients" not in reading.settings
        assert places(reading, FindingKind.WARNING) == []


@pytest.mark.parametrize(
    ("uris", "total"),
    [
        (("tcp://127.0.0.1:1?maximumConnections=700", "tcp://127.0.0.1:2?maximumConnections=700"), 1400),
        (("tcp://127.0.0.1:1?maximumConnections=7", "tcp://127.0.0.1:2?maximumConnections=8"), 15),
        (("tcp://127.0.0.1:1?maximumConnections=2000", "tcp://127.0.0.1:2"), 2000 + CONNECTIONS_MAX),
        (("tcp://127.0.0.1:1?maximumConnections=20", "tcp://127.0.0.1:2"), 20 + CONNECTIONS_MAX),
        (("tcp://127.0.0.1:1?maximumConnections=2000", "stomp://127.0.0.1:2"), 2000 + CONNECTIONS_MAX),
        (("tcp://127.0.0.1:1", "stomp://127.0.0.1:2"), CONNECTIONS_MAX),
    ],
)
def test_the_limit_of_all_connections_has_room_for_that_of_each(uris: tuple[str, ...], total: int) -> None:
    assert Config(**connectors(*uris).settings).connections_max == total


@pytest.mark.parametrize("stomp", [2, None])
def test_each_listener_has_the_limit_of_its_connector(stomp: int | None) -> None:
    option = "" if stomp is None else f"?maximumConnections={stomp}"
    reading = connectors("tcp://127.0.0.1:1?maximumConnections=7", f"stomp://127.0.0.1:2{option}")
    listeners = Config(**reading.settings).listeners
    assert [(each.kind.value, each.connections_max) for each in listeners] == [("openwire", 7), ("stomp", stomp)]


def without_uri(attributes: str) -> list[str]:
    element = f'<transportConnector name="c" {attributes}/>\n<transportConnector name="d" uri="tcp://h:1"/>'
    return reasons(of_broker("", f"<transportConnectors>{element}</transportConnectors>"))


def test_connector_without_uri_is_refused_for_that() -> None:
    """ActiveMQ 5.17.2 says "You must specify either a server or uri property"."""
    assert without_uri("") == [
        "line 1: transportConnector[c]: it has no uri, and ActiveMQ does not start without: write it, such as "
        "tcp://0.0.0.0:61616"
    ]
    assert without_uri('URI="tcp://h:2"') == [
        "line 1: transportConnector[c]@URI: transportConnector has no attribute URI; did you mean uri?"
    ]


def test_protocols_that_are_not_served_are_refused() -> None:
    assert reasons(connectors("auto://h:1?auto.protocols=http,ws")) == [
        "line 1: auto.protocols: it has neither default, which is OpenWire, nor stomp, amqp or mqtt"
    ]


def test_options_of_mqtt() -> None:
    reading = connectors(
        "mqtt://h:1?transport.maxFrameSize=1048576&transport.defaultKeepAlive=1000&transport.publishDollarTopics=true"
        "&transport.subscriptionStrategy=mqtt-default-subscriptions&transport.activeMQSubscriptionPrefetch=5"
    )
    assert listening(reading) == {"bind": "h", "mqtt": 1, "openwire": "off", "stomp": "off"}
    assert reading.settings["frame_max"] == "1mb"
    assert reading.settings["mqtt_subscription_strategy"] == "mqtt-default-subscriptions"
    assert sorted(places(reading, FindingKind.WARNING)) == [
        "transport.activeMQSubscriptionPrefetch", "transport.defaultKeepAlive", "transport.publishDollarTopics",
    ]  # fmt: skip
    reading = connectors("mqtt://h:1?transport.subscriptionStrategy=mqtt-virtual-topics")
    assert places(reading, FindingKind.REFUSED) == ["transport.subscriptionStrategy"]
    reading = connectors("stomp://h:1?transport.defaultKeepAlive=1000")
    assert places(reading, FindingKind.IGNORED) == ["transport.defaultKeepAlive"]


def test_each_connector_has_its_subscription_strategy() -> None:
    virtual = "transport.subscriptionStrategy=mqtt-virtual-topic-subscriptions"
    reading = connectors(f"mqtt://h:1?{virtual}", "tcp://h:2")
    assert reading.settings["mqtt_subscription_strategy"] == "mqtt-virtual-topic-subscriptions"
    reading = connectors("mqtt://h:1", f"auto://h:2?{virtual}")
    assert [each.get("mqtt_subscription_strategy") for each in reading.settings["listeners"]] == [
        None, "mqtt-virtual-topic-subscriptions",
    ]  # fmt: skip


def test_options_of_amqp() -> None:
    reading = connectors(
        "amqp://h:1?transport.transformer=jms&wireFormat.idelTimeout=60000&transport.maxFrameSize=1048576"
        "&transport.producerCredit=50&wireFormat.maxAmqpFrameSize=65536&wireFormat.allowNonSaslConnections=true"
    )
    assert listening(reading) == {"bind": "h", "amqp": 1, "openwire": "off", "stomp": "off"}
    settings = {name: reading.settings[name] for name in ("amqp_transformer", "amqp_max_inactivity", "frame_max")}
    assert settings == {"amqp_transformer": "jms", "amqp_max_inactivity": "1min", "frame_max": "1mb"}
    assert places(reading, FindingKind.WARNING) == ["transport.producerCredit"]
    assert sorted(places(reading, FindingKind.IGNORED)) == [
        "wireFormat.allowNonSaslConnections", "wireFormat.maxAmqpFrameSize",
    ]  # fmt: skip


def test_unknown_transformer_is_native_as_in_activemq() -> None:
    reading = connectors("amqp://h:1?transport.transformer=magic")
    assert reading.settings["amqp_transformer"] == "native"
    assert places(reading, FindingKind.WARNING) == ["transport.transformer"]


def test_amqp_clients_may_be_silent_without_a_monitor() -> None:
    reading = connectors("amqp://h:1?transport.useInactivityMonitor=false")
    assert reading.settings["amqp_max_inactivity"] == "0"


def test_options_of_amqp_are_ignored_elsewhere() -> None:
    reading = connectors("tcp://h:1?transport.transformer=jms&wireFormat.idleTimeout=1000")
    assert "amqp_transformer" not in reading.settings
    assert places(reading, FindingKind.IGNORED) == ["transport.transformer", "wireFormat.idleTimeout"]


def test_amqp_connectors_that_differ_are_tables() -> None:
    reading = connectors("amqp://h:1?transport.transformer=jms", "amqp+ssl://h:2")
    assert [each.get("amqp_transformer") for each in reading.settings["listeners"]] == ["jms", None]


def test_options_of_openwire_are_ignored_where_only_stomp_is_detected() -> None:
    reading = connectors("auto://h:1?wireFormat.maxInactivityDuration=5000&auto.protocols=stomp")
    assert "openwire_max_inactivity" not in reading.settings


@pytest.mark.parametrize(
    ("option", "kind"),
    [
        ("transport.defaultHeartBeat=5000,0", FindingKind.WARNING),
        ("wireFormat.maxDataLength=5", FindingKind.WARNING),
        ("wireFormat.stomp.maxFrameSize=5", FindingKind.WARNING),
        ("transport.connectAttemptTimeout=5", FindingKind.IGNORED),
        ("transport.startLogging=true", FindingKind.IGNORED),
        ("unknown=1", FindingKind.WARNING),
    ],
)
def test_options_without_a_counterpart(option: str, kind: FindingKind) -> None:
    reading = connectors(f"stomp://h:1?{option}")
    (found,) = [each for each in reading.findings if each.at == option.partition("=")[0]]
    assert found.kind is kind
    assert ("no option that pybroker knows" in found.why) == (option == "unknown=1")


def test_names_are_those_of_listeners() -> None:
    names = ("a", "a", "stomp+ssl", "tcp", "")
    elements = "".join(
        f'<transportConnector name="{name}" uri="tcp://127.0.0.1:{port}"/>' for port, name in enumerate(names, 1)
    )
    reading = of_broker("", f"<transportConnectors>{elements}</transportConnectors>")
    assert [each.get("name") for each in reading.settings["listeners"]] == ["a", None, "stomp-ssl", None, None]
    assert len(Config(**reading.settings).listeners) == len(names)
