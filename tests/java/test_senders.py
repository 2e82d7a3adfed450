"""Who sent a message: what clients say of it, with and without `populateJMSXUserID`, and with and without logins."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

import pytest

from tests.integration.activemq_broker import ActiveMQProcess
from tests.integration.cluster import free_port
from tests.integration.stomp_client import StompClient
from tests.java.checks import Outcomes, Programs
from tests.java.installations import FollowedBroker

pytestmark = [pytest.mark.component("activemq"), pytest.mark.timeout(300)]


@dataclass(frozen=True, kw_only=True)
class Broker:
    """A broker with one user."""

    kind: str
    populates: bool
    openwire: int
    stomp: int


@pytest.fixture(scope="module", params=["as sent", "populated"])
def populates(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "populated")


@pytest.fixture(scope="module", params=["pybroker", "activemq"])
def broker(
    request: pytest.FixtureRequest, populates: bool, programs: Programs, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    directory = tmp_path_factory.mktemp(request.param)
    if request.param == "activemq":
        policies = ["login=u:right:g"] + ["populateJMSXUserID"] * populates
        with closing(ActiveMQProcess(programs.class_path, directory / "data", policies=policies)) as other:
            other.wait()
            yield Broker(kind="activemq", populates=populates, openwire=other.openwire, stomp=other.stomp)
        return
    users = directory / "users.properties"
    users.write_text("u=right\n")
    users.chmod(0o600)
    openwire, stomp = free_port(), free_port()
    extra = ["--users-file", str(users), "--openwire", str(openwire)] + ["--populate-jmsx-user-id"] * populates
    member = FollowedBroker("memory:", name="a", port=stomp, extra=tuple(extra))
    try:
        member.wait_for("listening on")
        yield Broker(kind="pybroker", populates=populates, openwire=openwire, stomp=stomp)
    finally:
        member.close()


@pytest.fixture(scope="module")
def outcomes(programs: Programs, broker: Broker) -> Outcomes:
    return programs.area("Senders", f"tcp://127.0.0.1:{broker.openwire}")


SAID: dict[str, tuple[bool, bool]] = {
    "nothingSaid": (False, False),
    "field": (True, False),
    "property": (False, True),
    "both": (True, True),
    "tightField": (True, False),
    "olderField": (True, False),
}
"""Whether the sender says that "boss" has sent the message, in the field and as a property."""


@pytest.mark.parametrize("check", SAID)
def test_the_user_that_a_java_client_sees(outcomes: Outcomes, broker: Broker, check: str) -> None:
    """ActiveMQ passes on what the client says, unless it populates the field."""
    has_field, has_property = SAID[check]
    passes_on = broker.kind == "activemq"
    user = "u" if broker.populates else "boss" if passes_on and (has_field or has_property) else None
    properties = {"JMSXUserID": "boss"} if passes_on and has_property else {}
    assert outcomes[check] == {"JMSXUserID": user, "properties": {**properties, "other": "kept"}}


@pytest.mark.parametrize("check", SAID)
@pytest.mark.usefixtures("outcomes")
def test_the_user_that_a_stomp_client_sees(broker: Broker, check: str) -> None:
    """In ActiveMQ a property is before the field, so a client determines it even if it is populated."""
    has_field, has_property = SAID[check]
    own = "u" if broker.populates else None
    user = "boss" if broker.kind == "activemq" and (has_property or (has_field and not broker.populates)) else own
    with closing(StompClient(broker.stomp, login="u", passcode="right")) as client:
        client.send("SUBSCRIBE", destination=f"/queue/Senders.{check}.stomp", id="s")
        headers = client.read().headers
        assert headers.get("JMSXUserID") == user
        assert headers["other"] == "kept"


@pytest.mark.parametrize("check", ["selectedByField", "selectedByProperty"])
def test_a_selector_for_the_user(outcomes: Outcomes, broker: Broker, check: str) -> None:
    assert outcomes[check] is (broker.kind == "activemq" and not broker.populates)


def test_the_header_of_a_stomp_client_has_no_effect(broker: Broker) -> None:
    with closing(StompClient(broker.stomp, login="u", passcode="right")) as client:
        client.send("SUBSCRIBE", destination="/queue/own", id="s")
        client.send("SEND", b"m", destination="/queue/own", JMSXUserID="boss")
        assert client.read().headers.get("JMSXUserID") == ("u" if broker.populates else None)


def test_checks_are_compared(outcomes: Outcomes) -> None:
    assert outcomes.keys() == {*SAID, "selectedByField", "selectedByProperty"}
