"""Errors found before anything is changed."""

import importlib.util
import logging
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from pybroker.broker.app import preflight
from pybroker.broker.app.config import Config
from pybroker.broker.domain.errors import ConfigError


@pytest.mark.parametrize("made", [True, False], ids=["there", "to be made"])
def test_a_store_that_is_not_writable(tmp_path, monkeypatch, made):
    store = tmp_path / "store"
    if made:
        store.mkdir()
    refusing = store if made else tmp_path
    monkeypatch.setattr(os, "access", lambda path, mode: path != refusing)
    with pytest.raises(ConfigError, match=f"store: {refusing} is not writable for this user"):
        preflight.check(Config(store=str(store), stomp="0", openwire="0"))
    assert list(tmp_path.iterdir()) == ([store] if made else [])


def test_a_new_store_is_fine_and_not_made_yet(tmp_path):
    preflight.check(Config(store=str(tmp_path / "a"), stomp="0", openwire="0"))
    assert list(tmp_path.iterdir()) == []


def test_a_store_in_a_directory_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=f"store: cannot create {tmp_path}/a/b: there is no {tmp_path}/a; correct"):
        preflight.check(Config(store=str(tmp_path / "a" / "b"), stomp="0", openwire="0"))
    assert list(tmp_path.iterdir()) == []


