"""Temporary destinations; requests and replies across connections."""

from typing import Any

import pytest

from tests.java.checks import Laboratory, parametrized, verify

pytestmark = [pytest.mark.component("activemq"), pytest.mark.timeout(300)]

EXPECTED: dict[str, Any] = {
    "anybodySends": ["from an unknown client"],
    "deleteWithAConsumer": {"in use": "javax.jms.JMSException", "unused": "nothing"},
    "deletedIsUnknownToOthers": "javax.jms.InvalidDestinationException",
    "deletedIsUnknownToTheBroker": "org.apache.activemq.DestinationDoesNotExistException",
    "diesWithACutConnection": "org.apache.activemq.DestinationDoesNotExistException",
    "diesWithItsConnection": {
        "queue": "org.apache.activemq.DestinationDoesNotExistException",
        "topic": "org.apache.activemq.DestinationDoesNotExistException",
    },
    "manyRepliers": [
        "re r0, correlated true",
        "re r1, correlated true",
        "re r2, correlated true",
        "re r3, correlated true",
        "re r4, correlated true",
        "re r5, correlated true",
        "re r6, correlated true",
        "re r7, correlated true",
        "re r8, correlated true",
    ],
    "messagesWaitForTheirConsumer": ["m0", "m1"],
    "onlyTheOwnerConsumes": "javax.jms.InvalidDestinationException",
    "queueRequestor": ["re a", "re b", "re c"],
    "replierConnectsLater": "re late, correlated true",
    "replierWithoutAdvisories": "re quiet, correlated true",
    "requestAndReply": ["re a, correlated true", "re b, correlated true"],
    "temporaryTopic": "re t, correlated true",
    "topicRequestor": "re a",
    "transactedRequestAndReply": {"silent before the commit": True, "reply": ["re tx"]},
}


@parametrized("Temporaries", EXPECTED)
def test_outcome(laboratory: Laboratory, broker: str, area: str, check: str) -> None:
    verify(laboratory, broker, area, check, EXPECTED)
