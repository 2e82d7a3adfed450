"""Logins of a broker with users: over both protocols, and while the file of users changes."""

import socket
import ssl
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import trustme

import pybroker
from pybroker.broker.domain.security import User
from pybroker.client.errors import ConnectionLost, LoginRefused, NotAuthorized
from pybroker.security import hashes, users_toml
from pybroker.security.accounts import Account
from tests.integration.cluster import BrokerProcess, free_port
from tests.integration.stomp_client import Disconnected, StompClient

Start = Callable[..., BrokerProcess]
Connect = Callable[..., StompClient]


def write_users(path: Path, **passwords: str) -> None:
    accounts = {name: Account(User(name), hashes.hashed(password)) for name, password in passwords.items()}
    copy = path.with_suffix(".copy")
    copy.write_text(users_toml.written(accounts))
    copy.replace(path)


@pytest.fixture
def users(tmp_path: Path) -> Path:
    path = tmp_path / "users.toml"
    write_users(path, alice="sesame", bob="open")
    return path


def may_log_in(port: int, user: str, password: str) -> bool:
    try:
        StompClient(port, login=user, passcode=password).close()
    except AssertionError:
        return False
    return True


def test_only_users_may_log_in(start: Start, users: Path) -> None:
    openwire = free_port()
    broker = start("--users-file", str(users), "--openwire", str(openwire), store="memory:")
    broker.wait_for("listening on")
    assert may_log_in(broker.port, "alice", "sesame")
    assert not may_log_in(broker.port, "alice", "open")
    with pybroker.connect(f"tcp://127.0.0.1:{openwire}", user="bob", password="open") as connection:
        connection.send("/queue/x", "hello")
    for url in (f"tcp://127.0.0.1:{openwire}", f"failover:(tcp://127.0.0.1:{openwire},tcp://127.0.0.1:1)"):
        for user, password in (("bob", "sesame"), (None, None)):
            with pytest.raises(LoginRefused, match="password is invalid"):
                pybroker.connect(url, user=user, password=password)
    broker.wait_for("login of 'alice' from 127.0.0.1 refused: wrong password")
    broker.wait_for("audit: 'alice' logged in from 127.0.0.1")
    broker.wait_for("login of no user from 127.0.0.1 refused")
    assert broker.terminate() == 0
    assert not any("sesame" in line for line in broker.lines)


@pytest.mark.parametrize("name", ["user", "password", "client_id"])
def test_a_login_that_no_broker_can_be_given_fails_at_once(broker: BrokerProcess, name: str) -> None:
    url = f"stomp://127.0.0.1:{broker.port}"
    number: Any = {name: 5}
    long: Any = {name: "x" * 10_001}
    formless: Any = {name: "a\0b"}
    for scheme in ("tcp", "stomp"):
        with pytest.raises(TypeError, match=f"{name} is a str, not int"):
            pybroker.connect(f"{scheme}://127.0.0.1:1", **number)
        with pytest.raises(ValueError, match=f"{name} has at most 10000 characters"):
            pybroker.connect(f"{scheme}://127.0.0.1:1", **long)
    for uri in (url, f"failover:({url})"):
        with pytest.raises(LoginRefused, match="has a line end or a NUL, for which STOMP has no form"):
            pybroker.connect(uri, **formless)


def test_changes_of_the_file_take_effect_without_a_restart(start: Start, users: Path, connect: Connect) -> None:
    broker = start("--users-file", str(users), store="memory:")
    broker.wait_for("listening on")
    alice, bob = (connect(broker.port, login=n, passcode=p) for n, p in (("alice", "sesame"), ("bob", "open")))
    write_users(users, alice="changed", carol="new")
    broker.wait_for("users.toml was read again: 2 users")
    for each in (alice, bob):
        frame = each.read()
        assert frame.command == "ERROR"
        assert "has changed: log in again" in frame.headers["message"]
        with pytest.raises(Disconnected):
            each.read()
    assert may_log_in(broker.port, "carol", "new")
    assert may_log_in(broker.port, "alice", "changed")
    assert not may_log_in(broker.port, "alice", "sesame")
    users.write_text("[users.carol]\n")
    broker.wait_for(r"the users stay as they were: .*\[users.carol\] has no `password`")
    assert may_log_in(broker.port, "carol", "new")


def test_the_files_of_an_activemq(start: Start, tmp_path: Path) -> None:
    users, groups = tmp_path / "users.properties", tmp_path / "groups.properties"
    users.write_text("system=manager\nguest=word\n")
    users.chmod(0o600)
    groups.write_text("admins=system\n")
    broker = start(
        "--users-file", str(users), "--groups-file", str(groups), "--anonymous", "loopback", store="memory:"
    )  # fmt: skip
    broker.wait_for("listening on")
    assert may_log_in(broker.port, "system", "manager")
    assert may_log_in(broker.port, "guest", "word")
    assert not may_log_in(broker.port, "guest", "manager")
    StompClient(broker.port).close()


def test_a_file_that_cannot_be_used_ends_the_start(start: Start, tmp_path: Path) -> None:
    users = tmp_path / "users.properties"
    users.write_text("system=manager\n")
    users.chmod(0o644)
    broker = start("--users-file", str(users), store="memory:")
    assert broker.join() == 2
    assert any("chmod 600" in line for line in broker.lines)


