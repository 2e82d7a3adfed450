"""One event is one line, whatever text a peer sends."""

import datetime
import io
import json
import logging
import re
import sys

import pytest

from pybroker.broker.app import logs
from pybroker.broker.app.log_limits import BYTES_BURST, LINES_BURST, PERIOD_SECONDS
from pybroker.broker.app.logs import LINE_LENGTH_MAX
from pybroker.broker.domain import audit
from pybroker.broker.domain.openwire.commands import RemoveSubscriptionInfo
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
    complain(LINES_BURST + 4_211)
    assert len(log()) == LINES_BURST
    logging.getLogger("pybroker.transports.detect").info("another kind")
    assert log()[-1].endswith("another kind")
    clock[0] = PERIOD_SECONDS
    logs.report()
    assert log()[-1].endswith(
        "INFO    tls_connection: ... 4,211 more in the last 10 s, such as: peer 100: TLS handshake failed"
    )
    count = len(log())
    logs.report()
    assert len(log()) == count, "reported once"


def test_flood_that_goes_on_is_a_line_per_second(log, clock) -> None:
    complain(LINES_BURST)
    for second in range(1, 101):
        clock[0] = float(second)
        complain(50)
    lines = [line for line in log() if " more in the last " not in line]
    assert len(lines) == LINES_BURST + 100
    assert len(log()) - len(lines) in {9, 10}, "and a count in each period"


def test_allowance_of_a_cause_is_whole_again_after_silence(log, clock) -> None:
    complain(2 * LINES_BURST)
    clock[0] = 2 * LINES_BURST
    complain(2 * LINES_BURST)
    assert len(log()) == 2 * LINES_BURST + 1


def test_causes_share_an_allowance_of_bytes(log, clock) -> None:
    """A peer that finds many causes of long lines writes no more than one with a single cause."""
    for number in range(60):
        for _ in range(LINES_BURST):
            logging.getLogger(f"pybroker.transports.cause{number}").info("%s", "\N{GRINNING FACE}" * 20_000)
    written = len("\n".join(log()).encode())
    assert BYTES_BURST <= written < BYTES_BURST + 5_000
    clock[0] = 1_000.0
    complain(1)
    assert log()[-1].endswith("peer 0: TLS handshake failed"), "after the burst has grown again"


def test_lines_of_the_audit_are_not_crowded_out(log) -> None:
    for number in range(60):
        for _ in range(LINES_BURST):
            logging.getLogger(f"pybroker.transports.cause{number}").info("%s", "x" * 1_000)
    logging.getLogger(audit.LOGGER).info("ann logged in")
    assert log()[-1].endswith("ann logged in")


def test_causes_without_a_format_share_an_allowance(log) -> None:
    for number in range(3_000):
        logging.getLogger("another.package").error(f"text {number}")  # noqa: G004
    assert len(log()) == 1_000 + LINES_BURST


def test_lines_left_out_are_counted_at_the_end(log) -> None:
    complain(LINES_BURST + 7)
    logging.getLogger().handlers[0].close()
    assert "... 7 more in the last 1 s" in log()[-1]


@pytest.mark.parametrize("name", ["broker.app.node", "locks.file", "store.journal.sink"])
def test_lines_of_the_broker_itself_are_never_left_out(log, name: str) -> None:
    for number in range(3 * LINES_BURST):
        logging.getLogger(f"pybroker.{name}").error("record %d", number)
    assert len(log()) == 3 * LINES_BURST


def test_callbacks_that_fail_in_the_store_are_counted(log) -> None:
    for _ in range(3 * LINES_BURST):
        logging.getLogger("pybroker.store.group_commit").error("a callback failed")
    assert len(log()) == LINES_BURST


def test_long_texts_are_cut(log) -> None:
    logging.getLogger("pybroker.transports.a").info("refused: %s", "x" * 20_000)
    logging.getLogger("pybroker.transports.a").info("%s", "\0" * 20_000)
    for line in log():
        assert line.endswith(" [...]")
        assert len(line) < LINE_LENGTH_MAX + 50


