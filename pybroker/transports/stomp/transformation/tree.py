"""Element trees, between text (XML, JSON) and values.

Source: XStream 1.4, whose XML and JSON (through Jettison's mapped convention) are two texts of one tree.

All work happens on the event loop, so it has limits, far above usual maps: a thousand values take some milliseconds.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from pybroker.broker.domain.errors import BrokerError

BODY_BYTES_MAX: Final = 1024 * 1024
"""The limit to a body's bytes, as text or in its stored form."""
NODES_MAX: Final = 18_000
"""The limit to the elements of a body: a map has three per entry, so 6,000 entries, which take 50 ms."""
DEPTH_MAX: Final = 66
"""The limit to nesting: OpenWire allows 32 nested maps, which have an element for each entry too."""


class NotTransformable(BrokerError):
    """A body that cannot be transformed; the message is sent unchanged, with this as its error header."""


class Element(NamedTuple):
    """An element of a tree.

    Attributes:
        name: a type (`int`) or a field (`commandId`).
        text: its text; None without one.
        children: its child elements.
        java_class: the attribute `class`: the value's type, if the name is a field's.
        is_array: True for arrays and collections of advisories, which have brackets in JSON.
    """

    name: str
    text: str | None = None
    children: "Sequence[Element]" = ()
    java_class: str | None = None
    is_array: bool = False


def check_size(length: int) -> None:
    """Raise `NotTransformable` if a body of so many bytes is too long."""
    if length > BODY_BYTES_MAX:
        raise NotTransformable(f"The body has {length} bytes, and at most {BODY_BYTES_MAX} are transformed")


def check_count(count: int) -> None:
    """Raise `NotTransformable` if so many elements are too many."""
    if count > NODES_MAX:
        raise NotTransformable(f"The body has more than {NODES_MAX} elements")


def check_depth(depth: int) -> None:
    """Raise `NotTransformable` if elements so deep inside one another are too deep."""
    if depth > DEPTH_MAX:
        raise NotTransformable(f"The body's elements are nested more than {DEPTH_MAX} deep")
