"""The STOMP port under clients that misbehave: each gets the reason, and none costs more than its share."""

import contextlib
import resource
import socket
import time
from pathlib import Path

import pytest

from tests.integration.cluster import free_port
from tests.integration.stomp_client import Disconnected, StompClient

WIRE_FORMAT_INFO = bytes.fromhex("00000016 01 4163746976654d51 0000000c 01 00000004 00000000")
"""The shortest one: OpenWire version 12, no properties."""


def open_socket(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=20)


def read_all(connection: socket.socket) -> bytes:
    with connection:
        return b"".join(iter(lambda: connection.recv(65536), b""))


def send_for_ever(client: StompClient, data: bytes) -> None:
    """Send until the other side reads no more for as long as the socket's timeout."""
    while True:
        client.send_bytes(data)


def memory_kb(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))


def test_a_bad_frame_gets_an_error_with_the_reason_and_a_close(broker):
    connection = open_socket(broker.port)
    connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n\0")
    answer = read_all(connection)
    assert answer.startswith(b"ERROR\n")
    assert b"Unknown STOMP action: GET / HTTP/1.1" in answer


def test_the_error_arrives_though_the_client_goes_on_sending(broker):
    connection = open_socket(broker.port)
    connection.sendall(b"NONSENSE\n\n\0" + b"x" * 200_000)
    answer = b""
    with contextlib.suppress(ConnectionError), connection:
        while chunk := connection.recv(65536):
            answer += chunk
    assert b"Unknown STOMP action" in answer


def test_a_client_that_never_connects_is_closed_with_an_error(start):
    broker = start("--connect-timeout", "300ms", store="memory:")
    broker.wait_for("listening on")
    answer = read_all(open_socket(broker.port))
    assert b"No CONNECT within 0.3 seconds" in answer


def test_one_port_takes_what_it_recognises(start, connect):
    port = free_port()
    broker = start("--auto", str(port), store="memory:")
    broker.wait_for("listening on")
    client = connect(port)
    assert client.request("SEND", b"x", destination="/queue/Q").command == "RECEIPT"
    browser = open_socket(port)
    browser.sendall(b"POST / HTTP/1.1\r\n\r\n")
    assert read_all(browser) == b""
    broker.wait_for("closed: it speaks none of the protocols of this port, but begins with b'POST / HTTP/1.1")
    assert client.request("SEND", b"x", destination="/queue/Q").command == "RECEIPT"


def test_a_client_that_sends_too_little_is_closed(start):
    port = free_port()
    broker = start("--auto", str(port), "--connect-timeout", "300ms", store="memory:")
    broker.wait_for("listening on")
    late = open_socket(port)
    late.sendall(b"\n\nCON")
    assert read_all(late) == b""
    broker.wait_for("closed: its first bytes did not show a protocol within 0.3 seconds")


def test_openwire_is_recognised_too(start, connect):
    port = free_port()
    start("--auto", str(port), store="memory:").wait_for("listening on")
    with open_socket(port) as client:
        client.sendall(WIRE_FORMAT_INFO[:7])
        client.sendall(WIRE_FORMAT_INFO[7:])
        assert client.recv(100)[4:13] == WIRE_FORMAT_INFO[4:13]
    assert connect(port).request("SEND", b"x", destination="/queue/Q").command == "RECEIPT"


def test_more_connections_than_allowed_are_refused_with_an_error(start, connect):
    broker = start("--connections-max", "2", store="memory:")
    broker.wait_for("listening on")
    clients = [connect(broker.port) for _ in range(2)]
    answer = read_all(open_socket(broker.port))
    assert answer.startswith(b"ERROR\n")
    assert b"2 connections already" in answer
    clients[0].close()
    broker.wait_for("refused 127")
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        with contextlib.suppress(Disconnected, AssertionError):
            connect(broker.port)
            return
    pytest.fail("the place of a client that left was not given away")


def test_a_frame_that_is_too_large_is_refused_before_it_is_sent(start, connect):
    broker = start("--frame-max", "1mb", store="memory:")
    broker.wait_for("listening on")
    client = connect(broker.port)
    client.send("SEND", b"x" * 10, destination="/queue/Q", content_length=2 << 20, receipt="r")
    error = client.read()
    assert error.command == "ERROR"
    assert "maximum data length" in error.headers["message"]


