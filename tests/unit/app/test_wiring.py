# mypy: disable-error-code="arg-type, index"
"""The parts of a broker, as the settings ask for them."""

import re
from pathlib import Path

import pytest

from pybroker import __version__
from pybroker.broker.app import machine, wiring
from pybroker.broker.app.config import Config
from pybroker.broker.app.membership import _FILE_KINDS
from pybroker.broker.app.protocols import make_protocols
from pybroker.broker.domain.errors import ConfigError
from pybroker.store.memory import MemoryStore
from tests.unit.app.test_protocols import protocols_of
from tests.unit.transports.openwire.conversation import FakeLink


@pytest.mark.parametrize(
    ("settings", "header"),
    [({}, f"ActiveMQ/5.17.2 pybroker/{__version__}"), ({"stomp_server": "Broker/1"}, "Broker/1")],
)
def test_stomp_clients_are_shown_the_server_header(settings, header):
    link = FakeLink()
    session = protocols_of(**settings)["stomp"].session(link)
    session.receive(b"CONNECT\n\n\0")
    assert f"\nserver:{header}\n".encode() in link.output
    session.lost()


@pytest.mark.parametrize("header", ["", " ", "a\nb", "a\0"])
def test_a_server_header_that_would_break_the_frame_is_refused(header):
    with pytest.raises(ConfigError, match="a header has"):
        Config(stomp_server=header)


def test_ids_begun_in_one_millisecond_are_all_different(monkeypatch):
    monkeypatch.setattr(machine, "clock", lambda: 1_700_000_000_000)
    brokers = [wiring.make_broker(Config(store="memory:"), MemoryStore()) for _ in range(2)]
    ids = [broker.run_id for broker in brokers]
    for broker in brokers:
        config = Config(store="memory:")
        made = make_protocols(config, broker, config.listeners)
        ids.append(broker.id)
        for _ in range(2):
            link = FakeLink()
            session = made[0].session(link)
            session.receive(b"CONNECT\naccept-version:1.1\nhost:b\n\n\0")
            ids.append(re.search(rb"\nsession:(.*)\n", link.output)[1].decode())
            session.lost()
    assert len(set(ids)) == 8
    assert all(each.startswith("ID:") for each in ids)


def test_a_broker_has_its_own_name_and_not_its_members():
    assert wiring.make_broker(Config(store="memory:", name="m"), MemoryStore()).name == "localhost"
    assert wiring.make_broker(Config(store="memory:", broker_name="sales:eu"), MemoryStore()).name == "sales:eu"


@pytest.mark.parametrize("name", ["", "a b", "a/b", "é", "x" * 101])
def test_a_broker_name_that_activemq_would_change_is_refused(name):
    with pytest.raises(ConfigError, match="a broker's name has"):
        Config(store="memory:", broker_name=name)


@pytest.mark.parametrize("create_store", [True, False])
@pytest.mark.parametrize("has_journal", [True, False])
@pytest.mark.parametrize("has_jobs", [True, False])
@pytest.mark.parametrize("elsewhere", [True, False], ids=["scheduler_store", "default"])
def test_existing_journal_is_never_created_again(tmp_path, create_store, has_journal, has_jobs, elsewhere):
    jobs = tmp_path / ("jobs" if elsewhere else "scheduler")
    for has, directory in ((has_journal, tmp_path / "kahadb"), (has_jobs, jobs)):
        directory.mkdir()
        if has:
            (directory / "db-1.log").touch()
    config = Config(store=str(tmp_path), create_store=create_store, scheduler_store=jobs if elsewhere else None)
    found = wiring.creatable(config)
    assert found.messages is (create_store and not has_journal)
    assert found.jobs is (not has_jobs and (create_store or not elsewhere))


@pytest.mark.parametrize("kind", wiring.lock_paths(Path()))
def test_each_lock_file_is_known_to_other_members(tmp_path, kind):
    (tmp_path / "kahadb").mkdir()
    path = wiring.lock_paths(tmp_path / "kahadb")[kind]
    lock = wiring.make_lock(Config(store=str(tmp_path), lock=kind))
    assert lock.try_acquire()
    try:
        assert wiring.is_locked(path)
    finally:
        lock.release()
    assert _FILE_KINDS[path.name] == kind


def test_configured_destinations_exist_once_the_store_is_loaded():
    broker = wiring.make_broker(Config(store="memory:", destinations=["queue://A", "topic://B"]), MemoryStore())
    assert len(broker.destinations) == 0, "a member that is no master has none"
    broker.recover()
    assert [str(each) for each in broker.destinations] == ["queue://A", "topic://B"]
