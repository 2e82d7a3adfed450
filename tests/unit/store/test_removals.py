"""Removals of destinations and durable subscriptions in pieces: in any history the state becomes what it would be."""

import random
from collections.abc import Callable

import pytest

from pybroker.broker.domain.destination import Destination, queue, topic
from pybroker.store.journal import state as state_module
from pybroker.store.journal.cleanup import removable
from pybroker.store.journal.commands import (
    AddMessage,
    Command,
    RemoveDestination,
    RemoveMessage,
    Subscribe,
    Unsubscribe,
    UpdateMessage,
)
from pybroker.store.journal.format import Location
from pybroker.store.journal.state import StoreState
from tests.compiled import interpreted

Q, T, U = queue("Q"), topic("T"), topic("U")
KEYS = ("s", "t", "u")


def publish(place: Destination, number: int) -> AddMessage:
    return AddMessage(place, f"m{number}", b"data")


def visible(state: StoreState) -> dict[str, object]:
    """Return what a client can see: each destination with its subscriptions' messages, or a queue's."""
    return {
        place.name: {key: set(each.pending) for key, each in contents.subscriptions.items()} or set(contents.messages)
        for place, contents in state.destinations.items()
    }


def counted(state: StoreState) -> dict[str, object]:
    """Return what the cleanup of data files goes by, and what is kept of each message."""
    return {
        "live": {file_id: count for file_id, count in state.usage.live.items() if count},
        "contents": {
            place.name: (dict(contents.messages), contents.pending_counts, contents.superseded)
            for place, contents in state.destinations.items()
        },
    }


class Histories:
    """Two states that get the same commands: one carries out each removal at once, the other in pieces."""

    def __init__(self, seed: int) -> None:
        self.world = random.Random(seed)
        self.at_once, self.in_pieces = StoreState(), StoreState()
        self.journal: list[tuple[Location, Command]] = []
        self.at = Location(1, 28)
        self.count = 0

    def apply(self, command: Command) -> None:
        location = self.at
        self.journal.append((location, command))
        self.at_once.apply(command, location)
        match command:
            case Unsubscribe(place, key):
                self.in_pieces.begin_unsubscription(place, key, location)
            case RemoveDestination(place):
                self.in_pieces.begin_removal(place, location)
            case _:
                self.in_pieces.apply(command, location)
        self.at = Location(location.file_id, location.offset + 100)
        if self.world.random() < 0.2:
            self.at = Location(location.file_id + 1, 28)

    def step(self) -> None:
        world = self.world
        place, key = world.choice((Q, T, T, T, U)), world.choice(KEYS)
        contents = self.at_once.destinations.get(place)
        known = sorted(contents.messages) if contents is not None else []
        self.count += 1
        commands: list[Callable[[], Command]] = [lambda: publish(place, self.count)] * 5
        if place.is_topic:
            commands += [lambda: Subscribe(place, key, b"info")] * 2
            commands += [lambda: Unsubscribe(place, key)] * 2
        if known:
            chosen = world.choice(known)
            commands += [lambda: RemoveMessage(place, chosen, subscription_key=key if place.is_topic else None)] * 3
            if not place.is_topic:  # KahaDB updates messages of queues only
                commands += [lambda: UpdateMessage(AddMessage(place, chosen, b"other"))]
        commands += [lambda: RemoveDestination(place)]
        self.apply(world.choice(commands)())
        if world.random() < 0.4:
            self.in_pieces.continue_removals()

    def check_replay_after_cleanup(self) -> None:
        """Check that a replay finds the same without the files that may be removed now."""
        file_ids = range(1, self.at.file_id + 1)
        doomed = removable(self.in_pieces, file_ids, self.at.file_id)
        replayed = StoreState()
        for location, command in self.journal:
            if location.file_id not in doomed:
                replayed.apply(command, location)
        expected = {name: found for name, found in visible(self.at_once).items() if found}
        assert {name: found for name, found in visible(replayed).items() if found} == expected


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_module, "_REMOVED_COUNT", 2)
    monkeypatch.setattr(state_module, "_ENDED_COUNT", 2)


@interpreted  # constants replaced that are compiled in
@pytest.mark.parametrize("seed", range(200))
def test_state_is_the_same_in_pieces(seed: int) -> None:
    histories = Histories(seed)
    for _ in range(150):
        histories.step()
        assert visible(histories.in_pieces) == visible(histories.at_once)
    histories.in_pieces.finish_removals()
    assert counted(histories.in_pieces) == counted(histories.at_once)
    references = histories.in_pieces.usage.references  # more where a message was acknowledged meanwhile
    assert all(to <= references.get(file_id, set()) for file_id, to in histories.at_once.usage.references.items())


@interpreted
@pytest.mark.parametrize("seed", range(200))
def test_replay_after_a_cleanup_between_the_pieces_finds_the_same(seed: int) -> None:
    histories = Histories(seed)
    for _ in range(100):
        histories.step()
    histories.check_replay_after_cleanup()


def test_message_that_is_removed_and_comes_again_meanwhile_is_counted_for_the_others() -> None:
    state = StoreState()
    for key in KEYS:
        state.apply(Subscribe(T, key, b"info"), Location(1, 28))
    state.apply(publish(T, 1), Location(1, 128))
    state.begin_unsubscription(T, "s", Location(1, 228))
    state.apply(RemoveMessage(T, "m1"), Location(1, 328))
    state.apply(publish(T, 1), Location(1, 428))
    state.finish_removals()
    assert visible(state) == {"T": {"t": {"m1"}, "u": {"m1"}}}
    assert state.destinations[T].pending_counts == {"m1": 2}


def test_file_of_the_record_stays_until_all_is_counted() -> None:
    state = StoreState()
    for key in KEYS:
        state.apply(Subscribe(T, key, b"info"), Location(1, 28))
    for number in range(5_000):
        state.apply(publish(T, number), Location(2, 28 + 100 * number))
    state.begin_unsubscription(T, "s", Location(3, 28))
    assert state.transaction_files() == {3}
    pieces = 0
    while state.continue_removals():
        pieces += 1
    assert pieces > 1
    assert state.transaction_files() == set()
    assert state.usage.references[3] == {1, 2}
    assert sum(state.usage.live.values()) == 5_000, "the others have to get them"
    state.begin_unsubscription(T, "t", Location(4, 28))
    state.begin_unsubscription(T, "u", Location(5, 28))
    assert state.transaction_files() == {4, 5}
    state.finish_removals()
    assert state.usage.live == {}
    assert state.usage.references[4] == state.usage.references[5] == {1, 2}