def test_long_traceback_is_cut_in_its_middle(log) -> None:
    def chain(depth: int) -> None:
        try:
            if depth:
                chain(depth - 1)
            raise ValueError("x" * 20_000)
        except ValueError as error:
            raise ValueError("y") from error

    try:
        chain(100)
    except ValueError:
        logging.getLogger("pybroker.transports.a").exception("failed")
    assert len(log()) == 1 + 101
    assert max(map(len, log())) < LINE_LENGTH_MAX + 50


def test_refused_commands_write_little(log) -> None:
    """38 MB of refused commands wrote 22 MB of log."""
    client = World().client("a", client_id="a")
    text = "x" * 20_000
    for _ in range(2_000):
        client.refused(RemoveSubscriptionInfo(client_id=text, subscription_name=text))
    assert len(log()) == LINES_BURST
    assert len("\n".join(log())) < BYTES_BURST
    assert text[:900] in log()[-1]


@pytest.fixture
def json_log(log, clock: list[float]):
    """Configure logging in JSON; return what reads the events written."""
    logs.configure("info", as_json=True, clock=lambda: clock[0])
    return lambda: [json.loads(line) for line in log()]


def test_each_event_is_a_line_of_json(json_log) -> None:
    logging.getLogger("pybroker.a.session").warning("refused: %s", "x\n\x1b[2J\u202e")
    try:
        raise ValueError("wrong")
    except ValueError:
        logging.getLogger("pybroker.node").exception("failed")
    refused, failed = json_log()
    assert datetime.datetime.fromisoformat(refused.pop("time")).tzinfo is not None
    assert refused == {
        "level": "WARNING", "logger": "pybroker.a.session", "message": r"refused: x\n\x1b[2J\u202e"
    }  # fmt: skip
    assert failed["message"] == "failed"
    assert failed["exception"][-1] == "  | ValueError: wrong"


def test_an_audit_line_has_its_parts_in_json(json_log) -> None:
    audit.logged_in("u", "10.0.0.7")
    audit.let_in("guest", "10.0.0.7")
    audit.login_refused(None, "10.0.0.7", "no certificate")
    audit.login_refused("x" * 100 + "\n", "10.0.0.7", "unknown user")
    audit.denied("u", "10.0.0.7:1", "write to", "queue://A")
    audit.created("u", "10.0.0.7:1", "queue://A")
    audit.removed("u", "10.0.0.7:1", "queue://A")
    audit.unsubscribed("u", "10.0.0.7:1", "id:d")
    audit.disconnected("u", "10.0.0.7:1", "its user has changed")
    events = json_log()
    keys = ("event", "user", "address", "object", "reason")
    assert [tuple(event.get(key, "") for key in keys) for event in events] == [
        ("login", "u", "10.0.0.7", "", ""),
        ("guest", "guest", "10.0.0.7", "", ""),
        ("login refused", None, "10.0.0.7", "", "no certificate"),
        ("login refused", "x" * 64, "10.0.0.7", "", "unknown user"),
        ("denied", "u", "10.0.0.7:1", "queue://A", "no right to write to it"),
        ("created", "u", "10.0.0.7:1", "queue://A", ""),
        ("removed", "u", "10.0.0.7:1", "queue://A", ""),
        ("unsubscribed", "u", "10.0.0.7:1", "id:d", ""),
        ("disconnected", "u", "10.0.0.7:1", "", "its user has changed"),
    ]
    assert [event["message"] for event in events][4:] == [
        "'u' from 10.0.0.7:1 may not write to: queue://A",
        "'u' from 10.0.0.7:1 created queue://A",
        "'u' from 10.0.0.7:1 removed queue://A",
        "'u' from 10.0.0.7:1 deleted the durable subscription id:d",
        "'u' from 10.0.0.7:1 is disconnected: its user has changed",
    ]
