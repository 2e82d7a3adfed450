"""Checks of what the transport needs and cannot see in a URL: threads, and features of the broker.

No command asks a broker for its features. So a check uses the feature, on destinations of its own, which it removes.
"""

import contextlib
import logging
import sys
import time
from collections.abc import Callable, Generator, Mapping
from typing import Any, Final

from kombu.utils.uuid import uuid

from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.openwire.values import Long
from pybroker.client import Connection, Consumer, NotAuthorized, Timeout
from pybroker.kombu.bindings import TOPIC_PREFIX

CHECK_SECONDS: Final = 30.0
"""The time that a broker has for a check; one that does not answer in time is not taken for one without the feature."""

_DELAYS_SECONDS: Final = 1, 5, 25
"""The delays of the messages that check the scheduler. The broker gets another message just after each, and delivers
that first. If it, or this process, stands still between them for as long as the delay, nothing is shown, and the next
one is longer."""

_PATCHED: Final[Mapping[str, Callable[[Any], bool]]] = {
    "gevent.monkey": lambda monkey: monkey.is_module_patched("threading"),
    "eventlet.patcher": lambda patcher: patcher.is_monkey_patched("thread"),
}
"""The modules that replace threads, and how each tells that it has done so."""


_log = logging.getLogger(__name__)


def check_threads() -> None:
    """Check that threads are threads: each connection runs an asyncio event loop in one, and a thread has one loop.

    Raises:
        NotImplementedError: gevent or eventlet has replaced them.
    """
    for name, is_patched in _PATCHED.items():
        module = sys.modules.get(name)
        if module is not None and is_patched(module):
            library = name.partition(".")[0]
            raise NotImplementedError(
                f"activemq:// does not work with {library}, which replaces threads: "
                "use a pool of Celery with threads or processes, --pool threads or --pool prefork"
            )


def check_scheduler(connection: Connection, brokers: str) -> None:
    """Check that the broker keeps a message that has a delay; once in this process, as it takes as long as the delay.

    Args:
        connection: the connection.
        brokers: the URI of the brokers.

    Raises:
        NotImplementedError: it delivers it at once.
        Timeout: the broker did not answer, or only after all delays.
    """
    if brokers in _with_scheduler:
        return
    with _if_allowed("the scheduler"):
        destination = connection.temporary_destination(timeout=CHECK_SECONDS)
        with connection.consumer(destination, timeout=CHECK_SECONDS) as consumer:
            for delay in _DELAYS_SECONDS:
                has_scheduler = _keeps(connection, consumer, destination, delay)
                if has_scheduler is not None:
                    break
            else:
                raise Timeout(f"the broker took over {_DELAYS_SECONDS[-1]} s for a message: try again later")
        if not has_scheduler:
            raise NotImplementedError(
                'scheduled_eta: the broker has no scheduler; set schedulerSupport="true" in an ActiveMQ, '
                "scheduler = true in a pybroker, or let workers keep tasks until their time, without this option"
            )
    _with_scheduler.add(brokers)


def _keeps(connection: Connection, consumer: Consumer, destination: Destination, delay: int) -> bool | None:
    """Return True if the broker keeps a message for so many seconds, None if it took too long to tell."""
    began = time.monotonic()
    properties = {"AMQ_SCHEDULED_DELAY": Long(delay * 1000)}
    connection.send(destination, "late", properties=properties, persistent=False)
    connection.send(destination, "at once", persistent=False)
    first = consumer.receive(CHECK_SECONDS).body
    took = time.monotonic() - began
    consumer.receive(CHECK_SECONDS)  # the other one: none comes when the queue is gone
    if first == "at once":
        return True
    return False if took < delay / 2 else None  # an ActiveMQ rounds the delay by up to half a second


_with_scheduler: Final[set[str]] = set()
"""The URIs of brokers that have a scheduler."""


def check_virtual_topics(connection: Connection) -> None:
    """Check that the broker collects messages of a topic in a queue of its consumer.

    Raises:
        NotImplementedError: it does not.
        Timeout: the broker did not answer.
    """
    topic = f"{TOPIC_PREFIX}.check"
    queue = f"queue://Consumer.{uuid()}.{topic}"
    with _if_allowed("virtual topics"):
        connection.create_destination(queue, timeout=CHECK_SECONDS)
        with connection.consumer(queue, timeout=CHECK_SECONDS) as consumer:
            connection.send(f"topic://{topic}", "by the topic", persistent=False, ttl=CHECK_SECONDS)
            connection.send(queue, "directly", persistent=False, ttl=CHECK_SECONDS)
            is_copied = consumer.receive(CHECK_SECONDS).body == "by the topic"
        connection.delete_destination(queue, timeout=CHECK_SECONDS)
        if not is_copied:
            raise NotImplementedError(
                f"bindings: the broker has no virtual topics, or not for topic://{TOPIC_PREFIX}.>; "
                'set useVirtualTopics="true" in an ActiveMQ, or cover it in the virtual_topics of a pybroker'
            )


@contextlib.contextmanager
def _if_allowed(feature: str) -> Generator[None]:
    """Leave a check out that the user has no right to make."""
    try:
        yield
    except NotAuthorized as error:
        _log.info("not checked if the broker has %s: %s", feature, error)
