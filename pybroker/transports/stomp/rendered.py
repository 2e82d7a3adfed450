"""Large messages that were rendered for one subscription, and are shared with others of the same form meanwhile.

A topic's message is mostly rendered for all subscribers at nearly the same moment. It refers to what was rendered
weakly, where a small message has its decoded fields: what no peer is being sent takes no memory.

This module is not compiled, as instances of compiled classes cannot be referred to weakly.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from weakref import WeakValueDictionary

from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.message import OpenWireMessage
from pybroker.broker.domain.openwire.values import Value


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Rendered:
    """A message that was rendered in a thread.

    Attributes:
        fields: the message, without its content if that is long.
        headers: those that describe the body's form.
        overriding: the properties that override standard headers.
        lines: the last lines of the head, in pieces; those of the other properties only, if some override headers.
        pieces: the body.
    """

    fields: OpenWireMessage
    headers: Mapping[str, str]
    overriding: Mapping[str, Value]
    lines: Sequence[bytes]
    pieces: Sequence[bytes]


class _Shared:
    """The rendered forms of one message that are in use, each under its key."""

    __slots__ = ("by_form",)

    def __init__(self) -> None:
        self.by_form: WeakValueDictionary[object, Rendered] = WeakValueDictionary()


def shared(message: Message, form: object, render: Callable[[], Rendered]) -> Rendered:
    """Return what a message was rendered as in a form; render it if that is not there any more.

    Called in one thread only.
    """
    known = message.decoded
    if not isinstance(known, _Shared):
        known = message.decoded = _Shared()
    made = known.by_form.get(form)
    if made is None:
        made = known.by_form[form] = render()
    return made
