"""Preparation of a process that may have been started without standard streams, or with ignored signals."""

import os
import signal
import sys
from typing import TextIO

_STREAMS = ("stdin", "stdout", "stderr")


def open_standard_streams() -> frozenset[str]:
    """Open closed descriptors among 0 to 2 on /dev/null, with their streams in `sys`; return their names.

    Otherwise the next files and sockets would get these numbers: prints would write into a listener as standard error,
    and libuv refuses to close a descriptor below 3.
    """
    closed: set[str] = set()
    for descriptor, name in enumerate(_STREAMS):
        try:
            os.fstat(descriptor)
        except OSError:
            closed.add(name)
            assert os.open(os.devnull, os.O_RDWR) == descriptor, "the lowest free number is given"
        if getattr(sys, name) is None:
            setattr(sys, name, _stream(descriptor))
    return frozenset(closed)


def _stream(descriptor: int) -> TextIO:
    return open(descriptor, "r" if descriptor == 0 else "w", encoding="utf-8", closefd=False)


def ignore_signals() -> None:
    """Ignore SIGHUP, SIGUSR1 and SIGUSR2, which by default end a process, until `signals.handle`."""
    for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
