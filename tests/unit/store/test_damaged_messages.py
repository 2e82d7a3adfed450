"""A message whose record is damaged on this disk is read from another member's copy, if one has it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pybroker.broker.domain.errors import NotReadYet, StoreUnavailable
from pybroker.broker.domain.message import Message
from pybroker.store.journal.elsewhere import KEPT_SECONDS, RecordsElsewhere
from pybroker.store.journal.format import data_file_name
from pybroker.store.journal.large_bodies import LARGE_BODY_BYTES
from pybroker.store.journal.store import _place
from pybroker.store.replica.records import sound_record
from tests.unit.store.test_large_bodies import QUEUE, Loop, message


class DamagedStore:
    """A store whose directory has a sound copy, and which asks for what is damaged.

    Attributes:
        asked: the offsets that were asked for and not answered, each with what takes the record.
    """

    def __init__(self, directory: Path, *messages: Message) -> None:
        self.loop = Loop(directory / "own")
        self.loop.add(*messages)
        self.messages = messages
        self.path = self.loop.directory / data_file_name(1)
        self.copy = directory / "copy.log"
        self.copy.write_bytes(self.path.read_bytes())
        self.asked: list[tuple[int, Callable[[bytes], None]]] = []
        store = self.loop.store
        store._elsewhere = RecordsElsewhere(
            self.loop.directory,
            lambda file_id, offset, taken: self.asked.append((offset, taken)),
            lambda: store.on_readable(),
            lambda seconds, callback: self.loop.timers.append((seconds, callback)),
        )

    def offset(self, number: int) -> int:
        message_id = self.messages[number].message_id
        return _place(message_id, self.loop.store._state.destinations[QUEUE].messages[message_id])[2]

    def damage(self, number: int) -> None:
        """Change the type in a record's header."""
        with self.path.open("r+b") as file:
            file.seek(self.offset(number) + 4)
            file.write(b"\x09")

    def page(self) -> list[bytes]:
        return self.loop.page(*self.messages)

    def answer(self) -> None:
        """Answer all questions from the copy."""
        asked, self.asked = self.asked, []
        for offset, taken in asked:
            taken(sound_record(self.copy, offset))


Make = Callable[..., DamagedStore]


def data(*messages: Message) -> list[bytes]:
    return [each.data for each in messages]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[DamagedStore] = []

    def make_one(*messages: Message) -> DamagedStore:
        made.append(DamagedStore(tmp_path, *messages))
        return made[-1]

    yield make_one
    for each in made:
        each.loop.store.abandon()


def test_damaged_messages_of_a_page_are_asked_for_together(make: Make) -> None:
    store = make(*(message(number, 100) for number in range(5)))
    for number in (1, 3):
        store.damage(number)
    with pytest.raises(NotReadYet, match="another member's copy"):
        store.page()
    assert [offset for offset, _ in store.asked] == [store.offset(1), store.offset(3)]
    with pytest.raises(NotReadYet):
        store.page()
    assert len(store.asked) == 2, "each is asked for once"
    store.answer()
    assert store.loop.readable_count == 2
    assert store.page() == data(*store.messages)
    assert not store.loop.store.damages


def test_damaged_message_that_no_other_member_has_is_left_out(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    store = make(*(message(number, 100) for number in range(3)))
    store.damage(1)
    with pytest.raises(NotReadYet):
        store.page()
    ((_, taken),) = store.asked
    taken(b"")
    assert store.page() == data(store.messages[0], store.messages[2])
    assert len(store.loop.store.damages) == 1
    assert "no other member has a sound copy" in caplog.text


@pytest.mark.parametrize("other", [0, None])
def test_another_record_does_not_count(make: Make, other: int | None) -> None:
    store = make(*(message(number, 100) for number in range(2)))
    store.damage(1)
    with pytest.raises(NotReadYet):
        store.page()
    ((_, taken),) = store.asked
    taken(b"\0\0\0\x07\x01ab" if other is None else sound_record(store.copy, store.offset(other)))
    assert store.page() == data(store.messages[0])


def test_large_damaged_message(make: Make) -> None:
    store = make(message(1, LARGE_BODY_BYTES))
    store.damage(0)
    for _ in range(2):  # it is read in the thread, and then asked for
        with pytest.raises(NotReadYet):
            store.page()
        store.loop.turn()
    store.answer()
    assert store.page() == data(*store.messages), "this disk is not read again"


def test_page_that_has_failed_does_not_make_the_next_one_wait(make: Make) -> None:
    """It would wait for an answer that has come already: nothing would have the page read again."""
    store = make(*(message(number, 100) for number in range(2)))
    store.damage(0)
    path, missing = store.path, store.path.with_name("missing")
    with pytest.raises(NotReadYet):
        store.page()
    elsewhere = store.loop.store._elsewhere
    assert elsewhere is not None
    elsewhere.is_waiting = True  # as left by a page whose next data file could not be opened
    path.rename(missing)
    with pytest.raises(StoreUnavailable):
        store.page()
    missing.rename(path)
    store.answer()
    assert store.page() == data(*store.messages)


def test_answer_is_forgotten_after_a_while(make: Make) -> None:
    store = make(message(1, 100))
    store.damage(0)
    with pytest.raises(NotReadYet):
        store.page()
    store.answer()
    ((seconds, forget),) = store.loop.timers
    assert seconds == KEPT_SECONDS
    forget()
    with pytest.raises(NotReadYet):
        store.page()
    assert len(store.asked) == 1
