"""The lock on the store: how soon a waiter has it after the holder's `kill -9`, and what a check of it costs.

Run from the root of the checkout: `python -m benchmarks.locks`. `docs/ha.md` quotes one of the figures.

Take-over lasts from the kill of the holder's process to the return of the waiter's `acquire`, when its stamp is synced.
"""

import os
import secrets
import subprocess
import sys
import tempfile
import threading
import time
import timeit
from pathlib import Path

from benchmarks.report import Report, Row, parser, spread
from pybroker.locks.file import FileLock
from pybroker.locks.flock import FlockLock

CHECKS = 20_000
SETTLE_SECONDS = 0.1
"""Least time for a waiter to begin its wait; up to as long again, so that no polling keeps step with it."""

HOLDER = """
import sys, time
from pybroker.locks.{module} import {name}
lock = {name}(sys.argv[1], clock=lambda: time.time_ns() // 10**6)
lock.acquire()
print("held", flush=True)
sys.stdin.read()
"""


def main() -> None:
    """Measure and print."""
    command_line = parser(__doc__)
    command_line.add_argument("--rounds", type=int, default=30, help="holders to kill per kind of lock")
    options = command_line.parse_args()
    rounds = 1 if options.quick else options.rounds
    report = Report(options)
    with tempfile.TemporaryDirectory(dir=options.directory) as folder:
        path = str(Path(folder) / "bench.lock")
        kinds = (FileLock, FlockLock)
        report.table("take-over after kill -9 of the holder, ms", [take_over(kind, path, rounds) for kind in kinds])
        report.table("while it is held", [upkeep(kind, path, 500 if options.quick else CHECKS) for kind in kinds])
    report.finish()


def take_over(kind: type[FileLock], path: str, rounds: int) -> Row:
    """Kill holders, one after another."""
    milliseconds = [take_over_seconds(kind, path) * 1000 for _ in range(rounds)]
    return {"lock": kind.__name__, "rounds": rounds, **spread(milliseconds)}


def take_over_seconds(kind: type[FileLock], path: str) -> float:
    """Have a process hold the lock and a thread wait for it; kill the process."""
    program = HOLDER.format(module=kind.__module__.rpartition(".")[2], name=kind.__name__)
    command = [sys.executable, "-c", program, path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        if holder.stdout.readline() != b"held\n":
            raise RuntimeError("the holder did not get the lock")
        lock = kind(path, clock=now_ms)
        won: list[float] = []

        def wait() -> None:
            lock.acquire()
            won.append(time.perf_counter())

        waiter = threading.Thread(target=wait)
        waiter.start()
        waiter.join(SETTLE_SECONDS * (1 + secrets.randbelow(1000) / 1000))
        begun = time.perf_counter()
        holder.kill()
        waiter.join()
        lock.check()
        lock.release()
        return won[0] - begun


def upkeep(kind: type[FileLock], path: str, checks: int) -> Row:
    """Time the check that follows each batch, and for scale the sync of eight bytes, which is most of a take-over."""
    lock = kind(path, clock=now_ms)
    lock.acquire()
    check = min(timeit.repeat(lock.check, number=checks, repeat=5)) / checks
    lock.release()
    descriptor = os.open(path, os.O_RDWR)

    def stamp() -> None:
        os.pwrite(descriptor, b"12345678", 0)
        os.fsync(descriptor)

    syncs = sorted(timeit.repeat(stamp, number=1, repeat=50))
    os.close(descriptor)
    return {"lock": kind.__name__, "check µs": check * 1e6, "synced stamp ms (median)": syncs[25] * 1000}


def now_ms() -> int:
    """Return milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


if __name__ == "__main__":
    main()
