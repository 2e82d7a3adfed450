"""The remote broker's consumers of advisories about demand, which a duplex bridge serves.

```text
this broker's advisories --> consumer of this broker --> plain messages over the bridge --> demand table of the other
```

Source: ActiveMQ 5.17, `DemandForwardingBridgeSupport`; network.md 7, 8.
"""

from collections.abc import Callable
from typing import Final

from pybroker.broker.domain.delivery import Delivery
from pybroker.broker.domain.destination import ADVISORY_PREFIX, checked, parts_to_consume
from pybroker.broker.domain.errors import RequestError
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.network.hops import may_pass
from pybroker.broker.domain.openwire.commands import ActiveMQMessage, ConsumerId, ConsumerInfo, DestinationInfo
from pybroker.broker.domain.openwire.marshal.codec import WireFormat
from pybroker.broker.domain.ports import ConnectionPort, ConsumerPort
from pybroker.broker.domain.subscription import ConsumerRequest, NetworkSubscription

VERBATIM: Final = WireFormat(version=12)
"""The form in which messages are kept and forwarded."""

INTERPRETED: Final = tuple(
    ADVISORY_PREFIX + each for each in ("Consumer.", "VirtualDestination.Consumer.", "TempQueue", "TempTopic")
)
"""Advisories that a bridge interprets; they are not forwarded as other messages are."""


class AdvisoryListeners:
    """The local consumers of advisories that serve the remote broker's, by the ids of those."""

    def __init__(
        self,
        remote_id: str,
        consumer_ttl: int,
        new_consumer_id: Callable[[], ConsumerId],
        *,
        deliver: Callable[[Delivery], None],
        on_dropped: Callable[[], None],
    ) -> None:
        """Begin without any.

        Args:
            remote_id: the id of the remote broker.
            consumer_ttl: how many hops demand travels.
            new_consumer_id: returns the id of another consumer of the bridge's connection.
            deliver: sends an advisory.
            on_dropped: called after an advisory was dropped, as the remote broker reads too slowly.
        """
        self._remote_id = remote_id
        self._consumer_ttl = consumer_ttl
        self._new_consumer_id = new_consumer_id
        self._deliver = deliver
        self._on_dropped = on_dropped
        self._consumers: dict[ConsumerId, ConsumerPort] = {}

    def clear(self) -> None:
        """Forget all, as their connection closes."""
        self._consumers.clear()

    def add(self, connection: ConnectionPort, info: ConsumerInfo) -> None:
        """Serve a consumer of advisories, which get there as plain messages.

        Args:
            connection: the bridge's at this broker.
            info: the consumer.

        Raises:
            RequestError: it is for something else than these advisories, or the user may not read them.
        """
        consumer_id, destination = info.consumer_id, info.destination
        if consumer_id is None or destination is None:
            raise RequestError("a consumer without id or destination")
        if consumer_id in self._consumers:
            return
        first, *others = parts_to_consume(checked(*destination))
        if not all(each.is_topic and each.name.startswith(INTERPRETED) for each in (first, *others)):
            raise RequestError(f"a duplex bridge consumes the advisories of demand, not {destination}")
        own_id = self._new_consumer_id()
        request = ConsumerRequest(
            destination=first,
            composite=tuple(others),
            prefetch=max(info.prefetch_size, 1),
            consumer_id=own_id,
            network=NetworkSubscription(
                remote_broker_id=self._remote_id,
                broker_path=(self._remote_id,),
                consumer_path=(consumer_id,),
                admits=lambda message: self._admits(message, own_id.connection_id),
            ),
            on_dropped=self._on_dropped,
        )
        listener = self._consumers[consumer_id] = connection.subscribe(request, self._deliver)
        listener.start()

    def remove(self, consumer_id: ConsumerId) -> None:
        """End what `add` began."""
        listener = self._consumers.pop(consumer_id, None)
        if listener is not None:
            listener.close()

    def acknowledged(self, consumer_id: ConsumerId, message_count: int) -> None:
        """Make space in the window of a consumer: the remote broker has read so many advisories."""
        listener = self._consumers.get(consumer_id)
        if listener is not None:
            listener.acknowledge_oldest(message_count)

    def _admits(self, message: Message, own_connection_id: str | None) -> bool:
        """Return True for an advisory whose demand may go on to the remote broker; the end of demand always may.

        Temporary destinations of the remote broker do not go back to it.
        """
        command = VERBATIM.decode(message.data)
        info = command.data_structure if isinstance(command, ActiveMQMessage) else None
        if isinstance(info, DestinationInfo):
            return info.connection_id is None or info.connection_id.value != own_connection_id
        if not isinstance(info, ConsumerInfo):
            return True
        path = [each.value or "" for each in info.broker_path or () if each]
        return may_pass(path, self._remote_id, self._consumer_ttl)
