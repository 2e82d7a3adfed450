"""Advisories that policies ask for."""

from typing import Any

import pytest

from tests.java.checks import Laboratory, parametrized, verify

pytestmark = [pytest.mark.component("activemq"), pytest.mark.timeout(300)]

EXPECTED: dict[str, Any] = {
    "accepted": [
        {
            "subject": "ActiveMQTextMessage",
            "text": "null",
            "properties": {
                "orignalDestination": "String queue://PolicyAdvisories.accepted",
                "orignalMessageId": "String",
            },
            "type": "Advisory",
        }
    ],
    "acceptedByATopic": [
        {
            "subject": "ActiveMQTextMessage",
            "text": "null",
            "properties": {
                "orignalDestination": "String topic://PolicyAdvisories.acceptedByATopic",
                "orignalMessageId": "String",
            },
            "type": "Advisory",
        }
    ],
    "acceptedInATransaction": {"before": False, "after": 2},
    "acceptedWithItsBody": [
        {
            "subject": "ActiveMQTextMessage",
            "text": "a",
            "properties": {
                "orignalDestination": "String queue://PolicyAdvisories.body.acceptedWithItsBody",
                "orignalMessageId": "String",
            },
            "type": "Advisory",
        }
    ],
    "consumed": {
        "before": False,
        "after": [
            {
                "subject": "ActiveMQTextMessage",
                "text": "null",
                "properties": {
                    "orignalDestination": "String queue://PolicyAdvisories.consumed",
                    "orignalMessageId": "String",
                },
                "type": "Advisory",
            }
        ],
    },
    "consumedByADurableSubscription": [
        {
            "subject": "ActiveMQTextMessage",
            "text": "null",
            "properties": {
                "orignalDestination": "String topic://PolicyAdvisories.consumedByADurableSubscription",
                "orignalMessageId": "String",
            },
            "type": "Advisory",
        }
    ],
    "consumedByAPlainSubscription": [],
    "consumedInATransaction": {"before": False, "after": 1},
    "discarded": [
        {
            "subject": "ActiveMQTextMessage",
            "text": "null",
            "properties": {
                "consumerId": "String",
                "discardedCount": "Integer 1",
                "orignalDestination": "String topic://PolicyAdvisories.discarded",
                "orignalMessageId": "String",
            },
            "type": "Advisory",
        },
        {
            "subject": "ActiveMQTextMessage",
            "text": "null",
            "properties": {
                "consumerId": "String",
                "discardedCount": "Integer 2",
                "orignalDestination": "String topic://PolicyAdvisories.discarded",
                "orignalMessageId": "String",
            },
            "type": "Advisory",
        },
    ],
    "slowConsumerOfAQueue": [
        {"subject": "ConsumerInfo", "text": "-", "properties": {"consumerId": "String"}, "type": "Advisory"}
    ],
    "slowConsumerOfATopic": {
        "before": False,
        "after": [{"subject": "ConsumerInfo", "text": "-", "properties": {"consumerId": "String"}, "type": "Advisory"}],
    },
    "withoutConsumers": {
        "body": "lost",
        "rest": 0,
        "destination": "topic://ActiveMQ.Advisory.NoConsumer.Queue.PolicyAdvisories.withoutConsumers",
        "original": "null",
        "queue": 2,
    },
    "withoutSubscribers": ["lost"],
}


@parametrized("PolicyAdvisories", EXPECTED)
def test_outcome(laboratory: Laboratory, broker: str, area: str, check: str) -> None:
    verify(laboratory, broker, area, check, EXPECTED)
