"""What a topic remembers for retroactive consumers: its recent past, in memory only and bounded.

Two things, apart from each other: the last messages, as far as a recovery policy keeps them (by default none), and on
every topic one retained message, if a producer asked for it by the property `ActiveMQ.Retain`. Its live copy goes out
without that property; the kept one says `ActiveMQ.Retained`; one without content takes the kept one away.

Source: ActiveMQ 5.17, subscription recovery policies.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final, Protocol, assert_never

from pybroker.broker.core.containment import contain
from pybroker.broker.core.policy import (
    FixedCountRecovery,
    FixedSizeRecovery,
    LastImageRecovery,
    RecoveryPolicy,
    TimedRecovery,
)
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.loose import MalformedOpenWire
from pybroker.broker.domain.openwire.message import OpenWireMessage, fields_of, to_message
from pybroker.broker.domain.openwire.spotting import may_have
from pybroker.broker.domain.openwire.values import Value, encode_map
from pybroker.broker.domain.ports import Clock

RETAIN = "ActiveMQ.Retain"
RETAINED = "ActiveMQ.Retained"

TIMED_BYTES_MAX = 64 << 20
"""A policy by time alone would keep whatever fits into that time: this much per topic is kept at most."""

_RETAIN: Final = RETAIN.encode()


class Recent(Protocol):
    """The last messages of a topic."""

    def add(self, message: Message) -> None:
        """Remember a message."""
        ...

    def messages(self) -> Iterable[Message]:
        """Return what is remembered, oldest first."""
        ...


def recent(policy: RecoveryPolicy | None, clock: Clock) -> Recent | None:
    """Return what a policy asks to remember; None: nothing."""
    match policy:
        case None:
            return None
        case FixedCountRecovery():
            return _LastCount(policy.maximum_size)
        case LastImageRecovery():
            return _LastCount(1)
        case FixedSizeRecovery():
            return _LastBytes(policy.maximum_bytes)
        case TimedRecovery():
            return _LastMilliseconds(policy.milliseconds, clock)
        case _:
            assert_never(policy)


class _LastCount:
    """So many messages."""

    def __init__(self, count: int) -> None:
        self._messages: deque[Message] = deque(maxlen=count)

    def add(self, message: Message) -> None:
        self._messages.append(message)

    def messages(self) -> Iterable[Message]:
        return tuple(self._messages)


class _LastBytes:
    """As many messages as fit into so many bytes."""

    def __init__(self, bytes_max: int) -> None:
        self._messages: deque[Message] = deque()
        self._bytes_max = bytes_max
        self._bytes = 0

    def add(self, message: Message) -> None:
        self._messages.append(message)
        self._bytes += message.size
        while self._bytes > self._bytes_max:
            self._bytes -= self._messages.popleft().size

    def messages(self) -> Iterable[Message]:
        return tuple(self._messages)


class _LastMilliseconds:
    """The messages of so many milliseconds, unless they are too large."""

    def __init__(self, milliseconds: int, clock: Clock) -> None:
        self._messages: deque[tuple[int, Message]] = deque()
        self._milliseconds = milliseconds
        self._clock = clock
        self._bytes = 0

    def add(self, message: Message) -> None:
        self._messages.append((self._clock(), message))
        self._bytes += message.size
        self._forget()

    def messages(self) -> Iterable[Message]:
        self._forget()
        return tuple(message for _, message in self._messages)

    def _forget(self) -> None:
        oldest = self._clock() - self._milliseconds
        while self._messages and (self._messages[0][0] < oldest or self._bytes > TIMED_BYTES_MAX):
            self._bytes -= self._messages.popleft()[1].size


class Past:
    """All that one topic remembers.

    Attributes:
        retained: the retained message, as retroactive consumers get it.
    """

    __slots__ = ("_recent", "retained")

    def __init__(self, policy: RecoveryPolicy | None, clock: Clock) -> None:
        self.retained: Message | None = None
        self._recent = recent(policy, clock)

    def add(self, message: Message) -> Message:
        """Remember a message as far as it is wanted, and return it as it goes out."""
        if may_have(message, _RETAIN):
            message = self._without_retain(message)
        if self._recent is not None:
            self._recent.add(message)
        return message

    def __iter__(self) -> Iterator[Message]:
        """Iterate over what a retroactive consumer gets."""
        if self.retained is not None:
            yield self.retained
        if self._recent is not None:
            yield from self._recent.messages()

    def _without_retain(self, message: Message) -> Message:
        try:
            fields = fields_of(message)
            properties = dict(fields.properties)
        except MalformedOpenWire:
            return message  # nobody can have asked for anything
        if str(properties.pop(RETAIN, "")).lower() != "true":
            return message
        try:
            return self._retain(fields, properties)
        except Exception as error:  # the message's fault: nothing else is touched here
            contain(error, "retaining", message)
            return message

    def _retain(self, fields: OpenWireMessage, properties: dict[str, Value]) -> Message:
        """Keep a message for those who come later; return it as it goes out."""
        live = to_message(replace(fields, marshalled_properties=encode_map(properties) if properties else None))
        properties[RETAINED] = True
        kept = replace(fields, marshalled_properties=encode_map(properties))
        self.retained = to_message(kept) if fields.content else None
        return live
