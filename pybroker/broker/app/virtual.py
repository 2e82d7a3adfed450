"""The configuration's virtual destinations: tables of virtual topics, composite queues and topics, mirrored queues.

```toml
[[composite_queues]]
name = "ORDERS"
forward_to = ["queue://BILLING", { topic = "AUDIT", selector = "amount > 1000" }]
```

Names are those of ActiveMQ's `virtualTopic`, `compositeQueue`, `compositeTopic` and `mirroredQueue` in snake case.
"""

from functools import partial
from typing import Any

from pybroker.broker.app.setting import Setting, Table, listed, named, single, tables, text, yes_or_no
from pybroker.broker.core.selector import compile_selector
from pybroker.broker.core.virtual import CompositeDestination, Forward, MirroredQueues, VirtualTopic
from pybroker.broker.domain.destination import DestinationType, matches
from pybroker.broker.domain.errors import ConfigError

_FORWARDS_MAX = 256

_FLAG = Setting(yes_or_no)
_TEXT = Setting(text)


def _virtual_topic(**given: Any) -> VirtualTopic:
    topics = VirtualTopic(**given)
    if not topics.prefix and not topics.postfix:
        raise ValueError("prefix or postfix must be set: they distinguish the consumers' queues")
    named(DestinationType.TOPIC, topics.name)
    return topics


VIRTUAL_TOPIC = Table(
    _virtual_topic,
    {"name": _TEXT, "prefix": _TEXT, "postfix": _TEXT, "selector_aware": _FLAG, "local": _FLAG},
    ("concurrent_send", "drop_on_resource_limit", "set_original_destination", "transacted_send"),
)
"""A `[[virtual_topics]]` table."""


def _forward(queue: str | None = None, topic: str | None = None, selector: str | None = None) -> Forward:
    if selector is not None:
        compile_selector(selector)
    match queue, topic:
        case str(), None:
            destination = named(DestinationType.QUEUE, queue)
        case None, str():
            destination = named(DestinationType.TOPIC, topic)
        case _:
            raise ValueError("write queue or topic, and not both")
    return Forward(destination=single(destination), selector=selector)


_FORWARD = Table(_forward, {"queue": _TEXT, "topic": _TEXT, "selector": _TEXT})


def _target(value: object) -> Forward:
    """Return a target; `"queue://A"` is `{ queue = "A" }`."""
    if isinstance(value, str):
        scheme, separator, name = value.partition("://")
        value = {scheme: name} if separator else {"queue": value}
    return _FORWARD.read(value)


def _composite(kind: DestinationType) -> Table[CompositeDestination]:
    return Table(
        partial(_composite_destination, kind),
        {
            "name": Setting(text, is_required=True),
            "forward_to": Setting(
                listed(_target, "target", 'it is a list: write for example ["queue://A", "topic://B"]'),
                is_required=True,
            ),
            "forward_only": _FLAG,
            "send_when_not_matched": _FLAG,
        },
        ("concurrent_send", "copy_message"),
    )


def _composite_destination(
    kind: DestinationType, name: str, forward_to: tuple[Forward, ...], **given: Any
) -> CompositeDestination:
    if not 1 <= len(forward_to) <= _FORWARDS_MAX:
        raise ValueError(f"write 1 to {_FORWARDS_MAX} targets in forward_to; given were {len(forward_to)}")
    destination = named(kind, name)
    for forward in forward_to:
        if forward.destination.type is kind and matches(name, forward.destination.name):
            raise ValueError(f"{name} forwards to itself; write forward_only = false to have it keep messages")
    return CompositeDestination(destination=destination, forward_to=forward_to, **given)


COMPOSITE_QUEUE = _composite(DestinationType.QUEUE)
"""A `[[composite_queues]]` table."""


def _mirrored_queues(**given: Any) -> MirroredQueues:
    mirrored = MirroredQueues(**given)
    named(DestinationType.TOPIC, mirrored.prefix + "ORDERS" + mirrored.postfix)
    return mirrored


MIRRORED_QUEUES = Table(_mirrored_queues, {"prefix": _TEXT, "postfix": _TEXT}, ("copy_message",))
"""The `[mirrored_queues]` table."""


def _read_mirrored_queues(value: object) -> MirroredQueues | None:
    try:
        return None if value is False else MIRRORED_QUEUES.read({} if value is True else value)
    except ConfigError as error:  # with the attribute, which is not the setting
        raise ValueError(str(error)) from error


READERS = {
    "virtual_topics": tables(VIRTUAL_TOPIC, "virtual_topics"),
    "composite_queues": tables(COMPOSITE_QUEUE, "composite_queues"),
    "composite_topics": tables(_composite(DestinationType.TOPIC), "composite_topics"),
    "mirrored_queues": _read_mirrored_queues,
}
"""The readers of these settings."""
