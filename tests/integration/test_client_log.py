"""`log_connections`: who connected, and how each connection ended; and a log that nobody reads."""

import contextlib
import fcntl
import socket
import struct
import subprocess
import sys
from pathlib import Path

from tests.integration.cluster import free_port
from tests.integration.stomp_client import StompClient

WHO = r"INFO +connections: ID:\S+ from 127\.0\.0\.1:\d+ "


def test_each_end_of_a_connection_is_logged_with_its_cause(start):
    broker = start("--log-connections", store="memory:")
    broker.wait_for("listening on")
    client = StompClient(broker.port)
    broker.wait_for(WHO + "connected: STOMP 1.2")
    client.request("DISCONNECT")
    broker.wait_for(WHO + "disconnected: DISCONNECT")
    client.close()
    StompClient(broker.port, client_id="two\x1b[2J").close()
    broker.wait_for(r"INFO +connections: ID:\S+ \(client id two\\x1b\[2J\) from 127\.0\.0\.1:\d+ connected: STOMP 1.2")
    broker.wait_for("two.* disconnected: closed by the client")
    with contextlib.closing(StompClient(broker.port, client_id="three")) as client:
        client._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    broker.wait_for(r"three.* disconnected: (broken: .*reset|closed by the client)")
    with contextlib.closing(StompClient(broker.port, client_id="four")) as client:
        client.send("NONSENSE")
        broker.wait_for(r"four.* disconnected: .*NONSENSE")
    with contextlib.closing(StompClient(broker.port, client_id="five")):
        assert broker.terminate() == 0
    assert any("five" in line and line.endswith("disconnected: the broker stops") for line in broker.lines)


def test_by_default_clients_are_not_logged(start):
    broker = start(store="memory:")
    broker.wait_for("listening on")
    StompClient(broker.port).close()
    assert broker.terminate() == 0
    assert not any("connected" in line for line in broker.lines)


def test_a_log_that_nobody_reads_stops_nothing(tmp_path: Path) -> None:
    port = free_port()
    options = ["--log-level=debug", f"--store={tmp_path}", f"--stomp={port}", "--openwire=off", "--disk-reserve=0"]
    command = [sys.executable, "-m", "pybroker.broker.app.cli", "start", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, bufsize=0) as broker:
        assert broker.stderr is not None
        fcntl.fcntl(broker.stderr, fcntl.F_SETPIPE_SZ, 4096)
        try:
            head = b""
            while b"listening on" not in head:
                chunk = broker.stderr.read(1024)
                assert chunk, head
                head += chunk
            for _ in range(200):
                with contextlib.closing(StompClient(port)) as client:
                    assert client.request("SEND", b"x", destination="/queue/A").command == "RECEIPT"
        finally:
            broker.terminate()
        rest = broker.stderr.read()
        assert broker.wait() == 0
    assert len(rest) > 8192, "the pipe was never full"
