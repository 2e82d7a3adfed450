"""Signals that do not end a broker, and a broker that was started without standard streams."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time

import pytest

from tests.integration.cluster import START_SECONDS, free_port
from tests.integration.stomp_client import StompClient

QUIET = {key: value for key, value in os.environ.items() if not key.startswith("PYBROKER_")}


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_master_answers_each_signal_with_a_line(start, loop):
    broker = start("--event-loop", loop, store="memory:")
    broker.wait_for("listening on")
    with contextlib.closing(StompClient(broker.port)) as client:
        client.request("SEND", b"hello", destination="/queue/Q")
        for number, line in (
            (signal.SIGHUP, "INFO +signals: SIGHUP: there is nothing to read again"),
            (
                signal.SIGUSR1,
                r"SIGUSR1: master since .*; 1 connection, \d+ destinations?, 1 message waiting, 0 in.*loop lag"
                r".*; most memory: queue://Q 0\.0 MB",
            ),
            (signal.SIGUSR2, "SIGUSR2: ignored"),
        ):
            broker.process.send_signal(number)
            broker.wait_for(line)
    assert broker.terminate() == 0


def test_a_standby_answers_signals_too(start, tmp_path):
    master = start(store=str(tmp_path / "store"))
    master.wait_for("listening on")
    standby = start(store=str(tmp_path / "store"), name="b")
    standby.wait_for("waiting for the lock")
    standby.process.send_signal(signal.SIGUSR1)
    standby.wait_for("SIGUSR1: standby since ")
    standby.process.send_signal(signal.SIGHUP)
    standby.wait_for("SIGHUP: ")
    assert standby.terminate() == 0


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("closed", ["<&- >&- 2>&-", "<&-", ">&- 2>&-"])
def test_closed_standard_streams_change_nothing(tmp_path, loop, closed):
    port = free_port()
    command = f'exec "$@" {closed}'
    arguments = [sys.executable, "-m", "pybroker.broker.app.cli", "start", "--store", str(tmp_path / "store")]
    arguments += ["--stomp", str(port), "--openwire", "off", "--event-loop", loop, "--disk-reserve", "0"]
    broker = subprocess.Popen(["/bin/sh", "-c", command, "sh", *arguments], env=QUIET, stderr=subprocess.DEVNULL)
    try:
        wait_until_it_listens(port)
        with contextlib.closing(StompClient(port)) as client:
            client.request("SEND", b"hello", destination="/queue/Q")
        broker.terminate()
        assert broker.wait(START_SECONDS) == 0
    finally:
        broker.kill()
        broker.wait()


def wait_until_it_listens(port: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            continue
        return
    raise AssertionError("the broker does not listen")
