"""An application of Celery whose tasks write down that they ran; tests start workers of it in this directory."""

import json
import os
import time
from typing import Any

from celery import Celery

import pybroker.kombu  # noqa: F401 -- registers activemq:// with Kombu

app = Celery("ledger", broker=os.environ["SHOP_BROKER"], backend="rpc://")
app.conf.task_acks_late = os.environ.get("LEDGER_EARLY") != "1"
app.conf.worker_prefetch_multiplier = int(os.environ.get("LEDGER_MULTIPLIER", "1"))
app.conf.broker_transport_options = {
    "scheduled_eta": os.environ.get("LEDGER_SCHEDULED") == "1",
    **json.loads(os.environ.get("LEDGER_OPTIONS", "{}")),
}


@app.task(bind=True)
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
