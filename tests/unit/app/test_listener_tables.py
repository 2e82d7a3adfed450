# mypy: disable-error-code="arg-type, attr-defined, index, union-attr"
"""The `[[listeners]]` tables: what they open, what the plain settings give them, and each error."""

import re
from pathlib import Path

import pytest

from pybroker.broker.app import wiring
from pybroker.broker.app.config import Config, load
from pybroker.broker.app.fingerprints import settings_digests
from pybroker.broker.app.listeners import ListenerKind
from pybroker.broker.app.protocols import make_protocols, openwire_url
from pybroker.broker.app.readiness import find_obstacle
from pybroker.broker.app.tls_files import make_certificates
from pybroker.broker.domain.errors import ConfigError
from pybroker.broker.domain.network.cluster import ClusterSettings
from pybroker.store.memory import MemoryStore
from tests.unit.transports.certificates import Certificates
from tests.unit.transports.openwire.conversation import FakeLink

OPENWIRE = {"protocol": "openwire", "port": 1}
TLS = {"protocol": "openwire", "port": 1, "tls": True, "tls_certificate": "own.pem"}


def opened(*tables, **plain):
    """Return the open listeners by name."""
    return {each.name: each for each in Config(store="memory:", listeners=list(tables), **plain).listeners}


def test_tables_list_what_is_open():
    assert set(opened(OPENWIRE | {"name": "partners"})) == {"partners"}
    both = opened(OPENWIRE | {"name": "partners"}, stomp=61613)
    assert {name: (each.port, each.is_table) for name, each in both.items()} == {
        "stomp": (61613, False),
        "partners": (1, True),
    }
    assert set(opened()) == {"stomp", "openwire"}


def test_a_name_is_made_of_the_protocol():
    tables = [OPENWIRE, OPENWIRE | {"port": 2}, {"protocol": "stomp", "port": 3}, TLS | {"port": 4}]
    assert list(opened(*tables, stomp=5)) == ["stomp", "openwire", "openwire_2", "stomp_2", "openwire_ssl"]
    assert list(
        opened({"protocol": "ws", "port": 1}, {"protocol": "ws", "port": 2, "tls": True, "tls_certificate": "c"})
    ) == [
        "ws",
        "ws_ssl",
    ]


def test_values_that_are_not_set_are_the_plain_ones():
    plain = {
        "bind": "127.0.0.2",
        "frame_max": "2mb",
        "openwire_max_inactivity": "5s",
        "openwire_initial_delay": "4s",
        "proxy_protocol": "openwire",
        "proxy_networks": "10.0.0.1",
    }
    listener = opened(OPENWIRE, **plain)["openwire"]
    assert (listener.kind, listener.host, listener.port) == (ListenerKind.OPENWIRE, "127.0.0.2", 1)
    assert (listener.frame_max, listener.max_inactivity, listener.initial_delay) == (2 << 20, 5.0, 4.0)
    assert (listener.connections_max, listener.networks, listener.tls) == (None, None, None)
    assert listener.is_for_proxies


def test_values_that_are_set_are_its_own():
    table = OPENWIRE | {
        "bind": "::1",
        "frame_max": "1mb",
        "openwire_max_inactivity": 0,
        "openwire_initial_delay": "1s",
        "connections_max": 7,
        "allow": "10.0.0.0/8",
        "proxy_protocol": False,
    }
    plain = {"deny": "10.0.0.9", "proxy_protocol": "openwire, stomp", "proxy_networks": "10.0.0.1", "stomp": 2}
    listener = opened(table, **plain)["openwire"]
    assert (listener.host, listener.frame_max, listener.max_inactivity, listener.initial_delay) == (
        "::1",
        1 << 20,
        0,
        1,
    )
    assert (listener.connections_max, listener.is_for_proxies) == (7, False)
    addresses = ("10.0.0.1", "10.0.0.9", "11.0.0.1")
    assert [listener.networks.allows(each) for each in addresses] == [True, False, False]


def test_settings_of_clusters_are_those_of_the_table_or_the_plain_ones():
    plain = {"update_cluster_clients": True, "update_cluster_clients_on_remove": True, "update_cluster_filter": "e.*"}
    assert opened(OPENWIRE, **plain)["openwire"].cluster == ClusterSettings(
        update_clients=True, update_on_remove=True, filter="e.*"
    )
    own = {"update_cluster_clients": False, "rebalance_cluster_clients": True, "update_cluster_filter": ""}
    assert opened(OPENWIRE | own, **plain)["openwire"].cluster == ClusterSettings(
        rebalance_clients=True, update_on_remove=True
    )


def test_settings_of_mqtt_are_those_of_the_table_or_the_plain_ones():
    tables = [{"protocol": "mqtt", "port": 1, "mqtt_keep_alive_max": "1m"}]
    tables.append({"protocol": "auto", "port": 2, "mqtt_receive_maximum": 7})
    found = opened(*tables, mqtt=3, mqtt_keep_alive_max=20, mqtt_receive_maximum=9)
    assert [(each.mqtt.keep_alive_max, each.mqtt.receive_maximum) for each in found.values()] == [
        (20, 9),
        (60, 9),
        (20, 7),
    ]


