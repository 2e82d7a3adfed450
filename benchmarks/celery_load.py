"""The tasks that `celery_tasks` measures, and a client that calls them, in a process of its own.

`python -m benchmarks.celery_load` reads requests from its standard input, one a line, and answers each by a line of
JSON:

```text
burst COUNT   calls the task so often, then waits for all results   {"sent": seconds, "done": seconds, "cpu": seconds}
one COUNT     calls it again when the result is there               {"seconds": [of each call]}
```

Brokers and results come from the environment, so that a worker and its clients have the same.
"""

import json
import os
import sys
import time
from typing import Any

from celery import Celery
from kombu import Queue

import pybroker.kombu  # noqa: F401 -- registers activemq://

BODY_BYTES = 1024
BROKER, BACKEND, CONFIRMS = "CELERY_LOAD_BROKER", "CELERY_LOAD_BACKEND", "CELERY_LOAD_CONFIRMS"
QUEUE_TYPE = "CELERY_LOAD_QUEUE_TYPE"
"""Names of environment variables: URLs; if RabbitMQ confirms a publish; its `x-queue-type`, empty for a classic."""
PATIENCE_SECONDS = 120.0

app = Celery("load", broker=os.environ.get(BROKER), backend=os.environ.get(BACKEND))
app.conf.task_acks_late = True
app.conf.task_acks_on_failure_or_timeout = True
app.conf.broker_connection_retry_on_startup = True
app.conf.result_expires = 600
app.conf.worker_hijack_root_logger = False
if os.environ.get(CONFIRMS):
    app.conf.broker_transport_options = {"confirm_publish": True}
if os.environ.get(QUEUE_TYPE):
    app.conf.task_queues = [Queue("celery", queue_arguments={"x-queue-type": os.environ[QUEUE_TYPE]})]
    app.conf.broker_native_delayed_delivery_queue_type = "classic"


@app.task
def measure(text: str) -> int:
    """Return the length of a text."""
    return len(text)


def burst(count: int) -> dict[str, float]:
    """Call the task so often, and wait for all results."""
    body, start, cpu = "x" * BODY_BYTES, time.perf_counter(), time.process_time()
    results = [measure.delay(body) for _ in range(count)]
    sent = time.perf_counter() - start
    for result in results:
        if result.get(timeout=PATIENCE_SECONDS) != BODY_BYTES:
            raise AssertionError("a wrong result")
    return {"sent": sent, "done": time.perf_counter() - start, "cpu": time.process_time() - cpu}


def one(count: int) -> dict[str, list[float]]:
    """Call the task so often, one call at a time."""
    body, seconds = "x" * BODY_BYTES, list[float]()
    for _ in range(count):
        start = time.perf_counter()
        if measure.delay(body).get(timeout=PATIENCE_SECONDS) != BODY_BYTES:
            raise AssertionError("a wrong result")
        seconds.append(time.perf_counter() - start)
    return {"seconds": seconds}


REQUESTS: dict[str, Any] = {"burst": burst, "one": one}


def main() -> None:
    """Answer requests until the input ends."""
    for line in sys.stdin:
        request, count = line.split()
        print(json.dumps(REQUESTS[request](int(count))), flush=True)


if __name__ == "__main__":
    # As a module with a name of its own: the names of tasks begin with it.
    from benchmarks import celery_load

    celery_load.main()
