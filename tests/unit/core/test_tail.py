"""The part of a backlog that is not in memory, against a plain dict."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pybroker.broker.core import tail as module
from pybroker.broker.core.tail import NOWHERE, Stub, Tail
from pybroker.broker.domain.destination import queue, topic

A, B = topic("A"), topic("B")
OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["put", "put", "extend", "take", "discard", "after", "return", "recover"]),
        st.integers(0, 40),
        st.sampled_from([A, A, B]),
        st.sampled_from([(0, 0), (0, 0), (1, 0), (2, 1)]),
    ),
    max_size=60,
)


@given(operations=OPERATIONS, run_max=st.integers(2, 6), recovered=st.integers(0, 12), delivered=st.booleans())
def test_it_behaves_like_a_sorted_dict(operations, run_max, recovered, delivered):
    module._RUN_MAX, before = run_max, module._RUN_MAX
    try:
        _compare(operations, recovered, delivered=delivered)
    finally:
        module._RUN_MAX = before


def _compare(operations, recovered, *, delivered):
    tail = Tail()
    model: dict[Any, Any] = {}
    taken: list[Any] = []

    def recover(count, *, seen):
        start = max([*model, *[stub.sequence for stub in taken], tail.last], default=-1) + 1
        names = [f"r{number}" for number in range(start, start + count)]
        tail.recover(A, list(names), start=start, delivered=None if seen else {f"r{start}"})
        for sequence, name in enumerate(names, start):
            model[sequence] = Stub(sequence, name, A, int(seen or sequence == start), 0)

    recover(recovered, seen=delivered)
    for what, number, place, marks in operations:
        waiting = [model[sequence] for sequence in sorted(model)]
        match what:
            case "put" if number not in model and all(stub.sequence != number for stub in taken):
                model[number] = Stub(number, f"m{number}", place, *marks)
                tail.put(model[number])
            case "extend":
                start = max([*model, *[stub.sequence for stub in taken], tail.last]) + 1
                new = [Stub(start + 2 * each, f"e{start + 2 * each}", place) for each in range(number % 5 + 1)]
                tail.extend(place, [stub.sequence for stub in new], [stub.message_id for stub in new])
                model |= {stub.sequence: stub for stub in new}
            case "take":
                tail.take(number % 5)
                for stub in waiting[: number % 5]:
                    taken.append(model.pop(stub.sequence))
            case "discard":
                stub = model.pop(number, None)
                assert tail.discard(number) is (stub is not None)
                taken += [stub] if stub else []
            case "after":
                expected = [stub for stub in waiting if stub.sequence > number - 1]
                assert tail.after(number - 1, 4) == expected[:4]
            case "return" if taken:  # it comes back from a consumer, and is left to the store again
                stub = taken.pop(number % len(taken))._replace(redelivery_count=marks[0], suspected=marks[1])
                model[stub.sequence] = stub
                tail.put(stub)
            case "recover":
                recover(number % 4, seen=delivered)
        waiting = [model[sequence] for sequence in sorted(model)]
        assert tail.after(-1, 1000) == waiting
        assert tail.count == len(waiting)
        assert tail.first == (waiting[0].sequence if waiting else NOWHERE)
        assert set(tail.delivered()) == {stub.message_id for stub in waiting if stub.redelivery_count}
        wanted = {(stub.place, stub.message_id) for stub in waiting[::3]}
        assert tail.find(wanted) == waiting[::3]


def test_a_recovery_does_not_look_at_the_ids():
    ids = [f"ID:host-1-1:1:1:{number}" for number in range(10_000)]
    tail = Tail()
    tail.recover(queue("Q"), ids, start=7, delivered=None)
    assert tail.count == 10_000
    assert tail._runs[0].ids is ids, "not even copied"
    assert tail._runs[0].sequences == range(7, 10_007)


def test_what_was_taken_is_let_go_of():
    ids = [f"ID:host-1-1:1:1:{number}" for number in range(1000)]
    tail = Tail()
    tail.recover(queue("Q"), ids, start=0, delivered=None)
    tail.take(999)
    assert [each for each in ids if each is not None] == ["ID:host-1-1:1:1:999"]


def test_an_interleaved_put_moves_no_more_than_a_run():
    tail = Tail()
    sequences = range(0, 100_000, 2)
    for start in range(0, len(sequences), 1000):
        chunk = sequences[start : start + 1000]
        tail.extend(A, list(chunk), [str(each) for each in chunk])
    assert max(len(run.ids) for run in tail._runs) <= module._RUN_MAX + 1000
    tail.put(Stub(50_001, "between", A))
    assert [stub.message_id for stub in tail.after(49_999, 3)] == ["50000", "between", "50002"]
