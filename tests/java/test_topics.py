"""Topics, durable subscriptions, noLocal."""

from typing import Any

import pytest

from tests.java.checks import Laboratory, parametrized, verify

pytestmark = [pytest.mark.component("activemq"), pytest.mark.timeout(300)]

EXPECTED: dict[str, Any] = {
    "backlogThenLive": {"kept": ["m0", "m1"], "live": ["m0", "m1"]},
    "backlogWaits": {"first": ["m0", "m1", "m2"], "second": ["m0"]},
    "changedSelectorStartsAgain": {"backlog dropped": [], "from now": ["m0", "m2"]},
    "changedTopicStartsAgain": ["m0"],
    "everySubscriberGetsEveryMessage": [["m0", "m1", "m2", "m3"], ["m0", "m1", "m2", "m3"], ["m0", "m1", "m2", "m3"]],
    "inUse": {"second": "javax.jms.JMSException", "first": ["m0"]},
    "largeBacklog": True,
    "newSubscriptionSeesNothingOld": {"old": ["m0", "m1", "m0"], "new": ["m0"]},
    "noLocal": {"no local": ["other"], "all": ["own", "other"]},
    "noLocalDurable": ["other"],
    "messagesBeforeTheFirstConsumer": ["m0"],
    "nonPersistentMessagesWaitToo": ["n0", "n1"],
    "retroactiveSubscription": {
        "stored": ["m0", "m1", "m2", "m3"],
        "live": ["m0"],
        "odd": ["m1", "m3"],
        "again": [],
        "kept": ["m0", "m1", "m2", "m3", "m0"],
    },
    "rollbackOnATopicRedelivers": {
        "first": [["m0", False, 1], ["m1", False, 1]],
        "again": [["m0", True, 2], ["m1", True, 2]],
    },
    "sameNameOfOtherClients": {"one": ["m0"], "other": ["m0"]},
    "selectorOfADurableSubscription": ["m1", "m3"],
    "smallWindow": True,
    "subscriptionsAreSeparate": {"a": ["m0", "m1"], "b": ["m0", "m1"]},
    "transactedDurable": {"first": ["m0", "m1"], "again": [["m0", True, 2], ["m1", True, 2]], "left": ["m2"]},
    "unacknowledgedStays": [["m1", True, 2], ["m2", False, 1]],
    "unsubscribe": {"twice": "javax.jms.InvalidDestinationException", "made again": []},
    "unsubscribeWhileActive": {"active": "javax.jms.JMSException", "still": ["m0"], "closed": "nothing"},
    "wildcardSubscription": ["a0", "a1", "c0"],
}


@parametrized("Topics", EXPECTED)
def test_outcome(laboratory: Laboratory, broker: str, area: str, check: str) -> None:
    verify(laboratory, broker, area, check, EXPECTED)
