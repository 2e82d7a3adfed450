"""The messages that a topic keeps for retroactive consumers, in memory within a limit.

There are two kinds. A recovery policy keeps the last messages of the topic (by default none), in memory only. Besides,
each topic keeps one retained message, the last that a producer sent with the property `ActiveMQ.Retain`. Subscribers
get it without that property, and the copy that is kept has the property `ActiveMQ.Retained` instead. A message with
`ActiveMQ.Retain` and without content removes the retained message.

The retained message is in the store too (`retained_messages`), also one that is not persistent, unless the topic is
temporary. It is stored when it is sent, so that its producer's confirmation waits for that; one that a transaction sent
is stored once the commit is on disk and lets it pass.

Source: ActiveMQ 5.17, subscription recovery policies, which keep all in memory.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Final, assert_never

from pybroker.broker.core.containment import contain
from pybroker.broker.core.policy import (
    FixedCountRecovery,
    FixedSizeRecovery,
    LastImageRecovery,
    RecoveryPolicy,
    TimedRecovery,
)
from pybroker.broker.core.retained_messages import Receive, RetainedMessages
from pybroker.broker.core.usage import Usage
from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.errors import RequestError
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

RETAIN_BYTES: Final = RETAIN.encode()
_RETAINED_BYTES: Final = RETAINED.encode()

RETAINED_PART: Final = 8
"""The messages that all topics keep for retroactive consumers may take this part of `memory_limit`: an eighth."""

_log = logging.getLogger(__name__)


def is_retained_copy(message: Message) -> bool:
    """Return True for a message that its topic retains, as retroactive consumers get it."""
    if not may_have(message, _RETAINED_BYTES):
        return False
    try:
        return outline(message).properties.get(RETAINED) is True
    except MalformedOpenWire:
        return False


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
        retained: the retained message, as retroactive consumers get it; None if there is none, or only in the store.
    """

    __slots__ = ("_ahead", "_counted", "_is_cut", "_recent", "_stored", "_topic", "_usage", "retained")

    def __init__(
        self,
        topic: Destination,
        policy: RecoveryPolicy | None,
        clock: Clock,
        usage: Usage,
        stored: RetainedMessages | None,
    ) -> None:
        """Begin without messages, but for one that the store has of the topic.

        Args:
            topic: the topic.
            policy: keeps the last messages; None: none.
            clock: milliseconds since the epoch.
            usage: the topic's.
            stored: the stored messages of all topics; None: they are in memory only.
        """
        self.retained: Message | None = None
        self._topic = topic
        self._stored = None if topic.is_temporary else stored
        self._ahead: deque[str] = deque()
        """The ids of messages that were stored and wait at the topic's gate."""
        self._usage = usage.broker
        self._recent = recent_messages(policy, clock)
        self._counted = 0
        """The bytes of the recent messages that are counted."""
        self._is_cut = False
        """True if the share has removed messages that the policy would keep."""

    def add(self, message: Message) -> Message:
        """Keep a message if the policy or its producer asks for that; return the message as subscribers get it."""
        if may_have(message, RETAIN_BYTES):
            message = self._without_retain(message)
        if self._recent is not None:
            self._recent.add(message)
            self._count(self._recent)
        return message

    def store_ahead(self, message: Message) -> None:
        """Store a message that its producer has sent to be retained, and that `add` gets later."""
        if self._stored is None or not may_have(message, RETAIN_BYTES):
            return
        found = _to_retain(message)
        if found is not None:
            self._store(_retained(*found))
            self._ahead.append(message.message_id)

    @property
    def is_empty(self) -> bool:
        """True if a retroactive consumer would get nothing."""
        if self.retained is not None or self._is_stored:
            return False
        return self._recent is None or not self._current(self._recent)

    def recall(self, receive: Callable[[Message], None], read_back: Receive) -> bool:
        """Pass the messages to a retroactive consumer.

        Args:
            receive: gets those in memory, at once.
            read_back: gets the retained message if it is only in the store, maybe later; None if it is gone by then.

        Returns:
            True if `read_back` is called.
        """
        is_read_back = self.retained is None and self._is_stored
        if self.retained is not None:
            receive(self.retained)
        elif is_read_back and self._stored is not None:
            self._stored.request(self._topic, partial(self._read_back, read_back))
        if self._recent is not None:
            for message in self._current(self._recent):
                receive(message)
        return is_read_back

    def close(self) -> None:
        """Forget all messages: the topic is deleted."""
        self._keep(None)
        if self._stored is not None:
            self._stored.remove(self._topic)
            self._stored = None
        self._ahead.clear()
        self._usage.retained -= self._counted
        self._counted, self._recent = 0, None

    # ------------------------------------------------------------ private

    @property
    def _is_stored(self) -> bool:
        return self._stored is not None and self._topic in self._stored

    def _current(self, recent: RecentMessages) -> Iterable[Message]:
        """Return the recent messages whose time is not over."""
        recent.remove_old()
        self._count(recent)
        return recent.messages()

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
        found = _to_retain(message)
        if found is None:
            return message
        try:
            return self._retain(*found)
        except Exception as error:  # caused by the message; only this message is affected
            contain(error, "retaining", message)
            return message

    def _retain(self, fields: OpenWireMessage, properties: dict[str, Value]) -> Message:
        """Keep a message as the retained one; return it as subscribers get it."""
        live = to_message(replace(fields, marshalled_properties=encode_map(properties) if properties else None))
        kept = _retained(fields, properties)
        if not self._ahead:
            self._store(kept)
        elif self._ahead[0] == live.message_id:
            self._ahead.popleft()
        # Else a transaction sent it, and the store has a newer one, which waits behind it.
        self._keep(kept)
        return live

    def _store(self, message: Message | None) -> None:
        """Replace the retained message in the store; None: remove it."""
        stored = self._stored
        if stored is None:
            return
        if message is not None and stored.can_grow:
            try:
                stored.put(self._topic, message)
            except RequestError as error:
                _log.warning("%s on %s is retained in memory only: %s", message.message_id, self._topic, error)
            else:
                return
        stored.remove(self._topic)

    def _keep(self, message: Message | None) -> None:
        """Replace the retained message in memory, unless those of all topics would take more than their share of it.

        One that the store has leaves half of the share to others, as it can be read back.
        """
        usage = self._usage
        if self.retained is not None:
            usage.retained -= self.retained.size
        limit = usage.limit // RETAINED_PART
        if message is not None and usage.limit:
            if self._is_stored:
                if usage.retained + message.size > limit // 2:
                    message = None
            elif usage.retained + message.size > limit:
                _log.warning(
                    "%s on %s is not retained: what all topics keep for retroactive consumers takes %d of %d bytes",
                    message.message_id,
                    message.destination,
                    usage.retained,
                    limit,
                )
                message = None
        if message is not None:
            usage.retained += message.size
        self.retained = message

    def _read_back(self, receive: Receive, message: Message | None) -> None:
        """Pass the retained message that the store had, or a newer one."""
        if self.retained is not None:
            message = self.retained
        elif message is not None and self._stored is not None:  # else the topic was deleted meanwhile
            self._keep(message)
        receive(message)


def _to_retain(message: Message) -> tuple[OpenWireMessage, dict[str, Value]] | None:
    """Return the fields of a message that is to be retained, and its other properties; None if it is not."""
    try:
        fields = outline(message)
        properties = dict(fields.properties)
    except MalformedOpenWire:
        return None  # without properties it cannot be a message to retain
    return (fields, properties) if str(properties.pop(RETAIN, "")).lower() == "true" else None


def _retained(fields: OpenWireMessage, properties: dict[str, Value]) -> Message | None:
    """Return the message as it is retained; None if it has no content, and removes the retained one."""
    if not fields.content:
        return None
    return to_message(replace(fields, marshalled_properties=encode_map({**properties, RETAINED: True})))
