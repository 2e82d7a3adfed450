"""Priorities, expiry and dead letters, retroactive and slow consumers, exclusive and strict dispatch."""

from typing import Any

import pytest

from tests.java.checks import Laboratory, parametrized, verify

pytestmark = [pytest.mark.component("activemq"), pytest.mark.timeout(300)]

EXPECTED: dict[str, Any] = {
    "browserStopsAtItsPage": {
        "all": ["m0", "m1", "m2"],
        "held": ["m0", "m1", "m2"],
        "selected": ["m3", "m4", "m5"],
        "left": ["m0", "m1", "m2", "m3", "m4", "m5", "m6"],
    },
    "dispatchStartsAfterATime": {
        "later waited": True,
        "later": ["m0", "m1"],
        "alone waited": True,
        "alone": ["m0"],
    },
    "dispatchStartsForTwo": {
        "first at first": True,
        "first": ["m0", "m2"],
        "second": ["m1", "m3"],
        "one is left": ["m4"],
        "third at first": True,
        "third": ["m5", "m7"],
        "fourth": ["m6", "m8"],
    },
    "discardedDeadLetters": {"first dead": "kept", "left": [], "discarding": [], "unexpired": []},
    "everyConsumerExclusive": {"first": ["m0", "m1", "m2", "m3"], "second silent": True},
    "expired": {
        "body": "late",
        "destination": "queue://ActiveMQ.DLQ",
        "original destination": "queue://Policies.shared.Policies.expired",
        "expiration": 0,
        "cause": "java.lang.Throwable: Message Expired. Expiration:TIME",
        "delivery mode": 2,
        "left": ["stays"],
    },
    "expiredBeforeItsConsumerCame": {"received": ["in time"], "dead": "late"},
    "expiredNonPersistentIsDropped": {"first dead": "kept", "left": []},
    "expiredOnArrivalIsNotDelivered": {"received": ["in time"], "dead": ["late"]},
    "individualDeadLetters": {
        "body": "late",
        "destination": "queue://ActiveMQ.DLQ.Queue.Policies.individual.Policies.individualDeadLetters",
    },
    "lastImage": ["m4"],
    "lastThree": {"recovered": ["m2", "m3", "m4"], "live": ["m0"], "plain": ["m0"]},
    "nonPersistentDeadLetters": {"body": "late", "delivery mode": 2, "original mode": "NON_PERSISTENT"},
    "notPrioritized": ["m0 p4", "m1 p0", "m2 p9", "m3 p4"],
    "policyReplacesTheDefaultWindow": {"second": ["m2", "m3", "m4"], "first": ["m0", "m1"]},
    "prioritized": ["m2 p9", "m6 p9", "m4 p7", "m0 p4", "m3 p4", "m1 p0", "m5 p0"],
    "prioritizedWithAWaitingConsumer": ["m2 p8", "m3 p8", "m1 p5"],
    "retroactiveWithASelector": ["m2", "m4"],
    "retroactiveWithoutAPolicy": ["m0"],
    "sendFailsAfterATime": {
        "refused": "javax.jms.ResourceAllocationException",
        "waited": True,
        "received as sent": True,
        "sent while one waits": "sent",
        "next": ["after the wait", "afterwards"],
    },
    "slowConsumersMissTheOldest": ["m0", "m1", "m15", "m16", "m17", "m18", "m19"],
    "strictOrder": {"first": ["m0", "m1", "m2"], "second": ["m3", "m4"]},
}


@parametrized("Policies", EXPECTED)
def test_outcome(laboratory: Laboratory, broker: str, area: str, check: str) -> None:
    verify(laboratory, broker, area, check, EXPECTED)
