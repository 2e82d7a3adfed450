# mypy: disable-error-code="list-item"
"""Contract of every `MessageStore` for queues that exist while they are empty."""

import random
from pathlib import Path
from typing import Any

import pytest

from pybroker.broker.domain.destination import Destination, DestinationType, queue, topic
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.recovery import Recovery
from pybroker.store.journal.appender import JournalSettings
from pybroker.store.journal.store_snapshot import SNAPSHOT_NAME
from tests.conformance.lives import BETWEEN, MakeMessage, crash, reopen

A = queue("Consumer.a.VirtualTopic.X")
B = queue("Consumer.b.VirtualTopic.X")
ODD = queue('grüße "\n\\ 世界')
OTHER = queue("OTHER")


def collect(lives: Any, make_message: MakeMessage, rounds: int = 3) -> None:
    """Have what was written so far collected: traffic fills many small files, and is consumed."""
    number = 1000
    for _ in range(rounds):
        for _ in range(20):
            number += 1
            message = make_message(OTHER, number, "x" * 400)
            lives.store.add(message)
            lives.store.remove(OTHER, message.message_id)
        lives.flush()
        lives.cleanup()
        lives.flush()


def names(recovery: Recovery) -> dict[Destination, int]:
    """Return how many messages each queue has that a recovery names."""
    return {each: len(messages) for each, messages in recovery.queues.items()}


@BETWEEN
def test_a_kept_queue_is_there_though_it_never_held_a_message(lives: Any, next_life: Any) -> None:
    for kept in (A, B, ODD):
        lives.store.declare(kept)
    assert names(next_life(lives)) == {A: 0, B: 0, ODD: 0}
    assert names(next_life(lives)) == {A: 0, B: 0, ODD: 0}, "in every later life"


@BETWEEN
def test_a_kept_queue_that_was_emptied_is_there(lives: Any, text_message: MakeMessage, next_life: Any) -> None:
    message = text_message(A, 1)
    lives.store.add(message)
    lives.store.declare(A)
    lives.store.remove(A, message.message_id)
    assert names(next_life(lives)) == {A: 0}


@BETWEEN
def test_a_kept_queue_keeps_its_messages(lives: Any, text_message: MakeMessage, next_life: Any) -> None:
    lives.store.declare(A)
    lives.store.add(text_message(A, 1))
    lives.store.add(text_message(OTHER, 2))
    assert names(next_life(lives)) == {A: 1, OTHER: 1}


@BETWEEN
def test_kept_queue_survives_deletion_of_its_files(lives: Any, text_message: MakeMessage, next_life: Any) -> None:
    lives.store.declare(A)
    lives.store.add(text_message(OTHER, 1))  # a straggler, so that files stay for others
    collect(lives, text_message)
    lives.store.declare(B)
    lives.store.remove(OTHER, text_message(OTHER, 1).message_id)
    collect(lives, text_message)
    assert names(next_life(lives)) == {A: 0, B: 0}
    collect(lives, text_message)
    assert names(next_life(lives)) == {A: 0, B: 0}


@BETWEEN
def test_a_queue_that_was_removed_is_kept_no_longer(lives: Any, text_message: MakeMessage, next_life: Any) -> None:
    lives.store.declare(A)
    lives.store.declare(B)
    lives.store.remove_destination(A)
    assert names(next_life(lives)) == {B: 0}
    collect(lives, text_message)
    assert names(next_life(lives)) == {B: 0}


@BETWEEN
def test_removal_survives_deletion_of_the_queues_files(lives: Any, text_message: MakeMessage, next_life: Any) -> None:
    """A straggler keeps the file with the queue's name in the journal, while what comes later is collected."""
    lives.store.add(text_message(OTHER, 1))
    lives.store.declare(A)
    lives.store.add(text_message(OTHER, 2, "x" * 3000))
    collect(lives, text_message)
    lives.store.remove_destination(A)
    collect(lives, text_message, rounds=6)
    assert A not in names(next_life(lives))
    lives.store.remove(OTHER, text_message(OTHER, 1).message_id)  # now its file may be compacted, or go
    collect(lives, text_message, rounds=6)
    assert A not in names(next_life(lives))


