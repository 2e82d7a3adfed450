"""The queues, exchanges and bindings that one connection has declared, and where its messages go."""

from dataclasses import dataclass, field

from pybroker.broker.domain.destination import Destination
from pybroker.kombu.bindings import Binding, ExchangeKind, publish_destination, queue_destination


@dataclass(frozen=True, kw_only=True)
class DeclaredQueue:
    """A queue that this connection has declared.

    Attributes:
        name: its name.
        is_exclusive: it ends with the connection.
        is_auto_deleted: it ends with its last consumer.
        is_transient: it need not survive the connection: its bindings are topics, see `bindings`.
        message_ttl: the seconds after which a message in it expires; None for no limit.
    """

    name: str
    is_exclusive: bool = False
    is_auto_deleted: bool = False
    is_transient: bool = False
    message_ttl: float | None = None


@dataclass
class Declarations:
    """The declarations of one connection.

    Attributes:
        queues: the queues by name.
        bindings: the bindings of each queue.
        kinds: the types of exchanges, by name.
    """

    queues: dict[str, DeclaredQueue] = field(default_factory=dict[str, DeclaredQueue])
    bindings: dict[str, set[Binding]] = field(default_factory=dict[str, set[Binding]])
    kinds: dict[str, ExchangeKind] = field(default_factory=dict[str, ExchangeKind])

    def kind_of(self, exchange: str) -> ExchangeKind:
        """Return the type of an exchange; direct for one that this connection has not declared."""
        return self.kinds.get(exchange, ExchangeKind.DIRECT)

    def binding(self, queue: str, exchange: str, key: str) -> Binding:
        """Return the binding of those names."""
        return Binding(queue=queue, exchange=exchange, kind=self.kind_of(exchange), key=key)

    def is_transient(self, queue: str) -> bool:
        """Return True if a queue is transient; a queue that this connection has not declared is not."""
        declared = self.queues.get(queue)
        return declared is not None and declared.is_transient

    def route(self, exchange: str, routing_key: str) -> Destination:
        """Return the destination to send a message to.

        A message to a direct exchange, with the key of the same name, goes to the queue of that name without the
        virtual topic, if this connection has bound the queue so. Celery's default is such a queue.
        """
        if not exchange or (exchange == routing_key and self._is_own_queue(exchange)):
            return queue_destination(routing_key)
        return publish_destination(exchange, self.kind_of(exchange), routing_key)

    def _is_own_queue(self, name: str) -> bool:
        if self.kind_of(name) is not ExchangeKind.DIRECT:
            return False
        bound = [
            each.queue
            for bindings in self.bindings.values()
            for each in bindings
            if each.exchange == name and each.key == name
        ]
        return bound == [name]

    def message_ttl(self, exchange: str, routing_key: str) -> float | None:
        """Return the seconds after which a message for the default exchange expires, by its queue's arguments."""
        declared = self.queues.get(routing_key) if not exchange else None
        return declared.message_ttl if declared is not None else None
