"""The messages that have come over bridges, by their ids: one that comes again is a duplicate.

A bridge whose answers were lost forwards the same messages again. Their ids are those of their original producers, and
their order at a broker need not be that in which they were sent: several queues, or several ways through a network,
overtake one another. So no highest number stands for all below it: each number is remembered, in a window behind the
highest.

```text
producer, destination, brokers passed   highest 41      1 1 0 1 1 1 …    bit 0: the highest, bit n: the one n below it
```

A message may come to several destinations under one id, and counts for each of them. One that comes back from where it
was forwarded to is no duplicate: it has passed more brokers than before. Only their number counts, because a broker may
have another id after a restart.

Source: ActiveMQ 5.17, `ActiveMQMessageAuditNoSync`, which has the same limits, but does not tell destinations apart.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.message import Message

_log = logging.getLogger(__name__)

NUMBERS_MAX: Final = 2048
"""The numbers of one producer that are remembered for a destination. A bridge has at most its prefetch unanswered."""

WINDOWS_MAX: Final = 64 * 16
"""The producers that are remembered, the latest ones, each once for every destination: some 400 kB."""

_WindowKey = tuple[Destination, str, int]
"""The destination, the producer, and the number of brokers passed."""

_ALL: Final = (1 << NUMBERS_MAX) - 1


class _Window:
    """The numbers of one producer that one destination has accepted."""

    __slots__ = ("bits", "highest")

    def __init__(self, highest: int) -> None:
        self.highest = highest
        self.bits = 1


class BridgedMessages:
    """Remembers which messages destinations have accepted from bridges."""

    __slots__ = ("_windows",)

    def __init__(self) -> None:
        self._windows: OrderedDict[_WindowKey, _Window] = OrderedDict()

    def accept(self, message: Message, send: Callable[[], bool]) -> bool:
        """Send a message that has come over a bridge, unless it was accepted before.

        Args:
            message: the message.
            send: sends it; returns False if its destination has it already.

        Returns:
            False if it was accepted before.
        """
        if self.has(message):
            _log.info("%s came over a bridge to %s before", message.message_id, message.destination)
            return False
        is_new = send()
        self.add(message)  # not before: what is refused may be forwarded again
        return is_new

    def has(self, message: Message) -> bool:
        """Return True if a message was accepted before; False if it is new, or that was too long ago."""
        found = self._find(message)
        if found is None:
            return False
        window, number = found
        return number <= window.highest and bool(window.bits >> (window.highest - number) & 1)

    def add(self, message: Message) -> None:
        """Record that a message was accepted. An id that does not end in a number is not remembered."""
        producer, _, text = message.message_id.rpartition(":")
        if not text.isdecimal():
            return
        number, key = int(text), _key(message, producer)
        window = self._windows.get(key)
        if window is None:
            if len(self._windows) >= WINDOWS_MAX:
                self._windows.popitem(last=False)
            self._windows[key] = _Window(number)
            return
        self._windows.move_to_end(key)
        ahead = number - window.highest
        if ahead > 0:
            window.bits = (window.bits << ahead | 1) & _ALL if ahead < NUMBERS_MAX else 1
            window.highest = number
        elif -ahead < NUMBERS_MAX:
            window.bits |= 1 << -ahead

    def _find(self, message: Message) -> tuple[_Window, int] | None:
        producer, _, text = message.message_id.rpartition(":")
        window = self._windows.get(_key(message, producer))
        return None if window is None or not text.isdecimal() else (window, int(text))


def _key(message: Message, producer: str) -> _WindowKey:
    return message.destination, producer, 0 if message.bridge is None else len(message.bridge.broker_path)
