"""Makes the sessions of MQTT clients without a connection, with the timer at which they end or their wills are due."""

from collections.abc import Callable

from pybroker.broker.app.mqtt_queues import LastingSubscriptions
from pybroker.broker.core.broker import BrokerCore
from pybroker.broker.domain.ports import Clock
from pybroker.transports.mqtt.session_states import SessionStates
from pybroker.transports.mqtt.shared_subscriptions import SharedSubscriptions

After = Callable[[float, Callable[[], None]], Callable[[], None]]
"""Calls back after so many seconds; returns what cancels that."""


class _Timer:
    """One timer, whose time may be changed.

    Attributes:
        fire: called at that time.
    """

    fire: Callable[[], None]

    def __init__(self, after: After, clock: Clock) -> None:
        self._after = after
        self._clock = clock
        self._cancel: Callable[[], None] | None = None

    def wake_at(self, when_ms: int | None) -> None:
        """Have `fire` called at a time, which replaces an earlier one; None: never."""
        if self._cancel is not None:
            self._cancel()
            self._cancel = None
        if when_ms is not None:
            seconds = max(0, when_ms - self._clock()) / 1000
            self._cancel = self._after(seconds, self._elapsed)

    def _elapsed(self) -> None:
        self._cancel = None
        self.fire()


def make_session_states(broker: BrokerCore, after: After | None, clock: Clock) -> SessionStates:
    """Return the sessions of a broker that have no connection; none at first.

    Args:
        broker: has their durable subscriptions.
        after: sets a timer; None: nothing happens by itself, and a session ends when its client comes back too late.
        clock: milliseconds since the epoch.
    """
    timer = _Timer(after or _never, clock)
    shared = SharedSubscriptions(broker, lambda: [each.info for each in broker.durables.values()])
    states = SessionStates(LastingSubscriptions(broker), shared, clock, timer.wake_at, broker.sessions)
    timer.fire = states.fire
    return states


def _never(_seconds: float, _callback: Callable[[], None]) -> Callable[[], None]:
    return lambda: None
