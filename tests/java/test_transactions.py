"""Local transactions."""

from typing import Any

import pytest

from tests.java.checks import Laboratory, parametrized, verify

pytestmark = [pytest.mark.component("activemq"), pytest.mark.timeout(300)]

EXPECTED: dict[str, Any] = {
    "acknowledgementsLostInAFailover": {
        "commit": "javax.jms.TransactionRolledBackException",
        "queue": ["m0", "m1"],
    },
    "asynchronousFailureSpoilsTheTransaction": {"commit": "javax.jms.TransactionRolledBackException", "queue": []},
    "closedSessionRollsBack": {"in": [["m0", True, 2]], "out": []},
    "commit": {"silent": True, "received": ["m0", "m1"]},
    "committedBeyondTheWindow": {
        "received": ["m0", "m1", "m2", "m3", "m4", "m5", "m6", "m7", "m8", "m9", "m10", "m11"],
        "left": [],
    },
    "cutConnectionRollsBack": {"in": [["m0", True, 2], ["m1", True, 2]], "out": []},
    "emptyTransactions": {
        "commit": "nothing",
        "rollback": "nothing",
        "not transacted": "javax.jms.IllegalStateException",
    },
    "invisibleToBrowsers": {"before": [], "after": ["m0"]},
    "listenerCommits": ["re m0", "re m1", "re m2", "re m3"],
    "manyQueuesAndTopicsInOne": {"silent": True, "topic": ["t0"], "a": ["a0", "a1"], "b": ["b0"]},
    "manyReceivesInOneTransaction": 300,
    "manySendsInOneTransaction": True,
    "moreInTheRangeThanWasReceived": {
        "commit": "javax.jms.TransactionRolledBackException",
        "queue": ["m0", "m1", "m2"],
    },
    "nonPersistentToo": ["n0", "n1"],
    "ordersByCommit": ["plain", "second 0", "first 0", "first 1"],
    "receiveAndSendTogether": {"in": [], "out": ["again of m0", "of m1"]},
    "rollbackOfReceives": {
        "first": [["m0", False, 1], ["m1", False, 1]],
        "again": [["m0", True, 2], ["m1", True, 2], ["m2", False, 1]],
        "left": [],
    },
    "rollbackOfSends": ["m0"],
    "rolledBackBeyondTheWindow": {"again": ["m0", "m1", "m2", "m3", "m4", "m5"], "left": []},
    "rolledBackMessagesStayWithTheirConsumer": {
        "other silent": True,
        "when closed": [["m0", True, 2], ["m1", False, 1]],
    },
    "sessionsOfOneConnectionAreSeparate": ["kept"],
    "unknownTransaction": ["javax.jms.JMSException", "javax.jms.JMSException"],
}


@parametrized("Transactions", EXPECTED)
def test_outcome(laboratory: Laboratory, broker: str, area: str, check: str) -> None:
    verify(laboratory, broker, area, check, EXPECTED)
