"""The sample files mean what their interpretations say, but for what pybroker can do since those were written.

`tests/golden/activemq-xml` has for each sample the settings, tables and places of findings that it is to give.
"""

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from pybroker.activemq_xml.broker_element import Demands
from pybroker.activemq_xml.findings import FindingKind
from pybroker.activemq_xml.interpretation import interpret
from pybroker.activemq_xml.protection import ConfiguredGrants
from pybroker.activemq_xml.reading import Reading
from pybroker.broker.app.config import Config
from pybroker.broker.app.toml_text import toml_lines
from pybroker.units import parse_duration

SAMPLES: Final = sorted((Path(__file__).parents[2] / "golden" / "activemq-xml").glob("*.xml"))
TABLES: Final = ("policies", "virtual_topics", "composite_queues", "mirrored_queues", "destinations")
KINDS: Final = {
    "ignored": {FindingKind.IGNORED, FindingKind.SAME},
    "warnings": {FindingKind.WARNING},
    "refused": {FindingKind.REFUSED},
}
LATER: Final[Mapping[str, Mapping[str, Any]]] = {
    "01-shared-pair": {
        "settings": {
            "spool_limit": "50gb",
            # The connectors have different limits of connections: one sum for both would let STOMP have 3000.
            **dict.fromkeys(("bind", "openwire", "stomp", "frame_max")),
            "listeners": [
                {"name": name, "protocol": name, "host": "0.0.0.0", "port": port}
                | {"connections_max": limit, "frame_max": "100mb"}
                for name, port, limit in (("openwire", 61616, 2000), ("stomp", 61613, 1000))
            ],
        },
        "ignored": {"tempUsage"},  # spool_limit is its limit
    },
    "02-postgres-lease": {
        # A store in a database has scheduled messages too, and ActiveMQ's default is none; Java's driver verifies.
        "settings": {
            "broker_name": "node-a",
            "scheduler": False,
            "store": "postgresql://amq@db.example:5432/activemq?sslmode=verify-full",
        },
        "warnings": {"broker@brokerName"},  # the lease is held in this name, which must differ from the other machine's
    },
    "03-simple-logins": {
        "settings": {
            "broker_name": "orders",
            "populate_jmsx_user_id": True,
            "statistics": True,
            # Without the right to create queues, a client could not use one again that was removed when idle.
            "destination_purge_interval": "0s",
        },
    },
    "04-tls-certificates": {
        "settings": {
            "broker_name": "tls",
            "users_file": "CONF/users.properties",
            "groups_file": "CONF/groups.properties",
            "certificate_users_file": "CONF/cert-users.properties",
            "certificate_groups_file": "CONF/cert-groups.properties",
        },
    },
    "05-policies-and-routes": {
        "settings": {"broker_name": "routes", "destination_purge_interval": "10s"},
        "policies": {
            "TMP.>": {
                "expire_messages_period": "0s",
                "gc_inactive_destinations": True,
                "inactive_timeout_before_gc": "5min",
            }
        },
        "warnings": {
            "policyEntry[TMP.>]@gcInactiveDestinations",
            "policyEntry[TMP.>]@expireMessagesPeriod",
            "policyEntry[PRICES.>]@advisoryForSlowConsumers",
            "broker@schedulePeriodForDestinationPurge",
            "destinations",
        },
    },
    "06-network-of-brokers": {"settings": {}},
    "07-leveldb-and-pure-master": {"settings": {"broker_name": "old"}},
    "08-plugins-and-limits": {
        "settings": {
            "broker_name": "limits",
            "spool_limit": "100mb",
            # MQTT and WebSocket are served, too, and the three connectors have other limits.
            **dict.fromkeys(("bind", "openwire", "stomp", "frame_max", "openwire_max_inactivity")),
            "connections_max": 3000,
            "listeners": [
                {
                    "name": "openwire",
                    "protocol": "openwire",
                    "host": "0.0.0.0",
                    "port": 61616,
                    "connections_max": 500,
                    "frame_max": "10mb",
                    "openwire_max_inactivity": "1min",
                },
                {"name": "amqp", "protocol": "amqp", "host": "0.0.0.0", "port": 5672, "connections_max": 500},
                {"name": "mqtt", "protocol": "mqtt", "host": "0.0.0.0", "port": 1883},
                {"name": "ws", "protocol": "ws", "host": "0.0.0.0", "port": 61614},
            ],
            "discarding_dead_letters": {
                "drop_all": True,
                "drop_temporary_topics": True,
                "drop_temporary_queues": True,
            },
            "time_stamping": {"zero_expiration_override": "24h", "ttl_ceiling": "24h"},
            "force_persistency_mode": "persistent",
        },
        # In place of those of the sample: dead letters are dropped by discarding_dead_letters, whatever policies say.
        "policies": [{"send_fail_if_no_space_after_timeout": "3s"}],
        "ignored": {"tempUsage"},
        "warnings": {
            "systemUsage@sendFailIfNoSpaceAfterTimeout",
            "transportConnector[mqtt]",
            "transportConnector[amqp]",
        },
        "refused": {"timeStampingBrokerPlugin", "forcePersistencyModeBrokerPlugin"},
    },
}
"""By sample: settings that are there besides, or with None are not there; findings that are not there any more, or are
there besides."""


