"""A durable subscription's cursor against a plain model: sets of what is acknowledged."""

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from pybroker.store.jdbc.contents import Lane, by_class, pack


@given(st.integers(1, 20), st.data())
def test_cursor_is_before_the_oldest_pending_id(count: int, data: st.DataObject) -> None:
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


@given(st.sets(st.integers(1, 20), min_size=1), st.data())
def test_restored_lane_goes_on_where_the_former_was(ids: set[int], data: st.DataObject) -> None:
    order = data.draw(st.permutations(sorted(ids)))
    count = data.draw(st.integers(0, len(order)))
    former = Lane(0, 0)
    for each in sorted(ids):
        former.add(each)
    for each in order[:count]:
        former.settle(each, f"m{each}")
    restored = Lane(0, former.cursor)
    for each in sorted(former.pending | set(former.apart)):
        if each in former.apart:
            restored.add_apart(each, former.apart[each])
        else:
            restored.add(each)
    for each in order[count:]:
        assert sorted(former.settle(each, f"m{each}")) == sorted(restored.settle(each, f"m{each}"))
        assert (restored.cursor, restored.apart, restored.pending) == (former.cursor, former.apart, former.pending)


class CountingDict(dict[int, str]):
    """Counts how many of its items are looked at one by one."""

    visited = 0

    def __iter__(self) -> Iterator[int]:
        for each in super().__iter__():
            self.visited += 1
            yield each


def test_acknowledgement_out_of_order_scans_no_others() -> None:
    lane = Lane(0, 0)
    for each in range(1, 1001):
        lane.add(each)
    lane.apart = CountingDict()
    for each in range(2, 1001):
        assert lane.settle(each, "m") == []
    assert lane.settle(1, "m") == list(range(2, 1001))
    assert lane.apart.visited == 0
    assert lane.cursor == 1000


def test_without_messages_the_cursor_stays() -> None:
    lane = Lane(3, 7)
    assert lane.reach([]) == 7
    assert lane.cursor == 7


def test_three_classes_by_age() -> None:
    priorities = (4, 9, 0, 4, 5, 3)
    messages = [(f"m{number}", pack(number, priority)) for number, priority in enumerate(priorities)]
    assert by_class(messages) == ["m1", "m4", "m0", "m3", "m2", "m5"]
