"""An application of Celery whose tasks write down that they ran; tests start workers of it in this directory."""

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

from celery import Celery
from celery.backends.filesystem import FilesystemBackend

import pybroker.kombu  # noqa: F401 -- registers activemq:// with Kombu


class AtomicFiles(FilesystemBackend):  # type: ignore[misc]
    """Results in files, which nobody reads while they are half written. Chords need more than `rpc://`."""

    def set(self, key: Any, value: Any) -> None:
        """Write a file as a whole."""
        path = self._filename(key)
        fresh = Path(f"{os.fsdecode(path)}.{os.getpid()}.{threading.get_ident()}")
        fresh.write_bytes(value if isinstance(value, bytes) else value.encode())
        fresh.replace(os.fsdecode(path))


app = Celery("ledger", broker=os.environ["SHOP_BROKER"], backend=os.environ.get("LEDGER_BACKEND", "rpc://"))
app.conf.task_acks_late = os.environ.get("LEDGER_EARLY") != "1"
app.conf.worker_prefetch_multiplier = int(os.environ.get("LEDGER_MULTIPLIER", "1"))
app.conf.broker_transport_options = {
    "scheduled_eta": os.environ.get("LEDGER_SCHEDULED") == "1",
    **json.loads(os.environ.get("LEDGER_OPTIONS", "{}")),
}


@app.task(shared=False, bind=True)
def record(self: Any, path: str, number: int, seconds: float = 0.0) -> None:
    """Append the number, the time, whether the task was redelivered, and the worker, in one write.

    Only its first delivery takes so many seconds.
    """
    redelivered = int(bool(self.request.delivery_info.get("redelivered")))
    if not redelivered:
        time.sleep(seconds)
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, f"{number} {time.time()} {redelivered} {self.request.hostname}\n".encode())
    os.close(descriptor)


@app.task(shared=False)
def add(left: int, right: int) -> int:
    """Return the sum of two numbers."""
    return left + right


@app.task(shared=False)
def total(numbers: list[int]) -> int:
    """Return the sum of all numbers."""
    return sum(numbers)


@app.task(shared=False, bind=True, max_retries=5, default_retry_delay=0)
def fail_first(self: Any, path: str, times: int) -> None:
    """Fail so many times; then write the number of retries into a file."""
    if self.request.retries < times:
        raise self.retry()
    Path(path).write_text(str(self.request.retries))


@app.task(shared=False)
def wait(seconds: float) -> float:
    """Wait, and return how long."""
    time.sleep(seconds)
    return seconds


@app.task(shared=False, bind=True)
def meet(self: Any, directory: str, count: int) -> None:
    """Wait until so many runs of this task have come together."""
    place = Path(directory)
    (place / self.request.id).touch()
    while len(list(place.iterdir())) < count:
        time.sleep(0.05)
