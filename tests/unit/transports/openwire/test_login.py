"""Logins over OpenWire, as a client sees them. Answers and their times are those of ActiveMQ 5.17."""

from typing import Any

import pytest

from pybroker.broker.core.broker import BrokerCore
from pybroker.broker.domain.openwire.commands import (
    BrokerInfo,
    ConnectionErrorCommand,
    ConnectionId,
    ConnectionInfo,
    ExceptionResponse,
    KeepAliveInfo,
    Response,
    SessionId,
    SessionInfo,
)
from pybroker.transports.openwire.session import Sessions
from tests.unit.transports.authenticators import FakeAuthenticator
from tests.unit.transports.openwire.conversation import OpenWireClient, new_broker

WRONG: dict[str, Any] = {"user_name": "u", "password": "wrong"}
RIGHT: dict[str, Any] = {"user_name": "u", "password": "right"}


@pytest.fixture
def broker() -> BrokerCore:
    return new_broker()


def connect(broker: BrokerCore, authenticator: FakeAuthenticator, **details: Any) -> tuple[OpenWireClient, list[Any]]:
    client = OpenWireClient(broker, authenticator=authenticator)
    return client, client.connect(**details)


def test_the_right_password(broker: BrokerCore) -> None:
    authenticator = FakeAuthenticator()
    _, received = connect(broker, authenticator, **RIGHT)
    assert isinstance(received[0], Response)
    assert not isinstance(received[0], ExceptionResponse)
    assert [(each.user, each.address) for each in authenticator.asked] == [("u", "127.0.0.1")]
    assert [each.user.name for each in broker._clients.values()] == ["u"]


@pytest.mark.parametrize("details", [WRONG, {}, {"user_name": "u"}, {"password": "right"}])
def test_a_refused_login(broker: BrokerCore, details: dict[str, str]) -> None:
    client, [refusal] = connect(broker, FakeAuthenticator(), **details)
    assert isinstance(refusal, ExceptionResponse)
    assert refusal.exception is not None
    assert refusal.exception.class_name == "java.lang.SecurityException"
    assert refusal.exception.message == f"User name [{details.get('user_name', 'null')}] or password is invalid."
    assert not broker._clients
    assert not client.link.closed
    client.link.now = 1.9
    client.session.on_timer()
    assert not client.link.closed
    client.link.now = 2.0
    client.session.on_timer()
    assert client.link.closed
    assert client.receive() == [], "nothing more is said"


def test_a_refusal_without_a_response_is_a_connection_error(broker: BrokerCore) -> None:
    client = OpenWireClient(broker, authenticator=FakeAuthenticator())
    info = ConnectionInfo(command_id=1, connection_id=ConnectionId("ID:c"), client_id="c", **WRONG)
    [hello, error] = client.request(info)
    assert isinstance(hello, BrokerInfo)
    assert isinstance(error, ConnectionErrorCommand)
    assert error.exception is not None
    assert error.exception.class_name == "java.lang.SecurityException"
    assert error.connection_id is None


def test_between_the_refusal_and_the_close_everything_is_refused(broker: BrokerCore) -> None:
    authenticator = FakeAuthenticator()
    client, _ = connect(broker, authenticator, **WRONG)
    session = SessionInfo(command_id=2, response_required=True, session_id=SessionId("ID:c1", 1))
    [refusal] = client.request(session)
    assert isinstance(refusal, ExceptionResponse)
    assert refusal.exception is not None
    assert (refusal.exception.class_name, refusal.exception.message) == (
        "java.lang.SecurityException",
        "User is not authenticated.",
    )
    again = ConnectionInfo(
        command_id=3, response_required=True, connection_id=ConnectionId("ID:c1"), client_id="c1", **RIGHT
    )
    [refusal] = client.request(again)
    assert isinstance(refusal, ExceptionResponse)
    assert len(authenticator.asked) == 1, "a socket has one try"


def test_what_follows_a_login_waits_until_it_is_decided(broker: BrokerCore) -> None:
    authenticator = FakeAuthenticator(is_slow=True)
    client = OpenWireClient(broker, authenticator=authenticator)
    info = ConnectionInfo(
        command_id=1, response_required=True, connection_id=ConnectionId("ID:c"), client_id="c", **RIGHT
    )
    session = SessionInfo(command_id=2, response_required=True, session_id=SessionId("ID:c", 1))
    assert [type(each) for each in client.request(info, session)] == [BrokerInfo]
    assert client.link.reading_since is None
    authenticator.decide()
    assert [each.correlation_id for each in client.receive() if isinstance(each, Response)] == [1, 2]
    assert client.link.reading_since is not None


def test_a_connection_that_ends_before_its_login_is_decided(broker: BrokerCore) -> None:
    authenticator = FakeAuthenticator(is_slow=True)
    client, received = connect(broker, authenticator, **RIGHT)
    assert not received
    client.session.lost()
    authenticator.decide()
    assert client.receive() == []
    assert not broker._clients


def test_a_stranger_may_send_so_many_frames(broker: BrokerCore) -> None:
    client = OpenWireClient(broker, authenticator=FakeAuthenticator())
    client.send_commands(*[KeepAliveInfo() for _ in range(100)])
    client.send_commands(*[BrokerInfo() for _ in range(16)])
    assert not client.link.closed
    client.send_commands(BrokerInfo())
    assert client.link.closed
    assert "more than 16 frames" in str(client.receive()[-1])


def test_a_user_who_has_changed_is_cut_off(broker: BrokerCore, monkeypatch: pytest.MonkeyPatch) -> None:
    authenticator = FakeAuthenticator()
    client, _ = connect(broker, authenticator, **RIGHT)
    monkeypatch.setattr(client.link, "give_up", client.session.give_up)
    broker.cut_off({"v"})
    assert not client.receive()
    broker.cut_off({"u"})
    [error] = client.receive()
    assert isinstance(error, ConnectionErrorCommand)
    assert error.exception is not None
    assert error.exception.class_name == "java.lang.SecurityException"
    assert client.link.closed


def test_a_connection_is_superseded_by_its_own_user_alone(broker: BrokerCore) -> None:
    sessions = Sessions()
    first = OpenWireClient(broker, sessions)
    first.connect(user_name="u")
    other = OpenWireClient(broker, sessions)
    [refusal] = other.connect(user_name="v")
    assert isinstance(refusal, ExceptionResponse)
    assert refusal.exception is not None
    assert refusal.exception.class_name == "javax.jms.InvalidClientIDException"
    assert not first.link.closed
    again = OpenWireClient(broker, sessions)
    again.connect(user_name="u")
    assert first.link.closed
    assert not again.link.closed


def test_a_refused_client_that_repeats_its_state_is_closed_no_sooner(broker: BrokerCore) -> None:
    client, _ = connect(broker, FakeAuthenticator(), **WRONG)
    client.send_commands(*[SessionInfo(session_id=SessionId("ID:c1", number)) for number in range(100)])
    assert not client.link.closed


def test_no_password_is_shown() -> None:
    assert "right" not in repr(ConnectionInfo(**RIGHT))
