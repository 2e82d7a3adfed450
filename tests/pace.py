"""Bounds in seconds that mean a product, not the machine: how slow everything is at the moment is allowed for.

    assert in_time(seconds, 1.0)

A bound of a promise is for a machine that has nothing else to do. Where it is missed, a program that does nothing is
started a few times: as many times longer as that takes here and now than on such a machine, as many times longer may
what was measured have taken.
"""

import subprocess
import sys
import time

IDLE_START_SECONDS = 0.03
"""A bare Python's start and end where nothing else runs: 10 to 20 ms on machines of these years."""

_TRIES = 5


def in_time(seconds: float, bound: float) -> bool:
    """Tell whether what took some seconds kept a bound, which this machine's pace may widen."""
    return seconds < bound or seconds < bound * slowness()


def slowness() -> float:
    """Return how many times as long as on an idle machine things take here and now; at least 1."""
    return max(1.0, max(_start_seconds() for _ in range(_TRIES)) / IDLE_START_SECONDS)


def _start_seconds() -> float:
    began = time.monotonic()
    subprocess.run([sys.executable, "-I", "-S", "-c", ""], check=True)
    return time.monotonic() - began
