"""The end of a long transaction in steps, for each store."""

from typing import Any

import pytest

from tests.conformance.lives import BETWEEN, BILLS, ORDERS, PRICES, TX, MakeMessage, backlog, crash, ids, subscription


class TestSteps:
    """The end of a long transaction in steps: whatever steps are done, the record decides."""

    @pytest.fixture
    def begun(self, lives: Any, text_message: MakeMessage) -> tuple[list[str], str]:
        """The ids of messages sent in a transaction, and of one acknowledged in it."""
        consumed = text_message(ORDERS, 1)
        lives.store.add(consumed)
        lives.store.remove(ORDERS, consumed.message_id, TX)
        sent = [text_message(BILLS, number) for number in range(2, 102)]
        for message in sent:
            lives.store.add(message, TX)
        return ids(sent), consumed.message_id

    @BETWEEN
    @pytest.mark.parametrize("done", [0, 1, 1000])
    def test_committed_transaction_is_whole_after_any_step(
        self, lives: Any, begun: tuple[list[str], str], next_life: Any, done: int
    ) -> None:
        steps = lives.store.commit_steps(TX)
        for _ in zip(range(done), steps, strict=False):
            pass
        recovery = next_life(lives)
        assert ids(recovery.queues[BILLS]) == begun[0]
        assert not recovery.queues.get(ORDERS)

    @BETWEEN
    @pytest.mark.parametrize("done", [0, 1, 1000])
    def test_rolled_back_transaction_is_gone_after_any_step(
        self, lives: Any, begun: tuple[list[str], str], next_life: Any, done: int
    ) -> None:
        steps = lives.store.rollback_steps(TX)
        for _ in zip(range(done), steps, strict=False):
            pass
        recovery = next_life(lives)
        assert not recovery.queues.get(BILLS)
        assert ids(recovery.queues[ORDERS]) == [begun[1]]

    def test_contents_are_whole_after_the_last_step(self, lives: Any, begun: tuple[list[str], str]) -> None:
        for _ in lives.store.commit_steps(TX):
            pass
        lives.flush()
        assert ids(lives.store.read(BILLS, begun[0])) == begun[0]

    @BETWEEN
    def test_cleanup_between_steps_keeps_what_is_not_shown_yet(
        self, lives: Any, begun: tuple[list[str], str], next_life: Any
    ) -> None:
        steps = lives.store.commit_steps(TX)
        next(steps, 0)
        lives.flush()
        lives.cleanup()
        for _ in steps:
            pass
        assert ids(lives.store.read(BILLS, begun[0])) == begun[0]
        assert ids(next_life(lives).queues[BILLS]) == begun[0]

    def test_destination_removed_between_steps_is_gone(self, lives: Any, begun: tuple[list[str], str]) -> None:
        steps = lives.store.commit_steps(TX)
        next(steps, 0)
        lives.store.remove_destination(BILLS)
        for _ in steps:
            pass
        assert not crash(lives).queues.get(BILLS)

    def test_subscription_between_steps_gets_nothing_committed_before(
        self, lives: Any, text_message: MakeMessage
    ) -> None:
        lives.store.subscribe(subscription("one"))
        sent = [text_message(PRICES, number) for number in range(100)]
        for message in sent:
            lives.store.add(message, TX)
        steps = lives.store.commit_steps(TX)
        next(steps, 0)
        lives.store.subscribe(subscription("two"))
        for _ in steps:
            pass
        recovery = crash(lives)
        assert backlog(recovery, subscription("one").key) == ids(sent)
        assert backlog(recovery, subscription("two").key) == []
