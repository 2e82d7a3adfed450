"""The tables of network connectors: what is refused, with the reason."""

from pathlib import Path
from typing import Any

import pytest

from pybroker.broker.app.network_tables import check_files, read_networks
from pybroker.broker.domain.destination import queue, topic
from pybroker.broker.domain.errors import ConfigError
from tests.unit.transports.certificates import Certificates

SSL = "static:(ssl://127.0.0.1:61617)"
PLAIN = "static:(tcp://127.0.0.1:61616)"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(directory=tmp_path_factory.mktemp("certificates"))


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"uri": "tcp://h:1", "tls_ca": "ca.pem"}, "tls_ca goes with an address ssl://HOST:PORT, and the uri has none"),
        ({"uri": SSL, "tls_key": "key.pem"}, "tls_key goes with a tls_certificate in the same table"),
        ({"uri": SSL, "tls_verify_hostname": "maybe"}, "tls_verify_hostname"),
    ],
)
def test_tls_attribute_without_its_partner_is_refused(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read_networks([given])


def test_files_that_can_be_used_pass(certificates: Certificates) -> None:
    both = {"tls_certificate": str(certificates.certificate), "tls_key": str(certificates.key)}
    check_files(read_networks([{"uri": SSL, "tls_ca": str(certificates.authority), **both}]))


@pytest.mark.parametrize("name", ["tls_ca", "tls_certificate"])
def test_file_that_cannot_be_used_names_its_attribute(name: str, tmp_path: Path) -> None:
    file = tmp_path / "empty.pem"
    file.write_text("")
    with pytest.raises(ConfigError, match="there is no certificate in") as caught:
        check_files(read_networks([{"uri": SSL, name: str(file)}]))
    assert caught.value.setting == f"network.{name}"


def test_passwords_are_not_shown() -> None:
    (connector,) = read_networks([{"uri": "tcp://h:1", "password": "hidden1", "remote_password": "hidden2"}])
    assert "hidden" not in repr(connector)


@pytest.mark.parametrize("name", ["password", "remote_password"])
def test_password_that_is_not_text_is_not_shown(name: str) -> None:
    with pytest.raises(ValueError, match=name) as caught:
        read_networks([{"uri": "tcp://h:1", name: 471147}])
    assert "471147" not in str(caught.value)


@pytest.mark.parametrize("name", ["prefetch_size", "advisory_prefetch_size"])
def test_prefetch_size_that_no_consumer_can_have_is_refused(name: str) -> None:
    read_networks([{"uri": "tcp://h:1", name: 2_147_483_647}])
    with pytest.raises(ValueError, match=f"{name}.*2147483647"):
        read_networks([{"uri": "tcp://h:1", name: 2_147_483_648}])


def test_topic_may_make_all_demand_durable() -> None:
    listed = ["queue://Q", "topic://P.>?forceDurable=true", "topic://A,B?forceDurable=true"]
    (found,) = read_networks([{"uri": PLAIN, "dynamically_included": listed[:2], "statically_included": listed[2:]}])
    assert found.dynamically_included == (queue("Q"), topic("P.>"))
    assert found.statically_included == (topic("A,B"),)
    assert found.forced_durable == (topic("P.>"), topic("A"), topic("B"))


def test_attributes_without_effect_are_read_over() -> None:
    read_networks([{"uri": PLAIN, "check_duplicate_messages_on_duplex": True, "gc_sweep_time": 1}])


def test_token_of_client_ids_is_short() -> None:
    (found,) = read_networks([{"uri": PLAIN, "client_id_token": "-"}])
    assert found.client_id_token == "-"
    with pytest.raises(ValueError, match="client_id_token"):
        read_networks([{"uri": PLAIN, "client_id_token": "x" * 21}])


def test_queue_has_no_durable_demand() -> None:
    with pytest.raises(ValueError, match="forceDurable goes with a topic"):
        read_networks([{"uri": PLAIN, "dynamically_included": ["queue://Q?forceDurable=true"]}])
