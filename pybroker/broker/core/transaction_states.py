"""The states of a transaction; `docs/states.md` has the diagram."""

from pybroker.broker.domain.states import Named, Transitions


class TransactionState(Named):
    """Where a transaction stands."""

    ACTIVE = "takes sends and acknowledgements"
    DOOMED = "a part of it failed: it can only be rolled back"
    PREPARED = "only its outcome ends it, which is in doubt once its coordinator or this process is gone"
    COMMITTING = "its commit is in the store, and may not be on disk yet"
    COMMITTED = "it counts"
    ROLLED_BACK = "it is undone"


class TransactionEvent(Named):
    """What happens to a transaction."""

    ADD = "something is sent or acknowledged in it"
    FAIL = "a part of it could not be done"
    PREPARE = "its coordinator asks whether it can be committed"
    PREPARE_NOTHING = "the same, and there is nothing in it to decide"
    RECOVER = "a new master finds it prepared in the store"
    COMMIT = "it is to count"
    ROLLBACK = "it is to be undone"
    ON_DISK = "its commit is on disk, if it is stored at all"


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
        (_State.PREPARED, _Event.FAIL): _State.PREPARED,  # its coordinator was told that it can be committed
        (_State.PREPARED, _Event.PREPARE): _State.PREPARED,  # a failover client asks again if it got no answer
        (_State.PREPARED, _Event.COMMIT): _State.COMMITTING,
        (_State.PREPARED, _Event.ROLLBACK): _State.ROLLED_BACK,
        (_State.COMMITTING, _Event.ON_DISK): _State.COMMITTED,
    }
)
"""Every transition there is."""
