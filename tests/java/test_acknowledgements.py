"""Acknowledgement modes, redelivery and its marks, dead letters."""

from typing import Any

import pytest

from tests.java.checks import Laboratory, parametrized, verify

pytestmark = [pytest.mark.component("activemq"), pytest.mark.timeout(300)]

EXPECTED: dict[str, Any] = {
    "acknowledgedSynchronously": {"received": ["m0", "m1", "m2"], "browsed": ["m3"]},
    "autoAcknowledge": {
        "received": [["m0", False, 1], ["m1", False, 1], ["m2", False, 1], ["m3", False, 1]],
        "left": [],
    },
    "autoAcknowledgeLeavesWhatWasNotReceived": {"received": ["m0", "m1"], "left": [["m2", False, 1], ["m3", False, 1]]},
    "clientAcknowledge": {
        "unacknowledged": [["m3", False, 1], ["m4", False, 1]],
        "again": [["m3", True, 2], ["m4", True, 2], ["m5", False, 1]],
        "left": ["m3", "m4", "m5"],
    },
    "clientAcknowledgeCoversTheSession": {"a": [], "b": ["m1"]},
    "closedConsumerReportsWhatItHasSeen": [["m0", True, 2], ["m1", True, 2], ["m2", False, 1], ["m3", False, 1]],
    "closedSessionReportsItToo": [["m0", True, 2], ["m1", True, 2], ["m2", False, 1], ["m3", False, 1]],
    "countsAddUpOverConsumers": [[["m0", False, 1]], [["m0", True, 2]], [["m0", True, 3]]],
    "cutConnectionMarksWhatWasSentToIt": [["m0", True, 2], ["m1", True, 2], ["m2", True, 2], ["m3", True, 2]],
    "deadLetterIsANormalMessage": {"dead": ["bad", False, 1], "poison on the dead letter queue is discarded": []},
    "dupsOk": {
        "received": [["m0", False, 1], ["m1", False, 1], ["m2", False, 1], ["m3", False, 1], ["m4", False, 1]],
        "left": [],
    },
    "dupsOkOnATopic": 20,
    "individual": [["m0", True, 2], ["m2", True, 2], ["m4", True, 2]],
    "individualOutOfOrder": ["m1", "m2"],
    "individualRefillsTheWindow": ["m0", "m1", "m2", "m3", "m4", "m5"],
    "listenerThatThrows": {
        "deliveries": [["bad", False, 1], ["bad", True, 2], ["bad", True, 3], ["good", False, 1]],
        "good came": True,
        "dead": "bad",
        "cause names the exception": True,
    },
    "optimizedAcknowledge": {"received": 50, "left": []},
    "optimizedAcknowledgeOnATopic": 100,
    "poison": {
        "deliveries": [["bad", False, 1], ["bad", True, 2], ["bad", True, 3]],
        "then": ["good", False, 1],
        "dead": {
            "body": "bad",
            "destination": "queue://ActiveMQ.DLQ",
            "original destination": "queue://Acknowledgements.poison",
            "delivery mode": 2,
            "priority": 7,
            "expiration": 0,
            "correlation id": "c",
            "type": "t",
            "redelivered": False,
            "deliveries": 1,
            "number": 5,
            "cause": "java.lang.Throwable: Delivery[3] exceeds redelivery policy limit",
            "properties": ["check", "dlqDeliveryFailureCause", "number", "originalExpiration"],
        },
        "same id": True,
        "original expiration kept": True,
    },
    "poisonThatIsNotPersistentIsDropped": {"received": ["bad", "good"], "dead letters": [], "left": []},
    "recoverCountsDeliveries": [
        [["m0", False, 1], ["m1", False, 1]],
        [["m0", True, 2], ["m1", True, 2]],
        [["m0", True, 3], ["m1", True, 3]],
    ],
    "returnedMessagesComeBeforeYounger": ["m0", "m1", "m2", "m3", "young"],
}


@parametrized("Acknowledgements", EXPECTED)
def test_outcome(laboratory: Laboratory, broker: str, area: str, check: str) -> None:
    verify(laboratory, broker, area, check, EXPECTED)