def test_a_large_message_comes_back_as_it_was(broker, connect):
    body = bytes(range(256)) * (20 << 12)
    client = connect(broker.port)
    client.send("SUBSCRIBE", id="1", destination="/queue/Q")
    client.send("SEND", body, destination="/queue/Q", content_length=len(body))
    assert client.read().body == body


def test_a_consumer_that_never_reads_costs_bounded_memory(start, connect):
    broker = start("--topic-pending-limit", "100", store="memory:")
    broker.wait_for("listening on")
    lazy = connect(broker.port)
    lazy.request("SUBSCRIBE", id="1", destination="/topic/T", **{"activemq.prefetchSize": "100"})
    producer = connect(broker.port)
    body = b"x" * 10_000
    before = memory_kb(broker.process.pid)
    for _ in range(20):
        for _ in range(500):
            producer.send("SEND", body, destination="/topic/T")
        producer.request("SEND", body, destination="/topic/T")
    assert memory_kb(broker.process.pid) - before < 30_000, "100 MB were sent to it"
    broker.wait_for("too slow: more than 100 messages wait")


def test_client_that_reads_no_receipts_is_paused(broker, connect):
    client = connect(broker.port)
    before = memory_kb(broker.process.pid)
    client._socket.settimeout(1)
    frame = b"SEND\ndestination:/topic/none\nreceipt:" + b"r" * 9_000 + b"\n\n\0"
    with pytest.raises(Disconnected, match="timed out"):
        send_for_ever(client, frame * 100)
    assert memory_kb(broker.process.pid) - before < 60_000
    other = connect(broker.port)
    assert other.request("SEND", destination="/topic/none").command == "RECEIPT"


def test_a_thousand_clients_at_once(broker):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    try:
        with contextlib.ExitStack() as clients:
            for number in range(990):
                client = clients.enter_context(contextlib.closing(StompClient(broker.port)))
                if number % 100 == 0:
                    assert client.request("SEND", b"x", destination="/queue/Q").command == "RECEIPT"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_window_behind_a_receipt_costs_bounded_memory(broker, connect):
    """One ACK opens a window of 50 MB for a client that reads no more: it is not rendered at once."""
    producer = connect(broker.port)
    body = b"x" * 100_000
    for _ in range(1000):
        producer.send("SEND", body, destination="/queue/Q", content_length=len(body))
    producer.request("SEND", destination="/queue/last")
    client = connect(broker.port)
    client.send("SUBSCRIBE", id="1", destination="/queue/Q", ack="client", **{"activemq.prefetchSize": "500"})
    for _ in range(500):
        message = client.read()
    before = memory_kb(broker.process.pid)
    client.send("ACK", id=message.headers["ack"], receipt="a")
    broker_is_done = connect(broker.port)
    client._socket.recv(1, socket.MSG_PEEK)  # the receipt, and behind it what was rendered
    assert broker_is_done.request("SEND", destination="/queue/last").command == "RECEIPT"
    assert memory_kb(broker.process.pid) - before < 20_000


def test_a_stampede_of_refused_connections_costs_others_nothing(start, connect, tmp_path):
    """More connections than the process has descriptors, and journal files to open all the while."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (250, hard))
    try:
        options = ("--connections-max", "20", "--journal-file-max", "1mb", "--journal-batch-max", "64kb")
        broker = start(*options, store=tmp_path / "store", is_fresh=True)  # with that limit
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    broker.wait_for("listening on")
    producer = connect(broker.port)
    with contextlib.ExitStack() as stampede:
        for _ in range(10):
            for _ in range(60):
                other = stampede.enter_context(socket.socket())
                other.setblocking(False)
                other.connect_ex(("127.0.0.1", broker.port))
            for _ in range(10):
                answer = producer.request("SEND", b"x" * 60_000, destination="/queue/Q", persistent="true")
                assert answer.command == "RECEIPT"
    assert broker.terminate() == 0
    broker.wait_for("stopped|stopping")
    refused = sum("refused" in line for line in broker.lines)
    assert refused < 150, "600 were: 100 lines at once, then one per second"
