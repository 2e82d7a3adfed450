"""The durable subscriptions of a broker, as the other end of a bridge asks for them at its start (`syncDurableSubs`).

A bridge whose BrokerInfo says so gets one BrokerSubscriptionInfo with those that its lists admit, with a consumer or
without. It creates what it lacks, and deletes what no subscription needs any more. Subscriptions that are bridges'
themselves are left out, because the store does not keep through which brokers their consumers are.

The other end may send the list of its own, which only a duplex bridge has use for. It comes before the login, as
ActiveMQ orders them, so it is kept as it is, within a limit for all connections, until the login is accepted.

Source: ActiveMQ 5.17, `TransportConnection.processBrokerInfo`, `NetworkBridgeUtils.getBrokerSubscriptionInfo`.
"""

import logging
from collections.abc import Iterable, Sequence
from typing import Final

from pybroker.broker.domain.admin import SubscriptionState
from pybroker.broker.domain.destination import Destination, matches, parts
from pybroker.broker.domain.network.names import DURABLE_PREFIX
from pybroker.broker.domain.network.properties import decode, destinations
from pybroker.broker.domain.openwire.commands import BrokerInfo, ConsumerInfo
from pybroker.broker.domain.openwire.ids import ConsumerId
from pybroker.broker.domain.subscription import DURABLE_PREFETCH

_log = logging.getLogger(__name__)

LISTED_MAX: Final = 32_767
"""The most elements that an array of OpenWire can have."""

LIST_BYTES_MAX: Final = 16 << 20
"""The limit to a list of durable subscriptions before the login: some 100,000 are not so long."""

EARLY_BYTES_MAX: Final = 32 << 20
"""The limit to all such lists whose logins are not decided; with more, some bridges begin without one."""


class EarlyLists:
    """The bytes of the lists that have come before the logins of their bridges, of all connections of a broker."""

    __slots__ = ("_kept_bytes",)

    def __init__(self) -> None:
        self._kept_bytes = 0

    def keep(self, data: bytes) -> bool:
        """Count a list; return False if there is no space for it."""
        if self._kept_bytes + len(data) > EARLY_BYTES_MAX:
            return False
        self._kept_bytes += len(data)
        return True

    def release(self, data: bytes) -> None:
        """Count a list no more, as it is used or dropped."""
        self._kept_bytes -= len(data)


def asked_for(introduction: BrokerInfo) -> Sequence[Destination] | None:
    """Return the topics, or patterns, whose subscriptions a bridge asks for; None: it does not ask.

    Raises:
        RequestError: one of its destinations is none.
    """
    pairs = decode(introduction.network_properties or "")
    included = pairs.get("dynamicallyIncludedDestinations")
    if pairs.get("syncDurableSubs", "").strip().lower() != "true" or included is None:
        return None
    return [part for each in destinations(included) for part in parts(each) if part.is_topic]


def subscription_infos(
    states: Iterable[SubscriptionState], topics: Sequence[Destination], broker_id: str
) -> tuple[ConsumerInfo, ...] | None:
    """Return those subscriptions that these topics, or patterns, admit; None if no list can have so many.

    A part of them would not do: the other end deletes what no subscription of the list needs.

    A subscription may have no consumer, and its consumer may have had another id at the bridge: each has an id of its
    own here, which is that of no other one, in any broker.
    """
    infos = tuple(
        [
            ConsumerInfo(
                consumer_id=ConsumerId(f"{broker_id}:durable:{each.key}", 0, 0),
                client_id=each.client_id,
                subscription_name=each.name,
                destination=each.destination,
                selector=each.selector,
                no_local=each.no_local,
                prefetch_size=DURABLE_PREFETCH,
            )
            for each in states
            if not each.name.startswith(DURABLE_PREFIX)
            and any([matches(topic.name, each.destination.name) for topic in topics])
        ]
    )
    if len(infos) > LISTED_MAX:
        _log.warning(
            "a bridge gets no list of the %d durable subscriptions, as OpenWire has lists of %d: what is deleted while "
            "it is down leaves a subscription of the bridge at the other broker, which is then deleted by hand",
            len(infos),
            LISTED_MAX,
        )
        return None
    return infos
