"""Delay, period and repeat, cron, and the management of what waits."""

from typing import Any

import pytest

from tests.java.checks import Laboratory, parametrized, verify

pytestmark = [pytest.mark.component("activemq"), pytest.mark.timeout(300)]

EXPECTED: dict[str, Any] = {
    "cronWaits": {
        "waiting": ["new year"],
        "shown": {
            "body": "new year",
            "cron": "0 0 1 1 *",
            "has a job id": True,
            "reply's destination is temporary": True,
        },
        "removed": [],
    },
    "delay": {
        "first": "now",
        "then": "later",
        "not early": True,
        "properties": ["kept", "scheduledJobId"],
        "same id": True,
        "delivery mode": 2,
    },
    "delayOfANonPersistentMessage": {"came": "later", "delivery mode": 1},
    "inATransaction": ["later"],
    "inTheOrderOfTheirTimes": ["first", "second", "third"],
    "onATopic": ["later"],
    "removedBeforeItsTime": {"before": ["a", "b", "c"], "after": ["a", "c"], "all removed": []},
    "repeated": {"came": ["again", "again", "again"], "distinct ids": 3, "rest": []},
    "settingsAsText": ["later"],
    "timeToLiveBeginsWithTheDelivery": {"came": "later", "renewed": True},
    "tooManyRepeats": "javax.jms.MessageFormatException",
    "wrongCron": "java.lang.IllegalArgumentException",
}


@parametrized("Schedules", EXPECTED)
def test_outcome(laboratory: Laboratory, broker: str, area: str, check: str) -> None:
    verify(laboratory, broker, area, check, EXPECTED)
