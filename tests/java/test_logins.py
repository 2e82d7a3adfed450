"""Logins: a Java client meets the same with an ActiveMQ and with a pybroker that have the same user."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.integration.activemq_broker import ActiveMQProcess
from tests.integration.cluster import free_port
from tests.integration.stomp_client import Disconnected
from tests.java.checks import Outcomes, Programs
from tests.java.installations import FollowedBroker
from tests.java.refusals import answered, logging_in

pytestmark = [pytest.mark.component("activemq"), pytest.mark.timeout(300)]


def refused(name: str) -> dict[str, Any]:
    text = f"User name [{name}] or password is invalid."
    return {"error": f"javax.jms.JMSSecurityException: {text} <- java.lang.SecurityException", "at once": True}


EXPECTED: dict[str, Any] = {
    "afterAFirstRefusal": "connected",
    "emptyPassword": refused("u"),
    "listenersOfARefusedConnection": "Force close due to SecurityException on connect",
    "noLogin": refused("null"),
    "noPassword": refused("u"),
    "rightPassword": "sent",
    "unknownUser": refused("missing"),
    "wrongPassword": refused("u"),
    "wrongPasswordWithFailover": refused("u"),
}


@pytest.fixture(scope="module")
def ports(broker: str, programs: Programs, tmp_path_factory: Any) -> Iterator[tuple[int, int]]:
    """The ports for OpenWire and STOMP of a broker with one user."""
    directory: Path = tmp_path_factory.mktemp(broker)
    if broker == "activemq":
        with closing(ActiveMQProcess(programs.class_path, directory / "data", policies=["login=u:right:g"])) as other:
            other.wait()
            yield other.openwire, other.stomp
        return
    users = directory / "users.properties"
    users.write_text("u=right\n")
    users.chmod(0o600)
    openwire, stomp = free_port(), free_port()
    extra = ("--users-file", str(users), "--openwire", str(openwire))
    member = FollowedBroker("memory:", name="a", port=stomp, extra=extra)
    try:
        member.wait_for("listening on")
        yield openwire, stomp
    finally:
        member.close()


@pytest.fixture(scope="module")
def outcomes(programs: Programs, ports: tuple[int, int]) -> Outcomes:
    """What the Java client saw."""
    return programs.area("Logins", f"tcp://127.0.0.1:{ports[0]}")


@pytest.mark.parametrize("check", EXPECTED)
def test_outcome(outcomes: Outcomes, check: str) -> None:
    assert outcomes.keys() == EXPECTED.keys()
    assert outcomes[check] == EXPECTED[check]


@pytest.mark.parametrize("headers", [{"login": "u", "passcode": "wrong"}, {"login": "u"}, {"passcode": "right"}, {}])
@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_a_refused_stomp_client(broker: str, ports: tuple[int, int], version: str, headers: dict[str, str]) -> None:
    with answered(broker, lambda: logging_in(ports[1], version=version, **headers)) as (client, frame):
        assert frame.command == "ERROR"
        name = headers.get("login", "null")
        assert frame.headers["message"] == f"User name [{name}] or password is invalid."
        assert frame.headers["content-type"] == "text/plain"
        with pytest.raises(Disconnected):
            client.read()
