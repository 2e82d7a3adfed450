"""Logins over STOMP, as a client sees them. Answers are those of ActiveMQ 5.17."""

from collections.abc import Callable

import pytest

from tests.unit.transports.authenticators import FakeAuthenticator
from tests.unit.transports.stomp.conftest import Peer

Connect = Callable[..., Peer]
Parse = Callable[[str], tuple[str, dict[str, str], str]]


def test_the_right_password(connect: Connect) -> None:
    authenticator = FakeAuthenticator()
    peer = connect("1.2", "login:u\npasscode:right\n", authenticator=authenticator)
    assert [(each.user, each.password) for each in authenticator.asked] == [("u", "right")]
    assert len(peer.broker.connections) == 1


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
@pytest.mark.parametrize(
    ("headers", "name"),
    [("login:u\npasscode:wrong\n", "u"), ("login:u\n", "u"), ("passcode:right\n", "null"), ("", "null")],
)
def test_a_refused_login_is_an_error_and_the_end(
    connect: Connect, parsed: Parse, version: str, headers: str, name: str
) -> None:
    peer = connect(None, authenticator=FakeAuthenticator())
    [frame] = peer.send(f"CONNECT\naccept-version:{version}\nreceipt:1\n{headers}\n^")
    command, answer, body = parsed(frame)
    assert command == "ERROR"
    assert answer["content-type"] == "text/plain"
    assert answer["message"] == f"User name [{name}] or password is invalid."
    assert "receipt-id" not in answer
    assert body.startswith(answer["message"])
    assert peer.link.closed
    assert not peer.broker.connections


def test_what_follows_a_login_waits_until_it_is_decided(connect: Connect, parsed: Parse) -> None:
    authenticator = FakeAuthenticator(is_slow=True)
    peer = connect(None, authenticator=authenticator)
    connecting = "CONNECT\naccept-version:1.2\nlogin:u\npasscode:right\n\n^"
    assert peer.send(connecting, "SUBSCRIBE\nid:1\ndestination:/topic/x\nreceipt:r\n\n^") == []
    assert peer.link.reading_since is None
    authenticator.decide()
    peer.broker.sync()
    assert [parsed(frame)[0] for frame in peer.receive()] == ["CONNECTED", "RECEIPT"]
    assert peer.link.reading_since is not None


def test_a_refusal_that_comes_late_is_the_end_too(connect: Connect, parsed: Parse) -> None:
    authenticator = FakeAuthenticator(is_slow=True)
    peer = connect(None, authenticator=authenticator)
    connecting = "CONNECT\naccept-version:1.2\nlogin:u\npasscode:wrong\n\n^"
    assert peer.send(connecting, "SUBSCRIBE\nid:1\ndestination:/topic/x\n\n^") == []
    authenticator.decide()
    assert [parsed(frame)[0] for frame in peer.receive()] == ["ERROR"]
    assert peer.link.closed


def test_a_connection_that_ends_before_its_login_is_decided(connect: Connect) -> None:
    authenticator = FakeAuthenticator(is_slow=True)
    peer = connect(None, authenticator=authenticator)
    peer.send("CONNECT\naccept-version:1.2\nlogin:u\npasscode:right\n\n^")
    peer.session.lost()
    authenticator.decide()
    assert peer.receive() == []
    assert not peer.broker.connections


def test_the_log_has_no_password(connect: Connect, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    peer = connect(None, authenticator=FakeAuthenticator())
    peer.send("CONNECT\naccept-version:1.2\nlogin:u\npasscode:sesame\n\n^")
    assert "sesame" not in caplog.text
