# mypy: disable-error-code="arg-type, misc"
"""The buffer in front of the writer: what is consumed in time is never written; confirmations are never early."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pybroker.broker.domain.destination import Destination, queue, topic
from pybroker.broker.domain.errors import LockNotHeld, StoreUnavailable
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.ports import RemovalReason
from pybroker.broker.domain.subscription import DurableSubscription
from pybroker.broker.domain.transaction import LocalTransactionId
from pybroker.store import write_elision
from pybroker.store.journal.store import JournalStore
from pybroker.store.write_elision import HELD_BYTES_MAX, HOLD_SECONDS, NEWEST_MAX, UNRECORDED_MAX, WriteElisionBuffer
from tests.conformance.conftest import WAIT_SECONDS, text_message
from tests.runtimes import runtime

QUEUE, OTHER, NEWS = queue("Q"), queue("OTHER"), topic("NEWS")


class World:
    """A buffer, with time and disk turned by hand."""

    def __init__(self) -> None:
        self.now = 100.0
        self.write_seconds = 0.001
        self.written: list[str] = []
        self.confirmed: list[str] = []
        self.sequences: list[str] = []
        self.waiting: list[Callable[[], None]] = []
        self.soon: list[Callable[[], None]] = []
        self.alarms: list[tuple[float, Callable[[], None]]] = []
        self.has_stopped = False
        world = runtime(
            self.soon.append,
            call_later=lambda seconds, callback: self.alarms.append((seconds, callback)),
            monotonic=lambda: self.now,
        )
        self.buffer = WriteElisionBuffer(self, self, world)

    def expect(self, message: Message) -> bool:
        return True

    def when_durable(self, callback: Callable[[], None]) -> None:
        self.waiting.append(callback)

    def notify(self, callbacks: Sequence[Callable[[], None]]) -> None:
        self.soon += callbacks

    def write(self, message: Message) -> None:
        if self.has_stopped:
            raise StoreUnavailable("stopped")
        self.written.append(message.message_id[-1])

    def write_sequences(self, numbers: Mapping[str, int]) -> None:
        if self.has_stopped:
            raise StoreUnavailable("stopped")
        self.sequences += [f"{producer_id}:{number}" for producer_id, number in numbers.items()]

    def add(self, *names: int) -> None:
        for name in names:
            self.buffer.add(text_message(QUEUE, name))
            assert self.buffer.when_safe(lambda name=name: self.confirmed.append(str(name)))

    def consume(self, *names: int) -> None:
        for name in names:
            assert self.buffer.consume(QUEUE, text_message(QUEUE, name).message_id)

    def ring(self) -> None:
        """Let the requested time pass."""
        ((seconds, callback),) = self.alarms
        self.alarms.clear()
        assert seconds == HOLD_SECONDS
        callback()

    def sync(self) -> None:
        waiting, self.waiting[:] = list(self.waiting), []
        for callback in waiting:
            callback()

    def turn(self) -> None:
        soon, self.soon[:] = list(self.soon), []
        for callback in soon:
            callback()

    def watch(self, seconds: float, count: int) -> None:
        """Have so many watched adds consumed after that time."""
        for number in range(count * write_elision.WATCH_EVERY):
            message_id = f"watched:{number}"
            self.buffer.observe_add(message_id)
            self.now += seconds
            self.buffer.observe_consumption(message_id)


@pytest.fixture
def world() -> World:
    return World()


class TestHeld:
    def test_what_is_consumed_in_time_is_never_written(self, world: World) -> None:
        world.add(1, 2)
        world.consume(1, 2)
        assert world.confirmed == []  # before the end of the turn, where the fence is checked
        world.turn()
        assert world.confirmed == ["1", "2"]
        world.ring()
        assert (world.written, world.alarms, world.buffer.byte_count) == ([], [], 0)

    def test_callbacks_wait_for_what_was_sent_earlier(self, world: World) -> None:
        world.add(1, 2, 3)
        world.consume(3, 2)
        world.turn()
        assert world.confirmed == []
        world.consume(1)
        world.turn()
        assert world.confirmed == ["1", "2", "3"]

    def test_remaining_messages_are_written_in_order_before_answers(self, world: World) -> None:
        world.add(1, 2, 3)
        world.consume(2)
        world.ring()
        assert world.written == ["1"]  # the others came after the clock was wound
        world.ring()
        world.turn()
        assert (world.written, world.confirmed) == (["1", "3"], [])
        assert not world.buffer.when_safe(lambda: None)
        world.sync()
        assert world.confirmed == ["1", "2", "3"]

    def test_one_behind_a_message_that_is_being_written_waits_for_it(self, world: World) -> None:
        world.add(1, 2)
        world.ring()
        world.consume(2)  # perhaps the other copy of the same message
        world.turn()
        assert (world.written, world.confirmed) == (["1"], [])
        world.sync()
        assert world.confirmed == ["1", "2"]
        world.add(3)
        world.consume(3)
        world.turn()
        assert world.confirmed == ["1", "2", "3"]

    def test_one_behind_two_writes_waits_for_the_second(self, world: World) -> None:
        world.add(1)
        world.buffer.flush()
        first, world.waiting = world.waiting, []
        world.add(2)
        world.buffer.flush()
        for callback in first:
            callback()
        world.add(3)
        world.consume(3)
        world.turn()
        assert world.confirmed == ["1"]
        world.sync()
        assert world.confirmed == ["1", "2", "3"]

    def test_requested_write_covers_the_connections_sends(self, world: World) -> None:
        world.add(1)
        world.buffer.add(replace(text_message(QUEUE, 2), connection_id="ID:b"))
        world.add(3)
        world.buffer.flush_from("ID:c")
        assert world.written == []
        world.buffer.flush_from("ID:b")
        world.buffer.flush_from("ID:b")
        assert world.written == ["1", "2"]
        world.consume(3)
        world.buffer.flush_from(text_message(QUEUE, 3).connection_id)
        assert world.written == ["1", "2"]

    def test_connections_of_whom_nothing_is_here_are_forgotten(self, world: World) -> None:
        world.add(1)
        for number in range(2, 3 * NEWEST_MAX):
            world.buffer.add(replace(text_message(QUEUE, number), connection_id=f"ID:{number}"))
            if not number % 10:
                world.ring()
            assert len(world.buffer._newest) <= NEWEST_MAX + 20
        world.ring()
        world.ring()
        assert not world.buffer._newest

    def test_a_message_has_at_least_its_time(self, world: World) -> None:
        world.add(1)
        world.consume(1)
        world.add(2)
        world.ring()
        assert world.written == []
        world.ring()
        assert world.written == ["2"]

    def test_one_that_left_is_unknown(self, world: World) -> None:
        world.add(1)
        message_id = text_message(QUEUE, 1).message_id
        assert (QUEUE, message_id) in world.buffer
        assert not world.buffer.consume(OTHER, message_id)
        world.consume(1)
        assert (QUEUE, message_id) not in world.buffer
        assert not world.buffer.consume(QUEUE, message_id)

    def test_more_than_so_many_bytes_are_not_held(self, world: World) -> None:
        world.buffer.add(text_message(QUEUE, 1))
        world.buffer.add(text_message(QUEUE, 2, "x" * HELD_BYTES_MAX))
        assert (world.written, world.buffer.byte_count) == (["1", "2"], 0)

    def test_a_stopped_writer_accepts_and_confirms_nothing(self, world: World) -> None:
        world.add(1, 2)
        world.has_stopped = True
        world.ring()
        world.turn()
        assert (world.confirmed, world.waiting, world.alarms) == ([], [], [])


class TestOpening:
    def test_consumers_that_keep_up_make_it_pay(self, world: World) -> None:
        assert not world.buffer.is_open
        world.watch(0.0005, 10)
        assert world.buffer.is_open

    def test_consumers_that_take_longer_do_not(self, world: World) -> None:
        world.watch(HOLD_SECONDS + 0.002, 100)
        assert not world.buffer.is_open

    def test_a_queue_without_consumers_opens_no_buffer(self, world: World) -> None:
        for number in range(1000):
            world.buffer.observe_add(str(number))
        assert not world.buffer.is_open

    def test_a_disk_quicker_than_any_consumer_opens_no_buffer(self, world: World) -> None:
        world.write_seconds = 10e-6
        world.watch(20e-6, 100)
        assert not world.buffer.is_open

    def test_a_burst_that_is_too_large_does_not_end_it(self, world: World) -> None:
        """The messages it has written had not had their time."""
        world.watch(0.0005, 20)
        world.add(*range(50))
        world.buffer.add(text_message(QUEUE, 50, "x" * HELD_BYTES_MAX))
        assert (len(world.written), world.buffer.is_open) == (51, True)

    def test_bursts_no_one_consumes_of_do(self, world: World) -> None:
        world.watch(0.0005, 10)
        for number in range(20):
            world.buffer.add(text_message(QUEUE, number, "x" * HELD_BYTES_MAX))
        assert not world.buffer.is_open

    def test_buffer_closes_when_no_one_consumes_any_more(self, world: World) -> None:
        world.watch(0.0005, 10)
        for number in range(20):
            world.buffer.add(text_message(QUEUE, number))
            world.ring()
        assert not world.buffer.is_open
        assert len(world.written) == 20


class Journal:
    """A journal store that holds whatever it may."""

    def __init__(self, directory: Path) -> None:
        self.soon: list[Callable[[], None]] = []
        self.failures: list[Exception] = []
        self.confirmed: list[str] = []
        self.is_master = True
        self.store = JournalStore(
            directory,
            runtime=runtime(
                self.soon.append,
                call_later=lambda seconds, callback: None,
                fence=self._check,
                on_failure=self.failures.append,
            ),
        )
        self.store.recover()
        self.buffer.is_open = True
        self.buffer._share = 1e9

    @property
    def buffer(self) -> WriteElisionBuffer:
        assert self.store._elision is not None
        return self.store._elision

    def add(self, name: int, destination: Destination = QUEUE) -> str:
        message = text_message(destination, name)
        assert self.store.add(message)
        self.store.when_confirmed(lambda: self.confirmed.append(str(name)))
        return message.message_id

    def stored(self) -> list[str]:
        """Return what a new master would find after a crash now."""
        return [message_id[-1] for message_id in self.store._state.destinations[QUEUE].messages]

    def turn(self) -> None:
        while self.soon:
            self.soon.pop(0)()

    def run_until(self, done: list[int]) -> None:
        """Turn until a callback ran; the disk may be too slow for the loop to write itself."""
        deadline = time.monotonic() + WAIT_SECONDS
        while not done:
            assert time.monotonic() < deadline
            self.turn()

    def _check(self) -> None:
        if not self.is_master:
            raise LockNotHeld("the lock was taken away")


@pytest.fixture
def journal(tmp_path: Path):
    journal = Journal(tmp_path)
    yield journal
    journal.store.abandon()


class TestInTheStore:
    def test_a_consumed_message_leaves_no_trace_in_the_journal(self, journal: Journal) -> None:
        message_id = journal.add(1)
        before = journal.store._writer._end
        journal.store.remove(QUEUE, message_id)
        journal.turn()
        assert (journal.confirmed, journal.store._writer._end, journal.store.unwritten_bytes) == (["1"], before, 0)

    def test_an_elided_message_counts_for_its_producers_sequence(self, journal: Journal) -> None:
        message_id = journal.add(1)
        journal.store.remove(QUEUE, message_id)
        assert journal.store.last_sequence(message_id.rpartition(":")[0]) == 1

    def test_a_message_is_held_once(self, journal: Journal) -> None:
        journal.add(1)
        assert not journal.store.add(text_message(QUEUE, 1))
        journal.buffer.is_open = False
        assert not journal.store.add(text_message(QUEUE, 1)), "it is still there"
        journal.add(2)
        assert journal.stored() == ["1", "2"]

    def test_without_the_lock_nothing_is_confirmed(self, journal: Journal) -> None:
        message_id = journal.add(1)
        journal.is_master = False
        journal.store.remove(QUEUE, message_id)
        journal.turn()
        assert journal.confirmed == []
        assert [type(failure) for failure in journal.failures] == [LockNotHeld]
        journal.add(2)
        with pytest.raises(StoreUnavailable):
            journal.buffer.flush()

    def test_copies_are_written_before_their_messages_removal(self, journal: Journal) -> None:
        message_id = journal.add(1)
        journal.add(2, OTHER)  # its dead letter
        journal.store.remove(QUEUE, message_id, reason=RemovalReason.DISCARDED)
        assert journal.store._state.contains(OTHER, text_message(OTHER, 2).message_id)
        assert journal.confirmed == []

    def test_sends_are_written_before_the_clients_next_ack(self, journal: Journal) -> None:
        """It waits for no answer, but may have made the one message of the other."""
        request, reply = journal.add(1), replace(text_message(OTHER, 2), connection_id="ID:server")
        assert journal.store.add(reply)
        journal.store.remove(QUEUE, request, connection_id="ID:server")
        assert journal.stored() == []
        assert journal.store._state.contains(OTHER, reply.message_id)
        journal.turn()
        assert journal.confirmed == ["1"]

    def test_that_another_was_consumed_does_not_end_the_wait(self, journal: Journal) -> None:
        """Else the acknowledgement of each message that is written would have the next ones written."""
        journal.buffer.is_open = False
        written = journal.add(1)
        journal.buffer.is_open = True
        held = journal.add(2)
        journal.store.remove(QUEUE, written, connection_id="ID:another")
        assert journal.stored() == []
        journal.store.remove(QUEUE, held, connection_id="ID:another")
        journal.turn()
        assert journal.confirmed == ["1", "2"]

    def test_a_message_is_not_made_of_itself(self, journal: Journal) -> None:
        message_id = journal.add(1)
        before = journal.store._writer._end
        journal.store.remove(QUEUE, message_id, connection_id=text_message(QUEUE, 1).connection_id)
        journal.turn()
        assert (journal.confirmed, journal.store._writer._end) == (["1"], before)

    def test_what_others_sent_need_not_be(self, journal: Journal) -> None:
        request, reply = journal.add(1), replace(text_message(OTHER, 2), connection_id="ID:server")
        assert journal.store.add(reply)
        journal.store.remove(QUEUE, request, connection_id="ID:another")
        assert not journal.store._state.contains(OTHER, reply.message_id)

    def test_transacted_ack_waits_for_the_outcome(self, journal: Journal) -> None:
        message_id = journal.add(1)
        transaction = LocalTransactionId("ID:c:1", 1)
        journal.store.remove(QUEUE, message_id, transaction)
        assert journal.stored() == ["1"]
        journal.store.rollback(transaction)
        assert journal.stored() == ["1"]

    def test_no_later_record_passes_a_message(self, journal: Journal) -> None:
        journal.add(1)
        journal.buffer.is_open = False
        journal.add(2)
        assert journal.stored() == ["1", "2"]

    def test_answer_waits_for_what_was_sent_before_and_not_held(self, journal: Journal) -> None:
        """A client may require an answer to the last message of several only."""
        subscription = DurableSubscription(client_id="c", name="s", destination=NEWS, subscribed_destination=NEWS)
        journal.store.subscribe(subscription)
        journal.store.subscribe(replace(subscription, name="of another"))
        assert journal.store.add(text_message(NEWS, 1))
        held = journal.add(2)
        unwritten: list[int] = []
        journal.store.when_confirmed(lambda: unwritten.append(journal.store.unwritten_bytes))
        journal.store.remove(QUEUE, held)
        journal.run_until(unwritten)
        assert unwritten == [0]

    def test_acknowledgement_before_a_held_message_is_waited_for(self, journal: Journal) -> None:
        journal.buffer.is_open = False
        first = journal.add(1)
        journal.buffer.is_open = True
        journal.store.remove(QUEUE, journal.add(2))
        journal.turn()
        journal.store.remove(QUEUE, first)
        held = journal.add(3)
        unwritten: list[int] = []
        journal.store.when_durable(lambda: unwritten.append(journal.store.unwritten_bytes))
        journal.store.remove(QUEUE, held)
        journal.run_until(unwritten)
        assert unwritten == [0]

    def test_durable_callback_waits_for_earlier_records(self, journal: Journal) -> None:
        journal.buffer.is_open = False
        first = journal.add(1)
        journal.buffer.is_open = True
        second = journal.add(2)
        journal.store.when_durable(lambda: journal.confirmed.append("durable"))
        journal.store.remove(QUEUE, second)
        assert journal.buffer.when_safe(lambda: None) is False
        assert journal.confirmed == []
        journal.turn()
        assert sorted(journal.confirmed) == ["1", "2", "durable"]
        assert journal.confirmed.index("1") < journal.confirmed.index("durable")
        assert journal.store._state.contains(QUEUE, first)


class TestTopics:
    """A topic's message is held where one acknowledgement consumes it: for a single durable subscription."""

    SUBSCRIPTION = DurableSubscription(client_id="c", name="s", destination=NEWS, subscribed_destination=NEWS)
    OTHER = replace(SUBSCRIPTION, name="t")

    def test_message_of_one_subscription_is_never_written(self, journal: Journal) -> None:
        journal.store.subscribe(self.SUBSCRIPTION)
        message_id = journal.add(1, NEWS)
        before = journal.store._writer._end
        journal.store.acknowledge(NEWS, self.SUBSCRIPTION.key, message_id)
        journal.turn()
        assert (journal.confirmed, journal.store._writer._end) == (["1"], before)

    def test_message_that_no_selector_matches_is_never_written(self, journal: Journal) -> None:
        journal.store.subscribe(self.SUBSCRIPTION)
        message_id = journal.add(1, NEWS)
        before = journal.store._writer._end
        journal.store.acknowledge(NEWS, self.SUBSCRIPTION.key, message_id, reason=RemovalReason.UNMATCHED)
        assert journal.store._writer._end == before

    def test_with_two_subscriptions_it_is_written(self, journal: Journal) -> None:
        journal.store.subscribe(self.SUBSCRIPTION)
        journal.store.subscribe(self.OTHER)
        message_id = journal.add(1, NEWS)
        journal.store.acknowledge(NEWS, self.SUBSCRIPTION.key, message_id)
        assert pending_after_kill(journal) == {"c:t": [message_id]}

    def test_second_subscription_gets_no_message_from_before(self, journal: Journal) -> None:
        journal.store.subscribe(self.SUBSCRIPTION)
        message_id = journal.add(1, NEWS)
        journal.store.subscribe(self.OTHER)
        journal.store.acknowledge(NEWS, self.OTHER.key, message_id)
        assert pending_after_kill(journal) == {"c:s": [message_id]}

    def test_retroactive_subscription_gets_what_was_held(self, journal: Journal) -> None:
        journal.store.subscribe(self.SUBSCRIPTION)
        message_id = journal.add(1, NEWS)
        assert journal.store.subscribe(self.OTHER, retroactive=True) == [message_id]
        journal.store.acknowledge(NEWS, self.SUBSCRIPTION.key, message_id)
        assert pending_after_kill(journal) == {"c:t": [message_id]}

    def test_end_of_a_subscription_leaves_none_of_its_messages(self, journal: Journal) -> None:
        journal.store.subscribe(self.SUBSCRIPTION)
        journal.add(1, NEWS)
        journal.store.unsubscribe(NEWS, self.SUBSCRIPTION.key)
        assert pending_after_kill(journal) == {}

    def test_acknowledgement_in_a_transaction_waits_for_its_outcome(self, journal: Journal) -> None:
        journal.store.subscribe(self.SUBSCRIPTION)
        message_id, transaction = journal.add(1, NEWS), LocalTransactionId("ID:c:1", 1)
        journal.store.acknowledge(NEWS, self.SUBSCRIPTION.key, message_id, transaction)
        journal.store.rollback(transaction)
        assert pending_after_kill(journal) == {"c:s": [message_id]}

    def test_sends_are_written_before_the_subscribers_next_ack(self, journal: Journal) -> None:
        journal.store.subscribe(self.SUBSCRIPTION)
        message_id, reply = journal.add(1, NEWS), replace(text_message(QUEUE, 2), connection_id="ID:device")
        assert journal.store.add(reply)
        journal.store.acknowledge(NEWS, self.SUBSCRIPTION.key, message_id, connection_id="ID:device")
        assert journal.stored() == ["2"]

    def test_cleanup_leaves_the_subscription_of_a_held_message_in_front_of_it(self, journal: Journal) -> None:
        """It may write the subscription again, and behind the message that record would not count for it."""
        journal.store.subscribe(self.SUBSCRIPTION)
        journal.store.close()
        heir = Journal(journal.store.directory)  # which writes to another file
        message_id = heir.add(1, NEWS)
        heir.store.cleanup()
        assert pending_after_kill(heir) == {"c:s": [message_id]}

    def test_message_sent_again_after_its_acknowledgement_is_known(self, journal: Journal) -> None:
        journal.store.subscribe(self.SUBSCRIPTION)
        message_id = journal.add(1, NEWS)
        journal.store.acknowledge(NEWS, self.SUBSCRIPTION.key, message_id)
        assert journal.store.last_sequence(message_id.rpartition(":")[0]) == 1


