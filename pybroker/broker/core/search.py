"""How far a backlog is with finding what its consumers may get; `docs/states.md` has the diagram.

Between events nothing waits that a consumer with room would take. Where consumers take anything, the front is delivered
until nobody has room, or in turns where messages must be read back first. Where they do not, each of them looks at what
waits from where it looked last; until they have come to the end, what arrives must wait behind what they may yet find.
"""

from typing import Final

from pybroker.broker.domain.states import Named, Transitions


class Search(Named):
    """Where a backlog's search for the next message stands."""

    IDLE = "nothing waits that a consumer with room would take"
    IN_TURNS = "the front is delivered, and goes on in the event loop's next turn"
    SEARCHING = "consumers with room look at what waits"
    ASKED_AGAIN = "the same, and a delivery or an expiry inside it calls for one more look"
    PAUSED = "they have looked at a page, and go on in the event loop's next turn"
    UNFINISHED = "they have not looked at everything, and nothing is under way"


class SearchEvent(Named):
    """What moves a search on."""

    ASK = "a consumer has room, or something has come back, and not every consumer takes anything"
    ASK_FOR_ANY = "the same, and every consumer takes anything"
    FINISH = "everything was looked at"
    STOP = "a page was looked at, or the store could not be read"
    YIELD = "the event loop is to go on in its next turn"
    TURN = "that turn has come"


_State, _Event = Search, SearchEvent

TRANSITIONS: Final = Transitions(
    {
        (_State.IDLE, _Event.ASK): _State.SEARCHING,
        (_State.IDLE, _Event.ASK_FOR_ANY): _State.IDLE,
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
        (_State.UNFINISHED, _Event.YIELD): _State.PAUSED,
        (_State.UNFINISHED, _Event.TURN): _State.UNFINISHED,
    }
)
"""Every transition there is."""
