"""Clients with a `failover:` address: brokers are killed, answers get lost, and programs notice as little as can be."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.java.checks import Outcomes, Programs, compare, parametrized
from tests.java.installations import ActiveMQ, Answers, Installation, Pybroker

pytestmark = [pytest.mark.component("activemq"), pytest.mark.timeout(300)]

EXPECTED: dict[str, Any] = {
    "commitInDoubt": {"commit": "javax.jms.TransactionRolledBackException", "queue": ["m0", "m1", "m2"]},
    "consumerCarriesOn": {"before": ["m0", "m1"], "after": ["m2", "m3", "m4"], "rest": []},
    "durableSubscriptionCarriesOn": {"before": ["m0"], "after": ["m1"]},
    "listenerCarriesOn": {"came": True, "received": ["m0", "m1", "m2", "m3"]},
    "openTransactionIsRolledBack": {"rollback": "nothing", "queue": []},
    "openTransactionWithSends": {"commit": "nothing", "queue": ["m0", "m1", "m2"]},
    "preparedBranchIsCommitted": {"vote": 0, "commit": "ok", "queue": ["m0"]},
    "producerCarriesOn": ["m0", "m1"],
    "receivesOfAnInterruptedTransaction": {
        "before": ["m0", "m1"],
        "commit": "javax.jms.TransactionRolledBackException",
        "after": ["m0", "m1", "m2"],
        "left": [],
    },
    "repeatedSendIsStoredOnce": {"send": "nothing", "queue": ["m0", "m1", "m2"]},
    "repeatedSendOfAConsumedMessage": {"consumed": ["m0", "m1"], "send": "nothing", "queue": []},
    "sendsUnderWayAreStoredOnce": {"sending": "nothing", "in order, once": True, "rest": []},
    "temporaryQueueCarriesOn": ["re after"],
}

SURVIVED: dict[str, Any] = {
    "before": {"votes": [0, 0, 0], "killed": "done"},
    "after": {
        "plain": ["m1", "m2"],
        "durable": ["t1", "t2"],
        "recover": ["survival committed", "survival received", "survival rolled back"],
        "before the commit": [],
        "committed": ["prepared"],
        "rolled back": [],
        "taken": ["left"],
        "after": [],
        "unprepared": "error -4",
        "left open": [],
        "recover after": [],
        "later": ["later"],
    },
    "scheduledInDoubt": ["later"],
}


@pytest.fixture(scope="module")
def installed(programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Answers]]:
    """Start brokers that can be killed; they end with the module."""
    started: list[Answers] = []

    def start(broker: str) -> Answers:
        directory = tmp_path_factory.mktemp(broker) / "store"
        installation: Installation = (
            ActiveMQ(directory, programs.class_path) if broker == "activemq" else Pybroker(directory)
        )
        started.append(Answers(installation))
        return started[-1]

    yield start
    for answers in started:
        answers.close()


@pytest.fixture(scope="module")
def outcomes(programs: Programs, installed: Callable[[str], Answers]) -> Callable[[str], Outcomes]:
    """Run the area once per broker."""
    known: dict[str, Outcomes] = {}

    def run(broker: str) -> Outcomes:
        if broker not in known:
            answers = installed(broker)
            known[broker] = programs.area("Failover", answers.uri, answer=answers)
        return known[broker]

    return run


@parametrized("Failover", EXPECTED)
def test_outcome(outcomes: Callable[[str], Outcomes], broker: str, area: str, check: str) -> None:
    compare(outcomes(broker), broker, area, check, EXPECTED)


@pytest.mark.parametrize("broker", ["pybroker", "activemq"])
def test_what_must_survive_a_kill_does(programs: Programs, installed: Callable[[str], Answers], broker: str) -> None:
    answers = installed(broker)
    before = programs.area("Survival", answers.master, "before", answer=answers)
    after = programs.area("Survival", answers.master, "after", "scheduledInDoubt")
    for check in SURVIVED:
        compare(before | after, broker, "Survival", check, SURVIVED)
