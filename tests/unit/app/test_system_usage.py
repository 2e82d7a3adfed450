"""The usage of the store and the listeners in statistics of the broker."""

from pathlib import Path

import pytest

from pybroker.broker.app.config import Config
from pybroker.broker.app.system_usage import BrokerSystemUsage
from pybroker.store.memory import MemoryStore


def test_a_store_in_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryStore, "used_bytes", 50 << 20)
    config = Config(store=str(tmp_path), store_limit="200M", journal_file_max="1M", journal_batch_max="1M")
    urls = ["tcp://0.0.0.0:61616", "stomp+ssl://0.0.0.0:61614", "auto://0.0.0.0:61610"]
    assert BrokerSystemUsage(config, MemoryStore(), None, urls).statistics() == {
        "openwire": "tcp://0.0.0.0:61616",
        "ssl": "",
        "stomp": "",
        "stomp+ssl": "stomp+ssl://0.0.0.0:61614",
        "vm": "",
        "storeUsage": 50 << 20,
        "storeLimit": 200 << 20,
        "storePercentUsage": 25,
        "tempUsage": 0,
        "tempLimit": 0,
        "tempPercentUsage": 0,
        "dataDirectory": str(tmp_path),
    }


def test_no_address_of_a_database_is_shown() -> None:
    config = Config(store="postgresql://user:secret@host/db")
    found = BrokerSystemUsage(config, MemoryStore(), None, ()).statistics()
    assert found["dataDirectory"] == ""
    assert "secret" not in str(found)
