"""One run of a member in the leader election: takes events from any thread, has them decided on, and actions performed.

```text
event loop            TimePassed, confirmations, synced records  --.
register's thread     answers, changes                           --+--> decide, one at a time --> actions, on the loop
follower's thread     pings, which ask for a promise             --'             |
any thread            the fence: may this member confirm and deliver? <--- state
```

Time passes on the event loop alone: a master whose loop hangs does not renew its lease.

Source: specification of replication, 3.4 and 3.5.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from pybroker.broker.domain.errors import LockNotHeld
from pybroker.locks.election.decisions import decide, may_take, may_tell, promises, start
from pybroker.locks.election.election_state import (
    ElectionAction,
    ElectionEvent,
    ElectionPolicy,
    ElectionState,
    MasterHeard,
    TimePassed,
)
from pybroker.locks.election.record import MasterEntry

_log = logging.getLogger(__name__)

TICKS_PER_LEASE: Final = 20
FIRST_TICK_SECONDS: Final = 0.05
"""The interval of `TimePassed` before the lease is known."""

_CLOCK: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Goes on while the machine is suspended; macOS has no other that does."""


def lease_clock() -> float:
    """Return seconds of a clock that cannot be set, and that goes on while the machine is suspended."""
    return time.clock_gettime(_CLOCK)


class ElectionRun:
    """The state of a member in the election.

    Args:
        me: this run of the member.
        policy: its settings.
        perform: performs an action. Called on the event loop, in the order of the decisions.
        post: runs a callback on the event loop, from any thread, in the order of the calls.
        name: the election store and the cluster, for errors.
        clock: seconds of `lease_clock`.
    """

    def __init__(
        self,
        me: MasterEntry,
        policy: ElectionPolicy,
        *,
        perform: Callable[[ElectionAction], None],
        post: Callable[[Callable[[], None]], object],
        name: str,
        clock: Callable[[], float] = lease_clock,
    ) -> None:
        self._clock = clock
        self._perform = perform
        self._post = post
        self._name = name
        self._deciding = threading.Lock()
        self._posted_count = 0
        """Actions that were posted, and are not performed yet."""
        self._is_performing = False
        self._state = start(me, policy, clock())

    @property
    def state(self) -> ElectionState:
        """The present state, which never changes: a later one is another object."""
        return self._state

    def tell(self, event: ElectionEvent) -> None:
        """Have an event decided on. May be called in any thread."""
        with self._deciding:
            self._state, actions = decide(self._state, event, self._clock())
            if actions:
                self._post_actions(actions)

    def tell_here(self, event: ElectionEvent) -> None:
        """Have an event decided on, and perform its actions before the return, if no earlier ones wait.

        To be called on the event loop, as the last step of what it does: an action may confirm records, whose clients
        are answered in this call.
        """
        with self._deciding:
            self._state, actions = decide(self._state, event, self._clock())
            if not actions:
                return
            if self._posted_count or self._is_performing:
                self._post_actions(actions)
                return
        self._perform_all(actions)

    def pass_time(self) -> float:
        """Tell that time has passed, and return the seconds until the next time. To be called on the event loop."""
        self.tell(TimePassed())
        state = self._state
        if state.record is None:
            return FIRST_TICK_SECONDS
        lease = state.record.settings.lease_ms / 1000
        left = state.seen_at + lease - self._clock()
        tick = lease / TICKS_PER_LEASE
        # A master that has become silent is replaced as soon as its lease is over.
        return min(tick, left) if left > 0 and state.mastery is None else tick

    def promise(self, epoch: int) -> bool:
        """Promise the master of an epoch not to stand for a lease from now on; return True if this member does."""
        with self._deciding:
            if not promises(self._state, epoch):
                return False
            self._state = decide(self._state, MasterHeard(epoch), self._clock()).state
            return True

    def may_take(self, epoch: int) -> bool:
        """Return True if frames of the master of this epoch may be written to the own store."""
        return may_take(self._state, epoch)

    def check(self) -> None:
        """Check the fence: two comparisons, in any thread.

        Raises:
            LockNotHeld: this member may not confirm or deliver anything.
        """
        if not may_tell(self._state, self._clock()):
            raise LockNotHeld(f"{self._name}: this member is not the master, or its lease is over")

    def may_send(self) -> bool:
        """Return True if output may leave; if not, this member steps down at once. To be called on the event loop."""
        if may_tell(self._state, self._clock()):
            return True
        self.tell(TimePassed())
        return False

    def _post_actions(self, actions: Sequence[ElectionAction]) -> None:
        """Have actions performed on the event loop. The lock is held."""
        self._posted_count += 1
        self._post(partial(self._perform_posted, actions))

    def _perform_posted(self, actions: Sequence[ElectionAction]) -> None:
        with self._deciding:
            self._posted_count -= 1
        self._perform_all(actions)

    def _perform_all(self, actions: Sequence[ElectionAction]) -> None:
        """Perform each, also after one that failed: a swap that was decided on and never made would be waited for."""
        self._is_performing = True
        for action in actions:
            try:
                self._perform(action)
            except Exception:  # a mistake of ours
                _log.exception("the action %s of the election failed", type(action).__name__)
        self._is_performing = False
