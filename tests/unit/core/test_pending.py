# mypy: disable-error-code="arg-type"
"""The list of waiting references, against a plain sorted dict."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.broker.core import pending as module
from pybroker.broker.core.pending import Pending, PrioritizedPending
from pybroker.broker.core.reference import Reference, ReferenceState
from tests.compiled import interpreted
from tests.unit.core.backlogs import message

pytestmark = interpreted


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["append", "hand over", "pop", "take", "restore", "restore all", "sweep", "scan"]),
        st.integers(0, 50),
    )
)
MESSAGES = [message(str(priority), priority=priority) for priority in range(10)]


def by_age(reference):
    return reference.sequence


def by_priority(reference):
    return -reference.message.priority, reference.sequence


@pytest.mark.parametrize(("kind", "order"), [(Pending, by_age), (PrioritizedPending, by_priority)])
@given(operations=OPERATIONS, sweep_min=st.integers(1, 4))
def test_it_behaves_like_a_sorted_dict(kind, order, operations, sweep_min):
    module._COMPACT_MIN, before = sweep_min, module._COMPACT_MIN
    try:
        _compare(kind(), order, operations)
    finally:
        module._COMPACT_MIN = before


def _compare(pending, order, operations):
    waiting: list[Any] = []
    taken: list[Any] = []
    for sequence, (operation, number) in enumerate(operations):
        waiting.sort(key=order)
        new = Reference(MESSAGES[number % 10], None, sequence)
        match operation:
            case "append":
                pending.append(new)
                waiting.append(new)
            case "hand over":  # on arrival: it was never among those that wait
                new.state = ReferenceState.DISPATCHED
                taken.append(new)
            case "pop" if waiting:
                reference = pending.pop(ReferenceState.DISPATCHED)
                assert reference is waiting.pop(0)
                taken.append(reference)
            case "take" if waiting:
                reference = waiting.pop(number % len(waiting))
                pending.remove(reference, ReferenceState.DISPATCHED)
                taken.append(reference)
            case "restore" if taken:
                reference = taken.pop(number % len(taken))
                waiting.append(reference)
                pending.restore([reference])
            case "restore all":
                waiting += taken[number:]
                pending.restore(taken[number:])
                del taken[number:]
            case "sweep":
                pending.compact()
            case "scan" if isinstance(pending, Pending):
                found = [reference.sequence for reference in pending.scan(number)]
                assert found == [reference.sequence for reference in waiting if reference.sequence > number]
        assert len(pending) == pending.count == len(waiting)
        assert list(pending) == sorted(waiting, key=order)
        assert all(reference.state is ReferenceState.PENDING for reference in waiting)


@pytest.mark.parametrize("way", ["pop", "take"])
def test_what_is_taken_is_let_go_of(way):
    pending = Pending()
    references = [Reference(MESSAGES[0], None, sequence) for sequence in range(100_000)]
    for reference in references:
        pending.append(reference)
    for reference in references[:-1]:
        if way == "pop":
            pending.pop(ReferenceState.DISPATCHED)
        else:
            pending.remove(reference, ReferenceState.DISPATCHED)
    pending.compact()
    assert list(pending) == references[-1:]
    assert len(pending._items) <= module._COMPACT_MIN


def test_what_comes_back_makes_every_consumer_look_again():
    pending = Pending()
    references = [Reference(MESSAGES[0], None, sequence) for sequence in range(5)]
    for reference in references:
        pending.append(reference)
    pending.searched = {"far": 4, "near": 1}
    pending.remove(references[3], ReferenceState.DISPATCHED)
    pending.restore([references[3]])
    assert pending.searched == {"far": 2, "near": 1}
