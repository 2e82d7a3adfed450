"""The log of a member whose election store does not answer."""

import itertools
import queue
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from pybroker.broker.app.register_thread import REASONS_LOGGED, RegisterThread
from pybroker.locks.election.election_state import ElectionEvent, ReadFailed, ReadRegister, RegisterRead
from pybroker.locks.election.record import ElectionRecord
from pybroker.locks.election.register import (
    ABSENT,
    RegisterCallback,
    RegisterState,
    RegisterUnavailable,
    SwapResult,
)

SECONDS = 30.0


class _Watch:
    def close(self) -> None:
        pass


class FailingRegister:
    """Fails with one reason after the other; None is an answer."""

    name = cluster = "orders"

    def __init__(self, reasons: Iterator[str | None]) -> None:
        self._reasons = reasons

    def read(self) -> RegisterState:
        reason = next(self._reasons)
        if reason is not None:
            raise RegisterUnavailable(self.name, reason)
        return ABSENT

    def swap(self, revision: int, record: ElectionRecord) -> SwapResult:
        raise AssertionError("only read")

    def watch(self, callback: RegisterCallback) -> _Watch:
        return _Watch()

    def guardian_access(self) -> Mapping[str, Any]:
        return {}

    def close(self) -> None:
        pass


def read(count: int, reasons: Iterator[str | None]) -> list[ElectionEvent]:
    """Read so often, one after the other, and return the outcomes."""
    told: queue.SimpleQueue[ElectionEvent] = queue.SimpleQueue()
    calls = RegisterThread(FailingRegister(reasons), told.put)
    found: list[ElectionEvent] = []
    for _ in range(count):
        calls.perform(ReadRegister())
        found.append(told.get(timeout=SECONDS))
    calls.close()
    return found


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]


def test_reasons_that_alternate_are_logged_once_each(caplog: pytest.LogCaptureFixture) -> None:
    """As of TLS at a port without it: the log had two lines for each try, without end."""
    outcomes = read(20, itertools.cycle(["reset", "EOF"]))
    assert {type(each) for each in outcomes} == {ReadFailed}
    assert warnings(caplog) == [
        "the election store cannot be used, and is asked again: orders: reset. Does it run, and is `replicate` right?",
        "the election store cannot be used, and is asked again: orders: EOF",
    ]


def test_reasons_without_end_are_not_all_logged(caplog: pytest.LogCaptureFixture) -> None:
    read(20, map(str, itertools.count()))
    assert len(warnings(caplog)) == REASONS_LOGGED


def test_reason_is_logged_again_after_an_answer(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    outcomes = read(3, iter(["refused", None, "refused"]))
    assert [type(each) for each in outcomes] == [ReadFailed, RegisterRead, ReadFailed]
    assert [each.partition("Does")[0] for each in caplog.messages] == [
        "the election store cannot be used, and is asked again: orders: refused. ",
        "orders answers again",
        "the election store cannot be used, and is asked again: orders: refused",
    ]
