"""The client of management: it finds the master, follows it, and repeats no change that may have been made."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

import pytest

from pybroker.broker.domain.node_requests import RequestFailed
from pybroker.broker.domain.role import Role
from pybroker.management_client import client as client_module
from pybroker.management_client.address import ApiAddress
from pybroker.management_client.client import ManagementClient, path
from pybroker.management_client.errors import (
    AnswerLost,
    LoginNeeded,
    ManagementError,
    MasterMissing,
    MemberMissing,
    RequestRefused,
)
from pybroker.management_client.exchange import ApiExchange, ApiLogin
from tests.unit.management.served import served
from tests.unit.management.simulated import row

SECONDS = 30.0
METHODS = {"destinations": lambda _: [row("A", size=3)], "pause": lambda _: {}}


def refuse(_: Any) -> Any:
    raise RequestFailed(HTTPStatus.SERVICE_UNAVAILABLE, "this member is not the master: it is standby")


STANDBY = {"destinations": refuse, "pause": refuse}


def client_of(*urls: str, **more: Any) -> ManagementClient:
    return ManagementClient([ApiAddress.of(url) for url in urls], ApiLogin(), **more)


def read_request(connection: socket.socket) -> str:
    """Return a request with its body: a connection that is closed with a part unread is reset."""
    with connection.makefile("rb") as file:
        lines = list(iter(file.readline, b"\r\n"))
        length = sum(int(line.split(b":")[1]) for line in lines if line.lower().startswith(b"content-length:"))
        return (b"".join(lines) + file.read(length)).decode()


@contextmanager
def raw_server(answer: Callable[[socket.socket, str], None], checks: list[bytes] | None = None) -> Iterator[str]:
    """Serve connections by a function that gets each with its request.

    The health check is answered by one of `checks`, which is removed; when there is none, that it is the master.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    request = read_request(connection)
                    if request.startswith("GET /master "):
                        connection.sendall(checks.pop() if checks else b"HTTP/1.0 200 OK\r\n\r\nmaster\n")
                    else:
                        answer(connection, request)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_a_list_of_the_master() -> None:
    with served(METHODS) as member:
        page = client_of(member.url).get("queues", page_size=10, name=None)
    assert (page["count"], page["items"][0]["name"], page["page_size"]) == (1, "A", 10)


def test_the_master_is_found_among_members_and_reported() -> None:
    reported: list[str] = []
    with served(STANDBY, role=Role.STANDBY) as standby, served(METHODS) as master:
        client = client_of(standby.url, master.url, report=reported.append)
        client.get("queues")
        client.get("topics")
        assert client.master().url == master.url
        assert standby.asked("destinations") == []
        assert reported == [f"{standby.url} is not the master: asking {master.url}, which is the master"]


