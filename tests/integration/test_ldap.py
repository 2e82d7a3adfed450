"""Logins by LDAP against a real server: what it is asked, TLS, servers that are away, and a broker's clients."""

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

import pybroker
from pybroker.broker.domain.errors import ConfigError
from pybroker.broker.domain.security import Credentials, NotAuthenticated, User
from pybroker.client.errors import LoginRefused, NotAuthorized
from pybroker.security import hashes, ldap, users_toml
from pybroker.security.accounts import Account, Refusal
from pybroker.security.ldap import Directory, LdapUser
from pybroker.security.ldap_connection import LdapUnavailable
from pybroker.security.ldap_settings import LdapSettings, parse_urls
from pybroker.security.logins import Logins
from tests.integration.cluster import BrokerProcess, free_port
from tests.integration.stomp_client import Disconnected, StompClient
from tests.ldap_server import BASE, SERVICE, SERVICE_PASSWORD, LdapServer
from tests.pace import in_time

pytestmark = pytest.mark.component("slapd")

Start = Callable[..., BrokerProcess]
Connect = Callable[..., StompClient]
Make = Callable[..., Directory]

PEOPLE, GROUPS = f"ou=people,{BASE}", f"ou=groups,{BASE}"
ALICE = f"uid=alice,{PEOPLE}"
UNUSABLE = Refusal("no LDAP server can be used", is_failure=False)


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LdapServer]:
    """A server that no test changes."""
    server = LdapServer(tmp_path_factory.mktemp("slapd")).start()
    yield server
    server.stop()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[LdapServer]:
    """A server of the test's own."""
    directory = tmp_path / "slapd"
    directory.mkdir()
    server = LdapServer(directory).start()
    yield server
    server.stop()


