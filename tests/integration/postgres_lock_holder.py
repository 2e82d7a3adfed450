"""A process that acquires a lock in a database and runs commands: `postgres_lock_holder.py KIND URL LEASE MEMBER`.

The same words as `tests/conformance/lock_holder.py`: prints `waiting` before and `held` once it has the lock; then runs
one command a line of standard input: `release`, `fork`. Besides, `check` prints `ours` if the lock is still held, or
`lost` with the reason; `watch` prints that by itself once the lock is lost, and until then writes the time of its last
successful check (seconds of the machine's clock that never stops) to the file that is named behind it.
"""

import os
import sys
import threading
import time

from pybroker.broker.domain.errors import LockNotHeld
from pybroker.locks.postgres.advisory import PostgresAdvisoryLock
from pybroker.locks.postgres.lease import PostgresLeaseLock
from pybroker.locks.postgres.provider import Database, PostgresLock
from pybroker.locks.postgres.row import PostgresRowLock
from pybroker.locks.postgres.timing import Timing, now


def report(word: str) -> None:
    print(word, flush=True)


def make(kind: str, url: str, lease: float | Timing, member: str) -> PostgresLock:
    """Make a lock, with a lease of so many seconds."""
    database = Database(url, lease if isinstance(lease, Timing) else Timing.of(lease))
    if kind == "lease":
        return PostgresLeaseLock(database, member=member, poll_seconds=0.02)
    return {"row": PostgresRowLock, "advisory": PostgresAdvisoryLock}[kind](database)


def check(lock: PostgresLock) -> str:
    try:
        lock.check()
    except LockNotHeld as error:
        return f"lost {now()} {error}"
    return "ours"


def watch(lock: PostgresLock, file: str) -> None:
    """Check as a master does for each batch, and leave a trace of the last time that it went well."""
    fd = os.open(file, os.O_WRONLY | os.O_CREAT)
    while (found := check(lock)) == "ours":
        os.pwrite(fd, f"{now():.6f}".encode(), 0)
        time.sleep(0.0005)
    report(found)


def main(kind: str, url: str, lease_seconds: str, member: str) -> None:
    lock = make(kind, url, float(lease_seconds), member)
    report("waiting")
    assert lock.acquire()
    report("held")
    while words := os.read(0, 1000).decode().split():
        if words[0] == "release":
            lock.release()
            report("released")
        elif words[0] == "check":
            report(check(lock))
        elif words[0] == "watch":
            threading.Thread(target=watch, args=(lock, words[1]), daemon=True).start()
        elif words[0] == "fork" and os.fork() == 0:
            report("forked")
            os.read(0, 1)
            os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
