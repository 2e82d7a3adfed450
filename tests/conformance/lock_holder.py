"""A process that acquires a lock and runs commands, for tests: `lock_holder.py file|flock PATH`.

Prints `waiting` before and `held` once it has the lock. Then it runs one command a line of standard input: `release`
releases the lock and prints `released`; `fork` forks a child that outlives this process, until the standard input that
both share ends, and prints `forked`. The end of standard input is the end of the process.
"""

import os
import sys
import time

from pybroker.locks.file import FileLock
from pybroker.locks.flock import FlockLock


def report(word: str) -> None:
    print(word, flush=True)


def main(kind: str, path: str) -> None:
    make = {"file": FileLock, "flock": FlockLock}[kind]
    lock = make(path, clock=lambda: time.time_ns() // 1_000_000)
    report("waiting")
    assert lock.acquire()
    report("held")
    while word := os.read(0, 100).decode().strip():
        if word == "release":
            lock.release()
            report("released")
        elif word == "fork" and os.fork() == 0:
            report("forked")
            os.read(0, 1)
            os._exit(0)


main(*sys.argv[1:])