@pytest.fixture
def make() -> Iterator[Make]:
    """Make directories that are closed after the test."""
    made: list[Directory] = []

    def make(
        server: LdapServer, url: str = "", password: Callable[[], str] = lambda: SERVICE_PASSWORD, **given: Any
    ) -> Directory:
        settings = LdapSettings(
            connection_url=parse_urls(url or server.tls_url),
            connection_username=SERVICE,
            tls_ca=server.authority,
            user_base=PEOPLE,
            role_base=GROUPS,
        )
        made.append(Directory(replace(settings, **given), password, time.monotonic))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """A socket that takes connections, and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(20)
        yield server


def logged(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """Return what was logged of LDAP; a client of an earlier test may log too."""
    return [each for each in caplog.records if each.name == ldap.__name__]


def url_of(server: socket.socket) -> str:
    return f"ldap://127.0.0.1:{server.getsockname()[1]}"


# ---------------------------------------------------------------- users


@pytest.mark.parametrize(
    ("name", "password", "outcome"),
    [
        ("alice", "sesame", LdapUser("alice", frozenset(("orders",)), dn=ALICE)),
        ("alice", "open", Refusal("wrong password")),
        ("alice", "Sesame", Refusal("wrong password")),
        ("alice", "", Refusal("it has no user name, or no password")),
        ("", "sesame", Refusal("it has no user name, or no password")),
        ("missing", "sesame", Refusal("unknown user")),
        ("carol", "sesame", Refusal("wrong password")),
        ("*", "sesame", Refusal("unknown user")),
        ("al*", "sesame", Refusal("unknown user")),
        ("alice)(uid=*", "sesame", Refusal("unknown user")),
        ("*)(|(uid=*", "sesame", Refusal("unknown user")),
        ("alice\0", "sesame", Refusal("unknown user")),
        ("alice\\2a", "sesame", Refusal("unknown user")),
        ("{0}", "sesame", Refusal("unknown user")),
        (ALICE, "sesame", Refusal("unknown user")),
        ("alice\ud800", "sesame", Refusal("no user name or password is like that")),
        ("alice", "sesame\ud800", Refusal("no user name or password is like that")),
        ("star*(name)\\", "shine", LdapUser("star*(name)\\", frozenset(), dn=f"uid=star*(name)\\5C,{PEOPLE}")),
        ("twin", "one", Refusal("more than one entry of the directory has this name: narrow user_search_matching")),
    ],
)
def test_login(shared_server: LdapServer, make: Make, name: str, password: str, outcome: LdapUser | Refusal) -> None:
    assert make(shared_server, user_search_subtree=True).verify(name, password) == outcome


def test_an_empty_password_is_never_sent(shared_server: LdapServer, make: Make, silent: socket.socket) -> None:
    assert shared_server.who(ALICE, "") == "anonymous", "the server takes it as a success"
    silent.settimeout(0)
    directory = make(shared_server, url_of(silent))
    assert isinstance(directory.verify("alice", ""), Refusal)
    with pytest.raises(BlockingIOError):
        silent.accept()


@pytest.mark.parametrize(
    ("settings", "groups"),
    [
        ({}, {"orders"}),
        ({"role_base": None}, set()),
        ({"role_base": None, "user_role_name": "EmployeeType"}, {"permanent", "remote"}),
        ({"user_role_name": "employeeType"}, {"orders", "permanent", "remote"}),
        ({"expand_roles": True}, {"orders", "staff", "board"}),
        ({"role_base": BASE}, set()),
        ({"role_base": BASE, "role_search_subtree": True}, {"orders"}),
        ({"role_search_matching": "(cn={1})"}, set()),
        ({"role_search_matching": "(&(member={0})(!(cn={1})))", "role_name": "member"}, {ALICE}),
    ],
)
def test_groups(shared_server: LdapServer, make: Make, settings: dict[str, Any], groups: set[str]) -> None:
    user = make(shared_server, **settings).verify("alice", "sesame")
    assert isinstance(user, LdapUser)
    assert user.groups == groups


def test_a_user_in_too_many_groups_is_refused(
    shared_server: LdapServer, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ldap, "GROUPS_MAX", 2)
    outcome = make(shared_server, expand_roles=True).verify("alice", "sesame")
    assert outcome == Refusal("the user has more than 2 groups")


def test_changes_of_users(own_server: LdapServer, make: Make) -> None:
    directory = make(own_server)
    alice, bob = directory.verify("alice", "sesame"), directory.verify("bob", "open")
    assert isinstance(alice, LdapUser)
    assert isinstance(bob, LdapUser)
    assert directory.changed({alice, bob}) == []
    own_server.change(f"dn: {ALICE}\nchangetype: modify\nreplace: userPassword\nuserPassword: other")
    assert directory.changed({alice, bob}) == [], "a password is not seen"
    own_server.change(f"dn: cn=billing,{GROUPS}\nchangetype: modify\nadd: member\nmember: {ALICE}")
    assert directory.changed({alice, bob}) == [alice]
    own_server.change(f"dn: uid=bob,{PEOPLE}\nchangetype: delete")
    assert set(directory.changed({alice, bob})) == {alice, bob}
    own_server.change(f"dn: {ALICE}\nchangetype: modrdn\nnewrdn: uid=other\ndeleteoldrdn: 1")
    own_server.stop()
    with pytest.raises(LdapUnavailable):
        directory.changed({alice})


# ---------------------------------------------------------------- servers


@pytest.mark.parametrize("scheme", ["ldap", "ldaps"])
@pytest.mark.parametrize(
    ("host", "is_trusted", "reason"),
    [
        ("127.0.0.1", True, ""),
        ("127.0.0.1", False, "certificate verify failed"),
        ("localhost", True, "Hostname mismatch"),
    ],
)
def test_tls(
    shared_server: LdapServer, make: Make, caplog: pytest.LogCaptureFixture,
    scheme: str, host: str, is_trusted: bool, reason: str,
) -> None:  # fmt: skip
    url = f"ldap://{host}:{shared_server.port}" if scheme == "ldap" else f"ldaps://{host}:{shared_server.tls_port}"
    directory = make(shared_server, url, **({} if is_trusted else {"tls_ca": None}))
    outcome = directory.verify("alice", "sesame")
    assert isinstance(outcome, LdapUser) if not reason else outcome == UNUSABLE
    assert reason in caplog.text


def test_a_server_without_start_tls_gets_no_password(
    tmp_path: Path, shared_server: LdapServer, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    plain = LdapServer(tmp_path, has_tls=False).start()
    try:
        assert make(shared_server, plain.url).verify("alice", "sesame") == UNUSABLE
        assert isinstance(make(shared_server, plain.url, start_tls=False).verify("alice", "sesame"), LdapUser)
    finally:
        plain.stop()
    [record] = logged(caplog)
    assert "cannot be used: startTLS failed" in record.getMessage()


def test_servers_are_tried_in_order_and_a_silent_one_is_left_alone(
    shared_server: LdapServer, make: Make, silent: socket.socket, caplog: pytest.LogCaptureFixture
) -> None:
    urls = f"ldap://127.0.0.1:1, {url_of(silent)}, {shared_server.tls_url}"
    directory = make(shared_server, urls, timeout=2.0)
    for _ in range(3):
        assert isinstance(directory.verify("alice", "sesame"), LdapUser)
    silent.accept()[0].close()
    silent.settimeout(0)
    with pytest.raises(BlockingIOError):
        silent.accept()
    assert [each.getMessage().partition(" cannot be used: ")[2] for each in logged(caplog)] == [
        "socket connection error while opening: [Errno 111] Connection refused",
        "error receiving data: timed out",
    ]


def test_a_server_that_comes_back_is_used(own_server: LdapServer, make: Make, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    directory = make(own_server)
    own_server.stop()
    for _ in range(3):
        assert directory.verify("alice", "sesame") == UNUSABLE
    own_server.start()
    assert isinstance(directory.verify("alice", "sesame"), LdapUser)
    assert [each.levelname for each in logged(caplog)] == ["WARNING", "INFO"], "a line for each change, not each login"
    assert "can be used again" in caplog.text


def test_a_login_that_waits_ends_with_the_directory(
    shared_server: LdapServer, make: Make, silent: socket.socket, caplog: pytest.LogCaptureFixture
) -> None:
    directory = make(shared_server, url_of(silent), timeout=60.0)
    outcomes = SimpleQueue[User | Refusal]()
    thread = threading.Thread(target=lambda: outcomes.put(directory.verify("alice", "sesame")))
    thread.start()
    with silent.accept()[0] as accepted:
        assert accepted.recv(1)
        directory.close()
        assert outcomes.get(timeout=20) == UNUSABLE
    thread.join()
    assert directory.verify("alice", "sesame") == UNUSABLE
    assert not logged(caplog)


@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"0\x84\xff\xff\xff\xff", b"\x30\x0c" + b"\xff" * 12]
)
def test_a_server_that_answers_nonsense(
    shared_server: LdapServer, make: Make, silent: socket.socket, answer: bytes
) -> None:
    def respond() -> None:
        with silent.accept()[0] as accepted:
            accepted.recv(1)
            accepted.sendall(answer)
            accepted.shutdown(socket.SHUT_WR)
            while accepted.recv(1000):
                pass

    thread = threading.Thread(target=respond)
    thread.start()
    assert make(shared_server, url_of(silent), start_tls=False).verify("alice", "sesame") == UNUSABLE
    thread.join()


def _no_password() -> str:
    raise ConfigError("it is gone", setting="ldap.connection_password_file")


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"password": lambda: "hidden"}, "it refuses connection_username or its password: invalidCredentials"),
        ({"password": _no_password}, "ldap.connection_password_file: it is gone"),
        ({"user_base": f"ou=missing,{BASE}"}, f"its search below ou=missing,{BASE} failed: noSuchObject: check"),
        ({"role_base": "nonsense"}, "its search below nonsense failed: invalidDNSyntax"),
    ],
)
def test_settings_that_the_server_refuses_are_named_in_the_log(
    shared_server: LdapServer, make: Make, caplog: pytest.LogCaptureFixture, settings: dict[str, Any], reason: str
) -> None:
    assert make(shared_server, **settings).verify("alice", "sesame") == UNUSABLE
    assert reason in caplog.text
    assert "hidden" not in caplog.text


def test_no_password_is_shown(shared_server: LdapServer, make: Make) -> None:
    directory = make(shared_server)
    texts = [repr(each) for each in (directory, directory.account("alice"), directory.verify("alice", "sesame"))]
    assert not any("sesame" in text or SERVICE_PASSWORD in text for text in texts)


def test_a_thousand_clients_of_a_user_are_back_after_one_verification(
    shared_server: LdapServer, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = make(shared_server)
    verified: list[str] = []
    verify = directory.verify
    monkeypatch.setattr(directory, "verify", lambda name, password: verified.append(name) or verify(name, password))
    posted, outcomes = SimpleQueue[Callable[[], None]](), list[User | NotAuthenticated]()
    logins = Logins(
        directory, post=posted.put, call_later=lambda *_: None, monotonic=time.monotonic, threads=ldap.THREADS
    )
    began = time.monotonic()
    for number in range(1000):
        logins.authenticate(Credentials("alice", "sesame", f"10.0.0.{number % 250}"), outcomes.append)
    while len(outcomes) < 1000:
        posted.get(timeout=20)()
    assert in_time(time.monotonic() - began, 2.0)
    assert set(outcomes) == {LdapUser("alice", frozenset(("orders",)), dn=ALICE)}
    assert verified == ["alice"]
    logins.close()


# ---------------------------------------------------------------- a broker's clients


@pytest.fixture
def configured(tmp_path: Path) -> Callable[..., list[str]]:
    """Write settings with a directory; returns the arguments for them."""

    def write(server: LdapServer, *lines: str, url: str = "", **table: object) -> list[str]:
        password = tmp_path / "password"
        password.write_text(SERVICE_PASSWORD + "\n")
        password.chmod(0o600)
        given = {
            "connection_url": url or server.tls_url, "connection_username": SERVICE, "tls_ca": server.authority,
            "connection_password_file": password, "user_base": PEOPLE, "role_base": GROUPS, **table,
        }  # fmt: skip
        attributes = [f'{name} = "{value}"' for name, value in given.items()]
        file = tmp_path / "broker.toml"
        file.write_text("\n".join([*lines, "[ldap]", *attributes]) + "\n")
        return ["--config", str(file)]

    return write


def answer(port: int, **headers: str) -> str:
    """Return the message of a refused CONNECT; empty if it is accepted."""
    with closing(StompClient(port, is_connected=False)) as client:
        client.send("CONNECT", b"", accept_version="1.2", host="h", **headers)
        frame = client.read()
        return frame.headers["message"] if frame.command == "ERROR" else ""


def test_clients_of_both_protocols_log_in_and_have_their_groups_rights(
    start: Start, shared_server: LdapServer, configured: Callable[..., list[str]], tmp_path: Path
) -> None:
    rules, openwire = tmp_path / "rules.toml", free_port()
    rules.write_text('[[rules]]\nqueue = "ORDERS"\nwrite = ["orders"]\nadmin = ["orders"]\n')
    arguments = configured(shared_server, f'rules_file = "{rules}"')
    broker = start(*arguments, "--openwire", str(openwire), store="memory:")
    broker.wait_for("logins: the LDAP directory at ldaps://127.0.0.1")
    broker.wait_for("listening on")
    for url in (f"tcp://127.0.0.1:{openwire}", f"stomp://127.0.0.1:{broker.port}"):
        with pybroker.connect(url, user="alice", password="sesame") as alice:
            alice.send("ORDERS", "order")
        with (
            pybroker.connect(url, user="bob", password="open") as bob,
            pytest.raises(NotAuthorized, match="User bob is not authorized to write to: queue://ORDERS"),
        ):
            bob.send("ORDERS", "order")
        for user, password in (("alice", "open"), ("alice", ""), ("*", "sesame"), ("a\\*)(uid=*", "x"), (None, None)):
            with pytest.raises(LoginRefused, match="password is invalid"):
                pybroker.connect(url, user=user, password=password)
    broker.wait_for("login of 'alice' from 127.0.0.1 refused: wrong password")
    assert broker.terminate() == 0
    assert not any("sesame" in line or SERVICE_PASSWORD in line for line in broker.lines)


def test_a_user_with_other_groups_is_disconnected(
    start: Start, own_server: LdapServer, configured: Callable[..., list[str]], connect: Connect
) -> None:
    broker = start(*configured(own_server, refresh="1s"), store="memory:")
    broker.wait_for("listening on")
    alice, bob = (
        connect(broker.port, login="alice", passcode="sesame"),
        connect(broker.port, login="bob", passcode="open"),
    )
    own_server.change(f"dn: cn=billing,{GROUPS}\nchangetype: modify\nadd: member\nmember: {ALICE}")
    assert alice.read().headers["message"] == "User alice has changed: log in again"
    with pytest.raises(Disconnected):
        alice.read()
    assert bob.request("SEND", destination="/queue/x").command == "RECEIPT"
    alice = connect(broker.port, login="alice", passcode="sesame")
    own_server.change(f"dn: {ALICE}\nchangetype: delete")
    assert alice.read().headers["message"] == "User alice has changed: log in again"
    assert answer(broker.port, login="alice", passcode="sesame") == "User name [alice] or password is invalid."


def test_while_no_server_answers_remembered_users_and_those_of_the_file_log_in(
    start: Start, own_server: LdapServer, configured: Callable[..., list[str]], tmp_path: Path, connect: Connect
) -> None:
    users = tmp_path / "users.toml"
    users.write_text(users_toml.written({"system": Account(User("system"), hashes.hashed("manager"))}))
    broker = start(*configured(own_server, f'users_file = "{users}"'), store="memory:")
    broker.wait_for("listening on")
    connect(broker.port, login="alice", passcode="sesame")
    own_server.stop()
    connect(broker.port, login="alice", passcode="sesame")
    connect(broker.port, login="system", passcode="manager")
    assert answer(broker.port, login="bob", passcode="open") == "User name [bob] or password is invalid."
    broker.wait_for("login of 'bob' from 127.0.0.1 refused: no LDAP server can be used")
    broker.wait_for("LDAP server ldaps://127.0.0.1:[0-9]+ cannot be used: .*Connection refused")
    own_server.start()
    connect(broker.port, login="bob", passcode="open")
    broker.wait_for("LDAP server .* can be used again")


def test_a_silent_server_delays_no_other_client(
    start: Start, shared_server: LdapServer, configured: Callable[..., list[str]], tmp_path: Path, connect: Connect,
    silent: socket.socket,
) -> None:  # fmt: skip
    users = tmp_path / "users.toml"
    users.write_text(users_toml.written({"system": Account(User("system"), hashes.hashed("manager"))}))
    arguments = configured(shared_server, f'users_file = "{users}"', url=url_of(silent), timeout="30s")
    broker = start(*arguments, store="memory:")
    broker.wait_for("listening on")
    system = connect(broker.port, login="system", passcode="manager")
    system.request("SUBSCRIBE", destination="/queue/x", id="1")
    waiting = [connect(broker.port, is_connected=False) for _ in range(2 * ldap.THREADS)]
    for number, client in enumerate(waiting):
        client.send("CONNECT", accept_version="1.2", host="h", login=f"u{number}", passcode="x")
    with contextlib.ExitStack() as accepted:
        for _ in range(1 + ldap.THREADS):  # the broker's own look at the groups, and one for each thread
            accepted.enter_context(silent.accept()[0])
        other = connect(broker.port, login="system", passcode="manager")
        assert other.request("SEND", b"hello", destination="/queue/x").command == "RECEIPT"
        assert system.read().body == b"hello"
        assert broker.terminate() == 0
    assert not any("Traceback" in line for line in broker.lines)


def test_a_login_is_refused_when_a_server_does_not_answer_in_time(
    start: Start, shared_server: LdapServer, configured: Callable[..., list[str]], silent: socket.socket
) -> None:
    broker = start(*configured(shared_server, url=url_of(silent), timeout="0.2s"), store="memory:")
    broker.wait_for("listening on")
    assert answer(broker.port, login="alice", passcode="sesame") == "User name [alice] or password is invalid."
    broker.wait_for("LDAP server .* cannot be used: error receiving data: timed out")


def test_settings_that_cannot_be_used_end_the_start(
    start: Start, shared_server: LdapServer, configured: Callable[..., list[str]], tmp_path: Path
) -> None:
    arguments = configured(shared_server)
    (tmp_path / "password").chmod(0o644)
    broker = start(*arguments, store="memory:")
    assert broker.join() == 2
    assert any("ldap.connection_password_file: " in line and "chmod 600" in line for line in broker.lines)
