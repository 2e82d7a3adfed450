"""The states of an OpenWire connection; `docs/states.md` has the diagram."""

from typing import Final

from pybroker.broker.domain.states import IdentityEnum, Transitions


class OpenWireState(IdentityEnum):
    """The state of an OpenWire connection."""

    NEGOTIATING = "its WireFormatInfo has not come"
    AGREED = "the format is agreed, no connection is open"
    CONNECTED = "a client of the broker"
    CLOSING = "has removed its connection, and is about to close the socket"
    CLOSED = "over"


class OpenWireEvent(IdentityEnum):
    """An event that may change the state."""

    AGREE = "its WireFormatInfo has come, and there is a format for both"
    CONNECT = "a ConnectionInfo has come that the broker admits, or has admitted before"
    REMOVE = "a client has removed its connection"
    CLOSE = "a ShutdownInfo, a refused ConnectionInfo, an error, silence, or the end of the socket"


TRANSITIONS: Final = Transitions(
    {
        (OpenWireState.NEGOTIATING, OpenWireEvent.AGREE): OpenWireState.AGREED,
        (OpenWireState.NEGOTIATING, OpenWireEvent.CLOSE): OpenWireState.CLOSED,
        (OpenWireState.AGREED, OpenWireEvent.CONNECT): OpenWireState.CONNECTED,
        (OpenWireState.AGREED, OpenWireEvent.CLOSE): OpenWireState.CLOSED,
        (OpenWireState.CONNECTED, OpenWireEvent.CONNECT): OpenWireState.CONNECTED,
        (OpenWireState.CONNECTED, OpenWireEvent.REMOVE): OpenWireState.CLOSING,
        (OpenWireState.CONNECTED, OpenWireEvent.CLOSE): OpenWireState.CLOSED,
        (OpenWireState.CLOSING, OpenWireEvent.CONNECT): OpenWireState.CONNECTED,
        (OpenWireState.CLOSING, OpenWireEvent.CLOSE): OpenWireState.CLOSED,
        (OpenWireState.CLOSED, OpenWireEvent.CLOSE): OpenWireState.CLOSED,
    }
)
"""Every transition there is."""
