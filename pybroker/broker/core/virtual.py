"""Routes messages of composite and virtual destinations: computes the destinations that get a copy of a message.

```text
A,topic://B            composite name       a copy to each part                   (any client, any time)
VirtualTopic.X         virtual topic        a copy to each existing queue Consumer.<name>.VirtualTopic.X, then the topic
ORDERS                 composite queue or   a copy to each destination it forwards to, then (unless forward_only)
                       composite topic      the destination itself
ORDERS                 mirrored queue       a copy to the topic VirtualTopic.Mirror.ORDERS, then the queue
```

A copy has the same message id. Its destination is the target, and its original destination the one to which the message
was sent; the copy for the mirror of a queue has no original destination. A target may itself be composite or virtual.

The broker calls `Router.route` for a message. If the result is None, it need not call it again for that destination.

Source: ActiveMQ 5.17, `VirtualTopicInterceptor`, `CompositeDestinationFilter`, `CompositeDestinationBroker`,
`MirroredQueue`. There are two differences. If there are several paths to a target, ActiveMQ sends several copies, and
this router one. If destinations forward in a cycle, ActiveMQ fails by stack overflow; here the destination where the
cycle closes gets the message.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar, assert_never

from pybroker.broker.core.selector import Selector, compile_selector
from pybroker.broker.domain.destination import (
    Destination,
    DestinationType,
    is_advisory,
    matches,
    parts,
    patterns_overlap,
    topic,
)
from pybroker.broker.domain.destination_map import PatternMap
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire import ids
from pybroker.broker.domain.openwire.rerouting import Rerouting

_log = logging.getLogger(__name__)

HOPS_MAX = 16
"""Longest path of forwards. Without a limit, mirrors of mirrors have ever longer names, which a client may choose."""

REMEMBERED_MAX = 10_000
"""Size of the cache of routing plans; when it is full, it is cleared."""


# ---------------------------------------------------------------- definitions


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualTopic:
    """Topics whose messages are copied to existing queues, one per group of competing consumers.

    Attributes:
        name: the topic's name, or a pattern.
        prefix: the part of a queue's name before that of the topic; `*` stands for one level.
        postfix: the part of a queue's name after that of the topic.
        selector_aware: a queue gets a copy only if one of its consumers accepts the message.
        local: messages that have come over a bridge are not copied: the other broker has done so.
    """

    name: str = "VirtualTopic.>"
    prefix: str = "Consumer.*."
    postfix: str = ""
    selector_aware: bool = False
    local: bool = False

    def topics_of(self, queue_name: str) -> str | None:
        """Return the topic's name or pattern that a queue's name contains; None if it contains none.

        The name of a queue may contain a pattern: in `Consumer.a.VirtualTopic.>` it is `VirtualTopic.>`.
        """
        *whole_levels, partial = self.prefix.split(".")
        rest = queue_name
        for wanted in whole_levels:
            level, dot, rest = rest.partition(".")
            if level == ">" and not dot:
                return ">"
            if not dot or (wanted not in ("*", level) and level != "*"):
                return None
        if not rest.startswith(partial):
            return None
        rest = rest[len(partial) :]
        *levels, last = rest.split(".")
        if last == ">":  # `>` also covers the postfix, unless the postfix continues the level before it
            goes_on = self.postfix and not self.postfix.startswith(".") and levels and levels[-1] != "*"
            return ".".join((*levels, "*", ">")) if goes_on else rest
        return rest.removesuffix(self.postfix) or None if rest.endswith(self.postfix) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Forward:
    """A target of a composite destination.

    Attributes:
        destination: one queue or topic.
        selector: selects the messages to forward; None: all.
    """

    destination: Destination
    selector: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompositeDestination:
    """A queue or topic that forwards its messages.

    Attributes:
        destination: its name, or a pattern.
        forward_to: the targets.
        forward_only: the destination itself gets no messages.
        send_when_not_matched: the destination itself gets just the messages that no target gets, whatever
            `forward_only` is.
    """

    destination: Destination
    forward_to: tuple[Forward, ...]
    forward_only: bool = True
    send_when_not_matched: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MirroredQueues:
    """Every message to a queue, except to temporary ones, is published on a topic first.

    Attributes:
        prefix: the part of the topic's name before that of the queue.
        postfix: the part of the topic's name after that of the queue.
    """

    prefix: str = "VirtualTopic.Mirror."
    postfix: str = ""


Definition = VirtualTopic | CompositeDestination | MirroredQueues

DEFAULT_DEFINITIONS: tuple[Definition, ...] = (VirtualTopic(),)


# ---------------------------------------------------------------- the router


class SelectorAwareConsumer(Protocol):
    """A consumer that may have a selector."""

    def accepts(self, message: Message) -> bool:
        """Return True if the message is for this consumer."""
        ...


class ConsumersView(Protocol):
    """A queue, as a view of its consumers."""

    @property
    def consumers(self) -> Iterable[SelectorAwareConsumer]:
        """The consumers of the queue at this moment."""
        ...


TargetT = TypeVar("TargetT")


class _Forward(NamedTuple):
    destination: Destination
    selector: Selector | None


class _Composite(NamedTuple):
    forwards: list[_Forward]
    keeps_all: bool
    keeps_unmatched: bool


class _Plan(NamedTuple):
    """The destinations to which one destination forwards."""

    parts: tuple[Destination, ...]
    topics: "list[_VirtualIndex]"
    composites: list[_Composite]
    mirror: Destination | None


class Router(Generic[TargetT]):
    """Finds the targets of a message. Its owner calls `queue_added` and `queue_removed` for every queue."""

    def __init__(
        self,
        definitions: Iterable[Definition],
        queues: Mapping[Destination, ConsumersView],
        target: Callable[[Destination], TargetT],
        forward_target: Callable[[Destination], TargetT] | None = None,
        *,
        declare: Callable[[Destination], None] | None = None,
    ) -> None:
        """Prepare the definitions.

        Args:
            definitions: the definitions in the order in which they apply.
            queues: all queues, a live view; the existing ones are added.
            target: returns a destination to send to, and creates it if it does not exist.
            forward_target: the same for one that the client has not named itself; None: there is no difference.
            declare: called for each queue of a virtual topic, which gets copies even while it is empty and without
                consumers, and so must exist after a crash too.

        Raises:
            InvalidSelector: a selector of a composite destination cannot be parsed.
        """
        self._queues = queues
        self._target = target
        self._forward_target = forward_target or target
        self._declare = declare
        self._topics: list[_VirtualIndex] = []
        self._composites: list[tuple[Destination, _Composite]] = []
        self._mirrored: MirroredQueues | None = None
        self._plans: dict[Destination, _Plan | None] = {}
        for definition in definitions:
            self._add(definition)
        for existing in queues:
            self.queue_added(existing)

    def route(self, message: Message) -> "Copies[TargetT] | None":
        """Return the targets of a message in the order of sending, each with the copy that it gets.

        There may be none. None: all messages of this destination go to the destination itself, and only there.

        Raises:
            RequestError: a destination cannot be created.
            MalformedOpenWire: the message does not decode.
        """
        if self._plan(message.destination) is None:
            return None
        trace = _Trace(message)
        self._follow(message.destination, None, trace, ())
        named = parts(message.destination)
        return Copies(
            message,
            [
                ((self._target if destination in named else self._forward_target)(destination), destination, origin)
                for destination, origin in trace.reached()
            ],
        )

    def queue_added(self, destination: Destination) -> None:
        """Add a queue, which gets the messages of its virtual topic from now on."""
        if destination.type is DestinationType.QUEUE:
            for index in self._topics:
                index.add(destination)
            if self._declare is not None and self.is_of_virtual_topic(destination):
                self._declare(destination)

    def queue_removed(self, destination: Destination) -> None:
        """Remove a queue."""
        if destination.type is DestinationType.QUEUE:
            for index in self._topics:
                index.remove(destination)

    def is_of_virtual_topic(self, destination: Destination) -> bool:
        """Return True if a queue gets copies of the messages of a virtual topic."""
        return destination.type is DestinationType.QUEUE and any(
            index.serves(destination.name) for index in self._topics
        )

    def creates_queue(self, destination: Destination) -> bool:
        """Return True if a consumer of this pattern creates a queue whose name is the pattern.

        Such a queue, for example `Consumer.a.VirtualTopic.>`, gets a copy of each message of all virtual topics that
        match.
        """
        return destination.is_pattern and self.is_of_virtual_topic(destination)

    # ------------------------------------------------------------ private: definitions

    def _add(self, definition: Definition) -> None:
        match definition:
            case VirtualTopic():
                self._topics.append(_VirtualIndex(definition))
            case CompositeDestination():
                keeps_all = not definition.forward_only and not definition.send_when_not_matched
                forwards = [
                    _Forward(forward.destination, compile_selector(forward.selector) if forward.selector else None)
                    for forward in definition.forward_to
                ]
                composite = _Composite(forwards, keeps_all, definition.send_when_not_matched)
                self._composites.append((definition.destination, composite))
            case MirroredQueues():
                self._mirrored = definition
            case _:
                assert_never(definition)

    def _plan(self, destination: Destination) -> _Plan | None:
        if destination.is_composite:  # not cached: clients can choose any number of composite names, of any length
            return _Plan(parts(destination), [], [], None)
        try:
            return self._plans[destination]
        except KeyError:
            if len(self._plans) >= REMEMBERED_MAX:
                self._plans.clear()
            plan = self._plans[destination] = self._make_plan(destination)
            return plan

    def _make_plan(self, destination: Destination) -> _Plan | None:
        kind, name = destination
        if destination.is_temporary or (destination.is_topic and is_advisory(destination)):
            return None
        topics = [index for index in self._topics if kind is DestinationType.TOPIC and index.covers(name)]
        composites = [
            composite
            for pattern, composite in self._composites
            if pattern.type is kind and (pattern == destination or matches(pattern.name, name))
        ]
        mirror = None
        if self._mirrored is not None and kind is DestinationType.QUEUE:
            mirror = topic(self._mirrored.prefix + name + self._mirrored.postfix)
        return _Plan((), topics, composites, mirror) if topics or composites or mirror else None

    # ------------------------------------------------------------ private: messages

    def _follow(
        self, destination: Destination, origin: Destination | None, trace: "_Trace", path: tuple[Destination, ...]
    ) -> None:
        """Add a destination and those to which it forwards to the trace of a message.

        Args:
            destination: the next destination of the message.
            origin: the original destination for the copy; None: the message was sent here, or the copy has none.
            trace: the destinations that the message has passed and reached.
            path: the destinations from the first to this one.
        """
        if not trace.enters(destination):
            if destination in path:  # a cycle: the destination where it closes gets the message, so it is not lost
                trace.reach(destination, origin)
            return
        plan = self._plan(destination)
        if plan is None or len(path) == HOPS_MAX:
            trace.reach(destination, origin)
            return
        path = (*path, destination)
        if plan.parts:
            for part in plan.parts:
                self._follow(part, destination, trace, path)
            return
        if plan.mirror is not None:
            self._follow(plan.mirror, origin, trace, path)
        is_kept = not plan.composites or bool(plan.topics)
        for index in plan.topics:
            if index.is_local and trace.message.bridge is not None:
                continue
            for queue in index.queues(destination.name):
                if not index.selector_aware or self._is_wanted(queue, trace.message):
                    self._follow(queue, destination, trace, path)
        for composite in plan.composites:
            wanted = [forward for forward in composite.forwards if _is_for(forward, trace.message)]
            for forward in wanted:
                self._follow(forward.destination, destination, trace, path)
            is_kept |= composite.keeps_all or (composite.keeps_unmatched and not wanted)
        if is_kept:
            trace.reach(destination, origin)

    def _is_wanted(self, queue: Destination, message: Message) -> bool:
        view = self._queues.get(queue)
        return view is not None and any(consumer.accepts(message) for consumer in view.consumers)


def _is_for(forward: _Forward, message: Message) -> bool:
    return forward.selector is None or forward.selector.matches(message)


class _Trace:
    """The routing of one message: the destinations that it has passed, and those that get it."""

    __slots__ = ("_entered", "_reached", "message")

    def __init__(self, message: Message) -> None:
        self.message = message
        self._entered: set[Destination] = set()
        self._reached: dict[Destination, Destination | None] = {}

    def enters(self, destination: Destination) -> bool:
        """Record that the message passes a destination; return False if it has passed it before."""
        if destination in self._entered:
            return False
        self._entered.add(destination)
        return True

    def reach(self, destination: Destination, origin: Destination | None) -> None:
        """Record that a destination gets the message, or a copy with that original destination."""
        self._reached[destination] = origin

    def reached(self) -> Iterable[tuple[Destination, Destination | None]]:
        """Return each destination that gets the message, with the original destination of its copy."""
        return self._reached.items()


class Copies(Generic[TargetT]):
    """The targets of a message; a copy is made when its target is taken, as all of them may not fit into memory."""

    __slots__ = ("_message", "_rerouting", "_targets")

    def __init__(self, message: Message, targets: list[tuple[TargetT, Destination, Destination | None]]) -> None:
        """Prepare the copies.

        Args:
            message: the message.
            targets: each target with its destination, and with the original destination of its copy.

        Raises:
            MalformedOpenWire: the message does not decode.
        """
        self._message = message
        self._targets = targets
        is_copied = any(not self._is_for(destination, origin) for _, destination, origin in targets)
        self._rerouting = Rerouting(message) if is_copied else None

    def __len__(self) -> int:
        """Return the number of targets."""
        return len(self._targets)

    def __iter__(self) -> Iterator[tuple[TargetT, Message]]:
        """Yield each target with its copy."""
        for target, destination, origin in self._targets:
            if self._rerouting is None or self._is_for(destination, origin):
                yield target, self._message
            else:
                yield target, self._rerouting.copy(destination, origin)

    def in_steps(self) -> Iterator[tuple[TargetT, Message] | None]:
        """Yield the same, and None between the steps in which a large copy is made."""
        for target, destination, origin in self._targets:
            if self._rerouting is None or self._is_for(destination, origin):
                yield target, self._message
            else:
                copy = yield from self._rerouting.copying(destination, origin)
                yield target, copy

    def check(self) -> None:
        """Check that all copies can be made, before the first one is sent.

        Raises:
            UnencodableOpenWire: a name is too long.
        """
        for _, destination, _ in self._targets:
            ids.destination(destination)

    def _is_for(self, destination: Destination, origin: Destination | None) -> bool:
        """Return True if a destination gets the message itself."""
        return origin is None and destination == self._message.destination


class _VirtualIndex:
    """The queues of one definition of virtual topics, by the name or pattern of the topics in their names."""

    __slots__ = ("_definition", "_patterns", "_queues", "is_local", "selector_aware")

    def __init__(self, definition: VirtualTopic) -> None:
        self._definition = definition
        self._queues: dict[str, dict[Destination, None]] = {}
        self._patterns: PatternMap[Destination] = PatternMap()
        self.selector_aware = definition.selector_aware
        self.is_local = definition.local

    def covers(self, topic_name: str) -> bool:
        """Return True if a topic is covered by the definition."""
        return matches(self._definition.name, topic_name)

    def queues(self, topic_name: str) -> list[Destination]:
        """Return the queues that get a topic's messages."""
        found = list(self._queues.get(topic_name, ()))
        found += self._patterns.covering(topic(topic_name))
        return found

    def serves(self, queue_name: str) -> bool:
        """Return True if a queue of that name gets messages of any of the topics."""
        pattern = self._definition.topics_of(queue_name)
        return pattern is not None and patterns_overlap(pattern, self._definition.name)

    def add(self, queue: Destination) -> None:
        topic_name = self._definition.topics_of(queue.name)
        if topic_name is None:
            return
        if topic(topic_name).is_pattern:
            self._patterns.add(topic(topic_name), queue)
        else:
            self._queues.setdefault(topic_name, {})[queue] = None

    def remove(self, queue: Destination) -> None:
        topic_name = self._definition.topics_of(queue.name)
        if topic_name is None:
            return
        self._patterns.remove(topic(topic_name), queue)
        queues = self._queues.get(topic_name)
        if queues is not None:
            queues.pop(queue, None)
            if not queues:
                del self._queues[topic_name]
