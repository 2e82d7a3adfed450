"""Bounds in seconds that mean a product, not the machine: they widen with how slow the machine was.

    assert in_time(seconds, 1.0)

A bound of a promise is for a machine that has nothing else to do. During a whole run of tests a process beside them
measures again and again how long a program that does nothing takes, and a disk to have a few bytes: as many times
longer as the worst of that took than on such a machine, as many times longer may what was measured in that time have
taken. To ask afterwards is not enough, for what made a machine slow may be over by then.
"""

import contextlib
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

IDLE_SECONDS = 0.03
"""A bare Python's start and end where nothing else runs: 10 to 20 ms on machines of these years; a disk needs less."""

_EVERY_SECONDS = 1.0
_TRIES = 5
_FILE = "TESTS_PACE"
"""Variable with the file of what was measured: lines of time and seconds."""


def in_time(seconds: float, bound: float) -> bool:
    """Return True if what took some seconds, up to now, kept a bound, which this machine's pace may widen."""
    return seconds < bound or seconds < bound * slowness(seconds)


def slowness(seconds: float) -> float:
    """Return how many times as long as on an idle machine things took in the last seconds, and now; at least 1."""
    since = time.monotonic() - seconds - _EVERY_SECONDS
    found = [_seconds() for _ in range(_TRIES)]
    if _FILE in os.environ:
        lines = Path(os.environ[_FILE]).read_text().splitlines(keepends=True)
        measured = [tuple(map(float, line.split())) for line in lines if line.endswith("\n")]
        found += [took for ended, took in measured if ended > since]
    return max(1.0, max(found) / IDLE_SECONDS)


@contextlib.contextmanager
def watched() -> Iterator[None]:
    """Measure the machine's pace until the end, for this process and those that it starts."""
    with tempfile.NamedTemporaryFile(prefix="pace-") as file:
        command = [sys.executable, "-I", "-S", __file__, file.name]
        with subprocess.Popen(command, stdin=subprocess.PIPE):  # it ends with its standard input
            os.environ[_FILE] = file.name
            try:
                yield
            finally:
                del os.environ[_FILE]


def _seconds() -> float:
    began = time.monotonic()
    subprocess.run([sys.executable, "-I", "-S", "-c", ""], check=True)
    started = time.monotonic()
    with tempfile.TemporaryFile() as file:
        file.write(b"x")
        file.flush()
        os.fsync(file.fileno())
    return max(started - began, time.monotonic() - started)


def _measure(path: Path) -> None:
    with path.open("a", buffering=1) as file:
        while not select.select([sys.stdin], [], [], _EVERY_SECONDS)[0]:
            seconds = _seconds()
            file.write(f"{time.monotonic()} {seconds}\n")


if __name__ == "__main__":
    _measure(Path(sys.argv[1]))
