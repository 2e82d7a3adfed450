"""A step of Celery's worker: one that shuts down returns the tasks which it has and will not begin.

A warm shutdown ends the consumer, waits for the tasks in execution, and closes the connection at last. Tasks that wait
in the worker, for their time, for a rate limit, for a process or a thread of the pool, do not begin any more, but
belong to the connection: with other brokers they wait with it, however long the last task in execution takes.

CelerySource: Celery 5.7, `celery.worker.consumer.Consumer.on_close`, which then forgets the same tasks;
`celery.worker.control`, `scheduled` and `reserved`, which list them.
"""

import contextlib
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, Final, cast

import celery.worker.state
from celery import bootsteps, signals
from celery.concurrency import thread
from celery.worker.request import Request
from kombu.utils.limits import TokenBucket

from pybroker.kombu import ending
from pybroker.kombu.channel import Channel

_signals: Final[Any] = signals
_state: Final[Any] = celery.worker.state

_log = logging.getLogger(__name__)


def prepare(app: Any) -> None:
    """Have this process, a worker of an application, end as it should."""
    app.steps["worker"].add(ReturnWaitingTasks)
    ending.event_exchanges.add(app.conf.event_exchange)
    _signals.worker_shutting_down.connect(_on_shutting_down)


def _on_shutting_down(**_: Any) -> None:
    ending.begin()


class ReturnWaitingTasks(bootsteps.StartStopStep):  # type: ignore[misc]
    """A step that returns tasks when a worker begins to end: after its pool is closed to further tasks.

    Until then it records which tasks a pool of threads has.
    """

    requires = ("celery.worker.components:Pool",)

    def __init__(self, parent: Any, **options: Any) -> None:
        cast("Any", super()).__init__(parent, **options)
        self._futures: dict[Request, Future[Any]] = {}

    def create(self, parent: Any) -> None:
        """Record the futures of a pool of threads, which takes all tasks at once, and has a queue of its own."""
        if isinstance(parent.pool, thread.TaskPool):
            parent.pool.on_apply = self._recording(parent.pool.on_apply)

    def _recording(self, on_apply: Callable[..., Any]) -> Callable[..., Any]:
        def recorded(*arguments: Any, accept_callback: Any = None, **options: Any) -> Any:
            result = on_apply(*arguments, accept_callback=accept_callback, **options)
            request = getattr(accept_callback, "__self__", None)
            if isinstance(request, Request):
                future: Future[Any] = result.f
                self._futures[request] = future
                future.add_done_callback(lambda _: self._futures.pop(request, None))
            return result

        return recorded

    def close(self, parent: Any) -> None:
        """Return the tasks that wait."""
        consumer = parent.consumer
        tasks = consumer.task_consumer
        if tasks is None or not isinstance(tasks.channel, Channel) or tasks.channel.closed:
            return  # the broker redelivers what a connection had that is lost
        with contextlib.suppress(*consumer.connection_errors, *consumer.channel_errors):  # as Celery's own step does
            tasks.cancel()  # otherwise they would come back
        waiting = [each for each in self._waiting(consumer) if each.message.channel is tasks.channel]
        tasks.channel.return_unused(sorted(each.message.delivery_tag for each in waiting))
        for request in waiting:
            request.acknowledged = True
            _state.task_ready(request)
        if waiting:
            _log.info("the broker has back %d tasks that this worker will not begin", len(waiting))

    def _waiting(self, consumer: Any) -> Iterator[Any]:
        """Return the requests that do not begin, and let them wait no longer."""
        buckets: list[Any] = [each for each in consumer.task_buckets.values() if each]
        for scheduled in list(consumer.timer.schedule.queue):
            waiting: Any = next(iter(scheduled.entry.args or ()), None)
            if isinstance(waiting, Request):
                consumer.timer.cancel(scheduled.entry)
                yield waiting
            elif isinstance(waiting, TokenBucket) and waiting not in buckets:
                buckets.append(waiting)  # of a limit that has been changed since
        for bucket in buckets:
            yield from [request for request, _ in bucket.contents]
            bucket.clear_pending()
        # A copy of the dictionary: threads of the pool change the sets of requests, which cannot be iterated meanwhile.
        for request in list(_state.requests.values()):
            if request in _state.reserved_requests and self._is_stopped(request):
                yield request

    def _is_stopped(self, request: Any) -> bool:
        """Return True if a request has not begun, and will not."""
        if request in _state.active_requests or request.acknowledged:
            return False
        future = self._futures.get(request)
        return not request._apply_result if future is None else future.cancel()