@pytest.fixture
def pem(tmp_path: Path) -> Path:
    """A directory with the PEM files of an authority, a server and two clients, `client` and `other`."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "authority.pem")
    for name in ("127.0.0.1", "client", "other"):
        issued = authority.issue_cert(name, common_name=name, organization_name="x", organization_unit_name="test")
        issued.private_key_and_cert_chain_pem.write_to_path(tmp_path / f"{name}.pem")
    return tmp_path


def stomp_answer(port: int, pem: Path, name: str | None) -> dict[str, str]:
    """Return the headers of the answer to a CONNECT over TLS, with that certificate."""
    context = ssl.create_default_context(cafile=str(pem / "authority.pem"))
    if name is not None:
        context.load_cert_chain(pem / f"{name}.pem")
    with (
        socket.create_connection(("127.0.0.1", port), timeout=20) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as tls,
    ):
        tls.sendall(b"CONNECT\naccept-version:1.2\nhost:h\nlogin:system\npasscode:wrong\n\n\0")
        answer = tls.recv(10_000).decode()
    return dict(line.split(":", 1) for line in answer.partition("\n\n")[0].splitlines()[1:])


def test_clients_with_certificates(start: Start, pem: Path) -> None:
    users, groups, rules = pem / "users.properties", pem / "groups.properties", pem / "rules.toml"
    users.write_text("client1=CN=client, OU=test, O=x\n")
    groups.write_text("apps=client1\n")
    rules.write_text('[default]\nwrite = ["apps"]\nadmin = ["apps"]\n')
    openwire, stomp = free_port(), free_port()
    options = {
        "openwire-ssl": openwire, "stomp-ssl": stomp, "tls-certificate": pem / "127.0.0.1.pem",
        "tls-client-ca": pem / "authority.pem", "tls-client-auth": "want",
        "certificate-users-file": users, "certificate-groups-file": groups, "rules-file": rules,
    }  # fmt: skip
    broker = start(*(f"--{name}={value}" for name, value in options.items()), store="memory:")
    broker.wait_for("certificates: 1 users of")
    broker.wait_for("listening on")
    assert stomp_answer(stomp, pem, "client")["session"]
    assert stomp_answer(stomp, pem, "other")["message"] == (
        "User name [system] or password is invalid. No user for client certificate: CN=other, OU=test, O=x"
    )
    assert stomp_answer(stomp, pem, None)["message"] == "Unable to authenticate transport without SSL certificate."
    with closing(StompClient(broker.port, is_connected=False)) as plain:
        plain.send("CONNECT", accept_version="1.2", host="h")
        assert plain.read().headers["message"] == "Unable to authenticate transport without SSL certificate."
    context = ssl.create_default_context(cafile=str(pem / "authority.pem"))
    context.load_cert_chain(pem / "client.pem")
    with pybroker.connect(f"ssl://127.0.0.1:{openwire}", ssl_context=context, user="ignored") as connection:
        connection.send("x", "hello")
        with pytest.raises(NotAuthorized, match="User client1 is not authorized to read from: queue://x"):
            connection.consumer("x")
        users.write_text("client1=CN=another\n")
        broker.wait_for("is disconnected: its user has changed")
        with pytest.raises(ConnectionLost):
            connection.send("x", "hello")
    broker.wait_for(r"login of no user from 127.0.0.1 refused: no user has the certificate 'CN=other, OU=test, O=x'")


def test_no_client_takes_the_name_of_a_user_with_a_certificate(start: Start, pem: Path) -> None:
    users = pem / "users.properties"
    users.write_text("client1=CN=client, OU=test, O=x\n")
    options = {
        "stomp-ssl": free_port(), "tls-certificate": pem / "127.0.0.1.pem", "tls-client-ca": pem / "authority.pem",
        "certificate-users-file": users, "anonymous": "loopback",
    }  # fmt: skip
    broker = start(*(f"--{name}={value}" for name, value in options.items()), store="memory:")
    broker.wait_for("listening on")
    with closing(StompClient(broker.port, is_connected=False)) as plain:
        plain.send("CONNECT", accept_version="1.2", host="h", login="client1", passcode="any")
        assert plain.read().headers["message"] == "Unable to authenticate transport without SSL certificate."
    broker.wait_for("login of 'client1' from 127.0.0.1 refused: no user has a password")
    with closing(StompClient(broker.port)):
        broker.wait_for("'anonymous' connected from 127.0.0.1 without a login")


def test_networks_that_may_connect(start: Start) -> None:
    openwire = free_port()
    broker = start("--deny", "127.0.0.0/8", "--openwire", str(openwire), store="memory:")
    broker.wait_for("listening on")
    for port in (broker.port, openwire):
        with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
            assert client.recv(1) == b""
    broker.wait_for("refused 127.0.0.1: its network is not one that may connect")


def test_guests(start: Start, users: Path, tmp_path: Path) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text('[[rules]]\nqueue = "NEWS"\nwrite = ["readers"]\nadmin = ["readers"]\n')
    broker = start(
        "--users-file", str(users), "--rules-file", str(rules), "--anonymous", "loopback", "--anonymous-user", "guest",
        "--anonymous-groups", "readers", "--anonymous-if-refused", store="memory:",
    )  # fmt: skip
    broker.wait_for("listening on")
    url = f"stomp://127.0.0.1:{broker.port}"
    for user, password in ((None, None), ("alice", "wrong"), ("missing", "x")):
        with pybroker.connect(url, user=user, password=password) as guest:
            guest.send("NEWS", "hello")
            with pytest.raises(NotAuthorized, match="User guest is not authorized to write to: queue://OTHER"):
                guest.send("OTHER", "hello")
    with (
        pybroker.connect(url, user="alice", password="sesame") as alice,
        pytest.raises(NotAuthorized, match="User alice is not authorized to write to: queue://NEWS"),
    ):
        alice.send("NEWS", "hello")
    broker.wait_for("login of 'alice' from 127.0.0.1 refused: wrong password")
    broker.wait_for("'guest' connected from 127.0.0.1 without a login")
    assert not any("no user belongs" in line for line in broker.lines)
