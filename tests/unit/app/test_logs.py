"""One event is one line, whatever text a peer sends."""

import io
import logging
import re
import sys

import pytest

from pybroker.broker.app import logs
from tests.unit.transports.openwire.conversation import World


@pytest.fixture
def clock() -> list[float]:
    """The time in seconds, which a test moves."""
    return [0.0]


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch, clock: list[float]):
    """Configure logging for one test; return what reads the lines written."""
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    root, loop = logging.getLogger(), logging.getLogger("asyncio")
    before = root.handlers[:], root.level, loop.level
    logs.configure("info", clock=lambda: clock[0])
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
    """The id comes from a peer, and is in every line about its client."""
    world = World()
    for _ in range(2):  # the second one takes over from the first, which is logged
        world.client("a\n2026-11-21 10:15:02.123 ERROR   node: lock lost\x1b[2J")
    world.client("b", client_id="b").session.receive(b"\x7f\xff\xff\xff")
    lines = log()
    assert [line for line in lines if r"a\n2026-11-21 10:15:02.123 ERROR   node: lock lost\x1b[2J" in line]
    assert all(re.match(r"\d{4}-\d\d-\d\d \S+ (INFO|WARNING) +(session|client):", line) for line in lines)


# ---------------------------------------------------------------- how often peers are logged


def complain(times: int, first: int = 0) -> None:
    for number in range(first, first + times):
        logging.getLogger("pybroker.transports.tls_connection").info("%s: TLS handshake failed", f"peer {number}")


def test_flood_of_lines_about_peers_is_counted(log, clock) -> None:
    complain(logs.LINES_MAX)
    assert len(log()) == logs.LINES_MAX
    complain(50, first=logs.LINES_MAX)
    assert log()[-1].endswith(
        "100 lines of one kind within 10 seconds: more are counted, such as: peer 100: TLS handshake failed"
    )
    assert len(log()) == logs.LINES_MAX + 1
    logging.getLogger("pybroker.transports.detect").info("another kind")
    assert log()[-1].endswith("another kind")
    clock[0] = logs.PERIOD_SECONDS
    logging.getLogger("pybroker.node").info("next")
    assert [line.partition(": ")[2] for line in log()[-2:]] == [
        "50 lines were left out, the last one: peer 149: TLS handshake failed",
        "next",
    ]
    complain(1)
    assert log()[-1].endswith("INFO    tls_connection: peer 0: TLS handshake failed")


def test_lines_left_out_are_counted_at_the_end(log) -> None:
    complain(logs.LINES_MAX + 7)
    logging.getLogger().handlers[0].close()
    assert "7 lines were left out" in log()[-1]


def test_lines_of_the_broker_itself_are_never_left_out(log) -> None:
    for number in range(3 * logs.LINES_MAX):
        logging.getLogger("pybroker.store.journal").error("damaged: record %d", number)
    assert len(log()) == 3 * logs.LINES_MAX
