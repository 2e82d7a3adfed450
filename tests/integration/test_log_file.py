"""A broker's log file, rotated by Debian's logrotate with the configuration of the examples."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.cluster import BrokerProcess

ROOT = Path(__file__).parents[2]
SECONDS = 30.0
LOGROTATE = "/usr/sbin/logrotate"

Start = Callable[..., BrokerProcess]


def wait_for(log: Path, pattern: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not (log.exists() and re.search(pattern, log.read_text())):
        assert time.monotonic() < deadline, log.read_text() if log.exists() else f"no {log}"


def own_lines(log: Path) -> list[str]:
    """Return the lines of a file but those about a busy machine, of which one may come at any moment."""
    lines = log.read_text().splitlines() if log.exists() else []
    return [line for line in lines if "for the event loop" not in line]


@pytest.mark.component("logrotate")
def test_log_is_rotated_without_losing_a_line(start: Start, tmp_path: Path) -> None:
    directory = tmp_path / "log"
    directory.mkdir(mode=0o755)
    log, former = directory / "a.log", directory / "a.log.1"
    text = (ROOT / "examples" / "logrotate" / "pybroker").read_text()
    assert "/var/log/pybroker/*.log" in text
    text = text.replace("/var/log/pybroker", str(directory))
    if os.getuid() == 0:
        text = text.replace("su pybroker pybroker", "su root root")
    else:
        text = text.replace("su pybroker pybroker", "")
    configuration = tmp_path / "logrotate.conf"
    configuration.write_text(text)
    configuration.chmod(0o644)

    broker = start("--log-file", str(log), store="memory:")
    wait_for(log, "listening on")
    rotate = [LOGROTATE, "--force", "--state", str(tmp_path / "state"), str(configuration)]
    for round_number in range(1, 4):
        done = subprocess.run(rotate, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert own_lines(log) == []
        broker.process.send_signal(signal.SIGUSR2)
        wait_for(log, "SIGUSR2: ignored")
        assert len(own_lines(log)) == 1, f"only what came after rotation {round_number}"
    assert len(own_lines(former)) == 1
    assert sorted(path.name for path in directory.iterdir()) == ["a.log", "a.log.1", "a.log.2.gz", "a.log.3.gz"]
    assert broker.terminate() == 0
    assert "stopped: the lock is free" in log.read_text()
    assert broker.lines == [], "standard error has nothing of it"


def test_reason_of_a_failed_start_is_in_the_file_too(start: Start, tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    broker = start("--log-file", str(log), store=tmp_path / "absent" / "store")
    assert broker.join() != 0
    [line] = [line for line in broker.lines if line.startswith("pybroker: ")]
    assert log.read_text().splitlines()[-1].endswith(line.removeprefix("pybroker: "))


def test_log_file_that_cannot_be_made_ends_the_start(start: Start, tmp_path: Path) -> None:
    broker = start("--log-file", str(tmp_path / "absent" / "a.log"), store="memory:")
    assert broker.join() == 2
    assert "log_file" in broker.lines[-1]
