"""A broker under a low memory limit whose non-persistent messages nothing consumes: others are served at once."""

import signal
import statistics
import time

from tests.pace import slowness

SECONDS = 30.0
MB = 1 << 20
COUNT = 145


def summary(broker):
    """Return the megabytes of memory and of the spool that the broker logs on SIGUSR1."""
    broker.lines.clear()
    broker.process.send_signal(signal.SIGUSR1)
    found = broker.wait_for(r"SIGUSR1: .* ([\d.]+) of [\d.]+ MB of memory, ([\d.]+) MB spooled")
    return float(found[1]), float(found[2])


def wait_for_summary(broker, is_reached):
    """Wait for megabytes of memory and of the spool: a thread writes and removes what is spooled."""
    deadline = time.monotonic() + SECONDS
    while not is_reached(*(found := summary(broker))):
        assert time.monotonic() < deadline, found


def test_a_spooled_backlog_delays_no_other_queue_and_comes_back(start, connect, tmp_path):
    broker = start("--memory-limit", "128mb", "--log-level", "info", store=str(tmp_path / "store"))
    broker.wait_for("listening on")
    producer, other = connect(broker.port), connect(broker.port)
    waits = []
    sent_from = time.monotonic()
    for number in range(COUNT):
        body = b"%06d" % number + b"x" * MB
        assert producer.request("SEND", body, destination="/queue/FULL").command == "RECEIPT"
        began = time.perf_counter()
        assert other.request("SEND", b"p", destination="/queue/OTHER", persistent="true").command == "RECEIPT"
        waits.append(time.perf_counter() - began)
    assert statistics.median(waits) < 0.1 * slowness(time.monotonic() - sent_from)
    wait_for_summary(broker, lambda memory, spooled: memory < 64 and spooled > 80)
    assert sorted(path.name for path in (tmp_path / "store").rglob("*spool*")) == []
    consumer = connect(broker.port)
    consumer.send("SUBSCRIBE", id="1", destination="/queue/FULL", ack="client-individual")
    for number in range(COUNT):
        frame = consumer.read_until("MESSAGE")
        assert frame.body[:6] == b"%06d" % number
        consumer.send("ACK", id=frame.headers["ack"])
    consumer.request("UNSUBSCRIBE", id="1")
    other.request("SUBSCRIBE", id="2", destination="/queue/OTHER", ack="auto")
    for _ in range(COUNT):
        other.read_until("MESSAGE")
    other.request("UNSUBSCRIBE", id="2")
    wait_for_summary(broker, lambda *found: found == (0.0, 0.0))
