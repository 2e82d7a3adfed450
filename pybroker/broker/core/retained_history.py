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
from typing import Final, assert_never

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
from pybroker.broker.domain.openwire.message import OpenWireMessage, outline, to_message
from pybroker.broker.domain.openwire.spotting import may_have
from pybroker.broker.domain.openwire.values import Value, encode_map
from pybroker.broker.domain.ports import Clock

RETAIN = "ActiveMQ.Retain"
RETAINED = "ActiveMQ.Retained"

TIMED_BYTES_MAX = 64 << 20
"""Bytes kept per topic by a policy that has only a limit of time."""

_RETAIN: Final = RETAIN.encode()

RETAINED_PART: Final = 8
"""The messages that all topics keep for retroactive consumers may take this part of `memory_limit`: an eighth."""

_log = logging.getLogger(__name__)


def recent_messages(policy: RecoveryPolicy | None, clock: Clock) -> "RecentMessages | None":
    """Return an empty history for a policy; None if it keeps no messages."""
    match policy:
        case None:
            return None
        case FixedCountRecovery():
            return RecentMessages(clock, count_max=policy.maximum_size)
        case LastImageRecovery():
            return RecentMessages(clock, count_max=1)
        case FixedSizeRecovery():
            return RecentMessages(clock, bytes_max=policy.maximum_bytes)
        case TimedRecovery():
            return RecentMessages(clock, bytes_max=TIMED_BYTES_MAX, milliseconds=policy.milliseconds)
        case _:
            assert_never(policy)


class RecentMessages:
    """The last messages of a topic, within limits.

    Attributes:
        size: the bytes of the messages.
    """

    __slots__ = ("_bytes_max", "_clock", "_count_max", "_messages", "_milliseconds", "size")

    def __init__(
        self,
        clock: Clock,
        *,
        count_max: int | None = None,
        bytes_max: int | None = None,
        milliseconds: int | None = None,
    ) -> None:
        """Begin without messages; a limit of None does not apply."""
        self._messages: deque[tuple[int, Message]] = deque()
        self._clock = clock
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._milliseconds = milliseconds
        self.size = 0

    def add(self, message: Message) -> None:
        """Add a message, and remove those beyond the limits."""
        self._messages.append((self._clock(), message))
        self.size += message.size
        while (self._count_max is not None and len(self._messages) > self._count_max) or (
            self._bytes_max is not None and self.size > self._bytes_max
        ):
            self.remove_oldest()
        self.remove_old()

    def remove_old(self) -> None:
        """Remove the messages whose time is over."""
        if self._milliseconds is not None:
            oldest = self._clock() - self._milliseconds
            while self._messages and self._messages[0][0] < oldest:
                self.remove_oldest()

    def remove_oldest(self) -> None:
        """Remove one message."""
        self.size -= self._messages.popleft()[1].size

    def messages(self) -> Iterable[Message]:
        """Return the messages kept, oldest first."""
        return tuple([message for _, message in self._messages])


class RetainedHistory:
    """The messages that one topic keeps for retroactive consumers.

    Attributes:
        retained: the retained message, as retroactive consumers get it; None if there is none.
    """

    __slots__ = ("_counted", "_is_cut", "_recent", "_usage", "retained")

    def __init__(self, policy: RecoveryPolicy | None, clock: Clock, usage: Usage) -> None:
        """Begin without messages; `usage` is the topic's."""
        self.retained: Message | None = None
        self._usage = usage.broker
        self._recent = recent_messages(policy, clock)
        self._counted = 0
        """The bytes of the recent messages that are counted."""
        self._is_cut = False
        """True if the share has removed messages that the policy would keep."""

    def add(self, message: Message) -> Message:
        """Keep a message if the policy or its producer asks for that; return the message as subscribers get it."""
        if may_have(message, _RETAIN):
            message = self._without_retain(message)
        if self._recent is not None:
            self._recent.add(message)
            self._count(self._recent)
        return message

    def __iter__(self) -> Iterator[Message]:
        """Iterate over the messages that a retroactive consumer gets."""
        if self.retained is not None:
            yield self.retained
        if self._recent is not None:
            self._recent.remove_old()
            self._count(self._recent)
            yield from self._recent.messages()

    def _count(self, recent: RecentMessages) -> None:
        """Count the recent messages, and remove the oldest while all topics keep more than their share."""
        usage = self._usage
        usage.retained += recent.size - self._counted
        limit = usage.limit // RETAINED_PART
        was_cut, self._is_cut = self._is_cut, False
        while usage.limit and usage.retained > limit and recent.size:
            self._is_cut = True
            before = recent.size
            recent.remove_oldest()
            usage.retained += recent.size - before
        self._counted = recent.size
        if self._is_cut and not was_cut:
            _log.warning(
                "a topic keeps fewer messages for retroactive consumers than its policy allows: those of all topics "
                "take %d of %d bytes; raise memory_limit, or keep less",
                usage.retained,
                limit,
            )

    def _without_retain(self, message: Message) -> Message:
        try:
            fields = outline(message)
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
                "%s on %s is not retained: what all topics keep for retroactive consumers takes %d of %d bytes",
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
        """Forget all messages: the topic is deleted."""
        self._set(None)
        self._usage.retained -= self._counted
        self._counted, self._recent = 0, None
