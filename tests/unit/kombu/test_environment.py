"""The check for a scheduler, while the broker or the process stands still."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import pytest

from pybroker.client import Connection, Timeout
from pybroker.kombu import environment


class _Message:
    def __init__(self, body: str) -> None:
        self.body = body


class _SlowBroker:
    """A broker and its client, and a clock that goes on between two messages only."""

    def __init__(self, stops: Iterator[float], *, has_scheduler: bool) -> None:
        self.now = 0.0
        self.delays: list[float] = []
        self._stops, self._has_scheduler = stops, has_scheduler
        self._due: deque[tuple[float, str]] = deque()

    def temporary_destination(self, timeout: float) -> str:
        return "temp-queue://check"

    def consumer(self, destination: str, timeout: float) -> "_SlowBroker":
        return self

    def __enter__(self) -> "_SlowBroker":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def send(
        self, destination: str, body: str, *, properties: Mapping[str, int] | None = None, persistent: bool
    ) -> None:
        delay = (properties or {}).get("AMQ_SCHEDULED_DELAY", 0) / 1000
        if delay:
            self.delays.append(delay)
        self._due.append((self.now + delay * self._has_scheduler, body))
        if delay:
            self.now += next(self._stops)

    def receive(self, timeout: float) -> _Message:
        due, body = min(self._due)
        self._due.remove((due, body))
        self.now = max(self.now, due)
        return _Message(body)


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch) -> Callable[[_SlowBroker], None]:
    def call(broker: _SlowBroker) -> None:
        monkeypatch.setattr(environment, "time", broker)
        monkeypatch.setattr(broker, "monotonic", lambda: broker.now, raising=False)
        monkeypatch.setattr(environment, "_with_scheduler", set[str]())
        environment.check_scheduler(cast("Connection", cast("Any", broker)), "tcp://broker:61616")

    return call


@pytest.mark.parametrize(("stops", "delays"), [([0.0], [1]), ([3.0, 0.0], [1, 5]), ([3.0, 9.0, 20.0], [1, 5, 25])])
def test_broker_that_stands_still_between_the_messages_has_a_scheduler(
    check: Callable[[_SlowBroker], None], stops: list[float], delays: list[float]
) -> None:
    broker = _SlowBroker(iter(stops), has_scheduler=True)
    check(broker)
    assert broker.delays == delays


@pytest.mark.parametrize(("stops", "delays"), [([0.1], [1]), ([3.0, 0.1], [1, 5]), ([0.7, 2.0], [1, 5])])
def test_broker_without_a_scheduler_is_recognised_when_it_answers_in_time(
    check: Callable[[_SlowBroker], None], stops: list[float], delays: list[float]
) -> None:
    broker = _SlowBroker(iter(stops), has_scheduler=False)
    with pytest.raises(NotImplementedError, match="no scheduler"):
        check(broker)
    assert broker.delays == delays


@pytest.mark.parametrize("has_scheduler", [True, False])
def test_broker_that_always_stands_still_is_not_judged(
    check: Callable[[_SlowBroker], None], has_scheduler: bool
) -> None:
    with pytest.raises(Timeout, match="try again later"):
        check(_SlowBroker(iter([30.0, 30.0, 30.0]), has_scheduler=has_scheduler))
