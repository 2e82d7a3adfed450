"""A broker's process as a test sees it."""

from collections.abc import Iterator

import pytest

from pybroker.testing.process import BrokerProcess, State, Watcher

LISTENING = "2026-01-01 00:00:00.000 INFO    node: listening on stomp://h:1, tcp://h:2, 3 ms after the lock was won"


@pytest.fixture
def watcher() -> Iterator[Watcher]:
    watcher = Watcher()
    yield watcher
    watcher.close()


def test_a_master_is_seen_only_with_its_gates_open(watcher: Watcher) -> None:
    seen: list[tuple[State, State]] = []
    process = BrokerProcess(watcher, [], lambda process, state: seen.append((process.state, state)))
    process._process_line(LISTENING)
    process._process_line("2026-01-01 00:00:00.000 WARNING node: lost the lock")
    assert seen == [(State.STARTING, State.MASTER), (State.LEAVING, State.LEAVING)]
    assert process.ports == {"stomp": 1, "tcp": 2}
