"""The journal's formats against anything: torn, flipped and random bytes; and its state against a plain model."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pybroker.broker.domain.destination import Destination, DestinationType, queue, topic
from pybroker.broker.domain.transaction import LocalTransactionId, TransactionId, XATransactionId
from pybroker.store.journal.cleanup import removable
from pybroker.store.journal.commands import (
    AddMessage,
    AddScheduledJob,
    Command,
    Commit,
    Prepare,
    RemoveDestination,
    RemoveMessage,
    RemoveScheduledJobs,
    RewrittenDataFile,
    Rollback,
    Subscribe,
    Trace,
    Unsubscribe,
    UpdateMessage,
    decode,
    encode,
)
from pybroker.store.journal.format import EOF_MARKER, Location, encode_batch, encode_record
from pybroker.store.journal.malformed import MalformedRecord
from pybroker.store.journal.reader import DataFileWalk
from pybroker.store.journal.state import StoreState

# ---------------------------------------------------------------- batches

payload_lists = st.lists(st.binary(max_size=40), min_size=1, max_size=4)
batches = st.lists(payload_lists, min_size=1, max_size=5)


def encoded(payloads: Sequence[bytes]) -> bytes:
    return encode_batch([encode_record(payload) for payload in payloads])


def walked(data: bytes) -> tuple[list[bytes], DataFileWalk]:
    walk = DataFileWalk(data, 1)
    return [payload for _, payload in walk], walk


@given(batches)
def test_what_was_written_is_read(batches: list[list[bytes]]) -> None:
    data = b"".join(map(encoded, batches))

    payloads, walk = walked(data + EOF_MARKER)

    assert payloads == [payload for batch in batches for payload in batch]
    assert (walk.damages, walk.end) == ([], len(data))


@given(batches)
def test_a_cut_file_gives_the_complete_batches_before_the_cut(batches: list[list[bytes]]) -> None:
    pieces = [encoded(batch) for batch in batches]
    data = b"".join(pieces) + EOF_MARKER
    for length in range(len(data)):
        whole = sum(length >= sum(map(len, pieces[: count + 1])) for count in range(len(pieces)))

        payloads, walk = walked(data[:length])

        assert payloads == [payload for batch in batches[:whole] for payload in batch]
        assert walk.end == sum(map(len, pieces[:whole]))
        assert all(damage.at_end for damage in walk.damages)


@given(batches, st.data())
def test_a_changed_byte_is_noticed_and_costs_one_batch_at_most(batches: list[list[bytes]], data: st.DataObject) -> None:
    pieces = [encoded(batch) for batch in batches]
    original = b"".join(pieces) + EOF_MARKER
    position = data.draw(st.integers(0, len(original) - len(EOF_MARKER) - 1), label="position")
    change = data.draw(st.integers(1, 255), label="change")
    hit = next(index for index in range(len(pieces)) if position < sum(map(len, pieces[: index + 1])))

    changed = bytearray(original)
    changed[position] ^= change
    payloads, walk = walked(bytes(changed))

    others = [payload for index, batch in enumerate(batches) if index != hit for payload in batch]
    everything = [payload for batch in batches for payload in batch]
    # A flip in the checksum itself may turn it into "none": then nothing is lost. The records are as written.
    assert payloads == others or (payloads == everything and walk.damages == [])
    assert sum(damage.length for damage in walk.damages) <= len(pieces[hit])


@given(st.binary(max_size=400))
@example(bytes.fromhex("0000001c02") + b"WRITE BATCH" + bytes.fromhex("00000005ffffffffffffffff 0000000501"))
def test_random_bytes_are_walked_to_an_end(data: bytes) -> None:
    for noise in (data, encoded([b"x"])[:20] + data, encoded([b"x"]) + data + encoded([b"y"])):
        payloads, walk = walked(noise)

        assert 0 <= walk.end <= len(noise)
        assert sum(map(len, payloads)) + sum(damage.length for damage in walk.damages) <= len(noise)


# ---------------------------------------------------------------- commands

names = st.text(max_size=150).filter(lambda text: not any("\ud800" <= each <= "\udfff" for each in text))
int64 = st.integers(-(2**63), 2**63 - 1)
destinations = st.builds(Destination, st.sampled_from(DestinationType), names)
transactions = st.one_of(
    st.builds(LocalTransactionId, names, int64),
    st.builds(XATransactionId, st.integers(-(2**31), 2**31 - 1), st.binary(max_size=64), st.binary(max_size=64)),
)
adds = st.builds(
    AddMessage,
    destinations,
    names,
    st.binary(max_size=300),
    st.integers(0, 9),
    st.booleans(),
    st.none() | transactions,
)
commands = st.one_of(
    adds,
    st.builds(
        RemoveMessage,
        destinations,
        names,
        st.none() | st.binary(max_size=300),
        st.none() | names,
        st.none() | transactions,
    ),
    st.builds(UpdateMessage, adds),
    st.builds(Prepare, transactions),
    st.builds(Commit, transactions),
    st.builds(Rollback, transactions),
    st.builds(RemoveDestination, destinations),
    st.builds(Subscribe, destinations, names, st.binary(max_size=100), st.booleans()),
    st.builds(Unsubscribe, destinations, names),
    st.builds(Trace, st.none() | names),
    st.builds(RewrittenDataFile, st.integers(0, 2**31 - 1), st.just(1), st.booleans()),
    st.builds(AddScheduledJob, names, names, int64, names, int64, int64, int64, st.binary(max_size=50), int64),
    st.builds(RemoveScheduledJobs, names, int64, int64),
)


@given(commands)
def test_decoding_is_the_inverse_of_encoding(command: Command) -> None:
    assert decode(encode(command)) == command


@given(commands, st.data())
def test_a_cut_command_is_malformed(command: Command, data: st.DataObject) -> None:
    payload = encode(command)
    length = data.draw(st.integers(0, len(payload) - 1))

    with pytest.raises(MalformedRecord):
        decode(payload[:length])


@given(st.integers(0, 20), st.binary(max_size=60))
def test_random_bytes_decode_or_are_malformed(kind: int, body: bytes) -> None:
    _decodes_or_is_malformed(bytes([kind]) + body)
    _decodes_or_is_malformed(bytes([kind, len(body)]) + body)


@given(commands, st.data())
def test_a_changed_command_decodes_or_is_malformed(command: Command, data: st.DataObject) -> None:
    payload = bytearray(encode(command))
    payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))

    _decodes_or_is_malformed(bytes(payload))


def _decodes_or_is_malformed(payload: bytes) -> None:
    try:
        command = decode(payload)
    except MalformedRecord:
        return
    assert decode(encode(command)) == command


# ---------------------------------------------------------------- state

Q, T = queue("Q"), topic("T")
LOCAL = (LocalTransactionId("ID:c", 1), LocalTransactionId("ID:c", 2))
XA = (XATransactionId(1, b"g", b"1"), XATransactionId(1, b"g", b"2"))
KEYS = ("c:1", "c:2", "c:3")


@dataclass
class Model:
    """The rules of KahaDB's replay in their simplest form: numbers, sets, and searches where one is needed."""

    next_id: dict[Destination, int] = field(default_factory=dict)
    messages: dict[Destination, dict[int, tuple[str, int, Location]]] = field(default_factory=dict)
    pending: dict[str, set[int]] = field(default_factory=dict)
    inflight: dict[TransactionId, list[tuple[Command, Location]]] = field(default_factory=dict)
    prepared: dict[TransactionId, list[tuple[Command, Location]]] = field(default_factory=dict)

    def apply(self, command: Command, location: Location) -> None:
        match command:
            case AddMessage() | RemoveMessage() if command.transaction is not None:
                plain = command._replace(transaction=None)
                self.inflight.setdefault(command.transaction, []).append((plain, location))
            case AddMessage(destination, message_id):
                self._add(destination, message_id, command, location)
            case RemoveMessage(destination, message_id, _, key):
                self._remove(destination, message_id, key)
            case UpdateMessage(add):
                number = self._find(add.destination, add.message_id)
                if number is None:
                    self._add(add.destination, add.message_id, add, location)
                else:
                    self.messages[add.destination][number] = (add.message_id, self._class(add), location)
            case Prepare(transaction) if transaction in self.inflight:
                self.prepared[transaction] = self.inflight.pop(transaction)
            case Commit(transaction):
                for operation, place in self._end(transaction):
                    self.apply(operation, place)
            case Rollback(transaction):
                self._end(transaction)
            case Subscribe(_, key, _, retroactive):
                mine = self.pending.setdefault(key, set())
                if retroactive:
                    mine.update(*self.pending.values())
            case Unsubscribe(_, key) if key in self.pending:
                del self.pending[key]
                self._sweep()
            case RemoveDestination(destination):
                self.messages.pop(destination, None)
                if destination == T:
                    self.pending.clear()

    def _add(self, destination: Destination, message_id: str, add: AddMessage, location: Location) -> None:
        if destination == T and not self.pending:
            return
        number = self.next_id.get(destination, 0)
        self.next_id[destination] = number + 1
        if self._find(destination, message_id) is not None:
            return
        self.messages.setdefault(destination, {})[number] = (message_id, self._class(add), location)
        if destination == T:
            for pending in self.pending.values():
                pending.add(number)

    def _remove(self, destination: Destination, message_id: str, key: str | None) -> None:
        number = self._find(destination, message_id)
        if number is None:
            return
        if key is None:
            del self.messages[destination][number]
            if destination == T:
                for pending in self.pending.values():
                    pending.discard(number)
        elif key in self.pending:
            self.pending[key].discard(number)
            self._sweep()

    def _sweep(self) -> None:
        needed = set().union(*self.pending.values())
        for number in list(self.messages.get(T, {})):
            if number not in needed:
                del self.messages[T][number]

    def _find(self, destination: Destination, message_id: str) -> int | None:
        held = self.messages.get(destination, {})
        return next((number for number, (found, _, _) in held.items() if found == message_id), None)

    def _end(self, transaction: TransactionId) -> list[tuple[Command, Location]]:
        return self.inflight.pop(transaction, None) or self.prepared.pop(transaction, [])

    @staticmethod
    def _class(add: AddMessage) -> int:
        return (add.priority < 4) - (add.priority > 4) if add.priority_supported else 0

    def entries(self, destination: Destination, key: str | None) -> list[tuple[str, Location]]:
        held = self.messages.get(destination, {})
        numbers = held.keys() if key is None else self.pending.get(key, set())
        hidden = {
            operation.message_id
            for operations in self.prepared.values()
            for operation, _ in operations
            if isinstance(operation, RemoveMessage)
            and (operation.destination, operation.subscription_key) == (destination, key)
        }
        ordered = sorted((held[number][1], number) for number in numbers)
        found = [(held[number][0], held[number][2]) for _, number in ordered]
        return [(message_id, location) for message_id, location in found if message_id not in hidden]


