"""The messages that have come over bridges, by their ids: one that comes again is a duplicate.

A bridge whose answers were lost forwards the same messages again. Their ids are those of their original producers, and
their order at a broker need not be that in which they were sent: several queues, or several ways through a network,
overtake one another. So no highest number stands for all below it: each number is remembered, in a window behind the
highest.

```text
producer, destination, brokers passed   highest 41      1 1 0 1 1 1 …    bit 0: the highest, bit n: the one n below it
```

A message may come to several destinations under one id, and counts for each of them. One that comes back from where it
was forwarded to is no duplicate on a queue: it has passed more brokers than before. Only their number counts, because a
broker may have another id after a restart. A topic keeps nothing that could come back: there the number does not count,
and what comes over two ways is delivered once.

Windows in which persistent messages were recorded are kept in the store, as records (`record_queue`). Each that has
changed is written before the answer to the bridge is requested: once for all messages that were read from it together.

```text
store    message message message record | acknowledgement …        of a consumer, read later from another connection
answer                                  `-> requested here, sent once all before it is durable
```

These messages and the record are one batch of the store (`group_commit`), and an acknowledgement is in a later one. So
after a crash either all are there, and what comes again is known, or none, and it is new. Only a batch that the disk
itself has torn, as by a loss of power, may have a message without the record: such a message is known while it is
stored, and may be delivered again, as redelivered, if it was consumed before it comes again.

A number enters its window once all copies of the message are stored, or its job in the scheduler's own store. If it
were recorded before and a crash lost the rest, the message would be dropped when it comes again.

Source: ActiveMQ 5.17, `ActiveMQMessageAuditNoSync`, which has the same limits, but does not tell destinations apart.
"""

import json
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final, Protocol

from pybroker.broker.core.containment import attempt
from pybroker.broker.core.paging import Paging
from pybroker.broker.core.record_queue import RecordQueue
from pybroker.broker.domain.destination import Destination, parse
from pybroker.broker.domain.errors import InvalidDestination, ResourceLimit
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.arrival_time import with_arrival_time
from pybroker.broker.domain.ports import Clock

_log = logging.getLogger(__name__)

NUMBERS_MAX: Final = 2048
"""The numbers of one producer that are remembered for a destination. A bridge has at most its prefetch unanswered."""

WINDOWS_MAX: Final = 64 * 16
"""The producers that are remembered, the latest ones, each once for every destination: some 400 kB."""

_DATED_BYTES_MAX: Final = 1 << 20
"""Larger messages are not copied to change their time of arrival."""

_NAME_MAX: Final = 1024
"""The limit to the name of a record: of windows with longer names there are none."""

_WindowKey = tuple[Destination, str, int]
"""The destination, the producer, and the number of brokers passed."""

_ALL: Final = (1 << NUMBERS_MAX) - 1

When = Callable[[Callable[[], None]], None]
"""Calls back once what was accepted so far has reached some state."""


class ReturningQueue(Protocol):
    """A queue whose messages may go back over bridges."""

    def is_returning(self, message: Message, /) -> bool:
        """Return True while its copy of the message is on its way back."""
        ...


class _Window:
    """The numbers of one producer that one destination has accepted."""

    __slots__ = ("bits", "highest")

    def __init__(self, highest: int) -> None:
        self.highest = highest
        self.bits = 1


