"""Commands and web servers that get events: one at a time, with limits, and without effect on the member."""

import http.server
import itertools
import json
import logging
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from pybroker.broker.app import alert_targets, alerts
from pybroker.broker.app.alerts import Alerts, targets_of
from pybroker.broker.app.event_log import EventLog
from pybroker.broker.app.ha_events import HaEvent, HaEventKind
from pybroker.broker.domain.role import Role
from pybroker.store.member_history import HISTORY_MAX, LINE_MAX, Entry

SECONDS = 20.0


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.fixture
def program(tmp_path: Path) -> Callable[[str], Path]:
    """Write a program with a body of shell commands."""

    def program(body: str) -> Path:
        path = tmp_path / "program"
        path.write_text(f"#!/bin/sh\ncd {tmp_path}\n{body}\n")
        path.chmod(0o700)
        return path

    return program


def test_command_gets_each_event_as_a_line(program: Callable[[str], Path], tmp_path: Path) -> None:
    sender = Alerts(targets_of(program("cat >> got; env > environment"), None))
    sender.send({"event": "degraded", "reasons": ["it's $(gone)"]})
    sender.send({"event": "healthy"})
    sender.close()
    lines = (tmp_path / "got").read_text().splitlines()
    assert [json.loads(line)["event"] for line in lines] == ["degraded", "healthy"]
    assert json.loads(lines[0])["reasons"] == ["it's $(gone)"]