class TestAnsweredAcknowledgements:
    """A consumed message must not come again once its ack is answered, though its producer may repeat it."""

    def test_a_later_master_knows_a_consumed_message(self, journal: Journal, tmp_path: Path) -> None:
        answered: list[int] = []
        message_id = journal.add(1)
        journal.store.remove(QUEUE, message_id)
        journal.store.when_durable(lambda: answered.append(1))
        assert not answered, "its sequence number is not written yet"
        journal.run_until(answered)
        assert last_sequence_after_kill(journal, tmp_path) == 1

    def test_earlier_messages_of_the_producer_are_written_first(self, journal: Journal, tmp_path: Path) -> None:
        """Else their sequence numbers would be known and they would not, and be lost when they are sent again."""
        answered: list[int] = []
        journal.add(1)
        journal.store.remove(QUEUE, journal.add(2))
        journal.add(3)
        journal.store.when_durable(lambda: answered.append(1))
        assert journal.stored() == ["1"]
        journal.buffer.flush()
        journal.run_until(answered)
        assert journal.stored() == ["1", "3"]
        assert last_sequence_after_kill(journal, tmp_path) == 3

    def test_the_newest_number_of_each_producer_is_written(self, world: World) -> None:
        world.add(1, 2, 3)
        other = replace(text_message(QUEUE, 7), message_id="ID:other:1:1:7")
        world.buffer.add(other)
        world.consume(3, 1, 2)
        assert world.buffer.consume(QUEUE, other.message_id)
        world.buffer.when_safe(lambda: None, durable=True)
        world.buffer.when_safe(lambda: None, durable=True)
        assert world.sequences == [text_message(QUEUE, 3).message_id, other.message_id]

    def test_a_lower_number_consumed_later_hides_no_higher_one(self, world: World) -> None:
        """The dead letter of a scheduled message has that message's id, and comes later."""
        world.add(3)
        world.consume(3)
        world.add(2)
        world.consume(2)
        world.buffer.when_safe(lambda: None, durable=True)
        assert world.sequences == [text_message(QUEUE, 3).message_id]

    def test_another_copy_of_a_consumed_message_is_written_first(self, world: World) -> None:
        world.add(1)
        world.buffer.add(replace(text_message(OTHER, 1), message_id=text_message(QUEUE, 1).message_id))
        world.consume(1)
        world.buffer.when_safe(lambda: None, durable=True)
        assert world.written == ["1"]

    def test_a_confirmed_send_needs_none(self, world: World) -> None:
        world.add(1)
        world.consume(1)
        world.buffer.when_safe(lambda: None)
        assert not world.sequences

    def test_stomp_messages_need_none(self, world: World) -> None:
        message = replace(text_message(QUEUE, 1), message_id="ID:a-1-1:2:-1:1:1")
        world.buffer.add(message)
        assert world.buffer.consume(QUEUE, message.message_id)
        world.buffer.when_safe(lambda: None, durable=True)
        assert not world.sequences

    def test_many_producers_are_not_remembered_for_ever(self, world: World) -> None:
        for number in range(UNRECORDED_MAX + 1):
            message = replace(text_message(QUEUE, 1), message_id=f"ID:{number}:1:1:1")
            world.buffer.add(message)
            assert world.buffer.consume(QUEUE, message.message_id)
        assert len(world.sequences) == UNRECORDED_MAX

    def test_producer_past_the_limit_is_answered_behind_the_fence(self, journal: Journal) -> None:
        def add(message_id: str) -> str:
            assert journal.store.add(replace(text_message(QUEUE, 1), message_id=message_id))
            return message_id

        for number in range(UNRECORDED_MAX - 1):
            journal.store.remove(QUEUE, add(f"ID:{number}:1:1:1"))
        front = add("ID:front:1:1:1")
        journal.store.when_confirmed(lambda: journal.confirmed.append("front"))
        add("ID:last:1:1:1")
        journal.store.remove(QUEUE, add("ID:last:1:1:2"))
        journal.is_master = False
        journal.store.remove(QUEUE, front)  # has the earlier message of the last producer written
        assert journal.store._state.contains(QUEUE, "ID:last:1:1:1")
        journal.turn()
        assert journal.confirmed == []
        assert [type(failure) for failure in journal.failures] == [LockNotHeld]

    def test_a_stopped_writer_answers_nothing(self, world: World) -> None:
        world.add(1)
        world.consume(1)
        world.has_stopped = True
        assert not world.buffer.when_safe(lambda: None, durable=True)


def last_sequence_after_kill(journal: Journal, directory: Path) -> int:
    """Return the last sequence number of the producer that a new master finds."""
    journal.store.abandon()
    new_master = Journal(directory)
    try:
        return new_master.store.last_sequence(text_message(QUEUE, 1).message_id.rpartition(":")[0])
    finally:
        new_master.store.abandon()


def pending_after_kill(journal: Journal) -> dict[str, list[str]]:
    """Let the requested time pass and the disk sync; return the ids by subscription that a new master then finds."""
    journal.buffer.flush()
    done: list[int] = []
    journal.store.when_durable(lambda: done.append(1))
    journal.run_until(done)
    journal.store.abandon()
    store = JournalStore(journal.store.directory, runtime=runtime(lambda callback: None))
    try:
        return {each.subscription.key: list(each.message_ids) for each in store.recover().backlogs if each.message_ids}
    finally:
        store.abandon()
