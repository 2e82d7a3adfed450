"""The messages that a topic keeps for retroactive consumers, in memory only, within a limit.

There are two kinds. A recovery policy keeps the last messages of the topic (by default none). Besides, each topic keeps
one retained message, the last that a producer sent with the property `ActiveMQ.Retain`. Subscribers get it without that
property, and the copy that is kept has the property `ActiveMQ.Retained` instead. A message with `ActiveMQ.Retain` and
without content removes the retained message.

Source: ActiveMQ 5.17, subscription recovery policies.
"""

import logging
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
from pybroker.broker.core.usage import Usage
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.loose import MalformedOpenWire
from pybroker.broker.domain.openwire.message import OpenWireMessage, fields_of, to_message
from pybroker.broker.domain.openwire.spotting import may_have
from pybroker.broker.domain.openwire.values import Value, encode_map
from pybroker.broker.domain.ports import Clock

RETAIN = "ActiveMQ.Retain"
RETAINED = "ActiveMQ.Retained"

TIMED_BYTES_MAX = 64 << 20
"""Bytes kept per topic by a policy that has only a limit of time."""

_RETAIN: Final = RETAIN.encode()

RETAINED_PART: Final = 8
"""The retained messages of all topics may take this part of the broker's memory."""

_log = logging.getLogger(__name__)


class RecentMessages(Protocol):
    """The last messages of a topic."""

    def add(self, message: Message) -> None:
        """Add a message, and remove those that the policy no longer keeps."""
        ...

    def messages(self) -> Iterable[Message]:
        """Return the messages kept, oldest first."""
        ...


def recent_messages(policy: RecoveryPolicy | None, clock: Clock) -> RecentMessages | None:
    """Return an empty history for a policy; None if it keeps no messages."""
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
    """The last `count` messages."""

    def __init__(self, count: int) -> None:
        self._messages: deque[Message] = deque(maxlen=count)

    def add(self, message: Message) -> None:
        self._messages.append(message)

    def messages(self) -> Iterable[Message]:
        return tuple(self._messages)


class _LastBytes:
    """The last messages whose sizes add up to no more than `bytes_max`."""

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
    """The messages of the last `milliseconds`, as far as `TIMED_BYTES_MAX` allows."""

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


class RetainedHistory:
    """The messages that one topic keeps for retroactive consumers.

    Attributes:
        retained: the retained message, as retroactive consumers get it; None if there is none.
    """

    __slots__ = ("_recent", "_usage", "retained")

    def __init__(self, policy: RecoveryPolicy | None, clock: Clock, usage: Usage) -> None:
        """Begin without messages; `usage` is the topic's."""
        self.retained: Message | None = None
        self._usage = usage.broker
        self._recent = recent_messages(policy, clock)

    def add(self, message: Message) -> Message:
        """Keep a message if the policy or its producer asks for that; return the message as subscribers get it."""
        if may_have(message, _RETAIN):
            message = self._without_retain(message)
        if self._recent is not None:
            self._recent.add(message)
        return message

    def __iter__(self) -> Iterator[Message]:
        """Iterate over the messages that a retroactive consumer gets."""
        if self.retained is not None:
            yield self.retained
        if self._recent is not None:
            yield from self._recent.messages()

    def _without_retain(self, message: Message) -> Message:
        try:
            fields = fields_of(message)
            properties = dict(fields.properties)
        except MalformedOpenWire:
            return message  # without properties it cannot be a message to retain
        if str(properties.pop(RETAIN, "")).lower() != "true":
            return message
        try:
            return self._retain(fields, properties)
        except Exception as error:  # caused by the message; only this message is affected
            contain(error, "retaining", message)
            return message

    def _retain(self, fields: OpenWireMessage, properties: dict[str, Value]) -> Message:
        """Keep a message as the retained one; return it as subscribers get it."""
        live = to_message(replace(fields, marshalled_properties=encode_map(properties) if properties else None))
        properties[RETAINED] = True
        kept = replace(fields, marshalled_properties=encode_map(properties))
        self._set(to_message(kept) if fields.content else None)
        return live

    def _set(self, message: Message | None) -> None:
        """Replace the retained message, unless those of all topics would take more than their share of the memory."""
        usage = self._usage
        if self.retained is not None:
            usage.retained -= self.retained.size
        if message is not None and usage.limit and usage.retained + message.size > usage.limit // RETAINED_PART:
            _log.warning(
                "%s on %s is not retained: the retained messages of all topics take %d of %d bytes",
                message.message_id,
                message.destination,
                usage.retained,
                usage.limit // RETAINED_PART,
            )
            message = None
        if message is not None:
            usage.retained += message.size
        self.retained = message

    def close(self) -> None:
        """Forget the retained message: the topic is deleted."""
        self._set(None)
