"""Elements: the form between text (XML, JSON) and values.

Source: XStream 1.4, whose XML and JSON (through Jettison's mapped convention) are two texts of one tree.

All work happens on the event loop, so it has limits. They leave room for any honest map: a thousand values take some
milliseconds.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from pybroker.broker.domain.errors import BrokerError

BODY_BYTES_MAX: Final = 1024 * 1024
"""The longest body that is transformed, as text or in its stored form."""
NODES_MAX: Final = 30_000
"""The most elements of one body: a map has three for each entry, so 10,000 of these, which take a tenth of a second."""
DEPTH_MAX: Final = 66
"""Elements inside one another: of maps in maps, which have an element for each entry too, OpenWire allows 32."""


class NotTransformable(BrokerError):
    """A body that cannot be had in the form asked for; the message goes on as it is, with this as its error header."""


class Element(NamedTuple):
    """One element.

    Attributes:
        name: of the element, a type (`int`) or a field (`commandId`).
        text: its text; None for an element without.
        children: the elements in it.
        java_class: the attribute `class`, which names a value's type where the element's name is a field's.
        is_array: it stands in brackets in JSON, as arrays and collections of advisories do.
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
