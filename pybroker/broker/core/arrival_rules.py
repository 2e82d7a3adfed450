"""What the broker's settings change in a message that a client sends, before all else: ActiveMQ's plugins for that.

| rule           | ActiveMQ                           | what it changes                      |
|----------------|------------------------------------|--------------------------------------|
| populates_user | `populateJMSXUserID`               | the user who has sent it, see below  |
| time_stamping  | `timeStampingBrokerPlugin`         | when it was sent, and its expiration |
| persistency    | `forcePersistencyModeBrokerPlugin` | its delivery mode                    |

A user whom another broker has written into a message that comes over a bridge stays.

What the broker itself sends is not changed: dead letters, advisories, the messages of jobs, what operators move. The
message of a job was changed when its client sent it.

Source: ActiveMQ 5.17, `TimeStampingBrokerPlugin`, `ForcePersistencyModeBroker`, `UserIDBroker`.
"""

from dataclasses import dataclass
from typing import Final

from pybroker.broker.domain.effort import EFFORT
from pybroker.broker.domain.errors import MalformedData, RequestError
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.delivery_headers import DeliveryHeaders
from pybroker.broker.domain.openwire.message import outline
from pybroker.broker.domain.openwire.sender import with_user

_LARGE_BYTES: Final = 1 << 20
_TIME_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeStamping:
    """Gives each message the broker's time in place of its client's, whose clock may be wrong.

    Attributes:
        zero_expiration_override: how long messages live that never expire, in milliseconds; 0: for ever.
        ttl_ceiling: how long any message may live, in milliseconds; 0: as long as it says. It does not apply to
            messages that never expire.
        future_only: leave a message as it is, if its expiration would not become later.
        process_network_messages: change also what comes over a bridge from another broker.
    """

    zero_expiration_override: int = 0
    ttl_ceiling: int = 0
    future_only: bool = False
    process_network_messages: bool = False

    def times(self, timestamp: int, expiration: int, now: int) -> tuple[int, int] | None:
        """Return the new timestamp and expiration of a message, in milliseconds since the epoch; None: the old ones.

        A message without a timestamp is left as it is, as by `setDisableMessageTimestamp(true)`.
        """
        if timestamp <= 0:
            return None
        lifetime = expiration - timestamp if expiration > 0 else self.zero_expiration_override
        if lifetime > self.ttl_ceiling > 0:
            lifetime = self.ttl_ceiling
        renewed = now + lifetime
        if renewed > _TIME_MAX:  # in ActiveMQ it overflows, to a time long past
            renewed = 0
        if self.future_only and renewed <= expiration:
            return None
        return now, renewed if lifetime > 0 and renewed > 0 else expiration


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivalRules:
    """The rules of one broker.

    Attributes:
        populates_user: write the name of the user who sends a message into it.
        time_stamping: the times of each message; None: its client's.
        persistency: True: every message is persistent; False: none is; None: as its client says.
    """

    populates_user: bool = False
    time_stamping: TimeStamping | None = None
    persistency: bool | None = None

    @property
    def change_something(self) -> bool:
        """True if any rule is set."""
        return self != ArrivalRules()

    def apply(self, message: Message, user: str, now: int) -> Message:
        """Return a message as the rules want it.

        Args:
            message: what a client has sent.
            user: the name of the client's user.
            now: milliseconds since the epoch.

        Raises:
            RequestError: it does not decode.
        """
        EFFORT.is_large |= len(message.data) > _LARGE_BYTES
        try:
            if self.time_stamping is not None:
                message = _stamped(message, self.time_stamping, now)
            if self.persistency not in (None, message.persistent):
                message = DeliveryHeaders(message).replaced(persistent=self.persistency)
            is_populated = self.populates_user and (message.bridge is None or outline(message).user_id is None)
            return with_user(message, user) if is_populated else message
        except MalformedData as error:
            raise RequestError(f"{message.message_id} does not decode: {error}") from error


def _stamped(message: Message, stamping: TimeStamping, now: int) -> Message:
    headers = DeliveryHeaders(message)
    times = stamping.times(headers.timestamp, headers.expiration, now)
    if times is None or (not stamping.process_network_messages and headers.has_passed_broker):
        return message
    timestamp, expiration = times
    return headers.replaced(timestamp=timestamp, expiration=expiration)