ids = st.sampled_from(["a", "b", "c", "d", "e"])
some_transaction = st.none() | st.sampled_from(LOCAL + XA)
model_adds = st.builds(
    AddMessage, st.sampled_from([Q, T]), ids, st.just(b"x"), st.integers(0, 9), st.booleans(), st.none()
)
model_commands = st.one_of(
    st.builds(
        lambda add, transaction: add._replace(transaction=transaction),
        model_adds,
        some_transaction,
    ),
    st.builds(RemoveMessage, st.just(Q), ids, st.none(), st.none(), some_transaction),
    st.builds(RemoveMessage, st.just(T), ids, st.none(), st.none() | st.sampled_from(KEYS), some_transaction),
    st.builds(UpdateMessage, model_adds),
    st.builds(Subscribe, st.just(T), st.sampled_from(KEYS), st.just(b"info"), st.booleans()),
    st.builds(Unsubscribe, st.just(T), st.sampled_from(KEYS)),
    st.builds(Prepare, st.sampled_from(XA)),
    st.builds(Commit, st.sampled_from(LOCAL + XA)),
    st.builds(Rollback, st.sampled_from(LOCAL + XA)),
    st.builds(RemoveDestination, st.sampled_from([Q, T])),
)


@given(st.lists(model_commands, max_size=60))
def test_the_state_obeys_the_rules_of_replay(commands: list[Command]) -> None:
    state, model = StoreState(), Model()
    for number, command in enumerate(commands):
        location = Location(1 + number // 5, number)
        state.apply(command, location)
        model.apply(command, location)

    for destination, key in [(Q, None), (T, None), *((T, key) for key in KEYS)]:
        found = [(entry.message_id, entry.location) for entry in state.entries(destination, key)]
        assert found == model.entries(destination, key)
    assert state.inflight.keys() == model.inflight.keys()
    assert state.prepared.keys() == model.prepared.keys()


@given(st.lists(model_commands, max_size=60))
def test_live_messages_are_counted_where_they_lie(commands: list[Command]) -> None:
    state = StoreState()
    for number, command in enumerate(commands):
        state.apply(command, Location(1 + number // 5, number))

    counted: Counter[int] = Counter()
    state.prepared.clear()  # Hidden messages are live too.
    for destination in (Q, T):
        counted.update(entry.location.file_id for entry in state.entries(destination))
    for contents in state.destinations.values():
        counted.update(file_id for files in contents.superseded.values() for file_id in files)
    assert state.usage.live == counted
    for contents in state.destinations.values():
        waiting = [message_id for each in contents.subscriptions.values() for message_id in each.pending]
        assert contents.pending_counts == {each: waiting.count(each) for each in waiting}


@given(st.lists(model_commands, max_size=60))
def test_collecting_garbage_leaves_the_contents_unchanged(commands: list[Command]) -> None:
    """A crash may come between the deletion of two files."""
    located = [(command, Location(1 + number // 3, number)) for number, command in enumerate(commands)]
    state = StoreState()
    for command, location in located:
        state.apply(command, location)
    file_ids = {location.file_id for _, location in located}
    going = removable(state, file_ids, keep_from=max(file_ids, default=0) + 1)

    for count in range(1, len(going) + 1):
        collected = StoreState()
        for command, location in located:
            if location.file_id not in going[:count]:
                collected.apply(command, location)
        assert _contents(collected) == _contents(state)


def _contents(state: StoreState) -> object:
    destinations = [(Q, None), (T, None), *((T, key) for key in KEYS)]
    return (
        [list(state.entries(destination, key)) for destination, key in destinations],
        {(topic, key): subscription.location for topic, key, subscription in state.subscriptions()},
        {transaction: pending.operations for transaction, pending in (state.inflight | state.prepared).items()},
    )
