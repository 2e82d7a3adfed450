"""The delays between the attempts of a bridge to connect.

A bridge that ends within `minConnectTime` of its start has failed: the delay begins at the initial one, and grows up to
the maximum. One that has lived longer starts over with the initial delay. Source: ActiveMQ 5.17,
`SimpleDiscoveryAgent`.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeDelays:
    """The options of a discovery URI. Names and defaults are ActiveMQ's.

    Attributes:
        initial_reconnect_delay_seconds: `initialReconnectDelay`, the delay after the first failure, and after a long
            run.
        max_reconnect_delay_seconds: `maxReconnectDelay`, the longest delay.
        back_off_multiplier: `backOffMultiplier`, the factor from delay to delay.
        use_exponential_back_off: `useExponentialBackOff`, whether delays grow.
        max_reconnect_attempts: `maxReconnectAttempts`, the limit to failures in a row; 0 for no limit.
        min_connect_seconds: `minConnectTime`, the run after which a bridge has not failed.
    """

    initial_reconnect_delay_seconds: float = 1.0
    max_reconnect_delay_seconds: float = 30.0
    back_off_multiplier: float = 2.0
    use_exponential_back_off: bool = True
    max_reconnect_attempts: int = 0
    min_connect_seconds: float = 5.0


class BackOff:
    """The failures of one bridge so far.

    Attributes:
        failure_count: the failures in a row.
    """

    __slots__ = ("_delays", "_next_seconds", "failure_count")

    def __init__(self, delays: BridgeDelays) -> None:
        """Begin without failures."""
        self._delays = delays
        self._next_seconds = delays.initial_reconnect_delay_seconds
        self.failure_count = 0

    def after(self, lived_seconds: float) -> float | None:
        """Return the delay after the end of a bridge.

        Args:
            lived_seconds: the time from the start of the attempt to its end.

        Returns:
            The seconds until the next attempt; None if the limit to failures is reached.
        """
        delays = self._delays
        if lived_seconds >= delays.min_connect_seconds:
            self.failure_count = 0
            self._next_seconds = delays.initial_reconnect_delay_seconds
            return min(self._next_seconds, delays.max_reconnect_delay_seconds)
        self.failure_count += 1
        if 0 < delays.max_reconnect_attempts <= self.failure_count:
            return None
        delay = min(self._next_seconds, delays.max_reconnect_delay_seconds)
        if delays.use_exponential_back_off:
            self._next_seconds = min(delay * delays.back_off_multiplier, delays.max_reconnect_delay_seconds)
        return delay
