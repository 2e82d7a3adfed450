"""A demand subscription at work: a consumer of the local broker whose messages go over the bridge.

Messages are forwarded in their order, up to the prefetch without waiting for an answer. Only the remote broker's answer
acknowledges a message here; one that needs no answer counts as received once it has left the process. Answers that come
together are acknowledged together: the queue then fills the window once, and not message by message. What has no answer
when the bridge ends returns to its place, and counts as redelivered.

Source: ActiveMQ 5.17, `DemandForwardingBridgeSupport.serviceLocalCommand`.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from pybroker.broker.domain.delivery import Delivery
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.network.rows import DemandRow
from pybroker.broker.domain.ports import ConnectionPort, ConsumerPort
from pybroker.broker.domain.subscription import ConsumerRequest

_log = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS: Final = 1.0
PAUSE_SECONDS_MAX: Final = 30.0
"""The pauses of a subscription whose message the remote broker has refused for a reason that may pass."""

_NEVER: Final = float("inf")

_TOGETHER_MAX: Final = 256
"""The limit to the messages of one acknowledgement: the core divides larger ones over turns of the event loop."""

Forward = Callable[["DemandConsumer", Delivery], None]
"""Sends a delivery to the remote broker."""


class DemandConsumer:
    """One demand subscription of a bridge.

    Attributes:
        number: its number in the demand table.
        request: what it has subscribed to.
        resumes_at: the time at which it takes messages again; None: it takes them.
        deletes_durable: its durable subscription is deleted at its end.
        ends_by: the time at which it ends, though answers are outstanding; None: it goes on.
        is_draining: it ends, and forwards first what waits for it.
    """

    __slots__ = (
        "_accepted",
        "_core",
        "_forward",
        "_outstanding",
        "_pause_seconds",
        "deletes_durable",
        "ends_by",
        "is_draining",
        "number",
        "request",
        "resumes_at",
    )

    def __init__(self, number: int, request: ConsumerRequest, connection: ConnectionPort, forward: Forward) -> None:
        """Subscribe; messages come from `start` on.

        Raises:
            RequestError: the local broker refuses the subscription.
        """
        self.number = number
        self.request = request
        self.resumes_at: float | None = None
        self.ends_by: float | None = None
        self.deletes_durable = self.is_draining = False
        self._outstanding = 0
        self._accepted: list[Delivery] = []
        """Those of the outstanding messages that the remote broker has."""
        self._pause_seconds = FIRST_PAUSE_SECONDS
        self._forward = forward
        if request.network is not None and request.is_counted:
            request = replace(request, network=replace(request.network, admits=self._admits))
        self._core: ConsumerPort = connection.subscribe(request, self._deliver)

    def start(self) -> None:
        """Take messages."""
        self._core.start()

    @property
    def is_idle(self) -> bool:
        """True while no answer of the remote broker is outstanding, and no more is to be forwarded."""
        return self._outstanding == 0 and not (self.is_draining and self._core.is_searching)

    @property
    def outstanding_count(self) -> int:
        """The messages whose answers are outstanding."""
        return self._outstanding

    def row(self, connector: str, remote_name: str, prefetch: int) -> DemandRow:
        """Return its state, for operators."""
        request = self.request
        return DemandRow(
            connector,
            remote_name,
            "topic" if request.destination.is_topic else "queue",
            request.destination.name,
            request.selector or "",
            request.subscription_name or "",
            prefetch,
            self._outstanding,
            request.priority,
            self.resumes_at is not None,
            self.ends_by is not None,
        )

    def _admits(self, message: Message) -> bool:
        network = self.request.network
        return not self.is_draining and (network is None or network.admits(message))

    def _deliver(self, delivery: Delivery) -> None:
        self._outstanding += 1
        self._forward(self, delivery)

    # ------------------------------------------------------------ answers

    def accepted(self, delivery: Delivery) -> None:
        """Count a message as received by the remote broker; `acknowledge` follows."""
        self._accepted.append(delivery)

    def acknowledge(self) -> None:
        """Acknowledge the messages that the remote broker has.

        Raises:
            BrokerError: the store has failed.
        """
        accepted, self._accepted = self._accepted, []
        self._outstanding -= len(accepted)
        self._pause_seconds = FIRST_PAUSE_SECONDS
        is_counted = self.request.is_counted
        for start in range(0, len(accepted), _TOGETHER_MAX):
            together = accepted[start : start + _TOGETHER_MAX]
            if is_counted:
                self._core.acknowledge_oldest(len(together))
            else:
                self._core.acknowledge_all(together)

    def refused(self, delivery: Delivery, cause: str) -> None:
        """Give up a message that the remote broker will refuse again: it becomes a dead letter of this broker."""
        self._outstanding -= 1
        if self.request.is_counted:
            self._core.acknowledge_oldest(1)
        else:
            self._core.reject(delivery, cause)

    def postponed(self, delivery: Delivery, now: float) -> None:
        """Return a message that the remote broker may take later, and pause; other subscriptions go on."""
        self._outstanding -= 1
        if self.resumes_at is None:  # those behind it, already on their way, are refused in the same pause
            self.resumes_at = now + self._pause_seconds
            self._pause_seconds = min(2 * self._pause_seconds, PAUSE_SECONDS_MAX)
        self._core.set_prefetch(0)
        if self.request.is_counted:
            self._core.acknowledge_oldest(1)
        else:
            self._core.release((delivery,), has_failed=True)

    def resume(self) -> None:
        """Take messages again."""
        self.resumes_at = None
        if (self.ends_by is None or self.is_draining) and self.request.prefetch is not None:
            self._core.set_prefetch(self.request.prefetch)

    # ------------------------------------------------------------ end

    def end(self, ends_by: float, *, deletes_durable: bool) -> None:
        """Take no further messages; `close` follows once all answers are there, or the time is over."""
        self.ends_by = ends_by
        self.deletes_durable = deletes_durable
        self._core.set_prefetch(0)

    def drain(self) -> None:
        """Take no message that is sent from now on; `close` follows once all that wait are forwarded and answered.

        Messages of a topic wait here and nowhere else.
        """
        self.ends_by = _NEVER
        self.is_draining = True

    def close(self) -> None:
        """End; what has no answer returns to its place."""
        self.acknowledge()
        self._core.close()
