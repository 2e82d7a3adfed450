"""The states of a transaction; `docs/states.md` has the diagram."""

from pybroker.broker.domain.states import IdentityEnum, Transitions


class TransactionState(IdentityEnum):
    """The state of a transaction."""

    ACTIVE = "accepts sends and acknowledgements"
    DOOMED = "an operation in it failed: it can only be rolled back"
    PREPARED = "prepared: only a commit or a roll-back by its coordinator ends it, also after a crash"
    COMMITTING = "its commit is appended to the store, and may not be on disk yet"
    COMMITTED = "its commit is on disk"
    ROLLED_BACK = "its operations are undone"


class TransactionEvent(IdentityEnum):
    """An event in a transaction."""

    ADD = "a message is sent or acknowledged in it"
    FAIL = "an operation in it failed"
    PREPARE = "its coordinator prepares it"
    PREPARE_NOTHING = "its coordinator prepares it, and it has no operations"
    RECOVER = "a new master finds it prepared in the store"
    COMMIT = "its client or coordinator commits it"
    ROLLBACK = "its client or coordinator rolls it back, or its connection has closed"
    ON_DISK = "its commit is on disk, or it has nothing in the store"


_State, _Event = TransactionState, TransactionEvent

TRANSITIONS = Transitions(
    {
        (_State.ACTIVE, _Event.ADD): _State.ACTIVE,
        (_State.ACTIVE, _Event.FAIL): _State.DOOMED,
        (_State.ACTIVE, _Event.PREPARE): _State.PREPARED,
        (_State.ACTIVE, _Event.PREPARE_NOTHING): _State.COMMITTED,
        (_State.ACTIVE, _Event.RECOVER): _State.PREPARED,
        (_State.ACTIVE, _Event.COMMIT): _State.COMMITTING,
        (_State.ACTIVE, _Event.ROLLBACK): _State.ROLLED_BACK,
        (_State.DOOMED, _Event.ADD): _State.DOOMED,
        (_State.DOOMED, _Event.FAIL): _State.DOOMED,
        (_State.DOOMED, _Event.PREPARE): _State.ROLLED_BACK,
        (_State.DOOMED, _Event.COMMIT): _State.ROLLED_BACK,
        (_State.DOOMED, _Event.ROLLBACK): _State.ROLLED_BACK,
        (_State.PREPARED, _Event.FAIL): _State.PREPARED,  # its coordinator relies on the answer that it can commit
        (_State.PREPARED, _Event.PREPARE): _State.PREPARED,  # a failover client repeats the request if it got no answer
        (_State.PREPARED, _Event.COMMIT): _State.COMMITTING,
        (_State.PREPARED, _Event.ROLLBACK): _State.ROLLED_BACK,
        (_State.COMMITTING, _Event.ON_DISK): _State.COMMITTED,
    }
)
"""All transitions; a pair that is missing cannot occur."""
