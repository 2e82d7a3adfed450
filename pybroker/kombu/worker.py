"""A step of Celery's worker: one that shuts down returns the tasks which it has and will not begin.

A warm shutdown ends the consumer, waits for the tasks in execution, and closes the connection at last. Tasks that wait
in the worker, for their time, for a rate limit or for a process of the pool, do not begin any more, but belong to the
connection: with other brokers they wait with it, however long the last task in execution takes.

CelerySource: Celery 5.7, `celery.worker.consumer.Consumer.on_close`, which then forgets the same tasks;
`celery.worker.control`, `scheduled` and `reserved`, which list them.
"""

import contextlib
import logging
from collections.abc import Iterator
from typing import Any, Final

import celery.worker.state
from celery import bootsteps
from celery.worker.request import Request

from pybroker.kombu.channel import Channel

_state: Final[Any] = celery.worker.state

_log = logging.getLogger(__name__)


class ReturnWaitingTasks(bootsteps.StartStopStep):  # type: ignore[misc]
    """A step that does something only when a worker begins to end: after its pool is closed to further tasks."""

    requires = ("celery.worker.components:Pool",)

    def close(self, parent: Any) -> None:
        """Return the tasks that wait."""
        consumer = parent.consumer
        tasks = consumer.task_consumer
        if tasks is None or not isinstance(tasks.channel, Channel) or tasks.channel.closed:
            return  # the broker redelivers what a connection had that is lost
        with contextlib.suppress(*consumer.connection_errors, *consumer.channel_errors):  # as Celery's own step does
            tasks.cancel()  # otherwise they would come back
        waiting = [each for each in _waiting(consumer) if each.message.channel is tasks.channel]
        tasks.channel.return_unused(sorted(each.message.delivery_tag for each in waiting))
        for request in waiting:
            request.acknowledged = True
            _state.task_ready(request)
        if waiting:
            _log.info("the broker has back %d tasks that this worker will not begin", len(waiting))


def _waiting(consumer: Any) -> Iterator[Any]:
    """Return the requests that the pool has not got, and let them wait no longer."""
    for scheduled in list(consumer.timer.schedule.queue):
        request: Any = next(iter(scheduled.entry.args or ()), None)
        if isinstance(request, Request):
            consumer.timer.cancel(scheduled.entry)
            yield request
    for bucket in filter(None, consumer.task_buckets.values()):
        yield from [request for request, _ in bucket.contents]
        bucket.clear_pending()
    for request in tuple(_state.reserved_requests):
        if not (request in _state.active_requests or request.acknowledged or request._apply_result):
            yield request
