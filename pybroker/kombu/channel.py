"""`Channel`: AMQP's methods, as Kombu and Celery call them, on one connection of the client.

It is a virtual channel of Kombu, without what those keep in the process: the broker routes, holds back what is not
acknowledged, and redelivers it. A channel is used by one thread, but for `basic_ack` and `basic_reject`.

KombuSource: AMQP 0-9-1, "Work and content"; Kombu 5.7, `kombu.transport.virtual.base`.
"""

import contextlib
import itertools
import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, ClassVar, Final

from amqp.protocol import queue_declare_ok_t
from kombu.exceptions import ChannelError
from kombu.transport import virtual
from kombu.utils.uuid import uuid

from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.openwire.values import Long
from pybroker.client import (
    ClientError,
    ConnectionClosed,
    ConnectionFailed,
    InheritedConnection,
    Message,
    Refused,
    Timeout,
    UnreadableMessage,
)
from pybroker.kombu.bindings import Binding, ExchangeKind, queue_destination
from pybroker.kombu.declaring import Declaring
from pybroker.kombu.ending import await_broker, event_exchanges
from pybroker.kombu.message_form import PRIORITY_MAX, SendArguments, incoming, outgoing
from pybroker.kombu.routing import DeclaredQueue
from pybroker.kombu.subscriptions import KombuSource, KombuSubscription, in_turn
from pybroker.kombu.unacknowledged import UnacknowledgedMessages

SCHEDULED_DELAY: Final = "AMQ_SCHEDULED_DELAY"
DELAY_MIN_SECONDS: Final = 1.0
"""A shorter delay is left to the worker, which waits for the rest of every delay."""

_EMPTY_SECONDS: Final = 0.1
"""How long a queue must have no message to count as empty. ActiveMQ 5.17 may answer a pull that does not wait with
nothing while it still pages messages in."""

_log = logging.getLogger(__name__)


