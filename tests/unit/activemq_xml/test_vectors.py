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
        "settings": {"broker_name": "amq-1", "spool_limit": "50gb"},
        "ignored": {"tempUsage"},  # spool_limit is its limit
    },
    "02-postgres-lease": {
        # A store in a database has scheduled messages too, and ActiveMQ's default is none; Java's driver verifies.
        "settings": {
            "broker_name": "node-a",
            "scheduler": False,
            "store": "postgresql://amq@db.example:5432/activemq?sslmode=verify-full",
        },
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
    "04-tls-certificates": {"settings": {"broker_name": "tls"}},
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
    "06-network-of-brokers": {"settings": {"broker_name": "edge"}},
    "07-leveldb-and-pure-master": {"settings": {"broker_name": "old"}},
    "08-plugins-and-limits": {
        "settings": {
            "broker_name": "limits",
            "spool_limit": "100mb",
            "discarding_dead_letters": {
                "drop_all": True,
                "drop_temporary_topics": True,
                "drop_temporary_queues": True,
            },
            "time_stamping": {"zero_expiration_override": "24h", "ttl_ceiling": "24h"},
            "force_persistency_mode": "persistent",
        },
        "policies": None,  # dead letters are dropped by discarding_dead_letters, whatever other policies say
        "ignored": {"tempUsage"},
        "refused": {"timeStampingBrokerPlugin", "forcePersistencyModeBrokerPlugin"},
    },
}
"""By sample: settings that are there besides, and findings that are not there any more."""


def read(sample: Path) -> tuple[Reading, dict[str, Any]]:
    expected = json.loads(sample.with_suffix(".json").read_text())

    def read_file(path: Path) -> bytes:
        return b"" if path.name == "credentials.properties" else path.read_bytes()  # the properties stand for it

    return interpret(sample, expected["properties"], expected["environment"], Demands(), read_file), expected


def comparable(value: object) -> object:
    """Return a setting in a form that does not depend on how a person writes a time."""
    if isinstance(value, str) and value[:1].isdigit() and value.endswith(("s", "min", "h")):
        return parse_duration(value)
    return value


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda each: each.stem)
class TestSamples:
    def test_settings(self, sample: Path) -> None:
        reading, expected = read(sample)
        later = LATER[sample.stem]
        due = expected["settings"] | later["settings"]
        found = {name: value for name, value in reading.settings.items() if name not in TABLES}
        assert {name: comparable(value) for name, value in found.items()} == {
            name: comparable(value) for name, value in due.items()
        }

    def test_tables(self, sample: Path) -> None:
        reading, expected = read(sample)
        later = LATER[sample.stem].get("policies", {})
        due = {name: expected[name] for name in TABLES if name in expected}
        if later is None:
            del due["policies"]
        for entry in due.get("policies", ()):
            entry.update(later.get(entry.get("queue"), {}))
        assert {name: reading.settings[name] for name in TABLES if name in reading.settings} == due

    @pytest.mark.parametrize("name", KINDS)
    def test_findings(self, sample: Path, name: str) -> None:
        reading, expected = read(sample)
        due = {each["at"] for each in expected.get(name, ())} - LATER[sample.stem].get(name, set())
        assert {each.at for each in reading.findings if each.kind in KINDS[name]} == due

    def test_it_starts_a_broker_unless_it_is_refused(self, sample: Path) -> None:
        reading, _ = read(sample)
        settings = tomllib.loads("\n".join(toml_lines(reading.settings, {})))
        if sample.stem == "04-tls-certificates":
            settings |= {"tls_certificate": "/opt/amq/conf/broker.pem"}  # of the key store
        assert Config(**settings).given == Config(**reading.settings | settings).given
