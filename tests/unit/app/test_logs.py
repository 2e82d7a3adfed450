"""One event is one line, whatever a peer's words are."""

import errno
import inspect
import io
import logging
import sys
from asyncio import selector_events

import pytest

from pybroker.broker.app import logs


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch):
    """Configure logging for one test; return what reads the lines written."""
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    root, loop = logging.getLogger(), logging.getLogger("asyncio")
    before = root.handlers[:], root.level, loop.level, loop.filters[:]
    logs.configure("info")
    yield lambda: written.getvalue().removesuffix("\n").split("\n")
    root.handlers[:], loop.filters[:] = before[0], before[3]
    root.setLevel(before[1])
    loop.setLevel(before[2])


@pytest.mark.parametrize(
    ("words", "written"),
    [
        ("x\n2026-11-21 10:15:02.123 ERROR   node: lock lost", r"x\n2026-11-21 10:15:02.123 ERROR   node: lock lost"),
        ("\r\x1b[2J\0\x7f", r"\r\x1b[2J\x00\x7f"),
        ("\x85\u2028\u2029", r"\x85\u2028\u2029"),
        ("Grüße, 世界 \\n", "Grüße, 世界 \\n"),
    ],
)
def test_control_characters_are_escaped(log, words: str, written: str) -> None:
    logging.getLogger("pybroker.a.session").warning("refused: %s", words)
    [line] = log()
    assert line.endswith(f" WARNING session: refused: {written}")


def test_a_traceback_is_readable_and_passes_for_no_event(log) -> None:
    try:
        raise ValueError("x\n2026-11-21 10:15:02.123 ERROR   node: \x1b[2J")
    except ValueError:
        logging.getLogger("pybroker.node").exception("failed")
    event, *traceback = log()
    assert event.endswith(" ERROR   node: failed")
    assert traceback[0] == "  | Traceback (most recent call last):"
    assert traceback[-2:] == ["  | ValueError: x", r"  | 2026-11-21 10:15:02.123 ERROR   node: \x1b[2J"]
    assert all(line.startswith("  | ") for line in traceback)


def accept_failure(created: float) -> logging.LogRecord:
    error = OSError(errno.EMFILE, "Too many open files")
    message = "socket.accept() out of system resource\nsocket: <asyncio.TransportSocket fd=6>"
    record = logging.LogRecord("asyncio", logging.ERROR, "", 0, message, (), (OSError, error, None))
    record.created = created
    return record


def test_want_of_descriptors_is_reported_now_and_then_only(log) -> None:
    loop = logging.getLogger("asyncio")
    for tenth in range(300):
        loop.handle(accept_failure(1000 + tenth / 10))
    loop.error("something else")
    events = [line for line in log() if not line.startswith("  | ")]
    assert len(events) == 4
    assert r"socket.accept() out of system resource\nsocket: <asyncio" in events[0]
    assert events[-1].endswith("something else")


def test_asyncio_says_what_the_filter_knows() -> None:
    """The sentence is the loop's, not ours: it must still be said."""
    assert logs._ACCEPT_FAILED in inspect.getsource(selector_events)
