"""`Declaring`: the part of the transport that declares, binds and deletes queues for its channels."""

import contextlib
import logging
import os
import time
from collections.abc import Iterable
from typing import Any, Final

from kombu.transport.virtual import Transport as VirtualTransport

from pybroker.broker.domain.destination import Destination
from pybroker.client import (
    ClientError,
    Connection,
    ConnectionClosed,
    ConnectionFailed,
    InheritedConnection,
    Refused,
    Timeout,
)
from pybroker.kombu.bindings import Binding, queue_destination
from pybroker.kombu.environment import check_scheduler, check_virtual_topics
from pybroker.kombu.moves import move
from pybroker.kombu.options import KombuOptions
from pybroker.kombu.routing import Declarations
from pybroker.kombu.subscriptions import KombuSource
from pybroker.kombu.wakeup import Wakeup

DELETE_SECONDS: Final = 5.0
"""The time that the broker has to delete queues that nothing uses any more: closing must not wait for long."""

_log = logging.getLogger(__name__)


class Declaring(VirtualTransport):
    """A transport with a connection of the client, and what was declared on it.

    Attributes:
        declarations: what this connection has declared.
        options: the options of the transport.
        wakeup: set when a message may wait.
    """

    def __init__(self, client: Any, **options: Any) -> None:
        super().__init__(client, **options)
        self.declarations = Declarations()
        self.options = KombuOptions()
        self.wakeup = Wakeup()
        self._broker: Connection | None = None
        self._uri = ""
        self._process = 0
        self._has_virtual_topics = False
        self._transient: dict[str, dict[Destination, KombuSource]] = {}

    @property
    def broker(self) -> Connection:
        """The client's connection.

        Raises:
            ConnectionClosed: there is none.
            InheritedConnection: this process is a forked child, and the connection is its parent's.
        """
        if self._broker is None:
            raise ConnectionClosed("the connection is closed")
        if self.is_inherited:
            raise InheritedConnection("the connection belongs to the process from which this one was forked")
        return self._broker

    @property
    def is_inherited(self) -> bool:
        """True in a forked child, if the connection is one of its parent."""
        return self._process != os.getpid()

    def bind(self, binding: Binding) -> None:
        """Add a binding: on return the broker collects its messages.

        Raises:
            Refused: the broker refuses the destination.
            NotImplementedError: the broker has no virtual topics.
        """
        bindings = self.declarations.bindings.setdefault(binding.queue, set())
        source = None
        if not self.declarations.is_transient(binding.queue):
            self._check_virtual_topics(binding)
            # Also if it is known: another process, or the broker, may have deleted it.
            self.broker.create_destination(binding.destination)
        elif binding not in bindings:
            source = self._bind_transient(binding)
        if binding in bindings:
            return
        bindings.add(binding)
        for channel in list(self.channels):
            channel.add_binding(binding, source)

    def _check_virtual_topics(self, binding: Binding) -> None:
        """Check once that the broker has virtual topics, if a binding needs them.

        Publishers that know Celery's own binding, of a queue by its name, do without.
        """
        is_default = binding.queue == binding.exchange == binding.key
        if not self._has_virtual_topics and not is_default:
            check_virtual_topics(self.broker)
            self._has_virtual_topics = True

    def check_scheduler(self) -> None:
        """Check that the broker has a scheduler if `scheduled_eta` needs it, once in this process.

        Not when it connects: each process of a worker's pool would take a second longer for its first result.

        Raises:
            NotImplementedError: it has none.
        """
        if self.options.scheduled_eta:
            check_scheduler(self.broker, self._uri)

    def _bind_transient(self, binding: Binding) -> KombuSource:
        sources = self._transient.setdefault(binding.queue, {})
        source = sources.get(binding.topic)
        if source is None:
            consumer = self.broker.consumer(binding.topic, ack="individual", prefetch=self.options.prefetch)
            source = sources[binding.topic] = KombuSource(consumer, binding.topic, self.wakeup.set, [binding])
        source.bindings.add(binding)
        return source

    def transient_sources(self, queue: str) -> list[KombuSource]:
        """Return the sources of the bindings of a transient queue."""
        return list(self._transient.get(queue, {}).values())

    def unbind(self, binding: Binding) -> None:
        """Remove a binding, and move the messages that the broker has collected for it to the queue.

        A message that is published meanwhile is either moved, or comes after the removal. Messages of the binding that
        the application has not acknowledged are moved too, and delivered again.

        Raises:
            Refused: another connection consumes the messages of the binding, which stays.
        """
        bindings = self.declarations.bindings.get(binding.queue, set())
        if binding not in bindings:
            return
        bindings.discard(binding)
        if any(each.destination == binding.destination for each in bindings):
            return
        if self.declarations.is_transient(binding.queue):
            source = self._transient.get(binding.queue, {}).pop(binding.topic, None)
            if source is not None:
                source.consumer.close()
            return
        for channel in list(self.channels):
            channel.remove_source(binding.queue, binding.destination)
        try:
            self._empty(binding.destination, queue_destination(binding.queue))
            self.broker.delete_destination(binding.destination)
        except ClientError:
            self.bind(binding)
            raise

    def _empty(self, source: Destination, target: Destination) -> None:
        """Move all messages of a queue to another one.

        Raises:
            Refused: another connection has messages of it.
        """
        while True:
            count = move(self.broker, source, target)
            with contextlib.closing(self.broker.browse(source)) as left:
                is_empty = next(left, None) is None
            if is_empty:
                return
            if not count:
                raise Refused(f"another connection has messages of {source}")

    def is_consumed(self, queue: str) -> bool:
        """Return True if this connection consumes a queue."""
        return any(channel.consumes(queue) for channel in self.channels)

    def delete_queue(self, queue: str, *, timeout: float | None = None) -> None:
        """Delete a queue with its bindings and this connection's consumers of it.

        Args:
            queue: its name.
            timeout: the seconds that the broker has for each destination; None for the connection's.

        Raises:
            Refused: another connection has a consumer of it. The queue and its bindings stay.
            Timeout: the broker did not answer.
        """
        bindings = self.declarations.bindings.pop(queue, set())
        declared = self.declarations.queues.pop(queue, None)
        is_transient = declared is not None and declared.is_transient
        for source in self._transient.pop(queue, {}).values():
            source.consumer.close()
        own = queue_destination(queue)
        destinations = [own] if is_transient else [own, *{binding.destination for binding in bindings}]
        for channel in list(self.channels):
            for destination in destinations:
                channel.remove_source(queue, destination)
        try:
            for destination in destinations:
                self.broker.delete_destination(destination, timeout=timeout)
        except ClientError:
            if declared is not None and not is_transient:
                self.declarations.queues[queue] = declared
                self.declarations.bindings[queue] = bindings
            raise

    def delete_if_unused(self, queues: Iterable[str]) -> None:
        """Delete queues whose last consumer has ended, if they were declared so and no other connection consumes them.

        Without a broker, or an answer of it in `DELETE_SECONDS`, a queue stays, and the broker removes it when it is
        empty and unused.
        """
        deadline = time.monotonic() + DELETE_SECONDS
        for queue in queues:
            if not self.is_auto_deleted(queue) or self.is_consumed(queue):
                continue
            if self.broker.broker is None:
                _log.warning("the queue %s is not deleted, because there is no broker at present", queue)
                continue
            try:
                self.delete_queue(queue, timeout=max(0.0, deadline - time.monotonic()))
            except Refused:
                pass  # consumers of other connections are left
            except (Timeout, ConnectionFailed, ConnectionClosed) as error:
                _log.warning("the queue %s is perhaps not deleted: %s", queue, error)

    def is_auto_deleted(self, queue: str) -> bool:
        """Return True if this connection has declared that a queue ends with its last consumer."""
        declared = self.declarations.queues.get(queue)
        return declared is not None and declared.is_auto_deleted

    def forget_destinations(self) -> None:
        """Forget what exists on a connection that has ended."""
        self._transient.clear()
        self._has_virtual_topics = False
        self.wakeup.close()
        self.wakeup = Wakeup()
