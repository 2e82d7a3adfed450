"""The subscriptions of an MQTT connection: to topics, and to queues of virtual topics."""

from pybroker.broker.domain.delivery import Delivery
from pybroker.broker.domain.mqtt.packets import FilterSubscription
from pybroker.broker.domain.subscription import ConsumerRequest
from pybroker.transports.mqtt.outgoing import MqttRecipient, OutgoingDeliveries
from pybroker.transports.mqtt.subscription_strategy import RecallsPort, SubscriptionStrategy


class MqttSubscription(MqttRecipient):
    """A subscription of a connection.

    Attributes:
        options: its topic filter and options.
        durable_name: the name of its durable subscription; None without one.
    """

    __slots__ = ("durable_name", "options")

    durable_name: str | None

    def __init__(self, options: FilterSubscription, identifier: int | None, request: ConsumerRequest) -> None:
        super().__init__(
            options.filter,
            options.qos,
            identifier=identifier,
            retain_as_published=options.retain_as_published,
            is_counted=request.is_counted,
            leaves_out_reserved=request.leaves_out_reserved,
        )
        self.options = options
        self.durable_name = request.subscription_name

    def start(self) -> None:
        """Begin delivery, unless the client has unsubscribed already."""
        if not self.is_closed:
            self.consumer.start()

    def recall(self) -> None:
        """Send the retained messages again, unless the client has unsubscribed already."""
        if not self.is_closed:
            self.consumer.recall()

    def close(self) -> None:
        """Close it; unacknowledged messages go back to the core."""
        self.is_closed = True
        self.consumer.close()

    def detach(self) -> None:
        """Get no more messages, as the connection ends; the core closes its consumers."""
        self.is_closed = True


class RetainedRecipient(MqttRecipient):
    """Sends the retained messages for the subscriber of a queue: the core does not wait for their acknowledgement."""

    def acknowledge(self, delivery: Delivery | None) -> None:
        """Do nothing."""

    def reject(self, delivery: Delivery | None, cause: str) -> None:
        """Do nothing."""

    def acknowledge_sent(self) -> None:
        """Forget how many were sent."""
        self.sent_count = 0


class QueueSubscription(MqttSubscription):
    """A subscription whose messages come from a queue of a virtual topic.

    Attributes:
        queue: the queue.
    """

    __slots__ = ("_is_retroactive", "_outgoing", "_recalls", "_retained", "_strategy", "queue")

    def __init__(
        self,
        options: FilterSubscription,
        identifier: int | None,
        request: ConsumerRequest,
        outgoing: OutgoingDeliveries,
        strategy: SubscriptionStrategy,
    ) -> None:
        super().__init__(options, identifier, request)
        self.queue = request.destination
        self._outgoing = outgoing
        self._strategy = strategy
        self._is_retroactive = request.retroactive
        self._retained: RetainedRecipient | None = None
        self._recalls: RecallsPort | None = None

    def start(self) -> None:
        """Begin delivery, with the retained messages first if they are wanted."""
        if self._is_retroactive:
            self._is_retroactive = False
            self.recall()
        super().start()

    def recall(self) -> None:
        """Send the retained messages, unless the client has unsubscribed already."""
        if self.is_closed:
            return
        self._forget_retained()
        self._retained = retained = RetainedRecipient(
            self.filter,
            self.qos,
            identifier=self.identifier,
            retain_as_published=self.retain_as_published,
            is_counted=True,
            leaves_out_reserved=self.leaves_out_reserved,
        )
        outgoing = self._outgoing
        self._recalls = self._strategy.recall(
            self.filter,
            lambda message: outgoing.deliver(retained, Delivery(message)),
            lambda: outgoing.has_space and not retained.is_closed,
        )
        if self._recalls:
            outgoing.add_drain(self._proceed)

    def _proceed(self) -> None:
        """Send more retained messages."""
        if self._recalls is not None:
            self._recalls.proceed()
        if not self._recalls:
            self._outgoing.remove_drain(self._proceed)

    def close(self) -> None:
        """Close it; unacknowledged messages go back to the queue."""
        super().close()
        self._forget_retained()

    def detach(self) -> None:
        """Get no more messages, as the connection ends."""
        super().detach()
        self._forget_retained()

    def _forget_retained(self) -> None:
        if self._recalls is not None:
            self._outgoing.remove_drain(self._proceed)
            self._recalls.close()
            self._recalls = None
        if self._retained is not None:
            self._retained.is_closed = True
            self._outgoing.forget(self._retained)
            self._retained = None