@BETWEEN
def test_removal_survives_compaction_of_the_queues_file(lives: Any, text_message: MakeMessage, next_life: Any) -> None:
    """Compaction drops dead messages, and then forgets who had to answer them; the queue's name is still there."""
    lives.store.add(text_message(OTHER, 1))  # keeps the first file, which keeps those with acks for it, and so on
    for number in range(2, 9):
        lives.store.add(text_message(OTHER, number, "x" * 3000))
        lives.flush()  # what comes next is in another file than the message before
        if number > 2:
            lives.store.remove(OTHER, text_message(OTHER, number - 1).message_id)
        if number == 3:
            lives.store.declare(A)
        if number == 4:
            lives.store.remove_destination(A)
    for _ in range(8):
        lives.flush()
        lives.cleanup()
    assert names(next_life(lives)) == {OTHER: 2}


@BETWEEN
def test_a_queue_that_was_removed_can_be_kept_again(lives: Any, text_message: MakeMessage, next_life: Any) -> None:
    lives.store.declare(A)
    lives.store.remove_destination(A)
    lives.store.declare(A)
    collect(lives, text_message)
    assert names(next_life(lives)) == {A: 0}


def test_only_lasting_queues_are_kept(lives: Any) -> None:
    lives.store.declare(topic("VirtualTopic.X"))
    lives.store.declare(Destination(DestinationType.TEMP_QUEUE, "ID:c:1"))
    assert names(reopen(lives)) == {}


def test_repeating_a_declaration_changes_nothing(lives: Any, text_message: MakeMessage) -> None:
    lives.store.declare(A)
    lives.store.declare(A)
    assert names(reopen(lives)) == {A: 0}
    lives.store.declare(A)
    assert names(reopen(lives)) == {A: 0}


@pytest.mark.parametrize("seed", range(6))
def test_a_long_life_with_collections_and_compactions(
    seed: int, tmp_path: Path, text_message: MakeMessage, memory_lives_type: Any, journal_lives_type: Any
) -> None:
    """Queues come and go among traffic with stragglers; after every crash the journal names those the model names."""
    both = [memory_lives_type(), journal_lives_type(tmp_path)]
    for lives in both:
        lives.open()
    journal = both[1]
    chance = random.Random(seed)
    queues = [queue(f"Consumer.{letter}.VirtualTopic.X") for letter in "abcde"]
    waiting: list[Message] = []
    for step in range(1, 901):
        kept = chance.choice(queues)
        match chance.randrange(12):
            case 0:
                operations = [("declare", kept)]
            case 1:
                operations = [("remove_destination", kept)]
                waiting = [message for message in waiting if message.destination != kept]
            case 2 | 3 | 4 | 5 | 6:
                waiting.append(text_message(chance.choice([OTHER, OTHER, kept]), step, "x" * 200))
                operations = [("add", waiting[-1])]
            case _ if len(waiting) > 5:
                message = waiting.pop(chance.choice([0, 1, -1, -2]))
                operations = [("remove", message.destination, message.message_id)]
            case _:
                operations = []
        for lives in both:
            for method, *arguments in operations:
                getattr(lives.store, method)(*arguments)
        if step % 5 == 0:
            journal.flush()
            journal.cleanup()
        if step % 60 == 0:
            assert names(crash(journal)) == names(crash(both[0]))
    journal.crash()


def test_many_metadata_records_do_not_hide_a_clean_stop(tmp_path: Path, journal_lives_type: Any) -> None:
    """A replay retains a limited number of traces of a journal's end; these metadata records are not among them."""
    journal = journal_lives_type(tmp_path, settings=JournalSettings())  # all of it in one file
    journal.open()
    for number in range(4200):
        journal.store.declare(queue(f"Consumer.a{number}.VirtualTopic.X"))
    journal.close(["ID:seen:1:1:1"])
    (tmp_path / SNAPSHOT_NAME).unlink(missing_ok=True)  # with it nothing would be replayed
    recovery = journal.open()
    assert recovery.delivered == {"ID:seen:1:1:1"}
    assert len(recovery.queues) == 4200
    journal.crash()