class Channel(virtual.Channel):
    """One channel. The attributes without underscore are those of Kombu's virtual channels."""

    supports_fanout = True
    do_restore = False
    max_priority = PRIORITY_MAX
    connection: Declaring
    from_transport_options: ClassVar[tuple[str, ...]] = ()

    def __init__(self, connection: Declaring, **options: Any) -> None:
        super().__init__(connection, **options)
        self._transport = connection  # also after `close`, when Kombu has set `connection` to None
        self._tags = itertools.count(1)
        self._subscriptions: dict[str, KombuSubscription] = {}
        self._getters: dict[str, KombuSubscription] = {}
        self._sources: list[KombuSource] = []
        self._unacknowledged = UnacknowledgedMessages(self._on_room)
        self._is_held_back = False
        self._turn = 0

    @property
    def qos(self) -> UnacknowledgedMessages:
        """The unacknowledged messages, with the limit to them."""
        return self._unacknowledged

    # ------------------------------------------------------------ exchanges, queues and bindings

    def exchange_declare(
        self,
        exchange: str | None = None,
        type: str | None = "direct",
        durable: bool = False,
        auto_delete: bool = False,
        arguments: Mapping[str, Any] | None = None,
        nowait: bool = False,
        passive: bool = False,
    ) -> None:
        """Declare an exchange. Exchanges are names, which exist by themselves: `passive` always finds one.

        Raises:
            NotImplementedError: the type has no form in virtual topics, or the exchange has an alternate one.
        """
        if passive:
            return
        try:
            kind = ExchangeKind(type or "direct")
        except ValueError:
            raise NotImplementedError(f"no exchanges of type {type}: use direct, topic or fanout") from None
        if "alternate-exchange" in (arguments or {}):
            raise NotImplementedError("alternate exchanges")
        self.connection.declarations.kinds[exchange or f"amq.{kind.value}"] = kind

    def exchange_delete(self, exchange: str, if_unused: bool = False, nowait: bool = False) -> None:
        """Delete the bindings of an exchange that this connection has declared."""
        for bindings in list(self.connection.declarations.bindings.values()):
            for binding in [each for each in bindings if each.exchange == exchange]:
                self.queue_unbind(binding.queue, exchange, binding.key)
        self.connection.declarations.kinds.pop(exchange, None)

    def queue_declare(
        self,
        queue: str | None = None,
        passive: bool = False,
        durable: bool = False,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> queue_declare_ok_t:
        """Create a queue; `passive` only looks whether it exists, and counts its messages.

        Raises:
            ChannelError: `passive`, and there is no such queue.
            NotImplementedError: the broker has no scheduler, and `scheduled_eta` needs it.
        """
        name = queue or f"amq.gen-{uuid()}"
        transport = self.connection
        if passive:
            return queue_declare_ok_t(name, self._count(name), 0)
        ttl = (arguments or {}).get("x-message-ttl")
        declared = DeclaredQueue(
            name=name,
            is_exclusive=exclusive,
            is_auto_deleted=auto_delete,
            is_transient=exclusive or (auto_delete and not durable),
            message_ttl=None if ttl is None else float(ttl) / 1000,
        )
        if not declared.is_transient:  # otherwise its first consumer creates it
            transport.check_scheduler()
            transport.broker.create_destination(queue_destination(name))
        transport.declarations.queues[name] = declared
        return queue_declare_ok_t(name, 0, 0)

    def _count(self, name: str) -> int:
        broker, destination = self.connection.broker, queue_destination(name)
        if not broker.destination_exists(destination):
            if self.connection.declarations.is_transient(name):
                return 0
            raise ChannelError(f"NOT_FOUND - no queue {name!r}", (50, 10), "Channel.queue_declare", "404")
        return sum(1 for _ in broker.browse(destination))

    def queue_bind(
        self,
        queue: str,
        exchange: str | None = None,
        routing_key: str = "",
        arguments: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> None:
        """Bind a queue to an exchange: on return the broker collects the messages of the binding."""
        binding = self.connection.declarations.binding(queue, exchange or "amq.direct", routing_key or "")
        self.connection.bind(binding)

    def queue_unbind(
        self,
        queue: str,
        exchange: str | None = None,
        routing_key: str = "",
        arguments: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> None:
        """Remove a binding. What the broker has collected for it stays in the queue."""
        binding = self.connection.declarations.binding(queue, exchange or "amq.direct", routing_key or "")
        self.connection.unbind(binding)

    def queue_delete(self, queue: str, if_unused: bool = False, if_empty: bool = False, **_: Any) -> None:
        """Delete a queue with its bindings, and the consumers of this connection.

        Raises:
            Refused: another connection has a consumer of it.
        """
        if if_empty and self.connection.broker.destination_exists(queue_destination(queue)) and self._count(queue):
            return
        if if_unused and self.connection.is_consumed(queue):
            return
        self.connection.delete_queue(queue)

    def queue_purge(self, queue: str, **_: Any) -> int:
        """Discard the messages of a queue that no consumer has; return their number."""
        count = 0
        getter = self._getter(queue)
        while (found := self._get(getter) or self._get(getter, seconds=_EMPTY_SECONDS)) is not None:
            found[1].ack()
            count += 1
        return count

    def after_reply_message_received(self, queue: str) -> None:
        """Delete the queue of a reply that has been received."""
        with contextlib.suppress(Refused):
            self.connection.delete_queue(queue)

    # ------------------------------------------------------------ publishing

    def basic_publish(
        self,
        message: Mapping[str, Any],
        exchange: str = "",
        routing_key: str = "",
        mandatory: bool = False,
        immediate: bool = False,
        timeout: float | None = None,
        confirm_timeout: float | None = None,
        **_: Any,
    ) -> None:
        """Publish a message. If it is persistent, the broker has it on disk on return.

        Raises:
            Refused: the broker refuses it.
            Timeout: it took longer than `timeout`, in seconds.
            NotImplementedError: it is to be returned if it has no queue: virtual topics do not know.
        """
        if mandatory or immediate:
            raise NotImplementedError("the mandatory and immediate flags: ActiveMQ does not return messages")
        transport = self.connection
        exchange, routing_key = exchange or "", routing_key or ""
        arguments = outgoing(message, exchange, routing_key, transient_ttl=transport.options.transient_ttl or None)
        ttl = transport.declarations.message_ttl(exchange, routing_key)
        if ttl is not None:
            arguments["ttl"] = min(ttl, arguments.get("ttl", ttl))
        if transport.options.scheduled_eta:
            _schedule(arguments, message)
        if exchange in event_exchanges:
            await_broker(transport.broker)
        transport.broker.send(
            transport.declarations.route(exchange, routing_key),
            timeout=timeout if confirm_timeout is None else confirm_timeout,
            **arguments,
        )

    # ------------------------------------------------------------ consuming

    def basic_consume(
        self,
        queue: str,
        no_ack: bool,
        callback: Callable[[Any], object],
        consumer_tag: str,
        arguments: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> None:
        """Consume a queue: `Transport.drain_events` calls back with each message.

        Raises:
            ChannelError: the channel has a consumer of that tag.
            Refused: the broker refuses a consumer.
        """
        if consumer_tag in self._subscriptions:
            raise ChannelError(
                f"NOT_ALLOWED - there is a consumer {consumer_tag!r}", (60, 20), "Channel.consume", "530"
            )
        subscription = KombuSubscription(queue, no_ack=no_ack, callback=callback)
        self._subscriptions[consumer_tag] = subscription
        prefetch = self._prefetch(subscription)
        try:
            self._open(subscription, prefetch, priority=int((arguments or {}).get("x-priority", 0)))
        except ClientError:
            del self._subscriptions[consumer_tag]
            self._cancel(subscription)
            raise
        self._consumers.add(consumer_tag)
        self.connection.wakeup.set()  # its messages may be there already

    def _open(self, subscription: KombuSubscription, prefetch: int, *, priority: int = 0) -> None:
        queue, declarations = subscription.queue, self.connection.declarations
        if declarations.is_transient(queue):
            for source in self.connection.transient_sources(queue):
                subscription.sources[source.destination] = source
                source.limit(prefetch or self.connection.options.prefetch)
            bindings = set[Binding]()
        else:
            bindings = declarations.bindings.get(queue, set())
        own = queue_destination(queue)
        for destination in (own, *{binding.destination for binding in bindings}):
            consumer = self.connection.broker.consumer(
                destination, ack="individual", prefetch=prefetch, priority=priority
            )
            of_destination = [binding for binding in bindings if binding.destination == destination]
            source = KombuSource(consumer, destination, self.connection.wakeup.set, of_destination)
            subscription.sources[destination] = source
            self._sources.append(source)

    def add_binding(self, binding: Binding, transient: KombuSource | None) -> None:
        """Let the subscriptions of a queue take the messages of a new binding too."""
        for subscription in (*self._subscriptions.values(), *self._getters.values()):
            if subscription.queue != binding.queue:
                continue
            if transient is not None:
                subscription.sources[transient.destination] = transient
            elif (existing := subscription.sources.get(binding.destination)) is not None:
                existing.bindings.add(binding)
            else:
                is_getter = subscription in self._getters.values()
                consumer = self.connection.broker.consumer(
                    binding.destination, ack="individual", prefetch=0 if is_getter else self._prefetch(subscription)
                )
                source = KombuSource(consumer, binding.destination, self.connection.wakeup.set, [binding])
                subscription.sources[binding.destination] = source
                self._sources.append(source)
            self.connection.wakeup.set()

    def remove_source(self, queue: str, destination: Destination) -> None:
        """Close the sources of a queue at a destination."""
        for subscription in (*self._subscriptions.values(), *self._getters.values()):
            if subscription.queue == queue and (source := subscription.sources.pop(destination, None)) is not None:
                source.consumer.close()
        self._forget_ended()

    def _forget_ended(self) -> None:
        self._sources = [source for source in self._sources if source.consumer.error is None]

    def consumes(self, queue: str) -> bool:
        """Return True if the channel has a consumer of a queue."""
        return any(subscription.queue == queue for subscription in self._subscriptions.values())

    def basic_cancel(self, consumer_tag: str) -> None:
        """End a consumer. Messages that the application has not acknowledged can still be."""
        self._consumers.discard(consumer_tag)
        subscription = self._subscriptions.pop(consumer_tag, None)
        if subscription is None:
            return
        self._cancel(subscription)
        self.connection.delete_if_unused([subscription.queue])

    def _cancel(self, subscription: KombuSubscription) -> None:
        for source in subscription.sources.values():
            if source in self._sources:  # those of transient queues belong to the connection
                source.cancel()
        self._forget_ended()

    def basic_qos(self, prefetch_size: int = 0, prefetch_count: int = 0, apply_global: bool = False) -> None:
        """Limit the messages that the application has and did not acknowledge, on this channel; 0 for no limit.

        The broker sends no more than these ahead, so that other consumers get the rest.
        """
        self.qos.prefetch_count = prefetch_count
        for subscription in self.subscriptions():
            for source in tuple(subscription.sources.values()):
                if not subscription.no_ack:
                    source.limit(self._prefetch(subscription))
        self._on_room()

    def _prefetch(self, subscription: KombuSubscription) -> int:
        count = 0 if subscription.no_ack else self.qos.prefetch_count
        return count or self._transport.options.prefetch

    def basic_get(self, queue: str, no_ack: bool = False, **_: Any) -> virtual.Message | None:
        """Return the next message of a queue; None if it has none."""
        found = self._get(self._getter(queue))
        if found is None:
            return None
        return self._received(*found, queue=queue, no_ack=no_ack)

    def _getter(self, queue: str) -> KombuSubscription:
        """Return what pulls single messages of a queue. It stays open: a broker redelivers what a closed one has."""
        getter = self._getters.get(queue)
        if getter is None or any(source.consumer.error is not None for source in getter.sources.values()):
            getter = KombuSubscription(queue, no_ack=False, callback=lambda _: None)
            self._open(getter, 0)
            self._getters[queue] = getter
        return getter

    def _get(self, getter: KombuSubscription, *, seconds: float = 0) -> tuple[KombuSource, Message] | None:
        found = getter.poll()
        if found is not None:
            return found
        for source in list(getter.sources.values()):
            with contextlib.suppress(Timeout):
                while True:
                    message = source.consumer.receive(timeout=seconds)
                    if getter.accepts(message, source):
                        return source, message
                    message.ack()
        return None

    def deliver_waiting(self, limit: int, *, is_counted: bool = False) -> int:
        """Call back with messages that wait, one of each subscription at a time; return their number.

        With `is_counted` a subscription without acknowledgements has one message at most.

        Raises:
            ClientError: the connection has failed, or the broker has ended a consumer.
        """
        count, last = 0, -1
        counted = set[KombuSubscription]()
        while last < count < limit:
            last = count
            for subscription in in_turn(self.subscriptions(), self._turn):
                if subscription not in self._subscriptions.values():
                    continue  # a callback has cancelled it
                if subscription in counted:
                    continue
                if not subscription.no_ack and not self.qos.can_consume():
                    self._is_held_back = True
                    subscription.hold_back()
                    if not self.qos.can_consume():
                        continue
                    self._on_room()  # another thread has made room before it could see that something is held back
                found = subscription.poll()
                if found is not None:
                    count += 1
                    self._turn += 1
                    if is_counted and subscription.no_ack:
                        counted.add(subscription)
                    message = self._received(*found, queue=subscription.queue, no_ack=subscription.no_ack)
                    if message is not None:
                        subscription.callback(message)
        return count

    def subscriptions(self) -> tuple[KombuSubscription, ...]:
        """Return the subscriptions that are open now. Any thread may call this."""
        return tuple(self._subscriptions.values())

    def _received(self, source: KombuSource, message: Message, *, queue: str, no_ack: bool) -> virtual.Message | None:
        """Return a message for the application; None if it cannot be read: then it is a dead letter."""
        tag = next(self._tags)
        try:
            payload = incoming(message, tag, queue)
        except UnreadableMessage as error:
            _log.error("message %s of queue %s cannot be read, and becomes a dead letter: %s", message.id, queue, error)
            source.consumer.reject(message, str(error))
            return None
        if no_ack:
            message.ack()
        else:
            self.qos.append(tag, message, source)
        return self.Message(payload, channel=self)

    def _on_room(self) -> None:
        """Let sources that are held back continue. Called in any thread."""
        for subscription in self.subscriptions():
            if not subscription.no_ack:
                for source in tuple(subscription.sources.values()):
                    source.resume(self.qos.room, self._prefetch(subscription))
        if self._is_held_back:
            self._is_held_back = False
            self._transport.wakeup.set()

    # ------------------------------------------------------------ acknowledging

    def basic_ack(self, delivery_tag: int, multiple: bool = False) -> None:
        """Acknowledge a message; with `multiple` also all before it. Does not wait. Any thread may call it.

        Raises:
            ConnectionClosed: the message will be redelivered.
        """
        self._check_open()
        self.qos.ack(delivery_tag, multiple=multiple)

    def basic_reject(self, delivery_tag: int, requeue: bool = False) -> None:
        """Discard a message, or return it to its queue. Any thread may call it.

        Raises:
            ConnectionClosed: the message will be redelivered.
        """
        self._check_open()
        self.qos.reject(delivery_tag, requeue=requeue, to_dlq=self._transport.options.reject_to_dlq)

    def _check_open(self) -> None:
        if self._transport.is_inherited:  # before a lock, which another thread may have had during the fork
            raise InheritedConnection("the connection belongs to the process from which this one was forked")
        if self.closed:
            raise ConnectionClosed("the channel is closed: the message will be redelivered")

    def return_unused(self, delivery_tags: Iterable[int]) -> None:
        """Return messages to their queues that the application has received and will not process; does not wait.

        Unlike those of `basic_reject`, they do not count as delivered. Their consumers are cancelled; those of others
        stay with the application.
        """
        self._check_open()
        self.qos.return_unused(delivery_tags)

    def basic_recover(self, requeue: bool = False) -> None:
        """Return all messages to their queues that are not acknowledged.

        Raises:
            NotImplementedError: they are to come to the same consumer.
        """
        if not requeue:
            raise NotImplementedError("recover without requeue")
        self.qos.recover()

    # ------------------------------------------------------------ end

    def close(self) -> None:
        """Close the channel. The broker redelivers the messages that are not acknowledged."""
        if self.closed:
            return
        self.closed = True
        transport = self._transport
        queues = [subscription.queue for subscription in self._subscriptions.values()]
        self._subscriptions.clear()
        self._getters.clear()
        self._consumers.clear()
        try:
            if not transport.is_inherited:
                with contextlib.suppress(ConnectionClosed, ConnectionFailed):  # its consumers have ended, too
                    self._end(queues)
        finally:
            transport.close_channel(self)

    def _end(self, queues: Iterable[str]) -> None:
        for source in self._sources:
            source.consumer.close()
        self._sources.clear()
        self.qos.clear()
        self._transport.delete_if_unused(queues)


def _schedule(arguments: SendArguments, message: Mapping[str, Any]) -> None:
    """Let the broker keep a task until its time.

    A time that is none, or has no time zone, is left to the worker, which reports it or knows the zone.
    """
    headers: Mapping[str, Any] = message["headers"] or {}
    eta = headers.get("eta")
    if not isinstance(eta, str):
        return
    try:
        due = datetime.fromisoformat(eta)
    except ValueError:
        return
    if due.tzinfo is None:
        return
    delay = (due - datetime.now(UTC)).total_seconds()
    if delay > DELAY_MIN_SECONDS:
        arguments["properties"][SCHEDULED_DELAY] = Long(int(delay * 1000))
