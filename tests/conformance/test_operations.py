"""What operators do with messages, on every store: what was reported as done is so after a crash."""

from collections.abc import Callable
from typing import Any

import pytest

from pybroker.broker.core.broker import Limits
from pybroker.broker.core.policy import DestinationPolicy
from pybroker.broker.domain.destination import Destination, queue
from pybroker.broker.domain.operations import EVERY_MESSAGE, Actor, MessageSelection, PageLimits
from tests.unit.core.conftest import World
from tests.unit.core.operators import names_of

Q, TARGET, DLQ = queue("Q"), queue("TARGET"), queue("ActiveMQ.DLQ")
ACTOR = Actor("ops", "10.0.0.9")
COUNT, ATTEMPTS_MAX = 60, 1000


class Operated:
    """A broker on a store, and the operator who waits for its answers."""

    def __init__(self, lives: Any) -> None:
        self.lives = lives
        self.world = World(lives.store, DestinationPolicy(), Limits(memory_bytes_max=10_000_000))

    def ask(self, act: str, *arguments: Any) -> Any:
        """Begin an operation, and let the store write and read until it has ended."""
        results: list[Any] = []
        getattr(self.world.broker.operations, act)(*arguments, results.append)
        for _ in range(ATTEMPTS_MAX):
            self.lives.flush()
            if results:
                return results[0]
            self.world.broker.remove_expired()
        raise AssertionError("it never ends")

    def names(self, place: Destination, selector: str | None = None) -> list[str]:
        if place not in self.world.broker.queues:
            return []
        return names_of(self.ask("browse", place, -1, PageLimits(count=500), selector))


@pytest.fixture(params=["written by this broker", "written by the last one"])
def operated(lives: Any, request: pytest.FixtureRequest) -> Operated:
    operated = Operated(lives)
    client = operated.world.client()
    for number in range(COUNT):
        client.send("queue://Q", str(number), properties={"n": number})
    lives.flush()
    return after_crash(operated) if request.param == "written by the last one" else operated


def after_crash(operated: Operated) -> Operated:
    operated.lives.crash()
    operated.lives.open()
    return Operated(operated.lives)


def numbers(*values: int) -> list[str]:
    return [str(value) for value in values]


Check = Callable[[Operated], None]


def now_and_after_a_crash(operated: Operated, check: Check) -> None:
    check(operated)
    check(after_crash(operated))


def test_a_purge(operated: Operated) -> None:
    assert operated.ask("remove", Q, EVERY_MESSAGE, ACTOR).affected == COUNT
    now_and_after_a_crash(operated, lambda each: _expect(each, [], []))


def test_selected_messages_are_removed(operated: Operated) -> None:
    assert operated.ask("remove", Q, MessageSelection(selector="n >= 20"), ACTOR).affected == COUNT - 20
    now_and_after_a_crash(operated, lambda each: _expect(each, numbers(*range(20)), []))


def test_a_move(operated: Operated) -> None:
    assert operated.ask("move", Q, TARGET, MessageSelection(selector="n < 50", maximum=40), ACTOR).affected == 40
    now_and_after_a_crash(operated, lambda each: _expect(each, numbers(*range(40, COUNT)), numbers(*range(40))))


def test_a_copy(operated: Operated) -> None:
    assert operated.ask("copy", Q, TARGET, EVERY_MESSAGE, ACTOR).affected == COUNT
    now_and_after_a_crash(operated, lambda each: _expect(each, numbers(*range(COUNT)), numbers(*range(COUNT))))


def test_a_move_there_and_back(operated: Operated) -> None:
    assert operated.ask("move", Q, TARGET, EVERY_MESSAGE, ACTOR).affected == COUNT
    assert operated.ask("move", TARGET, Q, EVERY_MESSAGE, ACTOR).affected == COUNT
    now_and_after_a_crash(operated, lambda each: _expect(each, numbers(*range(COUNT)), []))


def test_a_retry(operated: Operated) -> None:
    inbox = operated.world.client().subscribe("queue://Q", prefetch=10)
    for _ in range(ATTEMPTS_MAX):
        operated.lives.flush()
        if len(inbox.deliveries) == 10:
            break
        operated.world.broker.remove_expired()
    inbox.consumer.reject_all(list(inbox.deliveries)[:10], "of no use")
    inbox.consumer.close()
    operated.lives.flush()
    assert operated.names(DLQ) == numbers(*range(10))
    assert operated.ask("retry", DLQ, EVERY_MESSAGE, ACTOR).affected == 10

    def check(each: Operated) -> None:
        assert sorted(each.names(Q), key=int) == numbers(*range(COUNT))
        assert each.names(DLQ) == []

    now_and_after_a_crash(operated, check)


def _expect(operated: Operated, here: list[str], there: list[str]) -> None:
    assert (operated.names(Q), operated.names(TARGET)) == (here, there)
    assert operated.names(Q, "n = 7") == [name for name in here if name == "7"]
