"""The part of a backlog that is not in memory, against a plain dict."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pybroker.broker.core import paged_out_index as module
from pybroker.broker.core.paged_out_index import IN_STORE, SEQUENCE_MAX, MessageRef, PagedOutIndex
from pybroker.broker.domain.destination import queue, topic

A, B = topic("A"), topic("B")
OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["put", "put", "extend", "take", "discard", "after", "return", "seen", "recover"]),
        st.integers(0, 40),
        st.sampled_from([A, A, B]),
        st.sampled_from([(0, 0), (0, 0), (1, 0), (2, 1)]),
        st.booleans(),
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
    released: list[int] = []
    index = PagedOutIndex(released.append)
    model: dict[Any, Any] = {}
    places: set[int] = set()
    taken: list[Any] = []

    def recover(count, *, seen):
        start = max([*model, *[ref.sequence for ref in taken], index.last], default=-1) + 1
        names = [f"r{number}" for number in range(start, start + count)]
        index.recover(A, list(names), start=start, delivered=None if seen else {f"r{start}"})
        for sequence, name in enumerate(names, start):
            model[sequence] = MessageRef(sequence, name, A, int(seen or sequence == start), 0)

    recover(recovered, seen=delivered)

    def spooled(ref):
        """Return the reference as the index has it for a message in the spool."""
        places.add(len(places))
        return ref._replace(message_id="", place=len(places) - 1)

    for what, number, place, marks, is_spooled in operations:
        waiting = [model[sequence] for sequence in sorted(model)]
        match what:
            case "put" if number not in model and all(ref.sequence != number for ref in taken):
                ref = MessageRef(number, f"m{number}", place, *marks)
                model[number] = spooled(ref) if is_spooled else ref
                index.insert(model[number])
            case "extend":
                start = max([*model, *[ref.sequence for ref in taken], index.last]) + 1
                new = [MessageRef(start + 2 * each, f"e{start + 2 * each}", place) for each in range(number % 5 + 1)]
                if is_spooled:
                    new = [spooled(ref) for ref in new]
                its_places = [ref.place for ref in new] if is_spooled else None
                index.extend(place, [ref.sequence for ref in new], [ref.message_id for ref in new], its_places)
                model |= {ref.sequence: ref for ref in new}
            case "take":
                index.remove_first(number % 5)
                for ref in waiting[: number % 5]:
                    taken.append(model.pop(ref.sequence))
            case "discard":
                ref = model.pop(number, None)
                assert index.discard(number) is (ref is not None)
                taken += [ref] if ref else []
            case "after":
                expected = [ref for ref in waiting if ref.sequence > number - 1]
                assert index.after(number - 1, 4) == expected[:4]
            case "return" if taken:  # it comes back from a consumer, and is left to the store again
                ref = taken.pop(number % len(taken))._replace(redelivery_count=marks[0], strikes=marks[1])
                if ref.place != IN_STORE or is_spooled:
                    ref = spooled(ref)
                model[ref.sequence] = ref
                index.insert(ref)
            case "seen" if taken:
                taken = _return_seen(index, model, taken, place, number)
            case "recover":
                recover(number % 4, seen=delivered)
        waiting = [model[sequence] for sequence in sorted(model)]
        assert index.after(-1, 1000) == waiting
        assert index.count == len(waiting)
        assert index.first == (waiting[0].sequence if waiting else SEQUENCE_MAX)
        stored = [ref for ref in waiting if ref.place == IN_STORE]
        assert set(index.delivered()) == {ref.message_id for ref in stored if ref.redelivery_count}
        wanted = {(ref.destination, ref.message_id) for ref in stored[::3]}
        assert index.find(wanted) == stored[::3]
        assert sorted(released) == sorted(places - {ref.place for ref in waiting})
        assert index.has_places >= (len(stored) < len(waiting))
    while index.release_next():
        pass
    assert sorted(released) == sorted(places)


def test_a_long_recovered_run_is_freed_in_parts():
    index = PagedOutIndex()
    ids = [f"m{number}" for number in range(20_000)]
    index.recover(queue("Q"), ids, start=0, delivered=frozenset())
    lengths = []
    while index.release_next():
        lengths.append(len(ids))
    assert lengths == [11_808, 3_616, 3_616]


def _return_seen(index, model, taken, place, number):
    """Return several messages that were taken at once, if no others are between them; return those still taken."""
    there = sorted({ref.sequence: ref for ref in taken if ref.destination == place}.values())[: number % 6 + 1]
    refs = [ref._replace(message_id=f"s{ref.sequence}", redelivery_count=1, strikes=0, place=IN_STORE) for ref in there]
    numbers = [ref.sequence for ref in refs]
    if not refs or not index.insert_seen(place, numbers, [ref.message_id for ref in refs]):
        return taken
    assert not any(numbers[0] < sequence < numbers[-1] for sequence in model)
    model |= dict(zip(numbers, refs, strict=True))
    return [ref for ref in taken if ref.sequence not in numbers]


def test_a_recovery_does_not_look_at_the_ids():
    ids = [f"ID:host-1-1:1:1:{number}" for number in range(10_000)]
    index = PagedOutIndex()
    index.recover(queue("Q"), ids, start=7, delivered=None)
    assert index.count == 10_000
    assert index._runs[0].ids is ids, "not even copied"
    assert index._runs[0].sequences == range(7, 10_007)


def test_what_was_taken_is_let_go_of():
    ids = [f"ID:host-1-1:1:1:{number}" for number in range(1000)]
    index = PagedOutIndex()
    index.recover(queue("Q"), ids, start=0, delivered=None)
    index.remove_first(999)
    assert [each for each in ids if each is not None] == ["ID:host-1-1:1:1:999"]


def test_a_window_that_was_seen_returns_in_few_runs():
    index = PagedOutIndex()
    index.extend(A, [40_000], ["behind"])
    assert index.insert_seen(A, list(range(20_000)), [str(each) for each in range(20_000)])
    assert len(index._runs) == 4
    assert [ref.redelivery_count for ref in index.after(19_998, 2)] == [1, 0]
    assert not index.insert_seen(A, [30_000, 50_000], ["a", "b"]), "another is between them"
    assert not index.insert_seen(A, [19_999, 30_000], ["a", "b"])
    index.insert(MessageRef(30_000, "last", A, 1))
    index.extend(A, [60_000], ["new"])
    assert [ref.redelivery_count for ref in index.after(29_999, 9)] == [1, 0, 0]


def test_an_interleaved_put_moves_no_more_than_a_run():
    index = PagedOutIndex()
    sequences = range(0, 100_000, 2)
    for start in range(0, len(sequences), 1000):
        chunk = sequences[start : start + 1000]
        index.extend(A, list(chunk), [str(each) for each in chunk])
    assert max(len(run.ids) for run in index._runs) <= module._RUN_MAX + 1000
    index.insert(MessageRef(50_001, "between", A))
    assert [ref.message_id for ref in index.after(49_999, 3)] == ["50000", "between", "50002"]
