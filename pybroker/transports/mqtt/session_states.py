"""The sessions without a connection: their state, the time when they end, and the wills that wait.

```text
connection ends     session expiry 0        session expiry n               0xFFFFFFFF, or MQTT 3.1.1 not clean
                    ends with it            after n seconds                never
its will            at once                 after min(will delay, n)       after the will delay
```

A session that has ended has no durable subscriptions any more, also if its client never comes back. A client that comes
back before cancels the end and the will; one that begins with a clean start has the will published, as it ends the
session. The clock begins when the connection ends, and for a session that a former master had, when the new one begins.

The store has a record of each session (`session_records`), by which it goes on at the next master, and ends there.

Source: MQTT 5.0, 3.1.2.5 "Will Flag", 3.1.2.11.2 "Session Expiry Interval", 3.1.3.2.2 "Will Delay Interval".
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Final, NamedTuple, Protocol

from pybroker.broker.domain.errors import RequestError, SubscriptionInUse
from pybroker.broker.domain.mqtt.topics import SHARE
from pybroker.broker.domain.ports import Clock
from pybroker.broker.domain.security import User
from pybroker.broker.domain.subscription import DurableSubscription
from pybroker.transports.mqtt import names
from pybroker.transports.mqtt.session_records import (
    RecordStore,
    SessionRecord,
    decode_record,
    encode_record,
    put_record,
    record_of,
)
from pybroker.transports.mqtt.session_state import SessionState
from pybroker.transports.mqtt.shared_subscriptions import SharedSubscriptions

_log = logging.getLogger(__name__)

SESSIONS_MAX: Final = 10_000
"""Sessions without a connection whose state is kept; the one that was left first is forgotten first."""

BYTES_MAX: Final = 64 * 1024 * 1024
"""The memory of these sessions, which counts for no limit of the core: topic filters with QoS 0, and wills."""

FIRED_MAX: Final = 100
"""Sessions that end in one turn of the event loop, which takes a few milliseconds."""

RETRY_MS: Final = 60_000
"""The time until a durable subscription that another client uses is looked at again."""

RECOVERED_MAX: Final = 100
"""Records of former masters that are requested at a time, so that those of clients that connect need not wait long."""

_STALE_MAX: Final = 100
"""Timers of sessions that have continued may be kept until so many are, and more than half."""


class SessionBroker(Protocol):
    """The core, as sessions without a connection use it."""

    def subscriptions_of(self, client_id: str) -> Sequence[DurableSubscription]:
        """Return the durable subscriptions of a client."""
        ...

    def unsubscribe(self, client_id: str, subscription_name: str) -> None:
        """Delete a durable subscription.

        Raises:
            RequestError: there is none of that name; `SubscriptionInUse`: it is active.
        """
        ...


class DelayedWill(NamedTuple):
    """A will that waits.

    Attributes:
        delay_seconds: the will delay interval.
        publish: sends it. A refusal is logged.
        size: its bytes.
    """

    delay_seconds: int
    publish: Callable[[], None]
    size: int


class _Left:
    """A session without a connection; without its state if that was forgotten, and only its end is known."""

    __slots__ = ("ends_at", "number", "size", "state", "user", "will", "will_at")

    def __init__(
        self,
        state: SessionState | None,
        number: int,
        ends_at: int | None,
        will: DelayedWill | None,
        will_at: int | None,
    ) -> None:
        self.state = state
        self.user: User | None = None
        self.number = number
        self.ends_at = ends_at
        self.will = will
        self.will_at = will_at
        self.size = 0 if state is None else state.size + (0 if will is None else will.size)

    @property
    def due_at(self) -> int | None:
        """The time when something is to be done."""
        if self.will is not None:
            return self.will_at
        return self.ends_at

    def publish_will(self) -> None:
        """Publish the will that waits, if there is one."""
        will, self.will = self.will, None
        if will is not None:
            will.publish()


class SessionStates:
    """The sessions of one broker that have no connection, by client id.

    Attributes:
        shared: the groups of shared subscriptions, of which the sessions are members.
    """

    def __init__(
        self,
        broker: SessionBroker,
        shared: SharedSubscriptions,
        clock: Clock,
        wake_at: Callable[[int | None], None],
        records: RecordStore,
    ) -> None:
        """Begin without any.

        Args:
            broker: has the durable subscriptions.
            shared: the groups in which sessions are members.
            clock: milliseconds since the epoch.
            wake_at: has `fire` called at a time of that clock, which replaces an earlier one; None: never.
            records: has the records of all sessions, also of those with a connection.
        """
        self.shared = shared
        self._broker = broker
        self._clock = clock
        self._wake_at = wake_at
        self._records = records
        self._unrecovered: Iterator[str] = iter(())
        """The clients whose records have not been looked at yet."""
        self._came: set[str] | None = None
        """The clients that have connected while there are such; None: there are none."""
        self._left: OrderedDict[str, _Left] = OrderedDict()
        self._forgotten: dict[str, _Left] = {}
        """Sessions whose state was dropped, and which have durable subscriptions to delete: the core limits these."""
        self._size = 0
        self._timers: list[tuple[int, int, str]] = []
        """A heap of times, numbers of `_Left`, and client ids. Those of sessions that have continued are stale."""
        self._last_number = 0
        self._woken_at: int | None = None
        self._is_closed = False

    def __len__(self) -> int:
        """Return the number of sessions."""
        return len(self._left) + len(self._forgotten)

    @property
    def timer_count(self) -> int:
        """The number of timers, with those that are stale."""
        return len(self._timers)

    def keep(
        self,
        client_id: str,
        state: SessionState,
        *,
        user: User,
        expiry_seconds: int | None,
        will: DelayedWill | None = None,
    ) -> None:
        """Keep the session of a connection that has ended until the client comes back, or it ends.

        Args:
            client_id: its client.
            state: its state.
            user: its user.
            expiry_seconds: its session expiry interval, not 0; None: it does not end.
            will: its will, if that waits.
        """
        if self._is_closed:
            return
        self.record(client_id, state, user=user, expiry_seconds=expiry_seconds)
        now = self._clock()
        ends_at = None if expiry_seconds is None else now + expiry_seconds * 1000
        will_at = None
        if will is not None:
            will_at = now + will.delay_seconds * 1000
            if ends_at is not None:
                will_at = min(will_at, ends_at)
        self._pop(client_id)
        self._last_number += 1
        left = self._left[client_id] = _Left(state, self._last_number, ends_at, will, will_at)
        left.user = user
        self._size += left.size
        self._arm(client_id, left)
        while len(self._left) > SESSIONS_MAX or (self._size > BYTES_MAX and len(self._left) > 1):
            self._forget_oldest()

    def resume(self, client_id: str, user: User) -> SessionState | None:
        """Remove and return the state of a session that continues; None if there is none, or it has ended.

        Its will is not published. Another user begins another session. The core has refused the user already if the
        session has durable subscriptions.
        """
        self._note(client_id)
        left = self._pop(client_id)
        if left is None:
            return None
        if left.ends_at is not None and left.ends_at <= self._clock():
            left.publish_will()
            self._delete(client_id)
            return None
        if left.user is not None and left.user.is_verified and left.user.name != user.name:
            left.publish_will()
            return None
        return left.state

    def load(self, client_id: str, user: User, receive: Callable[[SessionState | None], bool]) -> None:
        """Read the state of a session that is only in the store.

        Args:
            client_id: its client.
            user: the client's user.
            receive: gets the state; None: there is none, or its user is another. It returns False if the client was
                lost meanwhile: its session ends in time.
        """
        if client_id in self._records:
            self._records.request(client_id, partial(self._loaded, client_id, user, receive))
        else:
            receive(None)

    def record(self, client_id: str, state: SessionState, *, user: User, expiry_seconds: int | None) -> None:
        """Append the record of a session, if it has changed."""
        name = user.name if user.is_verified else None
        body = encode_record(record_of(state.subscriptions, user=name, expiry_seconds=expiry_seconds))
        if body != state.recorded:
            state.recorded = body
            put_record(self._records, client_id, body)

    def erase(self, client_id: str) -> None:
        """Append the removal of a session's record: the session has ended with its connection."""
        self._records.remove(client_id)

    def recover(self) -> None:
        """Have the sessions of former masters end: their expiry intervals begin now. Called once, by a new master."""
        self._came = set()
        self._unrecovered = iter(list(self._records))
        self._recover_page()

    def end(self, client_id: str) -> None:
        """End a session, as its client begins another one: publish its will. The caller deletes its subscriptions."""
        self._note(client_id)
        self._records.remove(client_id)
        left = self._pop(client_id)
        if left is not None:
            left.publish_will()

    def fire(self) -> None:
        """Publish the wills and end the sessions that are due; called at the time that `wake_at` was given."""
        self._woken_at = None
        now = self._clock()
        for _ in range(FIRED_MAX):
            if not self._timers or self._timers[0][0] > now:
                break
            _, number, client_id = heappop(self._timers)
            left = self._find(client_id)
            if left is None or left.number != number:
                continue
            left.publish_will()
            if left.ends_at is not None and left.ends_at <= now:
                self._pop(client_id)
                if not self._delete(client_id):  # another client consumes, or the last connection is still closing
                    self._await_end(client_id, now + RETRY_MS)
            else:
                self._arm(client_id, left)
        self._wake()

    def publish_wills(self) -> None:
        """Publish all wills that wait, as the broker stops and will not know of them. Call it before it is quiesced.

        The wills of clients that are connected until then and have a delay are not published: these clients may
        continue at the next master.
        """
        for left in list(self._left.values()):  # a receiver may be cut off by it, and its session come to be kept
            left.publish_will()

    def close(self) -> None:
        """Forget all sessions and timers, and keep none from now on: this broker stops, or is no longer the master."""
        self._is_closed = True
        self._left.clear()
        self._forgotten.clear()
        self._timers.clear()
        self._unrecovered = iter(())
        self._came = None
        self._size = 0
        self._wake_at(None)

    # ------------------------------------------------------------ private

    def _loaded(
        self, client_id: str, user: User, receive: Callable[[SessionState | None], bool], body: bytes | None
    ) -> None:
        record = None if body is None else decode_record(client_id, body)
        state = None if body is None or record is None else self._state_of(client_id, user, body, record)
        if receive(state):
            self._pop(client_id)  # an earlier connection that was lost has had it await its end
        elif record is not None and record.expiry_seconds is not None and not self._is_closed:
            self._await_end(client_id, self._clock() + record.expiry_seconds * 1000)

    def _state_of(self, client_id: str, user: User, body: bytes, record: SessionRecord) -> SessionState | None:
        filters = self._filters_of(client_id)
        is_other_user = record.user is not None and user.is_verified and record.user != user.name
        if is_other_user or _is_outdated(record, filters):
            return None
        state = SessionState(recorded=body)
        for text, kept in record.subscriptions.items():
            qos = filters.get(text, 0)
            if qos == kept.subscription.qos or (qos and text.startswith(SHARE)):
                state.subscriptions[text] = kept
                if qos == 2:
                    state.packet_id_max = 0  # the client may wait for a former master's PUBREL of any
        return state

    def _note(self, client_id: str) -> None:
        """Remember that a client has connected, as its record may not have been looked at yet."""
        if self._came is not None:
            self._came.add(client_id)

    def _recover_page(self) -> None:
        page = list(islice(self._unrecovered, RECOVERED_MAX))
        for client_id in page:
            self._records.request(client_id, partial(self._recovered, client_id, is_last=client_id == page[-1]))
        if not page:
            self._came = None

    def _recovered(self, client_id: str, body: bytes | None, *, is_last: bool) -> None:
        """Have a session end in time, or now if its durable subscriptions were deleted."""
        has_come = self._came is None or client_id in self._came
        record = None if body is None or has_come else decode_record(client_id, body)
        if record is not None and not self._is_closed:
            if _is_outdated(record, self._filters_of(client_id)):
                self._records.remove(client_id)
            elif record.expiry_seconds is not None:
                self._await_end(client_id, self._clock() + record.expiry_seconds * 1000)
        if is_last:
            self._recover_page()

    def _filters_of(self, client_id: str) -> dict[str, int]:
        """Return the topic filters of a client's durable subscriptions, with their QoS."""
        found = [names.parse_subscription_name(name) for name in self._names_of(client_id)]
        return {each.filter: each.qos for each in found if each is not None}

    def _find(self, client_id: str) -> _Left | None:
        return self._left.get(client_id) or self._forgotten.get(client_id)

    def _pop(self, client_id: str) -> _Left | None:
        left = self._left.pop(client_id, None)
        if left is None:
            return self._forgotten.pop(client_id, None)
        self._size -= left.size
        return left

    def _forget_oldest(self) -> None:
        """Forget the state of the session that was left first. Its will comes too early then, rather than never."""
        client_id, left = self._left.popitem(last=False)
        self._size -= left.size
        left.publish_will()
        if left.ends_at is not None and (client_id in self._records or self._names_of(client_id)):
            self._await_end(client_id, left.ends_at)

    def _await_end(self, client_id: str, ends_at: int) -> None:
        """Have the durable subscriptions of a session deleted whose state is not kept any more."""
        self._last_number += 1
        left = self._forgotten[client_id] = _Left(None, self._last_number, ends_at, None, None)
        self._arm(client_id, left)

    def _names_of(self, client_id: str) -> list[str]:
        """Return the names of a client's durable subscriptions that an MQTT client has made."""
        found = self._broker.subscriptions_of(client_id)
        return [info.name for info in found if names.parse_subscription_name(info.name) is not None]

    def _delete(self, client_id: str) -> bool:
        """Delete the durable subscriptions of a session that has ended; return False if one is in use."""
        is_deleted = True
        for name in self._names_of(client_id):
            try:
                self._broker.unsubscribe(client_id, name)
            except SubscriptionInUse:
                is_deleted = False
            except RequestError as error:
                _log.warning("the session of %s has ended, and its subscription %s remains: %s", client_id, name, error)
            else:
                _log.info("the session of %s has ended: its subscription %s is deleted", client_id, name)
        self.shared.end_session(client_id)
        self._records.remove(client_id)
        return is_deleted

    def _arm(self, client_id: str, left: _Left) -> None:
        due = left.due_at
        if due is None:
            return
        if len(self._timers) > _STALE_MAX + 2 * len(self):
            self._timers = [each for each in self._timers if self._is_current(each)]
            heapify(self._timers)
        heappush(self._timers, (due, left.number, client_id))
        self._wake()

    def _is_current(self, timer: tuple[int, int, str]) -> bool:
        left = self._find(timer[2])
        return left is not None and left.number == timer[1]

    def _wake(self) -> None:
        due = self._timers[0][0] if self._timers else None
        if due is not None and (self._woken_at is None or due < self._woken_at):
            self._woken_at = due
            self._wake_at(due)


def _is_outdated(record: SessionRecord, filters: dict[str, int]) -> bool:
    """Return True if a session ended without its record: at an ActiveMQ, or an operator deleted its subscriptions."""
    return record.is_durable and not filters
