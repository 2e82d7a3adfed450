"""The states of a STOMP connection, and the reaction to each command in each of them.

```text
            CONNECT, STOMP             DISCONNECT            receipt written
 OPENED --------------------> CONNECTED ----------> LEAVING ----------------> CLOSED
   |  any other: ERROR, stay      any other: obey      ^                        ^
   +---------------------------------------------------+                        |
     DISCONNECT                                                                 |
     from any state: broken frame, unknown command, silence, peer gone ---------+
```
"""

import enum
from collections.abc import Mapping
from typing import NamedTuple

from pybroker.broker.domain.stomp.frames import Command


class StompState(enum.Enum):
    """The state of a STOMP connection."""

    OPENED = "waits for CONNECT"
    CONNECTED = "carries out commands"
    LEAVING = "finishes the commands before DISCONNECT, ignores later ones"
    CLOSED = "sends nothing, ignores every command"


class Reaction(enum.Enum):
    """A session's reaction to a command."""

    CONNECT = "admit the client"
    OBEY = "carry it out"
    LEAVE = "answer, then close"
    REFUSE_NOT_CONNECTED = "ERROR: Not connected."
    REFUSE_ALREADY_CONNECTED = "ERROR: Already connected."
    IGNORE = "ignore it"


class Transition(NamedTuple):
    """A command's effect: the reaction, and the state after it succeeded."""

    reaction: Reaction
    state: StompState


_CONNECTS = frozenset({Command.CONNECT, Command.STOMP})


def _transition(state: StompState, command: Command) -> Transition:
    match state:
        case StompState.OPENED if command in _CONNECTS:
            return Transition(Reaction.CONNECT, StompState.CONNECTED)
        case StompState.OPENED if command is Command.DISCONNECT:
            return Transition(Reaction.LEAVE, StompState.LEAVING)
        case StompState.OPENED:
            return Transition(Reaction.REFUSE_NOT_CONNECTED, state)
        case StompState.CONNECTED if command in _CONNECTS:
            return Transition(Reaction.REFUSE_ALREADY_CONNECTED, state)
        case StompState.CONNECTED if command is Command.DISCONNECT:
            return Transition(Reaction.LEAVE, StompState.LEAVING)
        case StompState.CONNECTED:
            return Transition(Reaction.OBEY, state)
        case StompState.LEAVING | StompState.CLOSED:
            return Transition(Reaction.IGNORE, state)


TRANSITIONS: Mapping[tuple[StompState, Command], Transition] = {
    (state, command): _transition(state, command) for state in StompState for command in Command
}
"""Every state and command. Whatever breaks or ends the conversation leads to `CLOSED` from any state."""
