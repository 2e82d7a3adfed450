"""Destinations behind which others stand: where a message that is sent to one of them goes.

```text
A,topic://B            composite name       a copy to each part                   (any client, any time)
VirtualTopic.X         virtual topic        a copy to each existing queue Consumer.<name>.VirtualTopic.X, then the topic
ORDERS                 composite queue or   a copy to each destination it forwards to, then (unless forward_only)
                       composite topic      the destination itself
ORDERS                 mirrored queue       a copy to the topic VirtualTopic.Mirror.ORDERS, then the queue
```

A copy has the same id; its destination is the target, its original destination what it was sent to. The mirror of a
queue says nothing of an original. Targets may stand for others in turn.

A broker asks `Router.route` where a message goes, and need not ask again for a destination behind which nothing stands.

Source: ActiveMQ 5.17, `VirtualTopicInterceptor`, `CompositeDestinationFilter`, `CompositeDestinationBroker`,
`MirroredQueue`. Where it would send a target two copies of one message, since two ways lead there, a target gets one
here; where it would follow a circle until the stack is full, the message stays where the circle closes.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.rerouting import Rerouting

_log = logging.getLogger(__name__)

HOPS_MAX = 16
"""Destinations one after the other; each hop of a mirror's mirror has a longer name that a client may invent."""

REMEMBERED_MAX = 10_000
"""Destinations for which is remembered what stands behind them; when there are more, all is looked up again."""


# ---------------------------------------------------------------- definitions


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualTopic:
    """Topics whose messages go to existing queues too, one per group of competing consumers.

    Attributes:
        name: which topics; may be a pattern.
        prefix: what a queue's name has before the topic's; `*` stands for a level.
        postfix: what it has behind it.
        selector_aware: a queue gets a message only while a consumer of it wants that message.
    """

    name: str = "VirtualTopic.>"
    prefix: str = "Consumer.*."
    postfix: str = ""
    selector_aware: bool = False

    def topics_of(self, queue_name: str) -> str | None:
        """Return the topic's name, or pattern, in the name of a queue; None: it has none.

        A queue's name may be a pattern, though it is a name: `Consumer.a.VirtualTopic.>` has `VirtualTopic.>`.
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
        if last == ">":  # which covers the postfix, unless that goes on in the level before
            goes_on = self.postfix and not self.postfix.startswith(".") and levels and levels[-1] != "*"
            return ".".join((*levels, "*", ">")) if goes_on else rest
        return rest.removesuffix(self.postfix) or None if rest.endswith(self.postfix) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Forward:
    """A target of a composite destination.

    Attributes:
        destination: one queue or topic.
        selector: which messages; None: all.
    """

    destination: Destination
    selector: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompositeDestination:
    """A queue or topic, by name or pattern, that forwards.

    Attributes:
        destination: which.
        forward_to: where to.
        forward_only: the destination itself keeps nothing.
        send_when_not_matched: it keeps what was forwarded nowhere, and nothing else, whatever `forward_only` says.
    """

    destination: Destination
    forward_to: tuple[Forward, ...]
    forward_only: bool = True
    send_when_not_matched: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MirroredQueues:
    """Every message to a queue, except to temporary ones, is published on a topic first.

    Attributes:
        prefix: what the topic's name has before the queue's.
        postfix: what it has behind it.
    """

    prefix: str = "VirtualTopic.Mirror."
    postfix: str = ""


Definition = VirtualTopic | CompositeDestination | MirroredQueues

DEFAULT_DEFINITIONS: tuple[Definition, ...] = (VirtualTopic(),)


# ---------------------------------------------------------------- the router


class SelectorAwareConsumer(Protocol):
    """A consumer, as far as it decides what is for it."""

    def accepts(self, message: Message) -> bool:
        """Tell whether the message is for this consumer."""
        ...


class ConsumersView(Protocol):
    """A queue, as far as its consumers decide what it gets."""

    @property
    def consumers(self) -> Iterable[SelectorAwareConsumer]:
        """Those it has now."""
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
    """What stands behind one destination."""

    parts: tuple[Destination, ...]
    topics: "list[_VirtualIndex]"
    composites: list[_Composite]
    mirror: Destination | None


class Router(Generic[TargetT]):
    """Finds where a message goes. Tell it of every queue there is: `queue_added`, `queue_removed`."""

    def __init__(
        self,
        definitions: Iterable[Definition],
        queues: Mapping[Destination, ConsumersView],
        target: Callable[[Destination], TargetT],
        *,
        keep: Callable[[Destination], None] | None = None,
    ) -> None:
        """Prepare the definitions.

        Args:
            definitions: what the operator set, in the order in which they apply; `DEFAULT_DEFINITIONS` if nothing.
            queues: the queues there are, seen as they change; those there now are added.
            target: returns a destination to send to, and creates it if need be.
            keep: told of each queue of a virtual topic: it gets copies while it is empty and its consumers are away,
                so it has to be there after a crash too.

        Raises:
            InvalidSelector: a selector of a composite destination cannot be parsed.
        """
        self._queues = queues
        self._target = target
        self._keep = keep
        self._topics: list[_VirtualIndex] = []
        self._composites: list[tuple[Destination, _Composite]] = []
        self._mirrored: MirroredQueues | None = None
        self._plans: dict[Destination, _Plan | None] = {}
        for definition in definitions:
            self._add(definition)
        for existing in queues:
            self.queue_added(existing)

    def route(self, message: Message) -> Sequence[tuple[TargetT, Message]] | None:
        """Return where a message goes, and as what, in the order in which to send.

        It may go nowhere: an empty sequence. None: just where it was sent, as all messages do that are sent there.

        Raises:
            ClientError: a destination cannot be.
            MalformedOpenWire: the message does not decode.
        """
        if self._plan(message.destination) is None:
            return None
        trace = _Trace(message)
        self._follow(message.destination, None, trace, ())
        return [(self._target(destination), copy) for destination, copy in trace.copies()]

    def queue_added(self, destination: Destination) -> None:
        """Learn of a queue: from now on it gets the messages of its virtual topic."""
        if destination.type is DestinationType.QUEUE:
            for index in self._topics:
                index.add(destination)
            if self._keep is not None and self.is_of_virtual_topic(destination):
                self._keep(destination)

    def queue_removed(self, destination: Destination) -> None:
        """Forget a queue."""
        if destination.type is DestinationType.QUEUE:
            for index in self._topics:
                index.remove(destination)

    def is_of_virtual_topic(self, destination: Destination) -> bool:
        """Tell whether a queue gets copies of what is sent to a virtual topic, while it is empty and unused too."""
        return destination.type is DestinationType.QUEUE and any(
            index.serves(destination.name) for index in self._topics
        )

    def creates_queue(self, destination: Destination) -> bool:
        """Tell whether a consumer of this pattern makes a queue of that very name.

        It is one over the queues of virtual topics, such as `Consumer.a.VirtualTopic.>`, and gets a copy of what goes
        to any of the topics.
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
        if destination.is_composite:  # read anew each time: clients can make up any number of them, of any length
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
        """Add a destination and all that stands behind it to a message's way.

        Args:
            destination: where the message goes next.
            origin: where it went before; None: it was sent here, or its copy here hides where it was.
            trace: what it passed and reached so far.
            path: how it came here.
        """
        if not trace.enters(destination):
            if destination in path:  # a circle, which must not lose the message: it stays where the circle closes
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
    """The way of one message: what it passed, and where it arrived."""

    __slots__ = ("_entered", "_reached", "message")

    def __init__(self, message: Message) -> None:
        self.message = message
        self._entered: set[Destination] = set()
        self._reached: dict[Destination, Destination | None] = {}

    def enters(self, destination: Destination) -> bool:
        """Note that the message comes by; False: it did before."""
        if destination in self._entered:
            return False
        self._entered.add(destination)
        return True

    def reach(self, destination: Destination, origin: Destination | None) -> None:
        """Note that a destination gets the message, or a copy that names its origin."""
        self._reached[destination] = origin

    def copies(self) -> Iterable[tuple[Destination, Message]]:
        """Yield who gets what."""
        rerouting: Rerouting | None = None
        for destination, origin in self._reached.items():
            if destination == self.message.destination and origin is None:
                yield destination, self.message
                continue
            if rerouting is None:
                rerouting = Rerouting(self.message)
            yield destination, rerouting.copy(destination, origin)