@pytest.mark.parametrize("has_port", [False, True])
def test_a_member_that_does_not_run_is_not_called_a_standby(has_port: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """One whose port is open has a process that hangs, or a proxy in front of it."""
    monkeypatch.setattr(client_module, "REPORT_SECONDS", SECONDS if not has_port else 0.0)
    reported: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as silent, served(METHODS) as master:
        url = f"http://127.0.0.1:{silent.getsockname()[1] if has_port else 1}"
        client_of(url, master.url, report=reported.append).get("queues")
    state = "has not answered yet" if has_port else "does not run, or cannot be reached"
    assert reported == [f"{url} {state}: asking {master.url}, which is the master"]


def test_the_first_member_is_not_reported() -> None:
    reported: list[str] = []
    with served(METHODS) as master:
        client_of(master.url, report=reported.append).get("queues")
    assert reported == []


def test_no_member_answers() -> None:
    with pytest.raises(MemberMissing, match=r"no member answers: http://127\.0\.0\.1:1: Connection refused") as raised:
        client_of("http://127.0.0.1:1").get("queues")
    assert raised.value.exit_code == 3


def test_no_member_is_the_master() -> None:
    missing = pytest.raises(MasterMissing, match="there is no master now")
    with served(STANDBY, role=Role.STANDBY) as member, missing as raised:
        client_of(member.url, "http://127.0.0.1:1").get("queues")
    assert f"{member.url} is standby; http://127.0.0.1:1: Connection refused" in str(raised.value)
    assert raised.value.exit_code == 4


def test_a_new_master_is_found_at_once_after_the_former_is_killed() -> None:
    with served(METHODS) as first, served(METHODS) as second:
        client = client_of(first.url, second.url)
        client.get("queues")
        (former,) = [each for each in (first, second) if each.url == client.master().url]
        former.close()
        assert client.get("queues")["count"] == 1
        assert client.master().url != former.url


def test_a_member_that_has_become_a_standby_is_not_told_to_step_down_again() -> None:
    asked = [b'HTTP/1.0 409 Conflict\r\nContent-Type: application/json\r\n\r\n{"error": "this member is no master"}']
    checks = [b"HTTP/1.0 503 Service Unavailable\r\n\r\nstandby\n"] * 2
    checks.append(b"HTTP/1.0 200 OK\r\n\r\nmaster\n")
    asked.append(b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n{}")

    def answer(connection: socket.socket, _: str) -> None:
        connection.sendall(asked.pop())

    with raw_server(answer, checks) as former, served(METHODS) as new:
        members = [ApiAddress.of(former)]
        client = ManagementClient(members, ApiLogin())
        assert client.get("ha") == {}
        members.append(ApiAddress.of(new.url))
        assert client.change("POST", "queues", "A", "pause") == {}
        assert client.master().url == new.url


def test_a_master_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "AGAIN_SECONDS", 0.01)
    refusals = [b"HTTP/1.0 503 Service Unavailable\r\n\r\nstandby\n"] * 2

    def answer(connection: socket.socket, _: str) -> None:
        connection.sendall(b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n[]")

    with raw_server(answer, refusals) as url:
        assert client_of(url, wait_seconds=10).get("queues") == []
    assert refusals == []


def test_a_refusal_is_the_masters_sentence() -> None:
    with served(METHODS) as member:
        client = client_of(member.url)
        with pytest.raises(RequestRefused, match="there is no column 'x'") as raised:
            client.get("queues", sort="x")
        assert (raised.value.status, raised.value.exit_code) == (400, 1)


def test_a_login_that_is_missing() -> None:
    with served(METHODS, has_users=True) as member:
        with pytest.raises(LoginNeeded, match="log in") as raised:
            client_of(member.url).get("queues")
        assert raised.value.exit_code == 5


def test_a_login_is_sent_and_the_password_is_not_shown() -> None:
    methods = {
        **METHODS,
        "login": lambda arguments: {"user": arguments["user"], "role": "MONITOR"},
        "denied": lambda _: None,
    }
    login = ApiLogin(user="änna", password="pä:ss")
    with served(methods, has_users=True) as member:
        client = ManagementClient([ApiAddress.of(member.url)], login)
        assert client.get("queues")["count"] == 1
        assert [each["password"] for each in member.asked("login")] == ["pä:ss"]
        with pytest.raises(LoginNeeded, match="this needs the role operator"):
            client.change("POST", "queues", "A", "pause", body={})
    assert "pä:ss" not in repr(login)


def test_names_are_encoded() -> None:
    assert path("queues", "a/b ä?", "purge") == "/api/v1/queues/a%2Fb%20%C3%A4%3F/purge"


def test_a_change_whose_answer_is_lost_is_not_repeated() -> None:
    changes: list[str] = []

    def close(connection: socket.socket, request: str) -> None:
        changes.append(request.split()[0])

    with raw_server(close) as url:
        client = client_of(url, wait_seconds=10)
        with pytest.raises(AnswerLost, match="it has closed the connection") as raised:
            client.change("POST", "queues", "A", "purge", body={})
    assert changes == ["POST"]
    assert raised.value.exit_code == 1


def test_a_look_whose_answer_is_lost_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "AGAIN_SECONDS", 0.01)
    looks: list[str] = []

    def answer(connection: socket.socket, request: str) -> None:
        looks.append(request.split()[1])
        if len(looks) > 1:
            connection.sendall(b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n" + json.dumps([1]).encode())

    with raw_server(answer) as url:
        assert client_of(url, wait_seconds=10).get("queues") == [1]
    assert looks == ["/api/v1/queues"] * 2


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"SSH-2.0-x\r\n", "it does not speak HTTP"),
        (b"", "it has closed the connection"),
        (b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n{", "has not answered"),
        (b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\nContent-Length: 5\r\n\r\n{}", "has not answered"),
    ],
)
def test_an_answer_that_is_none_is_reported(data: bytes, word: str) -> None:
    with raw_server(lambda connection, _: connection.sendall(data)) as url, pytest.raises(AnswerLost, match=word):
        client_of(url).get("queues")


def test_an_answer_of_another_server_is_cut() -> None:
    page = b"HTTP/1.0 502 Bad Gateway\r\nContent-Type: text/html\r\n\r\n<h1>Bad gateway</h1>\nmore"
    refused = pytest.raises(RequestRefused, match=r"^<h1>Bad gateway</h1>$")
    with raw_server(lambda connection, _: connection.sendall(page)) as url, refused:
        client_of(url).get("queues")


def test_an_exchange_is_ended_from_another_thread() -> None:
    begun, ended = threading.Event(), threading.Event()

    def hold(connection: socket.socket, request: str) -> None:
        begun.set()
        if connection.recv(1) == b"":
            ended.set()

    with raw_server(hold) as url:
        exchange = ApiExchange(ApiAddress.of(url), ApiLogin())
        errors: list[ManagementError] = []

        def ask() -> None:
            try:
                exchange.ask("POST", "/x", body={}, seconds=60)
            except ManagementError as error:
                errors.append(error)

        thread = threading.Thread(target=ask)
        thread.start()
        assert begun.wait(10)
        began_at = time.monotonic()
        exchange.end()
        thread.join(10)
        assert ended.wait(10)
    assert time.monotonic() - began_at < 10
    assert "the request was ended" in str(errors[0])
