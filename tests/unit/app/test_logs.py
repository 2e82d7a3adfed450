"""One event is one line, whatever a peer's words are."""

import io
import logging
import re
import sys

import pytest

from pybroker.broker.app import logs
from tests.unit.transports.openwire.conversation import World


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch):
    """Configure logging for one test; return what reads the lines written."""
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    root, loop = logging.getLogger(), logging.getLogger("asyncio")
    before = root.handlers[:], root.level, loop.level
    logs.configure("info")
    yield lambda: written.getvalue().removesuffix("\n").split("\n")
    root.handlers[:] = before[0]
    root.setLevel(before[1])
    loop.setLevel(before[2])


@pytest.mark.parametrize(
    ("words", "written"),
    [
        ("x\n2026-11-21 10:15:02.123 ERROR   node: lock lost", r"x\n2026-11-21 10:15:02.123 ERROR   node: lock lost"),
        ("\r\x1b[2J\0\x7f", r"\r\x1b[2J\x00\x7f"),
        ("\x85\u2028\u2029", r"\x85\u2028\u2029"),
        ("gpj.\u202eexe\u2066", r"gpj.\u202eexe\u2066"),
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


def test_a_connection_id_splits_no_line(log) -> None:
    """It is a peer's word in every line about its client."""
    world = World()
    for _ in range(2):  # the second one takes over from the first, which is logged
        world.client("a\n2026-11-21 10:15:02.123 ERROR   node: lock lost\x1b[2J")
    world.client("b", client_id="b").session.receive(b"\x7f\xff\xff\xff")
    lines = log()
    assert [line for line in lines if r"a\n2026-11-21 10:15:02.123 ERROR   node: lock lost\x1b[2J" in line]
    assert all(re.match(r"\d{4}-\d\d-\d\d \S+ (INFO|WARNING) +(session|client):", line) for line in lines)
