"""The port through which the broker announces events: rare ones, and those of messages that expire or fail.

A message that is sent, delivered and acknowledged causes no event, to keep that path fast, unless the policy of its
destination asks for that and an observer uses it (`uses_messages_of`).
"""

from pybroker.broker.domain.admin import ClientView, ConsumerView
from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.network.peers import BridgePeer
from pybroker.broker.domain.openwire.ids import ProducerId
from pybroker.broker.domain.subscription import DurableSubscription


class Observer:
    """Is notified of a broker's events; each method ignores its event unless it is overridden.

    The methods are called on the event loop's thread, right after the event. An error in one is logged and does not
    affect the broker, unless it is an error of the store or of the lock.
    """

    def connection_added(self, connection: ClientView) -> None:
        """Called after a client has connected."""

    def connection_removed(self, connection: ClientView) -> None:
        """Called after a client has disconnected."""

    def destination_added(self, destination: Destination, owner: str | None) -> None:
        """Called after a destination was created; `owner` is the connection id of a temporary one's owner."""

    def destination_removed(self, destination: Destination, owner: str | None) -> None:
        """Called while a destination is removed; `owner` is the connection id of a temporary one's owner."""

    def consumer_added(self, consumer: ConsumerView) -> None:
        """Called after a consumer has subscribed."""

    def consumer_removed(self, consumer: ConsumerView) -> None:
        """Called after a consumer has closed."""

    def durable_removed(self, subscription: DurableSubscription) -> None:
        """Called after a durable subscription was deleted."""

    def producer_added(self, producer_id: ProducerId, destination: Destination) -> None:
        """Called after a producer of one destination was added."""

    def producer_removed(self, producer_id: ProducerId, destination: Destination) -> None:
        """Called after a producer of one destination was removed."""

    def message_expired(self, message: Message) -> None:
        """Called after a message has expired, and was dead-lettered or dropped."""

    def uses_messages_of(self, destination: Destination) -> bool:
        """Return True if it uses the events about each message of a destination now; such events cost time.

        They are `message_unclaimed`, `message_accepted`, `message_consumed`, and of a queue `consumer_slow`. While no
        observer uses them, they are not announced. Who makes an observer notifies the broker when its answer changes.
        """
        return False

    def message_unclaimed(self, message: Message) -> None:
        """Called before a non-persistent message is sent to a destination without consumers, if its policy asks."""

    def message_accepted(self, message: Message) -> None:
        """Called after a destination has accepted a message, if its policy asks."""

    def message_consumed(self, message: Message) -> None:
        """Called after the acknowledgement of a message has taken effect, if the policy of its destination asks.

        Of a topic that is each acknowledgement of a durable subscription.
        """

    def message_discarded(self, consumer: ConsumerView, message: Message, count: int) -> None:
        """Called after a message was dropped for a slow consumer, as the so manyth, if the topic's policy asks."""

    def consumer_slow(self, consumer: ConsumerView, destination: Destination) -> None:
        """Called when messages begin to wait for a consumer whose window is full, if the policy asks."""

    def memory_full(self, message: Message, used_bytes: int) -> None:
        """Called when a message is sent to a destination whose memory limit is reached, if its policy asks."""

    def message_dead_lettered(self, message: Message, cause: str) -> None:
        """Called after a message was dead-lettered, with the cause."""

    def bridge_started(self, peer: BridgePeer) -> None:
        """Called after a bridge to another broker has begun to work."""

    def bridge_stopped(self, peer: BridgePeer) -> None:
        """Called with the same peer after that bridge has ended."""

    def forward_failed(self, message: Message, cause: str) -> None:
        """Called after the remote broker of a bridge has refused a message, if its connector asks."""
