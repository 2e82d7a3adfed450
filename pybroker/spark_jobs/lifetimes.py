"""Replays one message: its own records and its destination's in, its lifetimes out. Pure; no Spark.

Replaying a journal looks like work for one machine, since every record changes one state. It is not: once it is
known when each record takes effect (see `effects`), a message depends only on its own records and those of
its destination as a whole, which are few. So messages can be replayed side by side, each for itself:

```text
own records      add ......... ack(a) ................ ack(b)
the topic's   subscribe a, b ........... unsubscribe c
              `-- lifetime: from the add until no consumer waits for it ------´
```

The rules are `StoreState`'s, and are tested against it. A message has more than one lifetime when it is sent again
under its id after it was consumed. The replay also finds which data files answer which others, as `FileUsage` does.

Source: ActiveMQ 5.17, `MessageDatabase`: the journal's replay.
"""

from collections.abc import Iterable, Sequence
from heapq import merge
from operator import itemgetter
from typing import Final, NamedTuple

FILE_SHIFT: Final = 32
"""A position is a file's id, shifted by this, plus an offset: positions are ordered as the journal is."""

ADD: Final = "add"
UPDATE: Final = "update"
ACK: Final = "ack"
MET: Final = "met"
"""The record of an acknowledgement in a transaction, as opposed to its effect."""
SUBSCRIBE: Final = "subscribe"
UNSUBSCRIBE: Final = "unsubscribe"
REMOVE: Final = "remove"
"""The destination was removed."""

ACKNOWLEDGED: Final = "acknowledged"
UNSUBSCRIBED: Final = "unsubscribed"
REMOVED: Final = "destination removed"

_ORDER: Final = itemgetter(0, 1)
"""Events by what `RecordEvent` begins with."""


class RecordEvent(NamedTuple):
    """A record that takes effect.

    Attributes:
        at: position at which it does: its own, or that of its transaction's commit.
        pos: its record's position.
        kind: ADD, UPDATE, ACK, MET; of a destination SUBSCRIBE, UNSUBSCRIBE, REMOVE.
        size: bytes of the record.
        time: when it takes effect, in milliseconds since the epoch, as far as known.
        subscription: key of the durable subscription; None on a queue.
        special: an add whose commit was copied by a compaction; a subscription that is retroactive.
    """

    at: int
    pos: int
    kind: str
    size: int = 0
    time: int | None = None
    subscription: str | None = None
    special: bool = False


class Lifetime:
    """The time for which a store holds a message.

    Attributes:
        added_at: position at which it was there.
        added_pos: position of the add.
        location: position of the record with its current version.
        size: bytes of that.
        added_time: when it was there, in milliseconds since the epoch, as far as known.
        ended_at: position at which it was gone; None while it is stored.
        ended_pos: position of the record that ended it.
        ended_time: when it was gone.
        ended_by: ACKNOWLEDGED, UNSUBSCRIBED or REMOVED.
        pending: durable subscriptions that still have to get it; empty on a queue.
        superseded: files of duplicates and of earlier versions.
        voided: pairs of files: one has a record that makes void what the other has of the message.
        counted: position of each acknowledgement that came while the message lay in another file, and that file.
    """

    __slots__ = (
        "added_at",
        "added_pos",
        "added_time",
        "counted",
        "ended_at",
        "ended_by",
        "ended_pos",
        "ended_time",
        "location",
        "pending",
        "size",
        "superseded",
        "voided",
    )

    def __init__(self, event: RecordEvent, pending: set[str]) -> None:
        self.added_at = event.at
        self.added_pos = event.pos
        self.location = event.pos
        self.size = event.size
        self.added_time = event.time
        self.ended_at: int | None = None
        self.ended_pos: int | None = None
        self.ended_time: int | None = None
        self.ended_by: str | None = None
        self.pending = pending
        self.superseded: set[int] = set()
        self.voided: list[tuple[int, int]] = []
        self.counted: list[tuple[int, int]] = []

    @property
    def files(self) -> list[int]:
        """Files that hold a record of it: its current version's, and those that it superseded."""
        return [self.location >> FILE_SHIFT, *self.superseded]


