"""The durable subscriptions of a broker, as the other end of a bridge asks for them at its start (`syncDurableSubs`).

A bridge whose BrokerInfo says so gets one BrokerSubscriptionInfo with those that its lists admit, with a consumer or
without. It creates what it lacks, and deletes what no subscription needs any more. Subscriptions that are bridges'
themselves are left out, because the store does not keep through which brokers their consumers are.

Source: ActiveMQ 5.17, `TransportConnection.processBrokerInfo`, `NetworkBridgeUtils.getBrokerSubscriptionInfo`.
"""

from collections.abc import Iterable, Sequence

from pybroker.broker.domain.admin import SubscriptionState
from pybroker.broker.domain.destination import Destination, matches, parts
from pybroker.broker.domain.network.names import DURABLE_PREFIX
from pybroker.broker.domain.network.properties import decode, destinations
from pybroker.broker.domain.openwire.commands import BrokerInfo, ConsumerInfo
from pybroker.broker.domain.openwire.ids import ConsumerId
from pybroker.broker.domain.subscription import DURABLE_PREFETCH


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
) -> tuple[ConsumerInfo, ...]:
    """Return those subscriptions that these topics, or patterns, admit.

    A subscription may have no consumer, and its consumer may have had another id at the bridge: each has an id of its
    own here, which is that of no other one, in any broker.
    """
    return tuple(
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
