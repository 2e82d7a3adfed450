"""The list of waiting references, against a plain sorted dict."""

from hypothesis import given
from hypothesis import strategies as st

from pybroker.broker.core import pending as module
from pybroker.broker.core.pending import Pending
from pybroker.broker.core.reference import Reference, State

OPERATIONS = st.lists(st.tuples(st.sampled_from(["append", "take", "restore", "sweep", "scan"]), st.integers(0, 50)))


@given(OPERATIONS, st.integers(1, 4))
def test_it_behaves_like_a_sorted_dict(operations, cut_min):
    module._CUT_MIN, before = cut_min, module._CUT_MIN
    try:
        _compare(operations)
    finally:
        module._CUT_MIN = before


def _compare(operations):
    pending, expected, taken = Pending(), {}, []
    for sequence, (operation, number) in enumerate(operations):
        match operation:
            case "append":
                expected[sequence] = Reference(None, None, sequence)
                pending.append(expected[sequence])
            case "take" if expected:
                reference = expected.pop(sorted(expected)[number % len(expected)])
                pending.take(reference, State.DISPATCHED)
                taken.append(reference)
            case "restore" if taken:
                reference = taken.pop(number % len(taken))
                expected[reference.sequence] = reference
                pending.restore(reference)
            case "sweep":
                pending.sweep()
            case "scan":
                assert [found.sequence for found in pending.scan(number)] == sorted(
                    sequence for sequence in expected if sequence > number
                )
        assert len(pending) == len(expected)
        assert [found.sequence for found in pending] == sorted(expected)
    assert [found.sequence for found in pending.scan()] == sorted(expected)


def test_taking_from_the_head_lets_go_of_what_was_taken():
    pending = Pending()
    for sequence in range(100_000):
        pending.append(Reference(None, None, sequence))
    for reference in pending.scan():
        pending.take(reference, State.DISPATCHED)
    pending.sweep()
    pending.scan()
    assert len(pending) == 0
    assert len(pending._items) < module._CUT_MIN + 1