class MessageReplay:
    """One message under replay.

    Attributes:
        all: its lifetimes so far, in their order.
    """

    __slots__ = ("_early", "_is_topic", "_lifetime", "_subscriptions", "all")

    def __init__(self, *, is_topic: bool) -> None:
        self.all: list[Lifetime] = []
        self._is_topic = is_topic
        self._lifetime: Lifetime | None = None
        self._subscriptions: set[str] = set()
        self._early: list[RecordEvent] = []

    def apply(self, events: Iterable[RecordEvent]) -> None:
        """Apply events, which are in their order."""
        for event in events:
            match event.kind:
                case "add":
                    self._add(event)
                case "ack":
                    self._ack(event)
                case "update":
                    self._update(event)
                case "met":
                    self._count(event)
                case "subscribe":
                    self._subscribe(event)
                case "unsubscribe":
                    self._unsubscribe(event)
                case "remove":
                    self._remove(event)
                case kind:
                    raise AssertionError(kind)

    def _add(self, event: RecordEvent) -> None:
        lifetime = self._lifetime
        if lifetime is not None:
            lifetime.superseded.add(event.pos >> FILE_SHIFT)
            return
        if self._is_topic and not self._subscriptions:
            return
        self._lifetime = Lifetime(event, set(self._subscriptions))
        self.all.append(self._lifetime)
        if event.special:  # A copied commit may lie behind acknowledgements of what it adds.
            early, self._early = self._early, []
            for ack in early:
                self._take(ack)

    def _update(self, event: RecordEvent) -> None:
        lifetime = self._lifetime
        if lifetime is None:
            self._add(event)
            return
        lifetime.superseded.add(lifetime.location >> FILE_SHIFT)
        lifetime.location, lifetime.size = event.pos, event.size

    def _ack(self, event: RecordEvent) -> None:
        if event.at == event.pos:
            self._count(event)
        self._take(event)

    def _take(self, event: RecordEvent) -> None:
        lifetime = self._lifetime
        if lifetime is None:
            self._early.append(event)
            return
        self._void(lifetime, event)
        if event.subscription is None:
            self._end(lifetime, event, ACKNOWLEDGED)
        elif event.subscription in lifetime.pending:
            lifetime.pending.remove(event.subscription)
            if not lifetime.pending:
                self._end(lifetime, event, ACKNOWLEDGED)

    def _count(self, event: RecordEvent) -> None:
        lifetime = self._lifetime
        if lifetime is not None:
            of = lifetime.location >> FILE_SHIFT
            if event.pos >> FILE_SHIFT != of:
                lifetime.counted.append((event.pos, of))

    def _subscribe(self, event: RecordEvent) -> None:
        assert event.subscription is not None, "a subscription has a key"
        self._subscriptions.add(event.subscription)
        if event.special and self._lifetime is not None:
            self._lifetime.pending.add(event.subscription)

    def _unsubscribe(self, event: RecordEvent) -> None:
        key = event.subscription
        assert key is not None, "a subscription has a key"
        lifetime = self._lifetime
        self._subscriptions.discard(key)
        if lifetime is not None and key in lifetime.pending:
            self._void(lifetime, event)
            lifetime.pending.remove(key)
            if not lifetime.pending:
                self._end(lifetime, event, UNSUBSCRIBED)

    def _remove(self, event: RecordEvent) -> None:
        self._subscriptions.clear()
        if self._lifetime is not None:
            self._void(self._lifetime, event)
            self._end(self._lifetime, event, REMOVED)

    @staticmethod
    def _void(lifetime: Lifetime, event: RecordEvent) -> None:
        by = event.pos >> FILE_SHIFT
        lifetime.voided += [(by, of) for of in lifetime.files if of != by]

    def _end(self, lifetime: Lifetime, event: RecordEvent, ended_by: str) -> None:
        lifetime.ended_at, lifetime.ended_pos = event.at, event.pos
        lifetime.ended_time, lifetime.ended_by = event.time, ended_by
        lifetime.pending.clear()
        self._lifetime = None


def replay(own: Sequence[RecordEvent], around: Sequence[RecordEvent] = (), *, is_topic: bool = False) -> list[Lifetime]:
    """Replay a message and return its lifetimes, in their order.

    Args:
        own: its records that take effect, in any order.
        around: its destination's, in their order; see `RecordEvent.kind`.
        is_topic: it was sent to a topic, so it is stored for the durable subscriptions there are.
    """
    message = MessageReplay(is_topic=is_topic)
    events = sorted(own, key=_ORDER)
    message.apply(merge(events, around, key=_ORDER) if around else events)
    return message.all


class SubscriptionLifetime:
    """A durable subscription from its creation to its end.

    Attributes:
        key: client id and name.
        created: position of the record that made it.
        location: position of its latest record.
        files: files with a record of it; if it is retroactive, also of those whose messages it got.
        ended: position of its end; None while there is one.
    """

    __slots__ = ("created", "ended", "files", "key", "location")

    def __init__(self, key: str, pos: int) -> None:
        self.key = key
        self.created = pos
        self.location = pos
        self.files = {pos >> FILE_SHIFT}
        self.ended: int | None = None


def subscription_lifetimes(around: Iterable[RecordEvent]) -> list[SubscriptionLifetime]:
    """Replay a topic's own records, in their order, and return its subscriptions, past ones included."""
    found: list[SubscriptionLifetime] = []
    current: dict[str, SubscriptionLifetime] = {}
    for event in around:
        key = event.subscription
        if event.kind == REMOVE:
            for removed in current.values():
                removed.ended = event.pos
            current.clear()
        elif key is None:
            continue
        elif event.kind == UNSUBSCRIBE:
            if (ended := current.pop(key, None)) is not None:
                ended.ended = event.pos
        else:
            lifetime = current.get(key)
            if lifetime is None:
                lifetime = current[key] = SubscriptionLifetime(key, event.pos)
                found.append(lifetime)
            lifetime.location = event.pos
            lifetime.files.add(event.pos >> FILE_SHIFT)
            if event.special:
                lifetime.files.update(*(each.files for each in current.values()))
    return found
