"""Transactions in two phases, and the codes of refusals."""

from typing import Any

import pytest

from tests.java.checks import Laboratory, parametrized, verify

pytestmark = [pytest.mark.component("activemq"), pytest.mark.timeout(300)]

EXPECTED: dict[str, Any] = {
    "errors": {
        "commit of unknown": "error -4",
        "one phase of unknown": "error -4",
        "rollback of unknown": "error -4",
        "two phases without prepare": "error -6",
        "rollback all the same": "ok",
    },
    "forget": {"forget": "ok", "recover": [], "left": []},
    "longIdentifiers": {"recovered": True, "committed": ["m0"]},
    "manyBranches": {
        "recover": [
            "Xa.manyBranches.0",
            "Xa.manyBranches.1",
            "Xa.manyBranches.2",
            "Xa.manyBranches.3",
            "Xa.manyBranches.4",
        ],
        "committed": ["m3", "m1", "m0"],
    },
    "onePhase": ["m0"],
    "outsideABranch": {"send": "javax.jms.JMSException", "commit": "javax.jms.TransactionInProgressException"},
    "prepareOfUnknown": "error -4",
    "preparedIsCommittedFromElsewhere": {"recover": ["Xa.preparedIsCommittedFromElsewhere"], "committed": ["m0"]},
    "preparedKeepsWhatItReceived": {"received": ["m0"], "others": [], "rolled back": ["m0", "m1"]},
    "readOnly": {"vote": 3, "commit after": "error -4"},
    "receiveInTwoPhases": {"received": ["m0", "m1"], "vote": 0, "left": ["m2"]},
    "rollback": [],
    "rollbackOfPrepared": {"left": [], "recover": []},
    "suspendAndResume": ["m0", "m1"],
    "twoPhases": {
        "before": [],
        "vote": 0,
        "prepared": [],
        "recover": ["Xa.twoPhases"],
        "committed": ["m0", "m1"],
        "recover after": [],
    },
    "twoSessionsJoinOneBranch": {"same resource manager": True, "vote": 0, "committed": ["m0", "m1"]},
    "unpreparedDiesWithItsConnection": {"left": [], "commit": "error -4"},
}


@parametrized("Xa", EXPECTED)
def test_outcome(laboratory: Laboratory, broker: str, area: str, check: str) -> None:
    verify(laboratory, broker, area, check, EXPECTED)
