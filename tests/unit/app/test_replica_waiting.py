"""The sentence of a member that does not take over a cluster without a master."""

import pytest

from pybroker.broker.app.replica_waiting import waiting_sentence
from pybroker.locks.election.election_state import ElectionPolicy, ElectionState, StoreCondition
from pybroker.locks.election.record import DurableEnd, ElectionRecord, ElectionSettings, MasterEntry, RecordedState
from pybroker.locks.election.register import RegisterState

MASTER = MasterEntry(name="a", store="s-a", run="l-a")
RECORD = ElectionRecord(
    cluster="c",
    name="orders",
    epoch=1,
    state=RecordedState.RELEASED,
    master=MASTER,
    in_sync=frozenset({"s-a"}),
    reserved={},
    durable={"kahadb": DurableEnd(1, 16_008)},
    settings=ElectionSettings(),
    nonce="n",
)


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        (9_000, "this store lacks what was confirmed up to db-1.log, byte 16,008: waiting for a"),
        (
            16_008,
            "this store is not in sync, and may lack what was confirmed after db-1.log, byte 16,008: waiting for a",
        ),
    ],
)
def test_store_left_behind_says_what_it_may_lack(offset: int, expected: str) -> None:
    """The register has the end of the latest renewal, and a store that reaches it may lack what came after."""
    store = StoreCondition(
        cluster="c",
        epoch=1,
        is_empty=False,
        is_sound=True,
        highest={"kahadb": 1},
        ends={"kahadb": DurableEnd(1, offset)},
    )
    state = ElectionState(
        me=MasterEntry(name="b", store="s-b", run="l-b"),
        policy=ElectionPolicy(),
        started_at=0.0,
        store=store,
        known=RegisterState(1, RECORD),
    )
    assert waiting_sentence(state, 0.0) == expected
