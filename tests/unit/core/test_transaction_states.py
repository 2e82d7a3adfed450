# mypy: disable-error-code="arg-type, attr-defined"
"""A transaction's table: every state with every event, in the table and in a transaction."""

import pytest

from pybroker.broker.core.transaction import BrokerTransaction
from pybroker.broker.core.transaction_states import TRANSITIONS
from pybroker.broker.core.transaction_states import TransactionEvent as Event
from pybroker.broker.core.transaction_states import TransactionState as State
from pybroker.broker.domain.destination import parse
from pybroker.broker.domain.errors import CommitFailed, TransactionError
from pybroker.broker.domain.states import ImpossibleEvent
from pybroker.broker.domain.transaction import XATransactionId
from tests.matrices import pairs
from tests.slow import SlowStore
from tests.unit.core.conftest import World, make_message

PAIRS = list(
    pairs(
        """
                ADD     FAIL      PREPARE      PREPARE_NOTHING  RECOVER   COMMIT       ROLLBACK     ON_DISK
    ACTIVE      ACTIVE  DOOMED    PREPARED     COMMITTED        PREPARED  COMMITTING   ROLLED_BACK  -
    DOOMED      DOOMED  DOOMED    ROLLED_BACK  -                -         ROLLED_BACK  ROLLED_BACK  -
    PREPARED    -       PREPARED  PREPARED     -                -         COMMITTING   ROLLED_BACK  -
    COMMITTING  -       -         -            -                -         -            -            COMMITTED
    COMMITTED   -       -         -            -                -         -            -            -
    ROLLED_BACK -       -         -            -                -         -            -            -
    """,
        State,
        Event,
    )
)

ERRORS = {
    (State.PREPARED, Event.ADD): TransactionError,  # a client may try
    (State.DOOMED, Event.PREPARE): CommitFailed,
    (State.DOOMED, Event.COMMIT): CommitFailed,
}

WAYS = {
    State.ACTIVE: (),
    State.DOOMED: (Event.FAIL,),
    State.PREPARED: (Event.PREPARE,),
    State.COMMITTING: (Event.COMMIT,),
    State.COMMITTED: (Event.COMMIT, Event.ON_DISK),
    State.ROLLED_BACK: (Event.ROLLBACK,),
}


class Subject:
    """A transaction with a send in it, on a store with a slow disk."""

    def __init__(self) -> None:
        self.world = World(SlowStore())
        self.transaction = BrokerTransaction(XATransactionId(1, b"global", b"branch"), self.world.store)
        self.add()

    def add(self) -> None:
        self.transaction.add_send(
            self.world.broker.destinations.ensure(parse("queue://Q")), make_message("a", "queue://Q")
        )

    def happen(self, event: Event) -> None:
        match event:
            case Event.ADD:
                self.add()
            case Event.FAIL:
                self.transaction.doom("of a test")
            case Event.PREPARE:
                assert self.transaction.prepare()
            case Event.RECOVER:
                self.transaction.recover((), ())
            case Event.COMMIT:
                self.transaction.commit()
            case Event.ROLLBACK:
                self.transaction.rollback()
            case Event.ON_DISK:
                self.world.store.sync()
            case Event.PREPARE_NOTHING:
                pytest.fail("there is something in it")


@pytest.mark.parametrize(("state", "event", "after"), PAIRS)
def test_table_has_every_pair(state: State, event: Event, after: State | None) -> None:
    if after is None:
        with pytest.raises(ImpossibleEvent, match=f"{event.name} cannot happen while {state.name}"):
            TRANSITIONS.after(state, event)
    else:
        assert TRANSITIONS.after(state, event) is after


@pytest.mark.parametrize(
    ("state", "event", "after"),
    [
        (state, event, after)
        for state, event, after in PAIRS
        # An empty one is prepared below. A store reports a commit as durable once, and only on request.
        if event is not Event.PREPARE_NOTHING and (after or event is not Event.ON_DISK)
    ],
)
def test_transaction_follows_the_table(state: State, event: Event, after: State | None) -> None:
    subject = Subject()
    for each in WAYS[state]:
        subject.happen(each)
    assert subject.transaction.state is state
    error = ERRORS.get((state, event), None if after else ImpossibleEvent)
    if error is None:
        subject.happen(event)
    else:
        with pytest.raises(error):
            subject.happen(event)
    assert subject.transaction.state is (after or state)


def test_empty_branch_ends_when_it_is_prepared(world: World) -> None:
    transaction = BrokerTransaction(XATransactionId(1, b"global", b"branch"), world.store)
    assert not transaction.prepare()
    assert transaction.state is State.COMMITTED
