"""Composite destinations, wildcards, virtual topics, the end of a destination."""

from typing import Any

import pytest

from tests.java.checks import Laboratory, parametrized, verify

pytestmark = [pytest.mark.component("activemq"), pytest.mark.timeout(300)]

EXPECTED: dict[str, Any] = {
    "compositeConsumer": {
        "a": ["m0", "queue://Routing.compositeConsumer.a", "null"],
        "b": ["m0", "queue://Routing.compositeConsumer.b", "null"],
        "left": [],
    },
    "compositeSend": {
        "a": "queue://Routing.compositeSend.a",
        "b": "queue://Routing.compositeSend.b",
        "t": "topic://Routing.compositeSend.t",
        "same id": True,
        "original": ["Routing.compositeSend.a", "Routing.compositeSend.b", "topic://Routing.compositeSend.t"],
    },
    "compositeSendInATransaction": {"before": [], "a": ["m0", "m1"], "b": ["m0", "m1"]},
    "compositeTopicConsumer": {
        "a": ["m0", "topic://Routing.compositeTopicConsumer.a", "null"],
        "b": ["m0", "topic://Routing.compositeTopicConsumer.b", "null"],
    },
    "destroyInUse": {"destroy": "javax.jms.JMSException", "consumer goes on": ["m0"]},
    "destroyTopicWithADurableSubscription": {"subscribed": "javax.jms.JMSException", "unsubscribed": "nothing"},
    "destroyUnknown": "nothing",
    "destroyUnused": {"destroy": "nothing", "left": []},
    "destroyWithAProducer": {"destroy": "nothing", "left": ["after"]},
    "sendingToAWildcard": ["literal"],
    "starIsOneLevel": {"first": ["m0", "queue://Routing.starIsOneLevel.a.x", "null"], "rest": []},
    "virtualTopicFillsItsQueues": {
        "a": [
            [
                "m0",
                "queue://Consumer.a.VirtualTopic.Routing.virtualTopicFillsItsQueues.x",
                "topic://VirtualTopic.Routing.virtualTopicFillsItsQueues.x",
            ],
            [
                "m1",
                "queue://Consumer.a.VirtualTopic.Routing.virtualTopicFillsItsQueues.x",
                "topic://VirtualTopic.Routing.virtualTopicFillsItsQueues.x",
            ],
        ],
        "b": ["m0", "m1"],
        "topic": ["m0", "m1"],
    },
    "virtualTopicInATransaction": {"silent": True, "received": ["m0"]},
    "virtualTopicQueuesShareTheWork": [["m0", "m2"], ["m1", "m3"]],
    "virtualTopicSelector": {"received": ["m1"], "left": ["m0", "m2"]},
    "virtualTopicWildcardConsumer": {"x": "m0", "y": "m0", "rest": []},
    "virtualTopicWithoutQueues": ["m0"],
    "wildcardConsumerSharesAWindow": [
        "[m0, queue://Routing.wildcardConsumerSharesAWindow.a, null]",
        "[m0, queue://Routing.wildcardConsumerSharesAWindow.b, null]",
        "[m1, queue://Routing.wildcardConsumerSharesAWindow.a, null]",
        "[m1, queue://Routing.wildcardConsumerSharesAWindow.b, null]",
    ],
    "wildcardQueues": [
        ["m0", "queue://Routing.wildcardQueues.a", "null"],
        ["m0", "queue://Routing.wildcardQueues.b.c", "null"],
        ["m0", "queue://Routing.wildcardQueues", "null"],
    ],
    "wildcardTopics": {"first": ["m0", "topic://Routing.wildcardTopics.a", "null"], "rest": []},
}


@parametrized("Routing", EXPECTED)
def test_outcome(laboratory: Laboratory, broker: str, area: str, check: str) -> None:
    verify(laboratory, broker, area, check, EXPECTED)
