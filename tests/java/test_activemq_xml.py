"""The same activemq.xml under ActiveMQ and under pybroker: the Java programs meet the same, but for listed differences.

ActiveMQ is Debian's, started by its own launcher, and pybroker is `pybroker start --activemq-xml`. Outcomes are
compared with each other, not with constants. Not among the checks are `Messages.headers` and `Acknowledgements.poison`,
which compare times with those of the sender: with time stamping they are the same only within one millisecond.
"""

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

from benchmarks.side_by_side.brokers import start_activemq
from benchmarks.side_by_side.rows import Protocol
from tests.integration.activemq_broker import JVM_TUNING
from tests.integration.cluster import free_port
from tests.integration.forked import ForkedBroker
from tests.java.checks import ACTIVEMQ_TRIES, HERE, Outcomes, Programs
from tests.java.differences import DIFFERENCES
from tests.java.installations import FollowedBroker

pytestmark = [pytest.mark.component("activemq"), pytest.mark.timeout(300)]

FILE: Final = HERE / "activemq.xml"

CHECKS: Final[dict[str, tuple[str, ...]]] = {
    "Acknowledgements": (
        "clientAcknowledge", "deadLetterIsANormalMessage", "individualOutOfOrder",
        "poisonThatIsNotPersistentIsDropped", "recoverCountsDeliveries", "returnedMessagesComeBeforeYounger",
    ),
    "Advisories": (
        "connections", "consumers", "deadLetters", "destinationSource", "expired", "noDurableSubscription", "producers",
        "queues", "temporaryQueues", "topics",
    ),
    "Connections": ("brokerInfo", "clientIdInUse", "negotiated", "refusalLeavesTheSessionUsable"),
    "Consumers": (
        "browserOfMoreThanAPage", "browserShowsAndLeaves", "browserWithASelector", "exclusiveConsumer",
        "groupStaysWithItsConsumer", "listener", "persistentAndOtherMessagesKeepTheirOrder", "pullWaits",
    ),
    "Forwarding": (
        "compositeQueue", "compositeQueueInATransaction", "compositeTopic", "destinationsOfTheStart",
        "timeToLiveHasACeiling", "virtualTopicThatIsAwareOfSelectors",
    ),
    "Messages": (
        "brokerStampsItsTimes", "compressed", "headersAsSentByDefault", "largeMessages", "mapMessage",
        "propertiesOfEveryType", "replyToOfEveryKind", "texts", "timestampCanBeLeftOut",
    ),
    "Policies": (
        "browserStopsAtItsPage", "discardedDeadLetters", "dispatchStartsAfterATime", "dispatchStartsForTwo",
        "everyConsumerExclusive", "expired", "individualDeadLetters", "lastImage", "lastThree",
        "nonPersistentDeadLetters", "policyReplacesTheDefaultWindow", "prioritized", "sendFailsAfterATime",
        "slowConsumersMissTheOldest", "strictOrder",
    ),
    "PolicyAdvisories": ("acceptedWithItsBody", "consumed", "discarded", "slowConsumerOfAQueue", "withoutConsumers"),
    "Producers": ("anonymousProducer", "asynchronous", "windowInATransaction", "windowOfNonPersistent"),
    "Redeliveries": ("droppedWithoutAPolicy", "untilItIsADeadLetter"),
    "Routing": (
        "compositeSend", "destroyInUse", "destroyTopicWithADurableSubscription", "virtualTopicFillsItsQueues",
        "virtualTopicInATransaction", "virtualTopicSelector", "virtualTopicWildcardConsumer", "wildcardQueues",
        "wildcardTopics",
    ),
    "Schedules": ("delay", "inATransaction", "onATopic", "removedBeforeItsTime", "timeToLiveBeginsWithTheDelivery"),
    "Selectors": ("disputed", "onATopic", "sample"),
    "Statistics": ("countsOfAQueue", "countsOfExpiredMessages", "ofADurableSubscription", "wildcards"),
    "Temporaries": ("diesWithItsConnection", "onlyTheOwnerConsumes", "requestAndReply", "temporaryTopic"),
    "Topics": (
        "backlogWaits", "changedSelectorStartsAgain", "noLocal", "selectorOfADurableSubscription", "transactedDurable",
        "unsubscribeWhileActive", "wildcardSubscription",
    ),
    "Transactions": (
        "asynchronousFailureSpoilsTheTransaction", "commit", "cutConnectionRollsBack", "manyReceivesInOneTransaction",
        "receiveAndSendTogether", "rollbackOfReceives",
    ),
    "Xa": ("errors", "onePhase", "prepareOfUnknown", "preparedKeepsWhatItReceived", "readOnly", "twoPhases"),
}  # fmt: skip
"""The checks of each area."""

