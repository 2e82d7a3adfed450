"""Connecting, client ids, refusals, and what the end of a connection frees."""

from typing import Any

import pytest

from tests.java.checks import Laboratory, parametrized, verify

pytestmark = [pytest.mark.component("activemq"), pytest.mark.timeout(300)]

EXPECTED: dict[str, Any] = {
    "brokerInfo": {"has a name": True, "has an id": True, "fault tolerant": False},
    "clientIdInUse": {"second": "javax.jms.InvalidClientIDException", "after the first closed": "nothing"},
    "clientIdOfACutConnection": "nothing",
    "closeEndsAWaitingReceive": "null",
    "manyConnectionsAtOnce": {"failures": ["nothing"], "first messages": 12, "rest": []},
    "negotiated": {
        "version": 12,
        "tight": False,
        "cache": False,
        "stack traces": False,
        "size prefix": True,
        "frame limit of 100 MiB": True,
    },
    "refusalLeavesTheSessionUsable": {"refused": "javax.jms.InvalidSelectorException", "received": ["after"]},
    "sessionsInParallel": ["nothing", "nothing", "nothing", "nothing", "true", "true", "true", "true"],
    "unknownTemporaryQueue": {
        "producer": "org.apache.activemq.DestinationDoesNotExistException",
        "send": "org.apache.activemq.DestinationDoesNotExistException",
    },
    "unsubscribeUnknown": "javax.jms.InvalidDestinationException",
    "useAfterClose": {
        "session": "org.apache.activemq.ConnectionClosedException",
        "consumer": "javax.jms.IllegalStateException",
        "receive": "javax.jms.IllegalStateException",
    },
    "wrongSelectorOfADurableSubscription": {
        "subscribe": "javax.jms.InvalidSelectorException",
        "nothing was made": "javax.jms.InvalidDestinationException",
    },
    "wrongSelectors": [
        ["a =", "javax.jms.InvalidSelectorException"],
        ["= 5", "javax.jms.InvalidSelectorException"],
        ["a BETWEEN 1", "javax.jms.InvalidSelectorException"],
        ["a = 'open", "javax.jms.InvalidSelectorException"],
        ["(a = 1", "javax.jms.InvalidSelectorException"],
        ["a IN ()", "javax.jms.InvalidSelectorException"],
        ["a LIKE 5", "javax.jms.InvalidSelectorException"],
        ["1", "javax.jms.InvalidSelectorException"],
        ["a NOT", "javax.jms.InvalidSelectorException"],
        ["a = 1 b = 2", "javax.jms.InvalidSelectorException"],
        ["browser", "javax.jms.InvalidSelectorException"],
    ],
}


@parametrized("Connections", EXPECTED)
def test_outcome(laboratory: Laboratory, broker: str, area: str, check: str) -> None:
    verify(laboratory, broker, area, check, EXPECTED)
