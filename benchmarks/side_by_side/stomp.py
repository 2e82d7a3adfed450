"""STOMP as a load, by raw sockets: persistent sends with a receipt each, and how many of those the client could do."""

import os
import subprocess
import sys
import time

from benchmarks.driver import RECEIPT, Loop, Peer, Producer
from benchmarks.report import quantile
from benchmarks.side_by_side.rows import Row, Timing
from benchmarks.workload import send_frame

_DESTINATION = "/queue/BENCH.STOMP"
_MESSAGE_MARK = b"\nmessage-id:"
"""Every MESSAGE has this once; brokers differ in the order of headers."""


class StompClient:
    """Sends as `benchmarks.driver.Producer` does; one consumer receives all of it, at once or afterwards."""

    pid = os.getpid()
    """Of the process the client runs in: this one."""

    def prepare(self, row: Row, port: int) -> None:
        """Connect and warm up; on return only the measured part is left."""
        self._loop = Loop()
        self._port = port
        self._count = row.count
        self._frame = send_frame(_DESTINATION, row.body_bytes, persistent=row.persistent, receipt="r")
        for left in range(row.warm, 0, -row.count):  # in rounds: a warm backlog must not be the larger one
            count = min(left, row.count)
            self._consume(row)
            self._send(self._producers(row, count), count)
            self._drain(count)
        self._measured = self._producers(row, row.count)
        self._consume(row)

    def run(self) -> Timing:
        """Do the measured part, to the last receipt."""
        begun = time.perf_counter()
        self._send(self._measured, self._count)
        seconds = time.perf_counter() - begun
        latencies = [latency for producer in self._measured for latency in producer.latencies]
        return Timing(seconds=seconds, p50_ms=quantile(latencies, 0.5) * 1000, p99_ms=quantile(latencies, 0.99) * 1000)

    def finish(self) -> None:
        """Empty the queue and disconnect."""
        self._drain(self._count)
        self._loop.close()

    def _producers(self, row: Row, count: int) -> list[Producer]:
        share = count // row.producers
        return [
            Producer(self._loop, self._port, self._frame, count=share, window=row.window) for _ in range(row.producers)
        ]

    def _send(self, producers: list[Producer], count: int) -> None:
        for producer in producers:
            producer.start()
        self._loop.run_until(lambda: sum(producer.confirmed for producer in producers) == count)

    def _consume(self, row: Row) -> None:
        self._consumer = _Consumer(self._loop, self._port) if row.consumers else None

    def _drain(self, count: int) -> None:
        consumer = self._consumer or _Consumer(self._loop, self._port)
        self._loop.run_until(lambda: consumer.delivered == count)
        consumer.unsubscribe()
        self._loop.run_until(lambda: consumer.ended)


class _Consumer(Peer):
    """Takes whatever comes into the queue."""

    def __init__(self, loop: Loop, port: int) -> None:
        super().__init__(loop, port)
        self.delivered = 0
        self.ended = False
        self._tail = b""
        self.write(f"SUBSCRIBE\nid:1\ndestination:{_DESTINATION}\nack:auto\n\n\0".encode())

    def unsubscribe(self) -> None:
        """End; `ended` becomes true once the broker has done all before."""
        self.write(b"UNSUBSCRIBE\nid:1\nreceipt:r\n\n\0")

    def received(self, chunk: bytes) -> None:
        """Count messages: a mark may be cut in two, so what could begin one is prepended to the next chunk."""
        data = self._tail + chunk
        self.delivered += data.count(_MESSAGE_MARK)
        self.ended = data.endswith(RECEIPT)
        self._tail = data[1 - len(_MESSAGE_MARK) :]


def ceiling(row: Row) -> float:
    """Return the messages per second this client reaches when receipts cost nothing: no broker can exceed that."""
    command = [sys.executable, "-m", "benchmarks.side_by_side.receipts"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None
            port = int(server.stdout.readline())
            loop = Loop()
            frame = send_frame(_DESTINATION, row.body_bytes, receipt="r")
            producer = Producer(loop, port, frame, count=row.count, window=row.window)
            begun = time.perf_counter()
            producer.start()
            loop.run_until(lambda: producer.confirmed == row.count)
            seconds = time.perf_counter() - begun
            loop.close()
        finally:
            server.kill()
    return row.count / seconds
