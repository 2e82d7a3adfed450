"""Commits and retroactive subscriptions in pieces, in any history: the state becomes what it would be."""

from collections.abc import Callable, Iterator

import pytest

from pybroker.broker.domain.destination import Destination, queue, topic
from pybroker.broker.domain.transaction import LocalTransactionId, TransactionId
from pybroker.store.journal import state as state_module
from pybroker.store.journal.commands import (
    AddMessage,
    Command,
    Commit,
    RemoveDestination,
    RemoveMessage,
    Subscribe,
    Unsubscribe,
)
from pybroker.store.journal.format import Location
from tests.compiled import interpreted
from tests.unit.store.test_removals import KEYS, Histories, counted, visible

Q, R, T, U = queue("Q"), queue("R"), topic("T"), topic("U")


class CommitHistories(Histories):
    """The same with transactions, and with subscriptions that get what their topics have."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.open: TransactionId | None = None
        self.steps: list[Iterator[int]] = []

    def apply(self, command: Command) -> None:
        location, pieces = self.at, self.in_pieces
        if isinstance(command, Commit):
            self.journal.append((location, command))
            self.at_once.apply(command, location)
            self.steps.append(pieces.commit_steps(command.transaction, location))
            self.at = Location(location.file_id, location.offset + 100)
            return
        if isinstance(command, Subscribe):
            if command.retroactive:
                pieces.settle(command.destination)
            self.journal.append((location, command))
            self.at_once.apply(command, location)
            pieces.begin_subscription(command, location)
            self.at = Location(location.file_id + 1, 28)
            return
        if isinstance(command, RemoveMessage) and command.subscription_key is not None:
            contents = pieces.destinations.get(command.destination)
            subscription = None if contents is None else contents.subscriptions.get(command.subscription_key)
            if contents is not None and subscription is not None:
                pieces.give(contents, subscription, command.message_id)
        super().apply(command)

    def step(self) -> None:
        world, at_once = self.world, self.at_once
        place, key = world.choice((Q, R, T, T, U)), world.choice(KEYS)
        contents = at_once.destinations.get(place)
        self.count += 1
        transaction = self.open or LocalTransactionId("c", self.count)
        add = AddMessage(place, f"m{self.count}", b"data", transaction=world.choice((None, transaction)))
        commands: list[Callable[[], Command]] = [lambda: add] * 6 + [lambda: RemoveDestination(place)]
        if transaction in at_once.inflight:
            commands += [lambda: Commit(transaction)] * 2
        if place.is_topic:
            is_new = contents is None or key not in contents.subscriptions
            commands += [lambda: Subscribe(place, key, b"info", retroactive=is_new and world.random() < 0.5)] * 3
            commands += [lambda: Unsubscribe(place, key)]
        known = self.acknowledgeable(place, key)
        if known:
            chosen = world.choice(known)
            within = world.choice((None, transaction))
            remove = RemoveMessage(place, chosen, subscription_key=key if place.is_topic else None, transaction=within)
            commands += [lambda: remove] * 4
        command = world.choice(commands)()
        if isinstance(command, RemoveDestination) and contents is not None and contents.subscriptions:
            return  # the core refuses that
        self.apply(command)
        self.open = transaction if transaction in at_once.inflight else None
        for steps in list(self.steps):
            if world.random() < 0.2:
                next(steps, None)
        if world.random() < 0.2:
            self.in_pieces.continue_removals()

    def acknowledgeable(self, place: Destination, key: str) -> list[str]:
        """Return what a consumer may have got: what both states hold, and no open transaction has acknowledged."""
        contents = self.at_once.destinations.get(place)
        other = self.in_pieces.destinations.get(place)
        if contents is None or other is None:
            return []
        subscription = contents.subscriptions.get(key)
        found = set(contents.messages)
        if place.is_topic:
            found = set() if subscription is None else subscription.pending
        taken = {each.message_id for begun in self.at_once.inflight.values() for each in begun.operations}
        return sorted((found & set(other.messages)) - taken)

    def finish(self) -> None:
        self.in_pieces.finish_commits()
        self.in_pieces.finish_removals()


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_APPLIED_COUNT", "_REMOVED_COUNT", "_ENDED_COUNT", "_RECALLED_COUNT"):
        monkeypatch.setattr(state_module, name, 1)


@interpreted  # constants replaced that are compiled in
@pytest.mark.parametrize("seed", range(300))
def test_state_is_the_same_after_the_last_piece(seed: int) -> None:
    histories = CommitHistories(seed)
    for _ in range(150):
        histories.step()
        if histories.world.random() < 0.05:
            histories.finish()
            assert visible(histories.in_pieces) == visible(histories.at_once)
    histories.finish()
    assert visible(histories.in_pieces) == visible(histories.at_once)
    assert counted(histories.in_pieces) == counted(histories.at_once)
    assert not histories.in_pieces.is_in_pieces


@interpreted
@pytest.mark.parametrize("seed", range(300))
def test_replay_after_a_cleanup_between_the_pieces_finds_the_same(seed: int) -> None:
    histories = CommitHistories(seed)
    for _ in range(100):
        histories.step()
    histories.check_replay_after_cleanup()
