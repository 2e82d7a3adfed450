"""Rights: a Java client meets the same with an ActiveMQ and with a pybroker that have the same users and rules."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.integration.activemq_broker import ActiveMQProcess
from tests.integration.cluster import free_port
from tests.integration.stomp_client import StompClient
from tests.java.checks import Outcomes, Programs, compare
from tests.java.installations import FollowedBroker

pytestmark = [pytest.mark.component("activemq"), pytest.mark.timeout(300)]

USERS = {"admin": "admins", "u": "users", "w": "writers", "r": "readers", "lone": "outsiders"}
RULES = (
    ("queue", ">", "admins", "admins", "admins"),
    ("topic", ">", "admins", "admins", "admins"),
    ("queue", "U.>", "users", "users", "users"),
    ("topic", "U.>", "users", "users", "users"),
    ("queue", "RW.>", "readers", "writers", ""),
    ("queue", "WO.>", "", "writers", ""),
    ("queue", "RO.>", "readers", "", ""),
    ("topic", "RO.>", "readers", "", ""),
    ("topic", "VirtualTopic.U", "", "users", "users"),
    ("topic", "ActiveMQ.Advisory.>", *3 * ("admins,users,writers,readers",)),
)
EXISTING = ("/queue/RW.x", "/queue/RW.y", "/queue/WO.y", "/queue/S.secret", "/topic/S.secret")


def denied(what: str) -> str:
    return f"javax.jms.JMSSecurityException: {what} <- java.lang.SecurityException"


def u(what: str) -> str:
    return denied(f"User u is not authorized to {what}")


EXPECTED: dict[str, Any] = {
    "advisoriesOfConnections": denied("User lone is not authorized to read from: topic://ActiveMQ.Advisory.Connection"),
    "browser": u("read from: queue://S.secret"),
    "compositeConsumer": u("read from: U.a,S.secret"),
    "compositeUnderOneRule": ["m", "m"],
    "compositeUnderTwoRules": "nothing",
    "compositeWithADeniedPart": u("write to: U.a,S.secret"),
    "consumerOfADeniedQueue": {
        "denied": u("read from: queue://S.secret"),
        "own": "m",
        "transport failed": False,
    },
    "consumerOfAMissingQueue": denied("User r is not authorized to create: queue://RO.missing"),
    "deadLetters": {"denied": u("read from: queue://ActiveMQ.DLQ")},
    "durableSubscriber": u("read from: topic://S.secret"),
    "durableSubscriberWithoutAdmin": "nothing",
    "forgedAdvisory": {"sent": "nothing", "arrived": False},
    "managementOfTheScheduler": u("write to: topic://ActiveMQ.Scheduler.Management"),
    "neitherRightNorQueue": u("write to: queue://S.missing"),
    "nonPersistentSend": {
        "thrown": "nothing",
        "heard": "javax.jms.JMSSecurityException: User u is not authorized to write to: queue://S.secret",
        "transport failed": False,
    },
    "persistentSend": u("write to: queue://S.secret"),
    "persistentSendToATopic": u("write to: topic://S.secret"),
    "producerOfADeniedQueue": {"denied": u("write to: queue://S.secret"), "transport failed": False},
    "removalByAnAdmin": "nothing",
    "removalOfAnExistingQueue": u("remove: queue://S.removed"),
    "scheduledToADeniedQueue": u("write to: queue://S.secret"),
    "scheduledToAMissingQueue": "nothing",
    "sendInATransaction": {
        "heard": "javax.jms.JMSSecurityException: User u is not authorized to write to: queue://S.secret",
        "commit": "javax.jms.TransactionRolledBackException: TX is rolled back: User u is not authorized to write to: "
        "queue://S.secret <- nothing",
        "nothing arrived": True,
    },
    "sendToAMissingQueue": denied("User w is not authorized to create: queue://WO.missing"),
    "sendToAnExistingQueueNeedsNoAdmin": "written",
    "startWithoutRightAndWithFailover": "nothing",
    "startWithoutRightToAdvisories": "nothing",
    "temporaryQueue": u("create: temp-queue://ID"),
    "temporaryQueueOfAnAdmin": "m",
    "userOnAMessage": "u",
    "unsubscribe": (
        "javax.jms.InvalidClientIDException: The client id Rights.unsubscribe.id belongs to another user <- nothing"
    ),
    "virtualTopic": "m",
    "wildcardAcrossRules": {"first": "readable", "silent": True},
    "wildcardAcrossRulesOfTopics": ["readable"],
    "wildcardOutsideTheRules": u("read from: queue://S.*"),
    "wildcardWithinARule": ["m", "nothing"],
}


def _toml() -> str:
    def groups(text: str) -> str:
        return "[" + ", ".join(f'"{each}"' for each in text.split(",") if each) + "]"

    lines = []
    for kind, name, read, write, admin in RULES:
        lines += ["[[rules]]", f'{kind} = "{name}"']
        lines += [f"read = {groups(read)}", f"write = {groups(write)}", f"admin = {groups(admin)}"]
    return "\n".join([*lines, "[temporary]", *(f'{right} = ["admins"]' for right in ("read", "write", "admin"))])


@pytest.fixture(scope="module")
def ports(broker: str, programs: Programs, tmp_path_factory: Any) -> Iterator[tuple[int, int]]:
    """The ports for OpenWire and STOMP of a broker with these users and rules."""
    directory: Path = tmp_path_factory.mktemp(broker)
    if broker == "activemq":
        policies = [f"login={user}:pw:{group}" for user, group in USERS.items()]
        policies += ["rule=" + ":".join(rule) for rule in RULES] + [
            "temporary=admins:admins:admins",
            "populateJMSXUserID",
        ]
        with closing(ActiveMQProcess(programs.class_path, directory / "data", policies=policies)) as other:
            other.wait()
            _create(other.stomp)
            yield other.openwire, other.stomp
        return
    users, groups, rules = (directory / name for name in ("users.properties", "groups.properties", "rules.toml"))
    users.write_text("".join(f"{user}=pw\n" for user in USERS))
    users.chmod(0o600)
    groups.write_text("".join(f"{group}={user}\n" for user, group in USERS.items()))
    rules.write_text(_toml())
    openwire, stomp = free_port(), free_port()
    extra = [
        "--users-file",
        str(users),
        "--groups-file",
        str(groups),
        "--rules-file",
        str(rules),
        "--populate-jmsx-user-id",
    ]
    member = FollowedBroker("memory:", name="a", port=stomp, extra=(*extra, "--openwire", str(openwire)))
    try:
        member.wait_for("listening on")
        _create(stomp)
        yield openwire, stomp
    finally:
        member.close()


def _create(port: int) -> None:
    """Create the destinations that checks expect to exist."""
    with closing(StompClient(port, login="admin", passcode="pw")) as client:
        for number, name in enumerate(EXISTING):
            client.send("SUBSCRIBE", destination=name, id=str(number), receipt=str(number))
            assert client.read().command == "RECEIPT"


@pytest.fixture(scope="module")
def outcomes(programs: Programs, ports: tuple[int, int]) -> Outcomes:
    """What the Java client saw."""
    return programs.area("Rights", f"tcp://127.0.0.1:{ports[0]}")


@pytest.mark.parametrize("check", EXPECTED)
def test_outcome(outcomes: Outcomes, broker: str, check: str) -> None:
    compare(outcomes, broker, "Rights", check, EXPECTED)


def _frames(client: StompClient, count: int) -> list[tuple[str, str | None, str]]:
    """Return what the next frames say: the command, the receipt, the message."""
    frames = [client.read() for _ in range(count)]
    return [(each.command, each.headers.get("receipt-id"), each.headers.get("message", "")) for each in frames]


def test_a_stomp_client_is_refused_and_stays_connected(ports: tuple[int, int]) -> None:
    with closing(StompClient(ports[1], login="u", passcode="pw")) as client:
        write, read = (f"User u is not authorized to {right}: queue://S.secret" for right in ("write to", "read from"))
        client.send("SEND", b"m", destination="/queue/S.secret")
        assert _frames(client, 1) == [("ERROR", None, write)]
        client.send("SEND", b"m", destination="/queue/S.secret", receipt="1")
        client.send("SUBSCRIBE", destination="/queue/S.secret", id="a", receipt="2")
        client.send("SEND", b"m", destination="/queue/U.stomp", receipt="3")
        assert _frames(client, 3) == [("ERROR", "1", write), ("ERROR", "2", read), ("RECEIPT", "3", "")]


def test_a_stomp_message_has_its_user(ports: tuple[int, int]) -> None:
    with closing(StompClient(ports[1], login="u", passcode="pw")) as client:
        client.send("SUBSCRIBE", destination="/queue/U.signed.stomp", id="a")
        client.send("SEND", b"m", destination="/queue/U.signed.stomp", JMSXUserID="forged")
        assert client.read().headers["JMSXUserID"] == "u"


def test_a_denied_stomp_message_dooms_its_transaction(ports: tuple[int, int], broker: str) -> None:
    with closing(StompClient(ports[1], login="u", passcode="pw")) as client:
        client.send("BEGIN", transaction="t")
        client.send("SEND", b"m", destination="/queue/S.secret", transaction="t")
        client.send("COMMIT", transaction="t", receipt="1")
        # ActiveMQ answers a SEND without a receipt from another thread: its ERROR may come after the COMMIT's.
        (_, _, denial), (command, receipt, message) = sorted(_frames(client, 2), key=lambda frame: frame[1] or "")
        assert denial == "User u is not authorized to write to: queue://S.secret"
        assert (command, receipt) == ("ERROR", "1")
        if broker == "activemq":
            assert message == "COMMIT FAILED: Transaction marked rollback only xaErrorCode:100"
        else:
            assert "is rolled back: User u is not authorized to write to: queue://S.secret" in message


def test_a_denied_temporary_queue_of_a_stomp_client(ports: tuple[int, int], broker: str) -> None:
    """ActiveMQ goes on as if the queue were there, and so sends a second ERROR."""
    with closing(StompClient(ports[1], login="u", passcode="pw")) as client:
        client.send("SUBSCRIBE", destination="/temp-queue/reply", id="a", receipt="1")
        client.send("SEND", b"m", destination="/queue/U.stomp", receipt="2")
        frames = _frames(client, 3 if broker == "activemq" else 2)
        denial = "User u is not authorized to create: temp-queue://ID:"
        assert [receipt for _, receipt, text in frames if text.startswith(denial)] == [
            None if broker == "activemq" else "1"
        ]
        assert {receipt for _, receipt, _ in frames} >= {"1", "2"}