Found = dict[tuple[str, str], Any]
"""Outcomes by area and name of the check."""

OF_POLICIES: Final[Found] = {("Consumers", "browserOfMoreThanAPage"): 400}
"""ActiveMQ's outcomes that differ only where a policy matches: here `maxBrowsePageSize`, see docs/differences.md."""


class FollowedFileBroker(FollowedBroker):
    """A pybroker whose store and listeners are those of the file."""

    def __init__(self, data: Path, openwire: int) -> None:
        self.name, self.port, self.lines, self._rest = "a", free_port(), [], b""
        command = ["start", "--activemq-xml", str(FILE), "--name", self.name, "--disk-reserve", "0"]
        given = {"activemq.data": data, "openwire.port": openwire, "stomp.port": self.port}
        for name, value in given.items():
            command += ["--property", f"{name}={value}"]
        self.process = ForkedBroker(command)
        self.follow()


def run_all(programs: Programs, port: int, checks: dict[str, tuple[str, ...]]) -> Found:
    """Return the outcomes of checks by area and name."""
    found: Found = {}
    for area, names in checks.items():
        outcomes: Outcomes = programs.area(area, f"tcp://127.0.0.1:{port}", *names)
        found |= {(area, name): outcome for name, outcome in outcomes.items()}
    return found


def of_activemq(programs: Programs, directory: Path, checks: dict[str, tuple[str, ...]]) -> Found:
    """Run checks against an ActiveMQ with an empty store."""
    ports = {Protocol.OPENWIRE: free_port(), Protocol.STOMP: free_port()}
    with start_activemq(directory, file=FILE, options=JVM_TUNING, ports=ports) as broker:
        broker.wait_until_listening()
        return run_all(programs, ports[Protocol.OPENWIRE], checks)


def of_pybroker(programs: Programs, directory: Path) -> Found:
    """Run all checks against a pybroker with an empty store."""
    directory.mkdir()
    openwire = free_port()
    with closing(FollowedFileBroker(directory, openwire)) as broker:
        broker.wait_for("listening on")
        return run_all(programs, openwire, CHECKS)


def is_as_listed(check: tuple[str, str], activemq: Any, pybroker: Any) -> bool:
    """Return whether outcomes are the same, or differ and ActiveMQ's is the listed one."""
    if check in OF_POLICIES:
        return bool(activemq == OF_POLICIES[check] != pybroker)
    if check in DIFFERENCES:
        return bool(activemq == DIFFERENCES[check].activemq != pybroker)
    return bool(activemq == pybroker)


def differing(activemq: Found, pybroker: Found) -> list[tuple[str, str]]:
    """Return the checks with a difference that is not listed."""
    return [each for each in pybroker if not is_as_listed(each, activemq[each], pybroker[each])]


def test_programs_meet_the_same_but_for_listed_differences(programs: Programs, tmp_path: Path) -> None:
    """ActiveMQ may try again, with an empty store: `tests.java.checks.verify` has the reason."""
    with ThreadPoolExecutor(2) as pool:
        stock = pool.submit(of_activemq, programs, tmp_path / "activemq", CHECKS)
        own = pool.submit(of_pybroker, programs, tmp_path / "pybroker")
        activemq, pybroker = stock.result(), own.result()
    assert activemq.keys() == pybroker.keys() == {(area, name) for area, names in CHECKS.items() for name in names}
    failed = [name for name, each in pybroker.items() if str(each).startswith(("{'failed'", "{'hangs'"))]
    assert not failed
    for number in range(1, ACTIVEMQ_TRIES):
        again: dict[str, tuple[str, ...]] = {}
        for area, name in differing(activemq, pybroker):
            print(f"ActiveMQ gave {activemq[area, name]} in {area}.{name} and is tried again")
            again[area] = (*again.get(area, ()), name)
        if again:
            activemq |= of_activemq(programs, tmp_path / f"again-{number}", again)
    assert not {each: (activemq[each], pybroker[each]) for each in differing(activemq, pybroker)}
