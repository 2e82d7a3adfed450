"""Advisories about consumers, producers, connections, destinations and messages."""

from typing import Any

import pytest

from tests.java.checks import Laboratory, parametrized, verify

pytestmark = [pytest.mark.component("activemq"), pytest.mark.timeout(300)]

EXPECTED: dict[str, Any] = {
    "connections": ["ConnectionInfo, password blank true", "RemoveInfo ConnectionId"],
    "consumers": {
        "advisories": [
            ["ConsumerInfo", 1],
            ["ConsumerInfo", 2],
            ["RemoveInfo ConsumerId", 1],
            ["RemoveInfo ConsumerId", 0],
        ],
        "destination": "queue://Advisories.consumers",
        "selector": "n = 1",
        "type": "Advisory",
        "delivery mode": 1,
        "topic": "topic://ActiveMQ.Advisory.Consumer.Queue.Advisories.consumers",
        "origin named": True,
    },
    "consumersOfATopic": [["ConsumerInfo", 1], ["RemoveInfo ConsumerId", 0]],
    "deadLetters": "ActiveMQTextMessage",
    "destinationSource": {"before": True, "after": True},
    "existingConsumersAreReplayed": ["ConsumerInfo", []],
    "expired": {"kind": "ActiveMQTextMessage", "names the message": True},
    "noDurableSubscription": "javax.jms.InvalidDestinationException",
    "producers": [["ProducerInfo", 1], ["RemoveInfo ProducerId", 0]],
    "queues": ["DestinationInfo add", "DestinationInfo remove"],
    "temporaryQueues": ["DestinationInfo add", "DestinationInfo remove"],
    "topics": "DestinationInfo add",
}


@parametrized("Advisories", EXPECTED)
def test_outcome(laboratory: Laboratory, broker: str, area: str, check: str) -> None:
    verify(laboratory, broker, area, check, EXPECTED)
