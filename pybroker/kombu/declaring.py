"""`Declaring`: the part of the transport that declares, binds and deletes queues for its channels."""

import contextlib
from typing import Any

from kombu.transport.virtual import Transport as VirtualTransport

from pybroker.broker.domain.destination import Destination
from pybroker.client import Connection, ConnectionClosed, Refused
from pybroker.client.arguments import MessageHeaders
from pybroker.kombu.bindings import Binding, queue_destination
from pybroker.kombu.options import KombuOptions
from pybroker.kombu.routing import Declarations
from pybroker.kombu.subscriptions import KombuSource
from pybroker.kombu.wakeup import Wakeup


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
        self._created: set[Destination] = set()
        self._transient: dict[str, dict[Destination, KombuSource]] = {}

    @property
    def broker(self) -> Connection:
        """The client's connection.

        Raises:
            ConnectionClosed: there is none.
        """
        if self._broker is None:
            raise ConnectionClosed("the connection is closed")
        return self._broker

    def create(self, destination: Destination) -> None:
        """Create a destination, once for a connection.

        Raises:
            Refused: the broker refuses it.
        """
        if destination not in self._created:
            self.broker.create_destination(destination)
            self._created.add(destination)

    def bind(self, binding: Binding) -> None:
        """Add a binding: on return the broker collects its messages."""
        bindings = self.declarations.bindings.setdefault(binding.queue, set())
        if binding in bindings:
            return
        source = None
        if self.declarations.is_transient(binding.queue):
            source = self._bind_transient(binding)
        else:
            self.create(binding.destination)
        bindings.add(binding)
        for channel in list(self.channels):
            channel.add_binding(binding, source)

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
        """Remove a binding, and move the messages that the broker has collected for it to the queue."""
        bindings = self.declarations.bindings.get(binding.queue, set())
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
        self._move(binding.destination, queue_destination(binding.queue))
        self._delete(binding.destination)

    def _move(self, source: Destination, target: Destination) -> None:
        """Move the messages of a queue to another one."""
        with self.broker.consumer(source, ack="transacted", prefetch=0) as consumer:
            while True:
                with self.broker.transaction() as transaction:
                    try:
                        message = transaction.receive(consumer, timeout=0)
                    except TimeoutError:
                        return
                    headers = MessageHeaders(
                        properties=message.properties,
                        persistent=message.persistent,
                        priority=message.priority,
                        expiration=message.expiration,
                    )
                    if message.correlation_id is not None:
                        headers["correlation_id"] = message.correlation_id
                    transaction.send(target, message.body, **headers)

    def is_consumed(self, queue: str) -> bool:
        """Return True if this connection consumes a queue."""
        return any(channel.consumes(queue) for channel in self.channels)

    def delete_queue(self, queue: str) -> None:
        """Delete a queue with its bindings and this connection's consumers of it.

        Raises:
            Refused: another connection has a consumer of it.
        """
        bindings = self.declarations.bindings.pop(queue, set())
        is_transient = self.declarations.is_transient(queue)
        for source in self._transient.pop(queue, {}).values():
            source.consumer.close()
        own = queue_destination(queue)
        destinations = [own] if is_transient else [own, *{binding.destination for binding in bindings}]
        for channel in list(self.channels):
            for destination in destinations:
                channel.remove_source(queue, destination)
        self.declarations.queues.pop(queue, None)
        for destination in destinations:
            self._delete(destination)

    def _delete(self, destination: Destination) -> None:
        self._created.discard(destination)
        self.broker.delete_destination(destination)

    def delete_if_unused(self, queue: str) -> None:
        """Delete a queue whose last consumer has ended, if it was declared so and no other connection consumes it."""
        declared = self.declarations.queues.get(queue)
        if declared is None or not declared.is_auto_deleted or self.is_consumed(queue):
            return
        with contextlib.suppress(Refused):  # consumers of other connections are left
            self.delete_queue(queue)

    def forget_destinations(self) -> None:
        """Forget what exists on a connection that has ended."""
        self._transient.clear()
        self._created.clear()
        self.wakeup.close()
        self.wakeup = Wakeup()
