"""The states of an OpenWire conversation; `docs/states.md` has the diagram."""

from typing import Final

from pybroker.broker.domain.states import Named, Transitions


class State(Named):
    """Where a conversation stands."""

    NEGOTIATING = "its WireFormatInfo has not come"
    AGREED = "the format is agreed, no connection is open"
    CONNECTED = "a client of the broker"
    CLOSING = "has removed its connection, and is about to close the socket"
    CLOSED = "over"


class Event(Named):
    """What changes where a conversation stands; all else that a peer sends does not."""

    AGREE = "its WireFormatInfo has come, and there is a format for both"
    CONNECT = "a ConnectionInfo has come that the broker admits, or has admitted before"
    REMOVE = "a client has removed its connection"
    CLOSE = "a ShutdownInfo, a refused ConnectionInfo, an error, silence, or the end of the socket"


TRANSITIONS: Final = Transitions(
    {
        (State.NEGOTIATING, Event.AGREE): State.AGREED,
        (State.NEGOTIATING, Event.CLOSE): State.CLOSED,
        (State.AGREED, Event.CONNECT): State.CONNECTED,
        (State.AGREED, Event.CLOSE): State.CLOSED,
        (State.CONNECTED, Event.CONNECT): State.CONNECTED,
        (State.CONNECTED, Event.REMOVE): State.CLOSING,
        (State.CONNECTED, Event.CLOSE): State.CLOSED,
        (State.CLOSING, Event.CONNECT): State.CONNECTED,
        (State.CLOSING, Event.CLOSE): State.CLOSED,
        (State.CLOSED, Event.CLOSE): State.CLOSED,
    }
)
"""Every transition there is."""