LOGIN_CONFIG: Final = b"""
activemq { org.apache.activemq.jaas.PropertiesLoginModule required
    org.apache.activemq.jaas.properties.user="users.properties"
    org.apache.activemq.jaas.properties.group="groups.properties"; };
activemq-cert { org.apache.activemq.jaas.TextFileCertificateLoginModule required
    org.apache.activemq.jaas.textfiledn.user="cert-users.properties"
    org.apache.activemq.jaas.textfiledn.group="cert-groups.properties"; };
"""
OTHER_FILES: Final = {
    "credentials.properties": b"",  # the properties of the interpretation stand for it
    "login.config": LOGIN_CONFIG,
    "users.properties": b"system=manager",
    "groups.properties": b"admins=system",
    "cert-users.properties": b"client=CN=client",
    "cert-groups.properties": b"users=client",
}
"""Files beside the samples."""


def read(sample: Path) -> tuple[Reading, dict[str, Any]]:
    expected = json.loads(sample.with_suffix(".json").read_text())

    def read_file(path: Path) -> bytes:
        return OTHER_FILES[path.name] if path.name in OTHER_FILES else path.read_bytes()

    return interpret(sample, expected["properties"], expected["environment"], Demands(), read_file), expected


def comparable(value: object, sample: Path) -> object:
    """Return a setting in a form that depends neither on how a person writes a time nor on where the sample is."""
    if isinstance(value, str) and value.startswith(str(sample.parent)):
        return value.replace(str(sample.parent), "CONF")
    if isinstance(value, str) and value[:1].isdigit() and value.endswith(("s", "min", "h")):
        return parse_duration(value)
    return value


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda each: each.stem)
class TestSamples:
    def test_settings(self, sample: Path) -> None:
        reading, expected = read(sample)
        later = LATER[sample.stem]
        settled = expected["settings"] | later["settings"]
        due = {name: value for name, value in settled.items() if value is not None}
        found = {name: value for name, value in reading.settings.items() if name not in TABLES}
        assert {name: comparable(value, sample) for name, value in found.items()} == {
            name: comparable(value, sample) for name, value in due.items()
        }

    def test_tables(self, sample: Path) -> None:
        reading, expected = read(sample)
        later = LATER[sample.stem].get("policies", {})
        due = {name: expected[name] for name in TABLES if name in expected}
        if isinstance(later, list):
            due["policies"] = later
        else:
            for entry in due.get("policies", ()):
                entry.update(later.get(entry.get("queue"), {}))
        assert {name: reading.settings[name] for name in TABLES if name in reading.settings} == due

    @pytest.mark.parametrize("name", KINDS)
    def test_findings(self, sample: Path, name: str) -> None:
        reading, expected = read(sample)
        due = {each["at"] for each in expected.get(name, ())} ^ LATER[sample.stem].get(name, set())
        assert {each.at for each in reading.findings if each.kind in KINDS[name]} == due

    def test_it_starts_a_broker_unless_it_is_refused(self, sample: Path) -> None:
        reading, _ = read(sample)
        settings = tomllib.loads("\n".join(toml_lines(reading.settings, {})))
        if sample.stem == "04-tls-certificates":  # of the key stores
            settings |= {"tls_certificate": "/opt/amq/conf/broker.pem", "tls_client_ca": "/opt/amq/conf/trust.pem"}
        assert Config(**settings).given == Config(**reading.settings | settings).given


def sample_named(name: str) -> Path:
    return next(each for each in SAMPLES if each.stem.startswith(name))


def test_users_and_rights_of_the_sample_with_logins() -> None:
    reading, expected = read(sample_named("03"))
    protection = reading.protection
    assert protection.users is not None
    assert [{"name": each.name, "groups": sorted(each.groups)} for each in protection.users] == (
        expected["logins"]["users"]
    )
    assert "anonymous" not in reading.settings  # refused, as there are users
    assert protection.rights is not None
    assert protection.rights.temporary is not None
    given: list[tuple[dict[str, object], ConfiguredGrants]] = [
        ({each.kind: each.pattern}, each.grants) for each in protection.rights.rules
    ]
    given.append(({"temporary": True}, protection.rights.temporary))
    assert [
        where | {"read": list(each.read), "write": list(each.write), "admin": list(each.admin)} for where, each in given
    ] == expected["rights"]


def test_key_stores_of_the_sample_with_certificates() -> None:
    reading, expected = read(sample_named("04"))
    tls = reading.protection.tls
    assert tls is not None
    assert tls.trust_store is not None
    for name, store in (("key_store", tls.key_store), ("trust_store", tls.trust_store)):
        assert {"file": str(store.path), "type": store.type} == expected["tls"][name]
    assert {"need": "required"}[reading.client_auth] == expected["tls"]["client_certificate"]


def test_password_of_the_sample_with_a_database_is_no_setting() -> None:
    reading, _ = read(sample_named("02"))
    assert list(reading.secrets.values()) == ["s3cret"]
    assert "s3cret" not in f"{reading.settings} {[str(each) for each in reading.findings]} {reading!r}"