def test_tls_of_a_table():
    plain = {"tls_certificate": "c.pem", "tls_key": "k.pem", "tls_client_ca": "ca.pem", "tls_ciphers": "ECDHE+AESGCM"}
    inherited = TLS | {"tls_certificate": "c.pem", "tls_key": "k.pem"}
    tables = {
        "same": {**OPENWIRE, "tls": True},
        "own": TLS,
        "written": inherited,
        "want": TLS | {"tls_client_auth": "want", "tls_client_ca": "other.pem"},
        "none": TLS | {"tls_client_auth": "none", "tls_version_min": "1.3"},
    }
    found = opened(*(table | {"name": name, "port": at} for at, (name, table) in enumerate(tables.items())), **plain)
    config = Config(**plain)
    assert found["same"].tls == found["written"].tls == config.tls
    own = found["own"].tls
    assert (own.certificate, own.key, own.client_ca, own.needs_client) == (Path("own.pem"), None, Path("ca.pem"), True)
    assert (found["want"].tls.client_ca, found["want"].tls.needs_client) == (Path("other.pem"), False)
    assert (found["none"].tls.client_ca, found["none"].tls.version_min, found["none"].tls.ciphers) == (
        None,
        "1.3",
        None,
    )


def test_plain_authority_goes_with_certificates_of_tables():
    listener = opened(TLS, tls_client_ca="ca.pem", certificate_users_file="u.properties")["openwire_ssl"]
    assert listener.tls.client_ca == Path("ca.pem")
    assert opened(TLS | {"tls_client_ca": "ca.pem"}, certificate_users_file="u.properties")


