"""The management process by itself: it takes states from its link, and ends with it."""

import contextlib
import select
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from pybroker.broker.domain.node_state import NodeState
from pybroker.broker.domain.role import Role
from pybroker.management.checks import SILENT_SECONDS

SECONDS = 60.0


class Process:
    """The process, and this test as its node."""

    def __init__(self) -> None:
        self.link, other = socket.socketpair()
        self.link.settimeout(SECONDS)
        with other, socket.create_server(("127.0.0.1", 0)) as health:
            self.port = health.getsockname()[1]
            numbers = (other.fileno(), health.fileno())
            arguments = [f"--link={numbers[0]}", f"--health={numbers[1]}"]
            command = [sys.executable, "-m", "pybroker.management", *arguments]
            self.process = subprocess.Popen(command, pass_fds=numbers)

    def tell(self, role: Role, age: float = 0.0) -> None:
        self.link.sendall(NodeState(role=role, obstacle="", at=time.monotonic() - age).as_line())

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=SECONDS) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def wait_for(self, path: str, expected: tuple[int, str]) -> None:
        """Ask until the answer is as expected: the process reads its link when it comes to it."""
        deadline = time.monotonic() + SECONDS
        while (found := self.get(path)) != expected:
            assert time.monotonic() < deadline, found


@pytest.fixture(scope="module")
def process() -> Iterator[Process]:
    process = Process()
    with contextlib.closing(process.link):
        yield process
    process.process.kill()
    process.process.wait()


def test_it_answers_before_the_first_state_and_by_the_last(process: Process) -> None:
    assert process.get("/ready") == (503, "starting\n")
    assert process.get("/live") == (200, "starting\n")
    process.tell(Role.STANDBY)
    process.wait_for("/standby", (200, "standby\n"))
    process.tell(Role.PROMOTING)
    process.tell(Role.MASTER)
    process.wait_for("/master", (200, "master\n"))
    assert process.get("/standby") == (503, "master\n")


def test_half_a_state_changes_nothing(process: Process) -> None:
    process.tell(Role.MASTER)
    process.wait_for("/master", (200, "master\n"))
    line = NodeState(role=Role.STANDBY, obstacle="", at=time.monotonic()).as_line()
    process.link.sendall(line[:20])
    assert process.get("/master") == (200, "master\n")
    process.link.sendall(line[20:])
    process.wait_for("/master", (503, "standby\n"))


def test_a_node_that_hangs_is_not_live(process: Process) -> None:
    process.tell(Role.MASTER, age=SILENT_SECONDS + 20)
    process.wait_for("/live", (503, "silent for 30 s\n"))
    assert process.get("/master") == (503, "silent for 30 s\n")
    process.tell(Role.MASTER)
    process.wait_for("/live", (200, "master\n"))


def test_it_gives_signs_of_life(process: Process) -> None:
    assert set(process.link.recv(100)) == {ord("\n")}
    assert process.link.recv(100)


def test_it_ends_with_its_node() -> None:
    process = Process()
    assert process.link.recv(1) == b"\n"
    process.link.close()
    assert process.process.wait(SECONDS) == 0


def test_signals_for_the_whole_group_leave_it_to_the_node() -> None:
    process = Process()
    with contextlib.closing(process.link):
        assert process.link.recv(1) == b"\n"
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            process.process.send_signal(number)
        assert process.link.recv(1) == b"\n"
        assert process.get("/live") == (200, "starting\n")
        assert not select.select([process.link], [], [], 0)[0] or process.link.recv(1)
    assert process.process.wait(SECONDS) == 0
