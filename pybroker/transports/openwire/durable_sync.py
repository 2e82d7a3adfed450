"""The durable subscriptions of this broker, as a bridge asks for them at its start (`syncDurableSubs`).

A bridge whose BrokerInfo says so gets one BrokerSubscriptionInfo with those that its lists admit, with a consumer or
without. It creates what it lacks, and deletes what no subscription needs any more. Subscriptions that are bridges'
themselves are left out, because the store does not keep through which brokers their consumers are.

Source: ActiveMQ 5.17, `TransportConnection.processBrokerInfo`, `NetworkBridgeUtils.getBrokerSubscriptionInfo`.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from pybroker.broker.domain.admin import SubscriptionState
from pybroker.broker.domain.destination import Destination, matches, parse
from pybroker.broker.domain.openwire.commands import BrokerInfo, ConsumerInfo
from pybroker.broker.domain.subscription import DURABLE_PREFETCH

_OF_BRIDGES: Final = "NC-DS_"
"""The begin of the names of a bridge's durable subscriptions."""


def asked_for(introduction: BrokerInfo) -> Sequence[Destination] | None:
    """Return the topics, or patterns, whose subscriptions a bridge asks for; None: it does not ask.

    Raises:
        RequestError: one of its destinations is none.
    """
    text = introduction.network_properties or ""
    included = _value(text, "dynamicallyIncludedDestinations")
    if _value(text, "syncDurableSubs") != "true" or not included.startswith("["):
        return None
    found = [parse(each.strip()) for each in included.strip("[]").split(",") if each.strip()]
    return [each for each in found if each.is_topic]


def subscription_infos(states: Iterable[SubscriptionState], topics: Sequence[Destination]) -> tuple[ConsumerInfo, ...]:
    """Return those subscriptions that these topics, or patterns, admit."""
    return tuple(
        [
            ConsumerInfo(
                client_id=each.client_id,
                subscription_name=each.name,
                destination=each.destination,
                selector=each.selector,
                no_local=each.no_local,
                prefetch_size=DURABLE_PREFETCH,
            )
            for each in states
            if not each.name.startswith(_OF_BRIDGES)
            and any([matches(topic.name, each.destination.name) for topic in topics])
        ]
    )


def _value(text: str, key: str) -> str:
    """Return a value of a Java properties file, whose keys are plain; empty: there is none."""
    for line in text.splitlines():
        name, _, value = line.partition("=")
        if name.strip() == key:
            return value.replace("\\", "").strip()
    return ""
