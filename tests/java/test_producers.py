"""Synchronous and asynchronous sends, producer windows, callbacks."""

from typing import Any

import pytest

from tests.java.checks import Laboratory, parametrized, verify

pytestmark = [pytest.mark.component("activemq"), pytest.mark.timeout(300)]

EXPECTED: dict[str, Any] = {
    "anonymousProducer": {"a": ["a", "c"], "b": ["b"]},
    "asynchronous": True,
    "asynchronousNonPersistent": True,
    "asynchronousRefusalReachesTheListener": {
        "errors": ["org.apache.activemq.DestinationDoesNotExistException"],
        "queue": ["goes on"],
    },
    "completionIsCalledBack": {
        "came": True,
        "completed": ["0", "1", "2", "3", "4"],
        "queue": ["m0", "m1", "m2", "m3", "m4"],
    },
    "dispatchedByTheSendersThread": ["m0", "m1", "m2", "m3", "m4"],
    "messagesOfManyProducersKeepTheirOrder": "in order",
    "sendTimeout": True,
    "synchronous": True,
    "window": True,
    "windowInATransaction": 100,
    "windowOfNonPersistent": True,
    "windowOfSeveralProducers": True,
    "windowOnATopicWithoutConsumers": "sent",
    "windowSmallerThanAMessage": True,
}


@parametrized("Producers", EXPECTED)
def test_outcome(laboratory: Laboratory, broker: str, area: str, check: str) -> None:
    verify(laboratory, broker, area, check, EXPECTED)
