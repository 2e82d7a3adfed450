# mypy: disable-error-code="arg-type"
"""The end of a turn: disk before output, newest output first, and no one pays for another's bug."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from pybroker.transports.turn import Turn

Loop = asyncio.AbstractEventLoop


def run_turn(loop: Loop, act: Callable[[Turn, list[str]], None]) -> list[str]:
    """Return what was done, in its order, after `act` and the turn's end."""
    log: list[str] = []

    async def live() -> None:
        turn = Turn(loop)
        act(turn, log)
        assert not log, "nothing is done before the turn's end"
        await asyncio.sleep(0)

    loop.run_until_complete(live())
    return log


@pytest.fixture
def loop() -> Any:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


def test_what_must_last_is_written_before_output_leaves(loop: Loop) -> None:
    def act(turn: Turn, log: list[str]) -> None:
        turn.output(lambda: log.append("output"))
        turn.commit(lambda: log.append("commit"))

    assert run_turn(loop, act) == ["commit", "output"]


def test_responses_of_a_commit_leave_first_in_its_turn(loop: Loop) -> None:
    def act(turn: Turn, log: list[str]) -> None:
        turn.output(lambda: log.append("dispatch"))
        turn.commit(lambda: turn.output(lambda: log.append("response")))

    assert run_turn(loop, act) == ["response", "dispatch"]


def test_commit_scheduled_by_a_commit_runs_before_output(loop: Loop) -> None:
    def act(turn: Turn, log: list[str]) -> None:
        turn.output(lambda: log.append("output"))
        turn.commit(lambda: turn.commit(lambda: log.append("second")))

    assert run_turn(loop, act) == ["second", "output"]


def test_a_bug_in_one_is_reported_and_the_others_are_done(loop: Loop) -> None:
    reported: list[str] = []
    loop.set_exception_handler(lambda _, context: reported.append(str(context["exception"])))

    def act(turn: Turn, log: list[str]) -> None:
        turn.commit(lambda: 1 // 0)
        turn.commit(lambda: log.append("commit"))
        turn.output(lambda: 1 // 0)
        turn.output(lambda: log.append("output"))

    assert run_turn(loop, act) == ["commit", "output"]
    assert len(reported) == 2


def test_posted_callback_runs_and_its_output_leaves(loop: Loop) -> None:
    log: list[str] = []

    async def live() -> None:
        turn = Turn(loop)
        done = asyncio.Event()

        def posted() -> None:
            turn.output(lambda: (log.append("output"), done.set(), None)[2])
            log.append("posted")

        thread = threading.Thread(target=turn.post, args=(posted,))
        thread.start()
        async with asyncio.timeout(10):
            await done.wait()
        thread.join()

    loop.run_until_complete(live())
    assert log == ["posted", "output"]