@pytest.mark.parametrize(
    ("tables", "plain", "message"),
    [
        ("openwire", {}, "listeners: it is made of tables: write [[listeners]]"),
        ([{"port": 1}], {}, "listeners: table 1: protocol: it must be set"),
        ([OPENWIRE, {"protocol": "openwire"}], {}, "listeners: table 2: port: it must be set"),
        (
            [OPENWIRE | {"protocol": "http"}],
            {},
            "protocol: it must be 'stomp', 'openwire', 'mqtt', 'amqp', 'ws' or 'auto'; given was 'http'",
        ),
        ([OPENWIRE | {"port": "off"}], {}, "port: write a number; without its table a listener is not open"),
        ([OPENWIRE | {"conections_max": 5}], {}, "no such attribute; did you mean connections_max?"),
        ([OPENWIRE | {"allowLinkStealing": True}], {}, "an attribute of ActiveMQ that pybroker does not have"),
        ([OPENWIRE | {"name": "a b"}], {}, "name: a name has 1 to 100 letters"),
        ([OPENWIRE | {"name": "tcp"}], {}, "name: 'tcp' is a scheme of URLs: choose another name"),
        ([OPENWIRE | {"host": "a", "bind": "b"}], {}, "host and bind are the same"),
        ([OPENWIRE | {"frame_max": "1"}], {}, "frame_max: it must be at least 1kb"),
        ([OPENWIRE | {"allow": "everyone"}], {}, "allow: 'everyone' does not appear to be"),
        ([OPENWIRE | {"tls_client_ca": "a"}], {}, "tls_client_ca goes with TLS: write tls = true"),
        ([{"protocol": "stomp", "port": 1, "openwire_initial_delay": 1}], {}, "openwire_initial_delay goes with proto"),
        ([{"protocol": "ws", "port": 1, "openwire_max_inactivity": 1}], {}, "openwire_max_inactivity goes with proto"),
        (
            [{"protocol": "stomp", "port": 1, "update_cluster_clients": True}],
            {},
            "update_cluster_clients goes with protocol = 'openwire' or 'auto'",
        ),
        ([OPENWIRE | {"update_cluster_filter": "a("}], {}, "update_cluster_filter: at character 2: a ( without its )"),
        ([OPENWIRE | {"mqtt_keep_alive_max": 1}], {}, "mqtt_keep_alive_max goes with protocol = 'mqtt', 'ws' or"),
        ([OPENWIRE | {"amqp_transformer": "jms"}], {}, "amqp_transformer goes with protocol = 'amqp', 'ws' or 'auto'"),
        (
            [{"protocol": "amqp", "port": 1, "amqp_transformer": "x"}],
            {},
            "amqp_transformer: it must be 'native', 'jms' or",
        ),
        ([OPENWIRE | {"tls": True, "tls_key": "k"}], {}, "tls_key goes with a tls_certificate in the same table"),
        ([TLS | {"tls_client_auth": "none", "tls_client_ca": "a"}], {}, "tls_client_ca goes with tls_client_auth ="),
        ([TLS | {"tls_client_auth": "want"}], {}, "openwire_ssl: tls_client_auth = want goes with a tls_client_ca"),
        (
            [TLS | {"tls_ciphers": "HIGH"}],
            {"tls_version_min": "1.3"},
            "openwire_ssl: tls_ciphers goes with tls_version",
        ),
        ([OPENWIRE | {"tls": True}], {}, "openwire_ssl needs a certificate: set tls_certificate"),
        ([OPENWIRE | {"connections_max": 9}], {"connections_max": 8}, "openwire: connections_max is 9, and only 8"),
        ([OPENWIRE | {"name": "a"}] * 2, {}, "two listeners have the name 'a'"),
        ([OPENWIRE | {"name": "stomp"}], {"stomp": 2}, "two listeners have the name 'stomp'"),
        ([OPENWIRE, OPENWIRE], {}, "listeners.openwire and listeners.openwire_2 cannot both have port 1"),
        ([OPENWIRE], {"stomp": 1}, "stomp and listeners.openwire cannot both have port 1"),
        ([OPENWIRE | {"host": "0.0.0.0"}], {"health": 1}, "have port 1, at 0.0.0.0 and 127.0.0.1"),
        ([OPENWIRE | {"host": "::"}], {"stomp": 1}, "have port 1, at 127.0.0.1 and ::"),
        ([OPENWIRE | {"proxy_protocol": True}], {}, "proxy_protocol and proxy_networks go together"),
        ([OPENWIRE], {"proxy_protocol": "stomp", "proxy_networks": "10.0.0.1"}, "not an open port; open are openwire"),
    ],
)
def test_each_error_names_the_table_and_the_remedy(tables, plain, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        Config(store="memory:", listeners=tables, **plain)


def test_an_error_names_the_file(tmp_path):
    file = tmp_path / "p.toml"
    file.write_text('[[listeners]]\nprotocol = "stomp"\nport = 1\nconnections_max = 5000\n')
    with pytest.raises(ConfigError, match=r"^listeners \(in .*p.toml\): stomp: connections_max is 5000"):
        load(file, {}, {})


def test_one_port_at_several_addresses():
    hosts = ("127.0.0.1", "127.0.0.2", "::1")
    found = opened(*(OPENWIRE | {"host": host} for host in hosts))
    assert [each.host for each in found.values()] == list(hosts)
    both = opened(
        OPENWIRE | {"host": "0.0.0.0"}, OPENWIRE | {"host": "::1"}, OPENWIRE | {"port": 0}, {**OPENWIRE, "port": 0}
    )
    assert len(both) == 4


def test_hosts_are_those_of_all_listeners():
    assert Config(listeners=[OPENWIRE | {"host": "10.0.0.1"}], stomp=2).hosts == {"10.0.0.1", "127.0.0.1"}
    assert Config(listeners=[OPENWIRE | {"host": "10.0.0.1"}]).hosts == {"10.0.0.1"}
    assert Config(stomp="off", openwire="off", bind="10.0.0.2").hosts == {"10.0.0.2"}


def test_an_address_of_another_machine_names_the_table():
    obstacle = find_obstacle(Config(store="memory:", listeners=[OPENWIRE | {"host": "192.0.2.1", "name": "partners"}]))
    assert obstacle.startswith("listeners.partners.host: cannot use 192.0.2.1 port 1")


def test_members_may_have_other_listeners():
    assert settings_digests(Config(listeners=[OPENWIRE])) == {}


def test_a_copy_of_the_settings_has_the_tables_again():
    assert [each.name for each in Config(listeners=[OPENWIRE]).replace(sync="never").listeners] == ["openwire"]


def test_each_listener_has_its_own_url_for_clients():
    config = Config(store="memory:", listeners=[OPENWIRE, OPENWIRE | {"host": "::1", "port": 2}])
    broker = wiring.make_broker(config, MemoryStore())
    made = make_protocols(config, broker, config.listeners)
    assert broker.url == openwire_url(config, config.listeners) == "tcp://127.0.0.1:1"
    assert [each.name for each in made] == ["openwire", "openwire_2"]
    outputs = []
    for protocol in made:
        link = FakeLink()
        session = protocol.session(link)
        outputs.append(session._settings.broker_url)
    assert outputs == ["tcp://127.0.0.1:1", "tcp://[::1]:2"]


def test_certificates_are_shared_where_the_settings_are_the_same(tmp_path):
    files = Certificates(directory=tmp_path)
    own = {"tls_certificate": str(files.certificate), "tls_key": str(files.key)}
    tables = [{**OPENWIRE, "tls": True, "port": 0}, TLS | own | {"port": 0}, TLS | own | {"port": 0}]
    config = Config(store="memory:", listeners=tables, tls_certificate=str(files.both))
    certificates = make_certificates(config)
    shared, first, second = (certificates.context_of(each.tls)() for each in config.listeners)
    assert first is second
    assert first is not shared


def test_a_file_that_cannot_be_used_names_the_table(tmp_path):
    config = Config(store="memory:", listeners=[TLS | {"tls_certificate": str(tmp_path / "none.pem")}])
    with pytest.raises(ConfigError) as caught:
        make_certificates(config)
    assert caught.value.setting == "listeners.openwire_ssl.tls_certificate"
