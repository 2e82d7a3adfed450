"""The files with a configuration's users, rights and key stores."""

import datetime
import stat
from pathlib import Path

import pytest

from pybroker.activemq_xml import derived_files
from pybroker.activemq_xml.reading import Reading
from pybroker.broker.app.config import Config
from pybroker.broker.domain.errors import ConfigError
from pybroker.security import hashes, rules_toml, users_toml
from pybroker.security.files import Content
from tests.java.stores import Issuer, subject
from tests.unit.activemq_xml.reading_bench import CONNECTORS, of_broker, reasons

NOW = datetime.datetime.now(datetime.UTC)
PLUGINS = (
    "<plugins><simpleAuthenticationPlugin><users>"
    '<authenticationUser username="u" password="s3cret" groups="g"/></users>'
    "</simpleAuthenticationPlugin><authorizationPlugin><map><authorizationMap><authorizationEntries>"
    '<authorizationEntry queue="&gt;" read="g" write="g" admin="g"/></authorizationEntries></authorizationMap></map>'
    "</authorizationPlugin></plugins>"
)


def test_users_and_rules_are_files_of_their_owner(tmp_path: Path) -> None:
    reading = of_broker("", PLUGINS + CONNECTORS)
    directory = tmp_path / "made"
    derived_files.write(reading, directory, NOW)
    config = Config(**reading.settings)
    assert config.users_file == directory / "users.toml"
    assert config.rules_file == directory / "rules.toml"
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert {stat.S_IMODE(each.stat().st_mode) for each in directory.iterdir()} == {0o600}
    users_file, rules_file = directory / "users.toml", directory / "rules.toml"
    data = users_file.read_bytes()
    assert b"s3cret" not in data
    account = users_toml.read(Content(users_file, data)).by_name["u"]
    assert hashes.verify(account.secret, "s3cret")
    assert len(rules_toml.read(Content(rules_file, rules_file.read_bytes()))) == 1
    with pytest.raises(ConfigError, match="is there already"):
        derived_files.write(reading, directory, NOW)


def tls(directory: Path, password: str = "password") -> Reading:
    stores = f'keyStore="{directory}/server.p12" keyStorePassword="{password}" trustStore="{directory}/trust.p12"'
    return of_broker(
        "",
        f'<sslContext><sslContext {stores} trustStorePassword="password"/></sslContext>'
        '<transportConnectors><transportConnector uri="ssl://h:1?needClientAuth=true"/></transportConnectors>',
    )


def test_key_stores_are_pem_files(tmp_path: Path) -> None:
    authority = Issuer.make("authority")
    authority.trust(tmp_path)
    authority.issue(subject(cn="server"), tmp_path, "server", days=-1)
    reading = tls(tmp_path)
    derived_files.write(reading, tmp_path / "made", NOW)
    config = Config(**reading.settings)
    assert config.tls_client_auth == "need"
    assert (tmp_path / "made" / "tls-client-ca.pem").read_bytes() == (tmp_path / "trust.pem").read_bytes()
    assert any("has expired on" in str(each) for each in reading.findings)
    assert reasons(reading) == []


def test_a_wrong_password_is_refused_and_not_shown(tmp_path: Path) -> None:
    authority = Issuer.make("authority")
    authority.trust(tmp_path)
    authority.issue(subject(cn="server"), tmp_path, "server")
    reading = tls(tmp_path, "wr0ng")
    derived_files.write(reading, tmp_path / "made", NOW)
    (text,) = reasons(reading)
    assert text.startswith("line 1: sslContext@keyStore: ")
    assert "wr0ng" not in text
    assert "tls_certificate" not in reading.settings
