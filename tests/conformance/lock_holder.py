"""A process that takes a lock and does as it is told, for tests: `lock_holder.py file|flock PATH`.

Says `waiting` before and `held` once it has the lock. Then obeys one line each on standard input: `release` gives the
lock back and says `released`; `fork` forks a child that outlives this process, until the standard input that both share
ends, and says `forked`. The end of standard input is the end of the process.
"""

import os
import sys
import time

from pybroker.locks.file import FileLock
from pybroker.locks.flock import FlockLock


def say(word: str) -> None:
    print(word, flush=True)


def main(kind: str, path: str) -> None:
    make = {"file": FileLock, "flock": FlockLock}[kind]
    lock = make(path, clock=lambda: time.time_ns() // 1_000_000)
    say("waiting")
    assert lock.acquire()
    say("held")
    while word := os.read(0, 100).decode().strip():
        if word == "release":
            lock.release()
            say("released")
        elif word == "fork" and os.fork() == 0:
            say("forked")
            os.read(0, 1)
            os._exit(0)


main(*sys.argv[1:])
