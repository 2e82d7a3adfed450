"""A durable subscription's cursor against a plain model: sets of what is acknowledged."""

from hypothesis import given
from hypothesis import strategies as st

from pybroker.store.jdbc.contents import Lane, by_class, pack


@given(st.integers(1, 20), st.data())
def test_the_cursor_is_before_the_oldest_that_is_pending_and_the_rest_is_apart(count: int, data: st.DataObject) -> None:
    lane = Lane(0, 10)
    ids = [11 + 2 * number for number in range(count)]  # other destinations take ids too
    for each in ids:
        lane.add(each)
    acknowledged: set[int] = set()
    written: set[int] = set()
    for each in data.draw(st.permutations(ids)):
        held = data.draw(st.sets(st.sampled_from(ids)))
        passed = lane.settle(each, f"m{each}")
        acknowledged.add(each)
        written |= {each} & set(lane.apart)
        assert set(passed) <= written
        written -= set(passed)
        pending = [other for other in ids if other not in acknowledged]
        assert lane.pending == set(pending)
        assert lane.cursor == (pending[0] - 1 if pending else ids[-1])
        assert set(lane.apart) == {other for other in acknowledged if other > lane.cursor} == written
        left = [other for other in pending if other not in held]
        assert lane.reach(held) == (left[0] - 1 if left else ids[-1])


def test_without_messages_the_cursor_stays() -> None:
    lane = Lane(3, 7)
    assert lane.reach([]) == 7
    assert lane.cursor == 7


def test_three_classes_by_age() -> None:
    priorities = (4, 9, 0, 4, 5, 3)
    messages = [(f"m{number}", pack(number, priority)) for number, priority in enumerate(priorities)]
    assert by_class(messages) == ["m1", "m4", "m0", "m3", "m2", "m5"]