def test_command_gets_no_variables_with_secrets(
    program: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYBROKER_LOCK_URL", "postgresql://u:secret@h/d")
    sender = Alerts(targets_of(program("env > environment"), None))
    sender.send({"event": "degraded"})
    sender.close()
    found = (tmp_path / "environment").read_text()
    assert "PATH=" in found
    assert "secret" not in found


def test_command_runs_one_at_a_time(program: Callable[[str], Path], tmp_path: Path) -> None:
    sender = Alerts(targets_of(program("mkdir alone || echo twice >> twice; cat > got; rmdir alone"), None))
    for number in range(5):
        sender.send({"event": "degraded", "number": number})
    sender.close()
    assert json.loads((tmp_path / "got").read_text())["number"] == 4
    assert not (tmp_path / "twice").exists()


def test_command_that_hangs_is_ended_with_its_children(
    program: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    child = tmp_path / "child"

    class Hanging(subprocess.Popen[bytes]):
        """A program whose time begins once it has a child: on a busy machine it would be over before."""

        def communicate(self, line: Any = None, timeout: float | None = None) -> tuple[Any, Any]:
            wait_for(lambda: child.exists() and child.read_text().endswith("\n"))
            return super().communicate(line, timeout)

    monkeypatch.setattr(alert_targets, "COMMAND_SECONDS", 0.1)
    monkeypatch.setattr(subprocess, "Popen", Hanging)
    sender = Alerts(targets_of(program("sleep 60 & echo $! > child; wait"), None))
    sender.send({"event": "degraded"})
    sender.close()
    assert "did not take the event" in caplog.text
    wait_for(lambda: has_ended(child.read_text().strip()))


def has_ended(pid: str) -> bool:
    """Return True if a process has ended, whether or not another one has collected it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.mark.parametrize(("path", "expected"), [("/no/such/program", "No such file"), ("/bin/false", "exit code 1")])
def test_command_that_fails_is_logged(path: str, expected: str, caplog: pytest.LogCaptureFixture) -> None:
    sender = Alerts(targets_of(Path(path), None))
    sender.send({"event": "degraded"})
    sender.close()
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert expected in record.getMessage()


def test_events_beyond_the_queue_are_dropped_and_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(alerts, "WAITING_MAX", 2)
    goes_on, taken = threading.Event(), list[bytes]()

    def take(line: bytes) -> None:
        taken.append(line)
        assert goes_on.wait(SECONDS)

    sender = Alerts([("it", take)])
    sender.send({"event": "0"})
    wait_for(lambda: taken)
    for number in range(1, 5):
        sender.send({"event": str(number)})
    assert [record.getMessage()[-1] for record in caplog.records] == ["3", "4"]
    goes_on.set()
    wait_for(lambda: len(taken) == 3)
    sender.close()


class Receiver(http.server.BaseHTTPRequestHandler):
    """A web server that refuses some requests at first."""

    got: ClassVar[list[dict[str, str]]] = []
    refusals: ClassVar[list[int]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        status = self.refusals.pop() if self.refusals else 204
        if status == 204:
            self.got.append(json.loads(body) | {"type": self.headers["Content-Type"]})
        self.send_response(status)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def webhook(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(alert_targets, "TRY_SECONDS", (0.0, 0.0, 0.0))
    monkeypatch.setattr(Receiver, "got", [])
    monkeypatch.setattr(Receiver, "refusals", [])
    with http.server.HTTPServer(("127.0.0.1", 0), Receiver) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/hook?token=secret"
        server.shutdown()
        thread.join()


def test_webhook_gets_the_event_after_a_failure(webhook: str) -> None:
    Receiver.refusals.append(503)
    sender = Alerts(targets_of(None, webhook))
    sender.send({"event": "degraded"})
    sender.close()
    assert Receiver.got == [{"event": "degraded", "type": "application/json"}]


def test_webhook_that_fails_is_logged_without_its_token(webhook: str, caplog: pytest.LogCaptureFixture) -> None:
    Receiver.refusals += [500] * 3
    sender = Alerts(targets_of(None, webhook))
    sender.send({"event": "degraded"})
    sender.close()
    assert "ha_webhook at 127.0.0.1 did not take the event" in caplog.text
    assert "HTTP status 500" in caplog.text
    assert "secret" not in caplog.text
    assert Receiver.got == []


def test_without_targets_there_is_no_thread() -> None:
    before = set(threading.enumerate())
    sender = Alerts(targets_of(None, None))
    sender.send({"event": "degraded"})
    assert set(threading.enumerate()) <= before
    sender.close()


# ---------------------------------------------------------------- which events are told


def test_events_are_kept_and_those_to_act_on_are_told() -> None:
    told, kept = list[bytes](), list[Entry]()
    sender = Alerts([("it", told.append)])
    log = EventLog("b", "/mnt/shared", sender, kept.append, [{"at_ms": 1, "kind": "healthy"}])
    roles = [Role.STANDBY, Role.PROMOTING, Role.MASTER, Role.RELINQUISHING, Role.STOPPED]
    for former, role in itertools.pairwise(roles):
        log(HaEvent(kind=HaEventKind.ROLE, role=role, former=former, reason="why"))
    log(HaEvent(kind=HaEventKind.PROMOTION, role=Role.MASTER, epoch=7, phases={"waiting": 5}, total_ms=30))
    log(HaEvent(kind=HaEventKind.DEGRADED, role=Role.STANDBY, reasons=("one", "two")))
    log(HaEvent(kind=HaEventKind.HEALTHY, role=Role.STANDBY, degraded_ms=1_500))
    sender.close()
    assert len(log.entries()) == 1 + len(kept) == 8
    found = [json.loads(line) for line in told]
    assert [each["event"] for each in found] == ["stepped_back", "master", "degraded", "healthy"]
    assert found[0] == found[0] | {"member": "b", "store": "/mnt/shared", "role": "RELINQUISHING", "reason": "why"}
    assert found[1] == found[1] | {"epoch": 7, "phases": {"waiting": 5}, "total_ms": 30}
    assert found[2] == found[2] | {"reasons": ["one", "two"]}
    assert found[3] == found[3] | {"degraded_ms": 1_500}


def test_entries_are_bounded_in_number_and_length() -> None:
    log = EventLog("b", "s", Alerts([]), lambda entry: None)
    event = HaEvent(kind=HaEventKind.DEGRADED, role=Role.STANDBY, reasons=("x" * 5_000,) * 50)
    for _ in range(HISTORY_MAX + 5):
        log(event)
    assert len(log.entries()) == HISTORY_MAX
    assert len(json.dumps(log.entries()[0])) < LINE_MAX
