# mypy: disable-error-code="arg-type"
"""Work that is not done in time is ended, once, and nothing else."""

import threading

from pybroker.store.jdbc.watchdog import Watchdog

WAIT_SECONDS = 20.0


def test_what_takes_too_long_is_ended_and_what_is_done_is_not() -> None:
    watchdog, ended = Watchdog(), threading.Event()
    log: list[str] = []
    watchdog.begin(1, 0.0, lambda: log.append("done in time"))
    watchdog.done(1)
    watchdog.begin(2, 3600.0, lambda: log.append("has time"))
    watchdog.begin(3, 0.0, lambda: (log.append("late"), ended.set()))
    assert ended.wait(WAIT_SECONDS)
    ended.clear()
    watchdog.begin(4, 0.0, ended.set)
    assert ended.wait(WAIT_SECONDS)
    assert log == ["late"]
