"""Key stores that a file names, unopened."""

from pathlib import Path

import pytest

from pybroker.activemq_xml.findings import FindingKind
from pybroker.activemq_xml.reading import Reading
from tests.unit.activemq_xml.reading_bench import CONNECTORS, of_broker, places, reasons


def tls(attributes: str, uri: str = "ssl://h:1", **given: object) -> Reading:
    connectors = f'<transportConnectors><transportConnector uri="{uri}"/></transportConnectors>'
    return of_broker("", f"<sslContext><sslContext {attributes}/></sslContext>{connectors}", **given)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("file:/a/b.ks", "/a/b.ks"),
        ("file:///a/b.ks", "/a/b.ks"),
        ("classpath:b.ks", "/opt/amq/conf/b.ks"),
        ("conf/b.ks/", "/opt/amq/conf/b.ks"),
    ],
)
def test_names_of_stores(name: str, path: str) -> None:
    store = tls(f'keyStore="{name}"').protection.tls
    assert store is not None
    assert store.key_store.path == Path(path)


def test_a_plain_name_is_also_looked_for_in_the_class_path(tmp_path: Path) -> None:
    properties = {"activemq.base": str(tmp_path), "activemq.conf": str(tmp_path / "conf")}
    found = tls('keyStore="b.ks"', properties=properties).protection.tls
    assert found is not None
    assert found.key_store.file == tmp_path / "b.ks"
    in_class_path = tmp_path / "conf" / "b.ks"
    in_class_path.parent.mkdir()
    in_class_path.touch()
    assert found.key_store.file == in_class_path
    (tmp_path / "b.ks").touch()
    assert found.key_store.file == tmp_path / "b.ks"
    url = tls('keyStore="file:b.ks"', properties=properties).protection.tls
    assert url is not None
    assert url.key_store.class_path is None


def test_types_and_passwords() -> None:
    reading = tls(
        'keyStore="k" keyStoreType="pkcs12" keyStorePassword="s3cret" keyStoreKeyPassword="s4cret" trustStore="t" '
        'trustStorePassword="s5cret"',
        "ssl://h:1?needClientAuth=true",
        properties={"pybroker.key_alias": "mine"},
    )
    found = reading.protection.tls
    assert found is not None
    assert found.trust_store is not None
    assert (found.key_store.type, found.key_store.password, found.key_store.key_password) == (
        "PKCS12",
        "s3cret",
        "s4cret",
    )
    assert (found.trust_store.type, found.trust_store.password, found.key_alias) == ("JKS", "s5cret", "mine")
    assert not any(secret in repr(reading) for secret in ("s3cret", "s4cret", "s5cret"))
    assert places(reading, FindingKind.WARNING) == ["sslContext@keyStore"]
    assert reasons(reading) == []


def test_a_trust_store_is_for_listeners_that_ask_alone() -> None:
    found = tls('keyStore="k" trustStore="t"').protection.tls
    assert found is not None
    assert found.trust_store is None


def test_no_trust_store_where_clients_are_asked_is_refused() -> None:
    reading = tls('keyStore="k"', "ssl://h:1?wantClientAuth=true")
    assert places(reading, FindingKind.REFUSED) == ["sslContext"]


def test_no_key_store_for_a_listener_is_refused() -> None:
    assert places(tls('trustStore="t"'), FindingKind.REFUSED) == ["broker"]


def test_a_context_without_listeners_has_no_effect() -> None:
    reading = of_broker("", f'<sslContext><sslContext keyStore="k"/></sslContext>{CONNECTORS}')
    assert reading.protection.tls is None
    assert places(reading, FindingKind.IGNORED) == ["sslContext"]


@pytest.mark.parametrize(
    ("attributes", "at"),
    [
        ('keyStore="k" keyStoreType="Windows-MY"', "sslContext@keyStoreType"),
        ('keyStore="http://x/k"', "sslContext@keyStore"),
        ('SSLContext="#bean"', "sslContext@SSLContext"),
    ],
)
def test_a_store_that_is_no_file_is_refused(attributes: str, at: str) -> None:
    assert places(tls(attributes), FindingKind.REFUSED) == [at]


def test_revoked_certificates_are_a_warning() -> None:
    found = places(tls('keyStore="k" crlPath="c"'), FindingKind.WARNING)
    assert found == ["sslContext@crlPath", "sslContext@keyStore"]


def test_properties_of_java_name_the_stores_otherwise() -> None:
    stores = {
        "javax.net.ssl.keyStore": "/k",
        "javax.net.ssl.keyStorePassword": "s3cret",
        "javax.net.ssl.trustStore": "/t",
    }
    connectors = '<transportConnectors><transportConnector uri="ssl://h:1?needClientAuth=true"/></transportConnectors>'
    reading = of_broker("", connectors, properties=stores)
    found = reading.protection.tls
    assert found is not None
    assert found.trust_store is not None
    assert (found.key_store.path, found.key_store.password, found.trust_store.path) == (
        Path("/k"),
        "s3cret",
        Path("/t"),
    )
    assert reasons(reading) == []
    assert "s3cret" not in repr(reading)
