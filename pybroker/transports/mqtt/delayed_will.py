"""Publishes the will of a client whose connection has ended a while ago.

The core has no connection of that client any more. So the will is sent over one that lasts as long as this takes, with
the rights that the user has then.
"""

import logging
from functools import partial
from typing import Final

from pybroker.broker.domain.errors import BrokerError, RequestError
from pybroker.broker.domain.mqtt.packets import Will
from pybroker.broker.domain.ports import BrokerPort, Clock
from pybroker.broker.domain.security import User
from pybroker.transports.mqtt.mapping import PublishReader
from pybroker.transports.mqtt.session_states import DelayedWill
from pybroker.transports.mqtt.subscription_strategy import SubscriptionStrategy

_log = logging.getLogger(__name__)

_PRODUCER_VALUE: Final = 2
"""The number of the producer of delayed wills: the connection itself has used producer 1."""


class _EndedLink:
    """Stands for the link of a connection that has ended: there is nothing to read from it, or to close."""

    def __init__(self, peer: str) -> None:
        self.peer = peer

    def pause_reading(self) -> None:
        """Do nothing."""

    def resume_reading(self) -> None:
        """Do nothing."""

    def hold_input(self) -> None:
        """Do nothing."""

    def release_input(self) -> None:
        """Do nothing."""

    def give_up(self, error: BrokerError) -> None:
        """Do nothing: the connection ends at once anyway."""


def delayed_will(
    will: Will,
    *,
    broker: BrokerPort,
    connection_id: str,
    peer: str,
    user: User,
    clock: Clock,
    strategy: SubscriptionStrategy,
) -> DelayedWill:
    """Return a will that waits.

    Args:
        will: the will.
        broker: gets it.
        connection_id: the id of the connection that has ended.
        peer: its other end, for logs.
        user: its user.
        clock: milliseconds since the epoch.
        strategy: has the topic of its topic name.
    """
    reader = PublishReader(connection_id, clock, broker.next_sequence, _PRODUCER_VALUE, strategy)
    return DelayedWill(
        delay_seconds=will.properties.will_delay,
        publish=partial(_publish, will, broker, connection_id, peer, user, reader),
        size=len(will.payload) + 4 * len(will.topic),
    )


def _publish(will: Will, broker: BrokerPort, connection_id: str, peer: str, user: User, reader: PublishReader) -> None:
    try:
        connection = broker.connect(connection_id, connection_id, _EndedLink(peer), user)
        try:
            connection.send(reader.read(will, will.topic))
        finally:
            connection.close()
    except RequestError as error:
        _log.warning("%s: its will is refused: %s", connection_id, error)
