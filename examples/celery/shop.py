"""Tasks of a shop, for Celery on a pair of brokers. docs/celery.md shows how to run it."""

import os

from celery import Celery

import pybroker.kombu  # noqa: F401 -- registers activemq:// with Kombu

BROKERS = "activemq://127.0.0.1:61616,127.0.0.1:61626/"

app = Celery("shop", broker=os.environ.get("SHOP_BROKER", BROKERS), backend="rpc://")
app.conf.task_acks_late = True  # a task whose worker dies runs again, elsewhere
app.conf.worker_prefetch_multiplier = 1  # no task waits at a busy worker


@app.task
def price(grams: int, cents_per_kilogram: int) -> int:
    """Return the price in cents."""
    return grams * cents_per_kilogram // 1000