class _VirtualIndex:
    """The queues of the topics of one definition, found by the topic's name.

    Queues whose name is a pattern are few and looked through; all others are found at once, however many there are.
    """

    __slots__ = ("_definition", "_patterns", "_queues", "selector_aware")

    def __init__(self, definition: VirtualTopic) -> None:
        self._definition = definition
        self._queues: dict[str, dict[Destination, None]] = {}
        self._patterns: dict[Destination, str] = {}
        self.selector_aware = definition.selector_aware

    def covers(self, topic_name: str) -> bool:
        """Tell whether this is one of the topics."""
        return matches(self._definition.name, topic_name)

    def queues(self, topic_name: str) -> list[Destination]:
        """Return the queues that get a topic's messages."""
        found = list(self._queues.get(topic_name, ()))
        found += (queue for queue, pattern in self._patterns.items() if matches(pattern, topic_name))
        return found

    def serves(self, queue_name: str) -> bool:
        """Tell whether a queue of that name gets messages of any of the topics."""
        pattern = self._definition.topics_of(queue_name)
        return pattern is not None and patterns_overlap(pattern, self._definition.name)

    def add(self, queue: Destination) -> None:
        topic_name = self._definition.topics_of(queue.name)
        if topic_name is None:
            return
        if topic(topic_name).is_pattern:
            self._patterns[queue] = topic_name
        else:
            self._queues.setdefault(topic_name, {})[queue] = None

    def remove(self, queue: Destination) -> None:
        self._patterns.pop(queue, None)
        topic_name = self._definition.topics_of(queue.name)
        queues = self._queues.get(topic_name) if topic_name is not None else None
        if queues is not None and topic_name is not None:
            queues.pop(queue, None)
            if not queues:
                del self._queues[topic_name]
