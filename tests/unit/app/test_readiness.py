"""Obstacles that would keep a standby from serving, with real ports of this machine."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from pybroker.broker.app.config import Config
from pybroker.broker.app.readiness import find_obstacle
from pybroker.broker.domain.role import Role
from pybroker.store.members import MemberFile, MemberRecord, read_members


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def busy_port(stack: ExitStack) -> int:
    """A port on which another process listens."""
    listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    return int(listener.getsockname()[1])


def standby(store: Path, port: int, **settings: object) -> Config:
    store.mkdir(exist_ok=True)
    return Config(store=str(store), stomp=port, openwire="off", **settings)


def obstacle_of(config: Config) -> str:
    return find_obstacle(config, read_members(Path(config.store) / "members"))


def publish_master(stack: ExitStack, store: Path, listener: str, host: str = "") -> None:
    file = MemberFile.claim(store / "members", "master")
    stack.callback(file.close)
    file.publish(
        MemberRecord(
            name="master",
            role=Role.MASTER,
            pid=1,
            host=host or socket.gethostname(),
            version="0",
            since_ms=1,
            started_ms=1,
            updated_ms=1,
            listeners=(listener,),
        )
    )


@pytest.mark.parametrize("name", ["", "#partners"])
def test_port_that_the_master_has_is_no_obstacle(stack: ExitStack, tmp_path: Path, busy_port: int, name: str) -> None:
    config = standby(tmp_path, busy_port)
    publish_master(stack, tmp_path, f"stomp://127.0.0.1:{busy_port}{name}")
    assert not obstacle_of(config)


@pytest.mark.parametrize("host", ["", "another.example.org"])
def test_port_that_another_process_has_is_an_obstacle(
    stack: ExitStack, tmp_path: Path, busy_port: int, host: str
) -> None:
    config = standby(tmp_path, busy_port)
    publish_master(stack, tmp_path, f"stomp://127.0.0.1:{busy_port if host else 1}", host)
    assert obstacle_of(config).startswith(f"stomp: cannot use 127.0.0.1 port {busy_port}: Address already in use")


def test_port_of_a_replicated_member_that_is_taken_is_an_obstacle(tmp_path: Path, busy_port: int) -> None:
    """Its store has no other master, whose port that could be."""
    config = standby(tmp_path, busy_port, replicate="etcd://127.0.0.1/orders")
    assert obstacle_of(config).startswith(f"stomp: cannot use 127.0.0.1 port {busy_port}: Address already in use")


def test_port_beside_a_silent_master_is_not_judged(tmp_path: Path, busy_port: int) -> None:
    assert not obstacle_of(standby(tmp_path, busy_port))


def test_address_of_another_machine_is_an_obstacle(tmp_path: Path) -> None:
    obstacle = obstacle_of(standby(tmp_path, 61999, bind="192.0.2.1"))
    assert obstacle.startswith("bind: cannot use 192.0.2.1 port 61999: Cannot assign requested address")


def test_tried_port_is_left_free(stack: ExitStack, tmp_path: Path, busy_port: int) -> None:
    config = standby(tmp_path, busy_port)
    stack.close()
    assert not obstacle_of(config)
    with socket.create_server(("127.0.0.1", busy_port)) as listener:
        assert listener.getsockname()[1] == busy_port
