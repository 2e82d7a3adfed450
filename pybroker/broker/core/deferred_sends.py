"""Sends that wait for space before they are carried out: `send_fail_if_no_space_after_timeout`, or a full store.

Without that policy a message is accepted without space, and the answer to its producer waits. With it the message must
not be stored before it is certain that the send does not fail. So the whole send waits, and later ones of the same
producer wait behind it: they keep their order, and a message is never taken for a repetition of a later one. The
messages are counted for no destination; the bytes of all of them together are limited.

```text
no space --> first one waits in its `Usage`, with a timer --space--> attempted --carried out--> the next one
                  ^                        |                             |
                  +--- still no space -----+--- time over: refused ------+
```

What a bridge forwards waits for the store in the same way, but without a limit of time (`store_space`). It is never
refused: a bridge has as many messages under way as its window allows, and when too much waits, no more of its input is
processed. Up to then it is, as what comes over a duplex bridge may free space.

Source: ActiveMQ 5.17, `Queue.messagesWaitingForSpace`, `Queue.FlowControlTimeoutTask`.
"""

from collections import deque
from collections.abc import Callable
from math import inf
from typing import Final, NamedTuple

from pybroker.broker.core.containment import attempt as contained
from pybroker.broker.core.containment import contain
from pybroker.broker.core.paging import Paging
from pybroker.broker.domain.errors import BrokerError, RequestError, ResourceLimit
from pybroker.broker.domain.ports import Throttle
from pybroker.broker.domain.space import SpaceAwaited

DEFERRED_BYTES_MAX: Final = 1 << 20
"""Bytes of messages of one producer that wait, unless it is one message. A JMS producer has one at a time."""

DEFERRED_BYTES_IN_ALL_MAX: Final = 64 << 20
"""The same of all producers: as much as is accepted above the broker's limit, see `usage`."""


class _Send(NamedTuple):
    """A send that waits.

    Attributes:
        attempt: carries it out.
        refuse: answers that it has failed.
        size: the bytes of the message.
        since: monotonic seconds at which it began to wait.
    """

    attempt: Callable[[], None]
    refuse: Callable[[RequestError], None]
    size: int
    since: float


class DeferredSends:
    """The waiting sends of one producer; implements `DeferredSendsPort`."""

    __slots__ = (
        "_awaited",
        "_bytes",
        "_cancel_timer",
        "_holds_input",
        "_is_running",
        "_on_empty",
        "_paging",
        "_sends",
        "_throttle",
    )

    def __init__(self, paging: Paging, on_empty: Callable[["DeferredSends"], None], throttle: Throttle) -> None:
        """Begin without sends.

        Args:
            paging: has the clock and the timer; without an event loop nothing fails by the time.
            on_empty: called when none is left; it takes no further sends then.
            throttle: the connection. It is closed after an error that is no refusal.
        """
        self._paging = paging
        self._on_empty = on_empty
        self._throttle = throttle
        self._sends: deque[_Send] = deque()
        self._bytes = 0
        self._awaited: SpaceAwaited | None = None
        """The space for which the first send waits."""
        self._cancel_timer: Callable[[], None] | None = None
        self._is_running = False
        self._holds_input = False

    def add(
        self, attempt: Callable[[], None], refuse: Callable[[RequestError], None], size: int, error: SpaceAwaited | None
    ) -> None:
        """Add a send, behind the others; see `DeferredSendsPort`."""
        own, in_all = self._bytes, self._paging.deferred_bytes
        is_own_full, are_all_full = own + size > DEFERRED_BYTES_MAX, in_all + size > DEFERRED_BYTES_IN_ALL_MAX
        is_too_much = (own and is_own_full) or (in_all and are_all_full)
        awaited = error or self._awaited
        if is_too_much and awaited is not None and awaited.seconds == inf:
            self._hold_input()
        elif is_too_much:
            text = f"Usage Manager Memory Limit reached: {in_all} bytes, {own} of them of this producer, wait for space"
            refuse(ResourceLimit(text))
            if not self._sends and not self._is_running:
                self._on_empty(self)
            return
        self._sends.append(_Send(attempt, refuse, size, self._paging.monotonic()))
        self._count(size)
        if error is not None:
            self._wait(error)

    def finish(self) -> None:
        """Carry out or refuse all of them now."""
        self._stop_waiting()
        self._run(is_last=True)

    def close(self) -> None:
        """Drop all of them without an answer, as their client is gone."""
        self._stop_waiting()
        self._drop()

    def _wait(self, error: SpaceAwaited) -> None:
        """Have the first send wait, as long as it may."""
        self._awaited = error
        if self._paging.after is not None and error.seconds != inf:
            left = self._sends[0].since + error.seconds - self._paging.monotonic()
            self._cancel_timer = self._paging.after(max(0.0, left), self._time_out)
        error.when_space(self._on_space, self)

    def _stop_waiting(self) -> None:
        if self._cancel_timer is not None:
            self._cancel_timer()
            self._cancel_timer = None
        if self._awaited is not None:
            self._awaited.cancel(self)
            self._awaited = None

    def _on_space(self) -> None:
        if self._awaited is not None:
            self._stop_waiting()
            self._run()

    def _time_out(self) -> None:
        error = self._awaited
        if error is not None:
            self._stop_waiting()
            self._refuse(self._next(), error)
            self._run()

    def _run(self, *, is_last: bool = False) -> None:
        """Attempt the sends, up to the first one that has to wait."""
        if self._is_running:
            return
        self._is_running = True
        try:
            while self._sends:
                send = self._next()
                try:
                    send.attempt()
                except SpaceAwaited as error:
                    if is_last or self._paging.monotonic() - send.since > error.seconds:
                        self._refuse(send, error)
                    else:
                        self._sends.appendleft(send)
                        self._count(send.size)
                        self._wait(error)
                        if self._awaited is not None:  # else there is space by now
                            return
                except RequestError as error:
                    self._refuse(send, error)
                except Exception as error:
                    self._drop()
                    self._throttle.give_up(BrokerError("a command could not be carried out: see the broker's log"))
                    contain(error, "carrying out a send that has waited")  # it is not the fault of who freed the space
                    return
        finally:
            self._is_running = False
        self._on_empty(self)
        self._release_input()  # behind it, as it may process input at once, which would wait behind nothing

    def _next(self) -> _Send:
        send = self._sends.popleft()
        self._count(-send.size)
        return send

    def _drop(self) -> None:
        self._sends.clear()
        self._count(-self._bytes)
        self._release_input()  # the socket may still be open, and only a read detects its end

    def _hold_input(self) -> None:
        if not self._holds_input:
            self._holds_input = True
            self._throttle.hold_input()

    def _release_input(self) -> None:
        if self._holds_input:
            self._holds_input = False
            self._throttle.release_input()

    def _count(self, change: int) -> None:
        self._bytes += change
        self._paging.deferred_bytes += change

    def _refuse(self, send: _Send, error: RequestError) -> None:
        contained(lambda: send.refuse(error), "refusing a send that has waited")
