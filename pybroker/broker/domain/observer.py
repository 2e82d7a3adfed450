"""The port through which the broker announces what happens in it: rare events, and what becomes of single messages.

Nothing is announced of a message that is sent, delivered and acknowledged: that path has no room for it.
"""

from pybroker.broker.domain.admin import ClientView, ConsumerView
from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.ids import ProducerId


class Observer:
    """Hears of what happens in a broker; one that overrides nothing ignores everything.

    Called on the event loop's thread, after the fact and before anything else happens. What a call raises is logged and
    changes nothing for the broker, unless it is an error of the store or of the lock.
    """

    def connection_added(self, connection: ClientView) -> None:
        """Learn of a client that was admitted."""

    def connection_removed(self, connection: ClientView) -> None:
        """Learn of a client that left."""

    def destination_added(self, destination: Destination, owner: str | None) -> None:
        """Learn of a destination that was made; the owner of a temporary one is a connection id."""

    def destination_removed(self, destination: Destination, owner: str | None) -> None:
        """Learn of a destination that is being removed; the owner of a temporary one is a connection id."""

    def consumer_added(self, consumer: ConsumerView) -> None:
        """Learn of a consumer that has subscribed."""

    def consumer_removed(self, consumer: ConsumerView) -> None:
        """Learn of a consumer that closed."""

    def producer_added(self, producer_id: ProducerId, destination: Destination) -> None:
        """Learn of a producer of one destination."""

    def producer_removed(self, producer_id: ProducerId, destination: Destination) -> None:
        """Learn that a producer of one destination closed."""

    def message_expired(self, message: Message) -> None:
        """Learn of a message whose time was over, and that was dead-lettered or dropped for it."""

    def message_dead_lettered(self, message: Message, cause: str) -> None:
        """Learn of a message of which there is a dead letter now, and why."""
