"""The state of the pair, as the management process gets it, from a store that answers late or never."""

import asyncio
import threading
import time
from http import HTTPStatus
from queue import SimpleQueue

import pytest

from pybroker.broker.app import ha_answers
from pybroker.broker.app.ha_answers import HaAnswers
from pybroker.broker.app.ha_state import HaState
from pybroker.broker.domain.node_requests import RequestFailed

HANG_SECONDS = 20.0


async def ignore(rows: list[object]) -> None:
    """Send no rows."""


def test_a_share_that_hangs_is_reported_and_keeps_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ha_answers, "READ_SECONDS", 0.01)
    is_over, began = threading.Event(), SimpleQueue[threading.Thread]()

    def hang() -> HaState:
        began.put(threading.current_thread())
        is_over.wait(HANG_SECONDS)
        return {}

    async def run() -> None:
        answers = HaAnswers("a")
        answers.read = hang
        for _ in range(3):
            with pytest.raises(RequestFailed, match=r"the store has not answered for \d+ s") as raised:
                await answers.methods["ha"]({}, ignore)
            assert raised.value.status is HTTPStatus.GATEWAY_TIMEOUT
        answers.close()

    began_at = time.monotonic()
    asyncio.run(run())
    assert time.monotonic() - began_at < HANG_SECONDS / 2
    assert began.get(timeout=HANG_SECONDS).daemon, "the end of the process does not wait for it"
    assert began.empty(), "one thread at a time"
    is_over.set()


def test_the_state_is_read_again_once_the_store_answers() -> None:
    states = [{"state": "healthy"}, {"state": "degraded"}]

    async def run() -> list[object]:
        answers = HaAnswers("a")
        answers.read = lambda: states.pop(0)
        return [await answers.methods["ha"]({}, ignore) for _ in range(2)]

    assert asyncio.run(run()) == [{"state": "healthy"}, {"state": "degraded"}]
