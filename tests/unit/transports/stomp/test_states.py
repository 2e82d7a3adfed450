"""The conversation's table: every state and every command, in the table and in a session."""

from typing import Any

import pytest

from pybroker.broker.domain.stomp.frames import Command
from pybroker.transports.stomp.states import TRANSITIONS, Reaction, StompState

REACTIONS = {
    StompState.OPENED: dict.fromkeys(Command, Reaction.REFUSE_NOT_CONNECTED)
    | {Command.CONNECT: Reaction.CONNECT, Command.STOMP: Reaction.CONNECT, Command.DISCONNECT: Reaction.LEAVE},
    StompState.CONNECTED: dict.fromkeys(Command, Reaction.OBEY)
    | {
        Command.CONNECT: Reaction.REFUSE_ALREADY_CONNECTED,
        Command.STOMP: Reaction.REFUSE_ALREADY_CONNECTED,
        Command.DISCONNECT: Reaction.LEAVE,
    },
    StompState.LEAVING: dict.fromkeys(Command, Reaction.IGNORE),
    StompState.CLOSED: dict.fromkeys(Command, Reaction.IGNORE),
}

AFTERWARDS = {Reaction.CONNECT: StompState.CONNECTED, Reaction.LEAVE: StompState.LEAVING}

PAIRS = [(state, command) for state in StompState for command in Command]


@pytest.mark.parametrize(("state", "command"), PAIRS)
def test_table_has_the_reaction_to_each_command_in_each_state(state: StompState, command: Command) -> None:
    transition = TRANSITIONS[state, command]
    assert transition.reaction is REACTIONS[state][command]
    assert transition.state is AFTERWARDS.get(transition.reaction, state)


@pytest.mark.parametrize(("state", "command"), PAIRS)
def test_session_follows_the_table(connect: Any, broker: Any, state: StompState, command: Command) -> None:
    broker.disk_is_slow = True
    peer = connect(None if state is StompState.OPENED else "1.2")
    if state in (StompState.LEAVING, StompState.CLOSED):
        peer.send("DISCONNECT\n\n^")
    if state is StompState.CLOSED:
        broker.sync()
    assert peer.session.state is state
    answers = peer.send(f"{command}\nreceipt:r\n\n^")
    reaction = REACTIONS[state][command]
    assert peer.session.state is AFTERWARDS.get(reaction, state) or (state, command) == (
        StompState.OPENED,
        Command.DISCONNECT,
    )
    match reaction:
        case Reaction.CONNECT:
            assert answers[0].startswith("CONNECTED\n")
        case Reaction.REFUSE_NOT_CONNECTED:
            assert answers[0].startswith("ERROR\nmessage:Not connected.\n")
        case Reaction.REFUSE_ALREADY_CONNECTED:
            assert answers[0].startswith("ERROR\nmessage:Already connected.\n")
        case Reaction.OBEY:  # a frame without its headers earns an error of its own
            assert answers[0].startswith("ERROR\nmessage:")
            assert "onnected." not in answers[0]
        case Reaction.LEAVE:
            broker.sync()
            assert (answers + peer.receive())[0].startswith("RECEIPT\nreceipt-id:r\n")
            assert peer.session.state is StompState.CLOSED
            assert peer.link.closed
        case Reaction.IGNORE:
            assert answers == []


@pytest.mark.parametrize("state", list(StompState))
def test_losing_the_connection_ends_every_state(connect: Any, broker: Any, state: StompState) -> None:
    broker.disk_is_slow = True
    peer = connect(None if state is StompState.OPENED else "1.2")
    if state in (StompState.LEAVING, StompState.CLOSED):
        peer.send("DISCONNECT\nreceipt:r\n\n^")
    if state is StompState.CLOSED:
        broker.sync()
        peer.receive()
    peer.session.lost()
    broker.sync()
    assert peer.session.state is StompState.CLOSED
    assert broker.connections == []
    assert peer.receive() == []
