"""Measures a broker from outside: child processes that speak lines of JSON, and samples of the broker's process."""

import contextlib
import json
import os
import re
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

BYSTANDER: Final = "benchmarks.hostile.bystander"
"""The module of the clients whose waits are measured."""

ROOT: Final = Path(__file__).parents[2]
_SAMPLE_SECONDS: Final = 0.05
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_DELAY_SECONDS: Final = 0.002
_STOLEN_COLUMN: Final = 8
_TICK_NS: Final = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def certificate(folder: Path) -> Path:
    """Return a file with a certificate and its key, of RSA, whose handshakes cost a server most."""
    file = folder / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    subprocess.run([*command, "-keyout", str(file), "-out", f"{file}.crt"], check=True, capture_output=True)
    with file.open("ab") as joined:
        joined.write(Path(f"{file}.crt").read_bytes())
    return file


class Child:
    """A module that runs as a process, on the last core, and speaks lines of JSON."""

    def __init__(self, module: str, arguments: Sequence[str]) -> None:
        command = [sys.executable, "-m", module, *arguments]
        self._name = module
        self._process = subprocess.Popen(
            _on_last_core(command), cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )  # fmt: skip
        self._rest = b""

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def order(self) -> None:
        """Send it a line."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()

    def answer(self, seconds: float) -> dict[str, Any] | None:
        """Return its next line, or None if it takes longer. Raises `RuntimeError` when the process has ended."""
        assert self._process.stdout is not None
        until = time.monotonic() + seconds
        while b"\n" not in self._rest:
            ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                return None
            chunk = os.read(self._process.stdout.fileno(), 1 << 20)
            if not chunk:
                raise RuntimeError(f"the {self._name} has ended")
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def end(self) -> None:
        """Kill it."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()


def _on_last_core(command: list[str]) -> list[str]:
    """Return a command that keeps off all processors but the last one, so that the broker has the others."""
    cores = sorted(os.sched_getaffinity(0))
    return ["taskset", "--cpu-list", str(cores[-1]), *command] if len(cores) > 1 else command


class Samples:
    """The broker's resident memory, and when its main thread could run but had no processor.

    Either another thread had it, or the host of a virtual machine had taken it away.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._delay_ns = self._read_delay()
        self._at = time.monotonic()
        self.peak_mb = self.last_mb = 0.0
        self.delays: list[tuple[float, float]] = []

    def sample(self) -> None:
        """Read once."""
        pages = int(Path(f"/proc/{self._pid}/statm").read_text().split()[1])
        self.last_mb = pages * _PAGE / (1 << 20)
        self.peak_mb = max(self.peak_mb, self.last_mb)
        now, delay_ns = time.monotonic(), self._read_delay()
        if (delay := (delay_ns - self._delay_ns) / 1e9) > _DELAY_SECONDS:
            self.delays.append((self._at, min(delay, now - self._at)))
        self._at, self._delay_ns = now, delay_ns

    def _read_delay(self) -> int:
        return int(Path(f"/proc/{self._pid}/schedstat").read_text().split()[1]) + _stolen_ns()


def _stolen_ns() -> int:
    """Return what the host took away from the processor that lost most, in nanoseconds since the machine started."""
    cores = [line.split() for line in Path("/proc/stat").read_text().splitlines() if re.match(r"cpu\d", line)]
    return max(int(core[_STOLEN_COLUMN]) for core in cores) * _TICK_NS


@contextlib.contextmanager
def sampled(pid: int) -> Iterator[Samples]:
    """Sample a process until the end."""
    samples, over = Samples(pid), threading.Event()

    def run() -> None:
        while not over.wait(_SAMPLE_SECONDS):
            with contextlib.suppress(OSError):  # the broker has ended: the bystander reports it
                samples.sample()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield samples
    finally:
        over.set()
        thread.join()