class BridgedMessages:
    """Remembers which messages destinations have accepted from bridges.

    Args:
        records: keep the windows in the store.
        paging: has the event loop, in whose next turn what has changed is written.
        clock: milliseconds since the epoch.
    """

    __slots__ = ("_changed", "_clock", "_is_deferred", "_paging", "_records", "_windows")

    def __init__(self, records: RecordQueue, paging: Paging, clock: Clock) -> None:
        self._clock = clock
        self._records = records
        self._paging = paging
        self._windows: OrderedDict[_WindowKey, _Window] = OrderedDict()
        self._changed: dict[_WindowKey, None] = {}
        """The windows that are to be written."""
        self._is_deferred = False

    def recover(self, message_ids: Iterable[str]) -> None:
        """Take over the records of former masters, of which there are few. Blocks.

        Raises:
            StoreUnavailable: they cannot be read now.
        """
        self._records.recover(message_ids)
        for key, body in self._records.read_all():
            try:
                found: Any = json.loads(body)
                window_key = parse(found["destination"]), str(found["producer"]), int(found["passed"])
                window = _Window(int(found["highest"]))
                window.bits = int(found["bits"], 16) & _ALL
            except (ValueError, KeyError, TypeError, InvalidDestination) as error:
                _log.error("the record %s of messages of bridges is of no use: %r", key, error)
                continue
            if len(self._windows) < WINDOWS_MAX:
                self._windows[window_key] = window

    def refresh(self) -> None:
        """Write records again that are old; called periodically."""
        self._records.refresh()

    def accept(
        self, message: Message, send: Callable[[], bool], when_safe: When, queues: Mapping[Destination, ReturningQueue]
    ) -> bool:
        """Send a message that has come over a bridge, unless it was accepted before.

        One that its destination has with another path is not recorded: that copy may go away over a bridge, and this
        one come again.

        Args:
            message: the message; it gets the time of its arrival, in place of that at the broker which forwards it.
            send: sends it; returns False if its destination has it already.
            when_safe: calls back once a record would not survive a crash without the message.
            queues: the queues of this broker.

        Returns:
            False if it was accepted before.

        Raises:
            ResourceLimit: it was, but the copy is just going back to the broker which sends it. If both answered that
                they have it, both would drop theirs; it may come again in a moment.
        """
        key, number = _place(message)
        if self._has(key, number):
            queue = queues.get(message.destination)
            if queue is not None and queue.is_returning(message):
                raise ResourceLimit(f"{message.message_id} is on its way back over a bridge: it may come again later")
            _log.info("%s came over a bridge to %s before", message.message_id, message.destination)
            return False
        if len(message.data) <= _DATED_BYTES_MAX:
            message.data = with_arrival_time(message.data, self._clock())
            message.decoded = None
        is_new = send()
        if is_new:
            # Not before: what is refused may be forwarded again.
            when_safe(partial(self._accepted, key, number, is_kept=message.persistent))
        return is_new

    def has(self, message: Message) -> bool:
        """Return True if a message was accepted before; False if it is new, or that was too long ago."""
        key, number = _place(message)
        return self._has(key, number)

    def _has(self, key: _WindowKey, number: int) -> bool:
        window = self._windows.get(key)
        return (
            window is not None and 0 <= number <= window.highest and bool(window.bits >> (window.highest - number) & 1)
        )

    def add(self, message: Message) -> None:
        """Record that a message was accepted. An id that does not end in a number is not remembered."""
        key, number = _place(message)
        self._add(key, number, is_kept=message.persistent)

    def _add(self, key: _WindowKey, number: int, *, is_kept: bool) -> None:
        if number < 0:
            return
        if is_kept:
            self._change(key)
        window = self._windows.get(key)
        if window is None:
            if len(self._windows) >= WINDOWS_MAX:
                oldest, _ = self._windows.popitem(last=False)
                self._change(oldest)
            self._windows[key] = _Window(number)
            return
        self._windows.move_to_end(key)
        ahead = number - window.highest
        if ahead > 0:
            window.bits = (window.bits << ahead | 1) & _ALL if ahead < NUMBERS_MAX else 1
            window.highest = number
        elif -ahead < NUMBERS_MAX:
            window.bits |= 1 << -ahead

    def forget(self, messages: Iterable[Message]) -> None:
        """Forget messages that a bridge has brought back to where they came from, before they are removed here.

        If the answer to the first way was lost, the other broker still has the message, takes what comes back for that,
        and forwards it again later: it is no duplicate then. The record is written at once: after a crash before the
        removal of a message it is known because it is stored.
        """
        for message in messages:
            key, number = _place(message)
            if self._has(key, number):
                window = self._windows[key]
                window.bits &= ~(1 << (window.highest - number))
                if message.persistent:
                    self._change(key)
        self.write()

    def write(self) -> None:
        """Write the windows that have changed, and remove the records of those that were forgotten.

        Called before answers are requested, and otherwise in the next turn of the event loop.
        """
        if not self._changed:
            return
        changed, self._changed = self._changed, {}
        for key in changed:
            attempt(partial(self._write, key), "keeping what has come over a bridge")

    def _accepted(self, key: _WindowKey, number: int, *, is_kept: bool) -> None:
        self._add(key, number, is_kept=is_kept)
        if self._changed and not self._is_deferred:
            self._is_deferred = self._paging.defer(self._write_later)
            if not self._is_deferred:
                self.write()

    def _write_later(self) -> None:
        self._is_deferred = False
        self.write()

    def _change(self, key: _WindowKey) -> None:
        self._changed[key] = None

    def _write(self, key: _WindowKey) -> None:
        destination, producer, passed = key
        name = f"{passed} {destination} {producer}"
        window = self._windows.get(key)
        if window is None:
            self._records.remove(name)
        elif len(name) <= _NAME_MAX and self._records.can_grow:
            fields = {
                "destination": str(destination),
                "producer": producer,
                "passed": passed,
                "highest": window.highest,
                "bits": f"{window.bits:x}",
            }
            self._records.put(name, json.dumps(fields).encode())


def _place(message: Message) -> tuple[_WindowKey, int]:
    """Return the window of a message, and its number in it; -1 if its id does not end in one."""
    producer, _, text = message.message_id.rpartition(":")
    bridge, destination = message.bridge, message.destination
    passed = 0 if bridge is None or destination.is_topic else len(bridge.broker_path)
    return (destination, producer, passed), int(text) if text.isdecimal() else -1
