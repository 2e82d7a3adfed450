"""A conversation's table: every state with every event, and whatever a peer may do in each state of a session."""

import enum

import pytest

from pybroker.broker.domain.openwire.commands import (
    BaseCommand,
    ConnectionId,
    ConnectionInfo,
    KeepAliveInfo,
    RemoveInfo,
    SessionId,
    SessionInfo,
    ShutdownInfo,
)
from pybroker.broker.domain.openwire.marshal.wireformat import encode_offer
from pybroker.broker.domain.states import ImpossibleEvent
from pybroker.transports.openwire.states import TRANSITIONS, OpenWireEvent, OpenWireState
from tests.matrices import pairs
from tests.unit.transports.openwire.conversation import JAVA, OpenWireClient, World

PAIRS = list(
    pairs(
        """
                AGREE   CONNECT    REMOVE   CLOSE
    NEGOTIATING AGREED  -          -        CLOSED
    AGREED      -       CONNECTED  -        CLOSED
    CONNECTED   -       CONNECTED  CLOSING  CLOSED
    CLOSING     -       CONNECTED  -        CLOSED
    CLOSED      -       -          -        CLOSED
    """,
        OpenWireState,
        OpenWireEvent,
    )
)


class Deed(enum.Enum):
    """Events of a peer, or of its socket."""

    OFFER = "WireFormatInfo"
    CONNECT = "ConnectionInfo"
    OTHER = "ConnectionInfo of another connection"
    NAMELESS = "ConnectionInfo without a client id"
    REMOVE = "RemoveInfo of the connection"
    SESSION = "SessionInfo"
    ALIVE = "KeepAliveInfo"
    SHUT = "ShutdownInfo"
    SILENCE = "nothing for two minutes"
    GONE = "the socket's end"


DEEDS = list(
    pairs(
        """
                OFFER     CONNECT   OTHER     NAMELESS  REMOVE  SESSION   ALIVE     SHUT   SILENCE GONE
    NEGOTIATING AGREED    CLOSED    CLOSED    CLOSED    CLOSED  CLOSED    CLOSED    CLOSED CLOSED  CLOSED
    AGREED      CLOSED    CONNECTED CONNECTED CLOSED    AGREED  AGREED    AGREED    CLOSED CLOSED  CLOSED
    CONNECTED   CLOSED    CONNECTED CLOSED    CONNECTED CLOSING CONNECTED CONNECTED CLOSED CLOSED  CLOSED
    CLOSING     CLOSED    CONNECTED CONNECTED CLOSED    CLOSING CLOSING   CLOSING   CLOSED CLOSED  CLOSED
    CLOSED      CLOSED    CLOSED    CLOSED    CLOSED    CLOSED  CLOSED    CLOSED    CLOSED CLOSED  CLOSED
    """,
        OpenWireState,
        Deed,
    )
)

WAYS: dict[OpenWireState, tuple[Deed, ...]] = {
    OpenWireState.NEGOTIATING: (),
    OpenWireState.AGREED: (Deed.OFFER,),
    OpenWireState.CONNECTED: (Deed.OFFER, Deed.CONNECT),
    OpenWireState.CLOSING: (Deed.OFFER, Deed.CONNECT, Deed.REMOVE),
    OpenWireState.CLOSED: (Deed.OFFER, Deed.CONNECT, Deed.SHUT),
}

COMMANDS: dict[Deed, BaseCommand] = {
    Deed.CONNECT: ConnectionInfo(command_id=1, connection_id=ConnectionId("ID:1"), client_id="me"),
    Deed.OTHER: ConnectionInfo(command_id=2, connection_id=ConnectionId("ID:2"), client_id="you"),
    Deed.NAMELESS: ConnectionInfo(command_id=3, connection_id=ConnectionId("ID:1")),
    Deed.REMOVE: RemoveInfo(command_id=4, object_id=ConnectionId("ID:1")),
    Deed.SESSION: SessionInfo(command_id=5, session_id=SessionId("ID:1", 1)),
    Deed.ALIVE: KeepAliveInfo(command_id=6, response_required=True),
    Deed.SHUT: ShutdownInfo(command_id=7),
}


def do(client: OpenWireClient, deed: Deed) -> None:
    match deed:
        case Deed.OFFER:
            client.session.receive(encode_offer(JAVA))
        case Deed.SILENCE:
            client.wait(120)
        case Deed.GONE:
            client.session.lost()
        case _:
            client.send_commands(COMMANDS[deed])


@pytest.mark.parametrize(("state", "event", "after"), PAIRS)
def test_table_has_every_pair(state: OpenWireState, event: OpenWireEvent, after: OpenWireState | None) -> None:
    if after is None:
        with pytest.raises(ImpossibleEvent, match=f"{event.name} cannot happen while {state.name}"):
            TRANSITIONS.after(state, event)
    else:
        assert TRANSITIONS.after(state, event) is after


@pytest.mark.parametrize(("state", "deed", "after"), DEEDS)
def test_session_stands_where_the_table_leads(
    world: World, state: OpenWireState, deed: Deed, after: OpenWireState
) -> None:
    client = world.new_client(sends_offer=False)
    for each in WAYS[state]:
        do(client, each)
    assert client.session.state is state
    do(client, deed)
    assert client.session.state is after
