"""A list of ids made ahead is brought up to date to exactly what listing them again gives."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.broker.domain.destination import queue
from pybroker.broker.domain.transaction import LocalTransactionId
from pybroker.store.journal import id_cache as id_cache_module
from pybroker.store.journal.format import Location
from pybroker.store.journal.id_cache import IdCache, updated_ids
from pybroker.store.journal.state import StoreState
from pybroker.store.journal.store_snapshot import follower
from tests.unit.store.test_journal_store import QUEUE, Bench, message

MARK = 100

CHANGES = st.lists(st.tuples(st.sampled_from(("add", "remove", "move")), st.integers(0, 20)))
"""Changes, each with its message. The ids are few, so that many come again."""


@given(before=st.lists(st.integers(0, 20), unique=True), changes=CHANGES)
def test_updated_ids_equal_a_new_listing(before: list[int], changes: list[tuple[str, int]]) -> None:
    messages = {f"ID:{number}": place for place, number in enumerate(before)}
    listed = list(messages)
    for place, (change, number) in enumerate(changes, MARK):
        message_id = f"ID:{number}"
        if change == "remove":
            messages.pop(message_id, None)
        elif change == "add":
            messages.setdefault(message_id, place)
        elif message_id in messages:
            messages[message_id] = place
    assert updated_ids(listed, messages, MARK) == list(messages)


class Counted(dict[str, int]):
    """A mapping that records if it was iterated."""

    walks = 0

    def __iter__(self) -> Any:
        self.walks += 1
        return super().__iter__()


def test_changes_at_both_ends_need_no_walk() -> None:
    messages = Counted({f"ID:{number}": number for number in range(1000)})
    listed = list(messages)
    walks = messages.walks
    for number in (0, 1, 2, 4, 7, 999):
        del messages[f"ID:{number}"]
    messages["ID:1000"] = 1000
    found = updated_ids(listed, messages, 1000)
    assert messages.walks == walks
    assert found is listed
    assert found == list(messages)


def test_a_message_added_again_by_an_older_transaction_is_new() -> None:
    """Its place in the journal is from before the caching, its place in the queue is from after."""
    state = StoreState()
    transaction = LocalTransactionId("ID:c:1", 1)
    orders = queue("ORDERS")
    for number in (1, 2, 3):
        state.add(orders, f"ID:{number}", number << 80, None)
    state.add(orders, "ID:3", 4 << 80, transaction)
    messages = state.destinations[orders].messages
    cache = IdCache()
    cache._ids = {orders: list(messages)}
    cache._lowest_place = id_cache_module._lowest_later_place(state, Location(2**20, 0))
    del messages["ID:2"], messages["ID:3"]
    messages["ID:5"] = 2**120
    messages["ID:3"] = 4 << 80
    assert cache.pop(orders, messages) == ["ID:1", "ID:5", "ID:3"]


def test_the_ids_cached_by_a_standby_are_recovered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(id_cache_module, "LONG_QUEUE", 3)
    master = Bench(tmp_path)
    master.store.recover()
    for number in range(1, 6):
        master.store.add(message(number))
    master.sync()
    waiting = follower(tmp_path)
    waiting.catch_up()
    waiting.cache_ids()
    listed = waiting.id_cache._ids[QUEUE]
    assert listed == [message(number).message_id for number in range(1, 6)]
    master.store.remove(QUEUE, message(1).message_id)
    master.store.add(message(6))
    master.sync()
    master.store.abandon()
    new_master = Bench(tmp_path, follower=waiting)
    found = new_master.store.recover().queues[QUEUE]
    new_master.store.abandon()
    assert found == [message(number).message_id for number in range(2, 7)]
    assert found is listed, "what was listed ahead is used"
