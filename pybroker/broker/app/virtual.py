"""The configuration's virtual destinations: tables of virtual topics, composite queues and topics, mirrored queues.

```toml
[[composite_queues]]
name = "ORDERS"
forward_to = ["queue://BILLING", { topic = "AUDIT", selector = "amount > 1000" }]
```

Names are those of ActiveMQ's `virtualTopic`, `compositeQueue`, `compositeTopic` and `mirroredQueue` in snake case.
"""

from collections.abc import Collection, Sequence
from typing import Annotated, ClassVar

from pydantic import BeforeValidator, Field, model_validator

from pybroker.broker.app.tables import SettingsTable, attempt, named, single, table, tables
from pybroker.broker.core.selector import compile_selector
from pybroker.broker.core.virtual import CompositeDestination, Definition, Forward, MirroredQueues, VirtualTopic
from pybroker.broker.domain.destination import DestinationType, matches


class VirtualTopicTable(SettingsTable):
    """One `[[virtual_topics]]` table."""

    not_served: ClassVar[Collection[str]] = frozenset(
        ("concurrent_send", "drop_on_resource_limit", "local", "set_original_destination", "transacted_send")
    )

    name: str = ""
    prefix: str = ""
    postfix: str = ""
    selector_aware: bool = False

    @model_validator(mode="after")
    def _tells_queues_from_topics(self) -> "VirtualTopicTable":
        definition = self.definition()
        if not definition.prefix and not definition.postfix:
            raise ValueError("prefix or postfix must be set: they distinguish the consumers' queues")
        attempt(lambda: named(DestinationType.TOPIC, definition.name))
        return self

    def definition(self) -> VirtualTopic:
        """Return the core's value."""
        return VirtualTopic(**self.given())


class ForwardTable(SettingsTable):
    """A target of a composite destination."""

    queue: str | None = None
    topic: str | None = None
    selector: str | None = None

    @model_validator(mode="after")
    def _can_be_made(self) -> "ForwardTable":
        if (self.queue is None) is (self.topic is None):
            raise ValueError("write queue or topic, and not both")
        attempt(self.forward)
        if self.selector is not None:
            attempt(lambda: compile_selector(self.selector or ""))
        return self

    def forward(self) -> Forward:
        """Return the core's value."""
        if self.queue is not None:
            return Forward(destination=single(named(DestinationType.QUEUE, self.queue)), selector=self.selector)
        return Forward(destination=single(named(DestinationType.TOPIC, self.topic or "")), selector=self.selector)


def _qualified(value: object) -> object:
    """Expand `"queue://A"` to `{ queue = "A" }`."""
    if not isinstance(value, str):
        return value
    scheme, separator, name = value.partition("://")
    return {scheme: name} if separator else {"queue": value}


_Forward = Annotated[ForwardTable, BeforeValidator(_qualified)]


class _CompositeTable(SettingsTable):
    not_served: ClassVar[Collection[str]] = frozenset(("concurrent_send", "copy_message"))
    kind: ClassVar[DestinationType]

    name: str
    forward_to: Annotated[tuple[_Forward, ...], Field(min_length=1, max_length=256)]
    forward_only: bool = True
    send_when_not_matched: bool = False

    @model_validator(mode="after")
    def _leads_elsewhere(self) -> "_CompositeTable":
        attempt(self.definition)
        definition = self.definition()
        for forward in definition.forward_to:
            if forward.destination.type is self.kind and matches(definition.destination.name, forward.destination.name):
                raise ValueError(f"{self.name} forwards to itself; write forward_only = false to have it keep messages")
        return self

    def definition(self) -> CompositeDestination:
        """Return the core's value."""
        return CompositeDestination(
            destination=named(self.kind, self.name),
            forward_to=tuple(target.forward() for target in self.forward_to),
            **self.given("name", "forward_to"),
        )


class CompositeQueueTable(_CompositeTable):
    """One `[[composite_queues]]` table."""

    kind: ClassVar[DestinationType] = DestinationType.QUEUE


class CompositeTopicTable(_CompositeTable):
    """One `[[composite_topics]]` table."""

    kind: ClassVar[DestinationType] = DestinationType.TOPIC


class MirroredQueuesTable(SettingsTable):
    """The `[mirrored_queues]` table."""

    not_served: ClassVar[Collection[str]] = frozenset(("copy_message",))

    prefix: str = ""
    postfix: str = ""

    @model_validator(mode="after")
    def _names_a_topic(self) -> "MirroredQueuesTable":
        definition = self.definition()
        attempt(lambda: named(DestinationType.TOPIC, definition.prefix + "ORDERS" + definition.postfix))
        return self

    def definition(self) -> MirroredQueues:
        """Return the core's value."""
        return MirroredQueues(**self.given())


def read_mirrored_queues(value: object) -> MirroredQueuesTable | None:
    """Read the setting `mirrored_queues`."""
    if value is None or value is False:
        return None
    return table(MirroredQueuesTable, {} if value is True else value)


read_virtual_topics = tables(VirtualTopicTable, "virtual_topics")
read_composite_queues = tables(CompositeQueueTable, "composite_queues")
read_composite_topics = tables(CompositeTopicTable, "composite_topics")

DEFAULT_VIRTUAL_TOPICS = (VirtualTopicTable(),)
"""Topics `VirtualTopic.>` with queues `Consumer.*.VirtualTopic.>`; any `[[virtual_topics]]` table replaces it."""


def definitions(
    virtual_topics: Sequence[VirtualTopicTable] = DEFAULT_VIRTUAL_TOPICS,
    composite_queues: Sequence[CompositeQueueTable] = (),
    composite_topics: Sequence[CompositeTopicTable] = (),
    mirrored: MirroredQueuesTable | None = None,
) -> tuple[Definition, ...]:
    """Return the router's definitions, in the order of the parameters."""
    found: list[Definition] = [topics.definition() for topics in virtual_topics]
    found += (composite.definition() for composite in (*composite_queues, *composite_topics))
    if mirrored is not None:
        found.append(mirrored.definition())
    return tuple(found)
