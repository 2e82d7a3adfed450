"""Windows, pulling, listeners, browsers, exclusive consumers, priorities of consumers, message groups."""

from typing import Any

import pytest

from tests.java.checks import Laboratory, parametrized, verify

pytestmark = [pytest.mark.component("activemq"), pytest.mark.timeout(300)]

EXPECTED: dict[str, Any] = {
    "aWindowHoldsWhatItWasGiven": {"other": ["m3", "m4"], "holder": ["m0", "m1", "m2"]},
    "acknowledgingRefillsAWindow": ["m0", "m1", "m2", "m3"],
    "browserOfAnEmptyQueue": [],
    "browserOfMoreThanAPage": 700,
    "browserShowsAndLeaves": {
        "first": ["m0", "m1", "m2", "m3", "m4"],
        "again": ["m0", "m1", "m2", "m3", "m4"],
        "left": ["m0", "m1", "m2", "m3", "m4"],
    },
    "browserShowsWhatConsumersHold": {"held": ["m0", "m1"], "browsed": ["m0", "m1", "m2", "m3"]},
    "browserWithASelector": ["m2", "m3", "m5"],
    "browserWithASmallWindow": 20,
    "clientAcknowledgeBeyondTheWindow": ["m0", "m1", "m2", "m3", "m4", "m5", "m6", "m7", "m8", "m9"],
    "closedConsumerGivesBackInOrder": {
        "received": ["m0"],
        "left": [["m1", False, 1], ["m2", False, 1], ["m3", False, 1], ["m4", False, 1], ["young", False, 1]],
    },
    "equalConsumersTakeTurns": [["m0", "m2", "m4"], ["m1", "m3", "m5"]],
    "exclusiveConsumer": {
        "first": ["m0", "m1", "m2"],
        "others silent": True,
        "second": ["m0", "m1", "m2"],
        "plain": ["m0"],
    },
    "exclusiveWithHigherPriorityTakesOver": {
        "before": ["m0"],
        "after": ["m0", "m1"],
        "first silent": True,
        "back": ["m0"],
    },
    "fullOwnerHoldsUpOnlyItsGroup": {"owned": ["g1 first"], "passed": ["h1 first"], "in order": ["g2", "g3", "g4"]},
    "groupIsClosedByMinusOne": ["a first", "b", "last", "c first", "d"],
    "groupMovesWhenItsOwnerLeaves": {"before": ["a first"], "still": ["b"], "after": ["c first", "d"]},
    "groupStaysWithItsConsumer": {"firsts": [["a first"], ["b first"]], "g": ["c", "e"], "h": ["d"]},
    "higherPriorityIsServedFirst": {"high": ["m0", "m1"], "low": ["m2", "m3"]},
    "listener": {
        "all came": True,
        "received": ["m0", "m1", "m2", "m3", "m4", "m5", "m6", "m7", "m8", "m9", "m10", "m11"],
    },
    "listenerThatSends": ["re m0", "re m1", "re m2"],
    "newConsumerGetsNewGroups": {"before": ["g1 first", "h1 first"], "two": ["k1 first", "k2"], "one": ["g2", "h2"]},
    "persistentAndOtherMessagesKeepTheirOrder": ["n0", "p0", "n1", "p1", "n2", "p2"],
    "pullInATransaction": {"received": ["m0", "m1", "m2", ["m2", True, 2]], "left": []},
    "pullTakesOnlyWhatIsAskedFor": ["m0", "m1", "m2", "m3"],
    "pullTimesOut": ["nothing", "nothing", "m0", "m1", "m2", "nothing"],
    "pullWaits": ["m0", "m1"],
    "selectorLetsOthersPass": {"late": ["m4", "m5"], "odd": ["m1", "m3"], "left": ["m0", "m2"]},
    "selectorLooksFarAhead": "m299",
    "stoppedConnectionGoesOn": {"before": ["m0"], "silent": True, "after": ["m1"]},
    "unstartedConnectionReceivesNothing": {"silent": True, "started": ["m0", "m1"]},
    "windowInTheName": {"other": ["m1", "m2"], "holder": ["m0"]},
}


@parametrized("Consumers", EXPECTED)
def test_outcome(laboratory: Laboratory, broker: str, area: str, check: str) -> None:
    verify(laboratory, broker, area, check, EXPECTED)