def test_a_store_with_a_relative_name_may_be_made(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    preflight.check(Config(store="data", stomp="0", openwire="0"))


@pytest.mark.parametrize("made", [True, False], ids=["an empty directory", "no directory"])
def test_without_create_store_no_new_store_is_begun(tmp_path, made):
    store = tmp_path / "store"
    if made:
        store.mkdir()
    with pytest.raises(ConfigError, match=f"store: {store} holds no store, and none is to be created; mount the share"):
        preflight.check(Config(store=str(store), stomp="0", openwire="0", create_store=False))


@pytest.mark.parametrize("place", [".", "kahadb"])
def test_without_create_store_one_that_is_there_is_fine(tmp_path, place):
    (tmp_path / place).mkdir(exist_ok=True)
    (tmp_path / place / "db-1.log").touch()
    preflight.check(Config(store=str(tmp_path), stomp="0", openwire="0", create_store=False))


def test_unusable_certificate_is_found_before_the_store(tmp_path):
    config = Config(
        store=str(tmp_path / "store"), stomp="0", openwire="0", stomp_ssl="0", tls_certificate=str(tmp_path / "c.pem")
    )
    with pytest.raises(ConfigError, match=r"tls_certificate: cannot read .*c\.pem"):
        preflight.check(config)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("setting", ["stomp", "openwire", "auto"])
def test_each_listeners_port_is_tried(setting):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ports = {"stomp": 0, "openwire": 0, setting: taken.getsockname()[1]}
        with pytest.raises(ConfigError, match=f"{setting}: cannot use 127.0.0.1 port"):
            preflight.check(Config(store="memory:", **ports))


def test_replicate_port_that_is_taken_is_found_before_the_store(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        settings = {"stomp": "0", "openwire": "0", "replicate": "etcd://127.0.0.1/orders", "replicate_port": port}
        with pytest.raises(ConfigError, match=rf"^replicate_port: .*port {port}: Address already in use; stop what"):
            preflight.check(Config(store=str(tmp_path / "a"), **settings))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("setting", "given", "message"),
    [
        ("replicate", "consul://h/orders", "it names no election store"),
        ("replicate", "tcp://a", "is no address of a master"),
        ("replicate_url", "a.example", "is not HOST:PORT"),
        ("replicate_secret_file", Path("none"), "none cannot be read"),
        ("replicate_tls_ca", Path("none"), "replicate_tls_certificate"),
    ],
)
def test_settings_of_replication_are_checked_before_the_store(tmp_path, setting, given, message):
    settings: dict[str, Any] = {"stomp": "0", "openwire": "0", "replicate": "etcd://h/orders", setting: given}
    with pytest.raises(ConfigError, match=message):
        preflight.check(Config(store=str(tmp_path / "a"), **settings))
    assert list(tmp_path.iterdir()) == []


def test_an_event_loop_that_is_not_installed(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="event_loop: uvloop is not installed; install it, or write `auto`"):
        preflight.check(Config(store="memory:", stomp="0", openwire="0", event_loop="uvloop"))


@pytest.mark.parametrize("made", ["", "data", "data/broker"])
def test_scheduler_store_below_a_new_store_may_be_made(tmp_path, made):
    """ActiveMQ's default is such a directory: `DATA/BROKER/scheduler`."""
    data = tmp_path / "data"
    (tmp_path / made).mkdir(parents=True, exist_ok=True)
    preflight.check(
        Config(store=str(data), scheduler_store=data / "broker" / "scheduler", stomp="0", openwire="0", scheduler=True)
    )
    assert not (data / "broker" / "scheduler").exists()


def test_scheduler_store_below_a_file_is_refused(tmp_path):
    (tmp_path / "broker").touch()
    settings = {"store": str(tmp_path), "scheduler_store": tmp_path / "broker" / "scheduler"}
    with pytest.raises(ConfigError, match=f"scheduler_store: {tmp_path}/broker is not a directory"):
        preflight.check(Config(**settings, stomp="0", openwire="0"))


def test_scheduler_store_elsewhere_needs_its_parent(tmp_path):
    settings = {"store": str(tmp_path / "data"), "scheduler_store": tmp_path / "gone" / "scheduler"}
    with pytest.raises(ConfigError, match=f"scheduler_store: .* there is no {tmp_path}/gone"):
        preflight.check(Config(**settings, stomp="0", openwire="0"))


@pytest.mark.parametrize("made", [True, False], ids=["an empty directory", "no directory"])
def test_without_create_store_no_new_scheduler_store_is_begun(tmp_path, made):
    """Its own directory may be on a share of its own."""
    (tmp_path / "db-1.log").touch()
    jobs = tmp_path / "jobs"
    if made:
        jobs.mkdir()
    settings = {"store": str(tmp_path), "scheduler_store": jobs, "stomp": "0", "openwire": "0", "create_store": False}
    with pytest.raises(ConfigError, match=f"scheduler_store: {jobs} holds no scheduled messages' store"):
        preflight.check(Config(**settings))
    preflight.check(Config(**settings, scheduler=False))
    jobs.mkdir(exist_ok=True)
    (jobs / "db-1.log").touch()
    preflight.check(Config(**settings))


def test_log_file_that_could_not_be_made_is_refused(tmp_path):
    """As `pybroker doctor` finds it, which makes no file."""
    gone = tmp_path / "gone" / "pybroker.log"
    with pytest.raises(ConfigError, match=f"log_file: {gone} cannot be opened: No such file or directory; create its"):
        preflight.check(Config(store="memory:", log_file=str(gone), stomp="0", openwire="0"))
    preflight.check(Config(store="memory:", log_file=str(tmp_path / "pybroker.log"), stomp="0", openwire="0"))
    assert list(tmp_path.iterdir()) == []


def test_a_program_for_events_that_cannot_be_run_is_refused(tmp_path):
    program = tmp_path / "program"
    program.write_text("no program")
    with pytest.raises(ConfigError, match=f"on_ha_event: {program} is not a program that this user can run"):
        preflight.check(Config(store="memory:", on_ha_event=str(program), stomp="0", openwire="0"))


def test_a_spool_directory_that_is_missing_is_refused(tmp_path):
    gone = tmp_path / "gone"
    with pytest.raises(ConfigError, match=f"spool_directory: {gone} is not a directory that this user can write to"):
        preflight.check(Config(store="memory:", spool_directory=str(gone), stomp="0", openwire="0"))


class TestPasswordsInClear:
    @pytest.fixture
    def users(self, tmp_path: Path) -> str:
        path = tmp_path / "users.toml"
        path.write_text("[users]")
        return str(path)

    def test_listeners_without_tls_that_others_reach_get_a_warning(
        self, users: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        preflight.check(Config(store="memory:", users_file=users, bind="0.0.0.0", stomp=0, openwire="off"))
        assert "passwords cross the network in clear to stomp, which" in caplog.text

    def test_or_are_refused(self, users: str) -> None:
        with pytest.raises(ConfigError, match="to stomp, openwire, which have no TLS"):
            preflight.check(Config(store="memory:", users_file=users, bind="0.0.0.0", login_needs_tls=True))

    def test_only_tables_that_others_can_reach_are_named(self, users: str) -> None:
        tables = [
            {"protocol": "stomp", "port": 0, "name": "inner"},
            {"protocol": "stomp", "port": 0, "name": "outer", "host": "0.0.0.0"},
        ]
        with pytest.raises(ConfigError, match=r"to listeners\.outer, which have no TLS"):
            preflight.check(Config(store="memory:", users_file=users, listeners=tables, login_needs_tls=True))

    @pytest.mark.parametrize(
        "given", [{"bind": "127.0.0.1"}, {"bind": "0.0.0.0", "stomp": "off"}, {"bind": "0.0.0.0", "users_file": None}]
    )
    def test_without_them_nothing_is_said(
        self, users: str, given: dict[str, Any], caplog: pytest.LogCaptureFixture
    ) -> None:
        common = {"store": "memory:", "users_file": users, "stomp": 0, "openwire": "off", "login_needs_tls": True}
        preflight.check(Config(**(common | given)))
        assert "in clear" not in caplog.text


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"bind": "0.0.0.0"}, "clients of other machines are refused, as there are no users: set users_file, or"),
        ({"bind": "0.0.0.0", "anonymous": "everywhere"}, "every client that reaches this broker may connect"),
        ({"bind": "127.0.0.1"}, ""),
        ({"bind": "127.0.0.1", "anonymous": "everywhere"}, ""),
        ({"bind": "0.0.0.0", "stomp": "off"}, ""),
    ],
)
def test_a_broker_without_users_says_who_may_connect(
    given: dict[str, str], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    preflight.check(Config(**{"store": "memory:", "stomp": "0", "openwire": "off", **given}))
    assert [said in line for line in caplog.messages] == [True] * bool(said)


def test_clients_without_a_login_and_without_rules_may_do_everything(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    users, rules = tmp_path / "users.toml", tmp_path / "rules.toml"
    users.write_text("[users]")
    rules.write_text('[default]\nread = ["anonymous"]\n')
    given = {
        "store": "memory:", "stomp": "0", "openwire": "off", "bind": "0.0.0.0", "users_file": users,
        "anonymous": "everywhere",
    }  # fmt: skip
    said = "clients without a login may do everything, as there are no rules: set rules_file"
    preflight.check(Config(**given))
    assert said in caplog.messages
    caplog.clear()
    preflight.check(Config(**given, rules_file=rules))
    assert said not in caplog.messages


@pytest.mark.parametrize(("configured", "there"), [("kahadb", "KahaDB"), ("KahaDB", "kahadb"), ("DB", "db")])
def test_a_new_journal_beside_one_of_another_case_is_warned_of(tmp_path, caplog, configured, there):
    (tmp_path / there).mkdir()
    (tmp_path / there / "db-1.log").touch()
    config = Config(store=str(tmp_path), journal_directory=configured, stomp="0", openwire="0")
    preflight.check(config)
    assert caplog.messages == [
        f"{tmp_path}/{configured} has no journal, and {tmp_path}/{there} has one: "
        f"set `journal_directory = {there!r}` on all members to serve that"
    ]
    caplog.clear()
    preflight.check(config.replace(journal_directory=there))
    assert caplog.messages == []


def test_a_journal_with_another_name_is_a_store(tmp_path):
    (tmp_path / "db").mkdir()
    (tmp_path / "db" / "db-1.log").touch()
    config = Config(store=str(tmp_path), stomp="0", openwire="0", create_store=False)
    preflight.check(config.replace(journal_directory="db"))
    with pytest.raises(ConfigError, match="holds no store"):
        preflight.check(config)
