"""The states of a backlog's search for messages that its consumers accept; `docs/states.md` has the diagram.

Between events, no message waits that a consumer with capacity accepts. If every consumer accepts every message, the
oldest are delivered until no consumer has capacity, a limited number (a piece, see `paging`) in each turn of the event
loop. Otherwise each consumer searches the waiting messages from where its last search ended. Until
all searches and deliveries have ended, a new message must wait, so that it does not overtake a message that they may
still find: also if a message of a group, or a consumer with a selector, comes between two turns of a delivery.
"""

from typing import Final

from pybroker.broker.domain.states import IdentityEnum, Transitions


class Search(IdentityEnum):
    """The state of a backlog's search for the next message."""

    IDLE = "no message waits that a consumer with capacity accepts"
    IN_TURNS = "the oldest messages are being delivered; delivery continues in a later turn of the event loop"
    SEARCHING = "consumers with capacity search the waiting messages"
    ASKED_AGAIN = "as SEARCHING; a delivery or an expiry within the search requires one more search"
    PAUSED = "a piece has been searched; the search continues in a later turn of the event loop"
    UNFINISHED = "the search has not reached the end, and its continuation is not scheduled"


class SearchEvent(IdentityEnum):
    """An event in a backlog's search."""

    ASK = "a consumer has capacity, or a message has come back; some consumers do not accept every message"
    ASK_FOR_ANY = "a consumer has capacity, or a message has come back; every consumer accepts every message"
    FINISH = "the search has reached the end of the backlog, or nothing waits"
    STOP = "a piece has been searched, or the store could not be read"
    YIELD = "the continuation is scheduled for a later turn of the event loop"
    TURN = "the turn of the event loop in which it continues has begun"


_State, _Event = Search, SearchEvent

TRANSITIONS: Final = Transitions(
    {
        (_State.IDLE, _Event.ASK): _State.SEARCHING,
        (_State.IDLE, _Event.ASK_FOR_ANY): _State.IDLE,
        (_State.IDLE, _Event.STOP): _State.UNFINISHED,
        (_State.IDLE, _Event.YIELD): _State.IN_TURNS,
        (_State.IDLE, _Event.TURN): _State.IDLE,
        (_State.IN_TURNS, _Event.ASK): _State.PAUSED,
        (_State.IN_TURNS, _Event.ASK_FOR_ANY): _State.IN_TURNS,
        (_State.IN_TURNS, _Event.YIELD): _State.IN_TURNS,
        (_State.IN_TURNS, _Event.TURN): _State.IDLE,
        (_State.SEARCHING, _Event.ASK): _State.ASKED_AGAIN,
        (_State.SEARCHING, _Event.ASK_FOR_ANY): _State.ASKED_AGAIN,
        (_State.SEARCHING, _Event.FINISH): _State.IDLE,
        (_State.SEARCHING, _Event.STOP): _State.UNFINISHED,
        (_State.ASKED_AGAIN, _Event.ASK): _State.ASKED_AGAIN,
        (_State.ASKED_AGAIN, _Event.ASK_FOR_ANY): _State.ASKED_AGAIN,
        (_State.ASKED_AGAIN, _Event.FINISH): _State.SEARCHING,
        (_State.ASKED_AGAIN, _Event.STOP): _State.UNFINISHED,
        (_State.PAUSED, _Event.ASK): _State.PAUSED,
        (_State.PAUSED, _Event.ASK_FOR_ANY): _State.IN_TURNS,
        (_State.PAUSED, _Event.YIELD): _State.PAUSED,
        (_State.PAUSED, _Event.TURN): _State.UNFINISHED,
        (_State.UNFINISHED, _Event.ASK): _State.SEARCHING,
        (_State.UNFINISHED, _Event.ASK_FOR_ANY): _State.IDLE,
        (_State.UNFINISHED, _Event.FINISH): _State.IDLE,
        (_State.UNFINISHED, _Event.YIELD): _State.PAUSED,
        (_State.UNFINISHED, _Event.TURN): _State.UNFINISHED,
    }
)
"""All transitions; a pair that is missing cannot occur."""
