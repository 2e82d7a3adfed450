"""Topic names and topic filters of MQTT, and the names of JMS topics that they stand for.

Source: MQTT 5.0, 4.7 "Topic Names and Topic Filters"; ActiveMQ 5.17 for the names of JMS topics. Both exchange the
same characters, so that each is the inverse of the other:

```text
MQTT   /   .   +   *   #   >
JMS    .   /   *   +   >   #
```
"""

from typing import Final, NamedTuple

from pybroker.broker.domain.destination import NAME_MAX
from pybroker.broker.domain.errors import InvalidDestination

_EXCHANGED: Final = str.maketrans("/.+*#>", "./*+>#")
_NOT_IN_NAMES: Final = {",": "makes a composite destination", "?": "begins the options of a destination"}
"""Characters that a JMS name cannot have, as they have a meaning of their own there."""

SHARE: Final = "$share/"
"""The begin of the topic filters of shared subscriptions, which is no topic name of anyone."""


class InvalidTopic(InvalidDestination):
    """A topic name or topic filter that is not valid, or that no JMS topic can stand for."""


class SharedFilter(NamedTuple):
    """A topic filter, with the name of its group if the subscription is shared.

    Attributes:
        group: the share name; None if the subscription is not shared.
        filter: the topic filter without the share name.
    """

    group: str | None
    filter: str


def jms_name(topic: str) -> str:
    """Return the name of the JMS topic for a topic name or filter; blanks around it are dropped, as by ActiveMQ."""
    return topic.translate(_EXCHANGED).strip()


def mqtt_name(name: str) -> str:
    """Return the topic name or filter for the name of a JMS topic."""
    return name.translate(_EXCHANGED)


def check_name(topic: str) -> None:
    """Check a topic name, to which messages are published.

    Raises:
        InvalidTopic: it is empty or too long, has wildcards, or cannot be a JMS name.
    """
    if "+" in topic or "#" in topic:
        raise InvalidTopic(f"The topic name {_quoted(topic)} has a wildcard: messages are published to one topic")
    _check_characters("topic name", topic)


def check_filter(text: str) -> None:
    """Check a topic filter.

    Raises:
        InvalidTopic: it is empty or too long, a wildcard is not alone in its level, or it cannot be a JMS name.
    """
    _check_characters("topic filter", text)
    if "+" not in text and "#" not in text:
        return
    levels = text.split("/")
    for level in levels:
        if len(level) > 1 and ("+" in level or "#" in level):
            raise InvalidTopic(f"The topic filter {_quoted(text)} has a wildcard that is not alone in its level")
    if "#" in levels[:-1]:
        raise InvalidTopic(f"The topic filter {_quoted(text)} has # before its last level")


def shared(text: str) -> SharedFilter:
    """Take the share name off a topic filter of MQTT 5.

    Raises:
        InvalidTopic: it begins as a shared subscription, and is none.
    """
    if not text.startswith(SHARE):
        return SharedFilter(None, text)
    group, _, rest = text[len(SHARE) :].partition("/")
    if not group or not rest or "+" in group or "#" in group:
        raise InvalidTopic(f"The topic filter {_quoted(text)} is no shared subscription: write $share/group/filter")
    return SharedFilter(group, rest)


def matches_every_first_level(text: str) -> bool:
    """Return True for a filter that begins with a wildcard, which does not match topic names that begin with `$`."""
    return text[:1] in ("+", "#")


def _check_characters(what: str, text: str) -> None:
    if not text or not text.strip():
        raise InvalidTopic(f"The {what} is empty")
    if len(text) > NAME_MAX:
        raise InvalidTopic(f"The {what} has {len(text)} characters: {NAME_MAX} are allowed")
    for character, meaning in _NOT_IN_NAMES.items():
        if character in text:
            raise InvalidTopic(f"The {what} {_quoted(text)} has a {character!r}, which {meaning}")


def _quoted(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:60] + "…")
