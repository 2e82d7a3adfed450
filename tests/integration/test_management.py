"""Management over HTTP of real brokers: of a pair whose master is killed, with users, and over TLS."""

import base64
import json
import re
import shlex
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trustme

from tests.integration.cluster import BrokerProcess, Pair
from tests.integration.stomp_client import StompClient
from tests.pace import in_time
from tests.pages import block

SECONDS = 30.0
OPTIONS = ("--management", "127.0.0.1:0")

Start = Callable[..., BrokerProcess]
Connect = Callable[..., StompClient]


def url_of(broker: BrokerProcess) -> str:
    return broker.wait_for(r"management at (https?://127.0.0.1:\d+)")[1]


def get(url: str, path: str, login: str = "", context: ssl.SSLContext | None = None) -> tuple[int, Any]:
    """Return status and answer; text that is no JSON as it is."""
    request = urllib.request.Request(url + path)
    if login:
        request.add_header("Authorization", "Basic " + base64.b64encode(login.encode()).decode())
    try:
        with urllib.request.urlopen(request, timeout=SECONDS, context=context) as answer:
            status, text = answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            status, text = error.code, error.read().decode()
    return status, json.loads(text) if text.startswith(("{", "[")) else text


def post(url: str, path: str) -> tuple[int, Any]:
    """Return status and answer of a request that changes something."""
    request = urllib.request.Request(url + path, b"{}", {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def wait_for(ask: Callable[[], Any], is_reached: Callable[[Any], bool]) -> Any:
    deadline = time.monotonic() + SECONDS
    while not is_reached(found := ask()):
        assert time.monotonic() < deadline, found
    return found


def test_queues_connections_and_consumers(start: Start, connect: Connect) -> None:
    broker = start(*OPTIONS, store="memory:")
    broker.wait_for("listening on")
    client = connect(broker.port)
    client.send("SUBSCRIBE", id="1", destination="/queue/A", ack="client-individual")
    for _ in range(3):
        client.send("SEND", b"x", destination="/queue/A")
    url = url_of(broker)

    def queue() -> Any:
        return get(url, "/api/v1/queues/A")[1]

    found = wait_for(queue, lambda found: found.get("in_flight") == 3)
    assert (found["size"], found["enqueued"], found["consumers"]) == (3, 3, 1)
    (connection,) = wait_for(lambda: get(url, "/api/v1/connections")[1]["items"], bool)
    assert connection["listener"] == "stomp"
    assert re.fullmatch(r"127.0.0.1:\d+", connection["peer"])
    (consumer,) = wait_for(lambda: get(url, "/api/v1/consumers")[1]["items"], bool)
    assert (consumer["destination"], consumer["in_flight"]) == ("A", 3)
    assert consumer["connection_id"] == connection["connection_id"]
    assert get(url, "/api/v1/queues")[1]["count"] == 1
    assert 'activemq_queue_queue_size{destination="A"} 3.0' in get(url, "/metrics")[1]
    assert get(url, "/master") == (200, "master\n")


def test_both_members_answer_and_only_the_master_has_queues(tmp_path: Path) -> None:
    with Pair(tmp_path / "store", *OPTIONS) as pair:
        master, standby = pair.wait_for_master(), pair.wait_for_standby()
        first, second = url_of(master), url_of(standby)
        wait_for(lambda: get(first, "/master")[0], lambda status: status == 200)
        assert get(first, "/api/v1/overview")[1]["role"] == "MASTER"
        assert get(second, "/api/v1/overview")[1]["role"] == "STANDBY"
        refused = (503, {"error": "this member is not the master: it is standby; /api/v1/ha says which one is"})
        assert get(second, "/api/v1/queues") == refused
        assert "activemq_" not in get(second, "/metrics")[1]
        master.kill()
        wait_for(lambda: get(second, "/api/v1/overview")[1]["role"], lambda role: role == "MASTER")
        assert get(second, "/api/v1/queues")[0] == 200


def test_either_member_shows_the_pair_and_the_master_steps_down(tmp_path: Path) -> None:
    with Pair(tmp_path / "store", *OPTIONS) as pair:
        master, standby = pair.wait_for_master(), pair.wait_for_standby()
        first, second = url_of(master), url_of(standby)

        def state(url: str) -> Any:
            return get(url, "/api/v1/ha")[1]

        def shows_both(found: Any) -> bool:
            return [each["role"] for each in found.get("members", ())].count("STANDBY") == 1 and bool(found["master"])

        for url, name in ((first, master.name), (second, standby.name)):
            found = wait_for(partial(state, url), shows_both)
            assert (found["name"], found["master"], found["lock"]["holder"]) == (name, master.name, master.name)
        wait_for(lambda: get(second, "/metrics")[1], lambda text: "pybroker_standby_ready 1.0" in text)
        metrics = get(second, "/metrics")[1]
        assert f'pybroker_lock_holder_info{{holder="{master.name}"}} 1.0' in metrics
        assert 'pybroker_members{state="standby"} 1.0' in metrics
        assert "pybroker_standby_lag_bytes" in metrics
        assert "pybroker_lock_held 0.0" in metrics
        assert "pybroker_lock_held 1.0" in get(first, "/metrics")[1]
        assert post(second, "/api/v1/stepdown") == (409, {"error": "this member is no master: it is standby"})
        wait_for(lambda: post(first, "/api/v1/stepdown")[0], lambda status: status == 200)
        wait_for(lambda: state(first), lambda found: found.get("master") == standby.name)
        master.wait_for("audit: 'anonymous' from 127.0.0.1 had the master step down")
        assert [each["member"] for each in state(first)["promotions"]][:1] == [standby.name]


@pytest.mark.parametrize("request_head", ["POST /api/v1/queues/A/purge", "GET /api/v1/overview"])
def test_its_ports_are_free_once_a_member_was_killed(start: Start, request_head: str) -> None:
    """With a request that hangs, and with a connection that waits for another one."""
    broker = start(*OPTIONS, "--health", "0", store="memory:")
    broker.wait_for("listening on")
    management = int(url_of(broker).rpartition(":")[2])
    health = int(broker.wait_for(r"health checks at http://127.0.0.1:(\d+)")[1])
    with socket.create_connection(("127.0.0.1", management), timeout=SECONDS) as client:
        head = f"{request_head} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        if request_head.startswith("POST"):  # its body does not come
            head += "Content-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: 9\r\n"
        client.sendall(f"{head}\r\n".encode())
        assert client.recv(1 << 16)
        killed_at = time.monotonic()
        broker.kill()
        again = start("--management", f"127.0.0.1:{management}", "--health", str(health), store="memory:")
        again.wait_for("listening on")
        assert in_time(time.monotonic() - killed_at, SECONDS / 3)


def test_users_have_the_roles_of_their_groups(start: Start, tmp_path: Path) -> None:
    users = tmp_path / "users.properties"
    users.write_text("anna=a\nolaf=o\nmara=m\nnils=n\n")
    users.chmod(0o600)
    groups = tmp_path / "groups.properties"
    groups.write_text("admins=anna\nops=olaf\nmonitors=mara\n")
    settings = tmp_path / "pybroker.toml"
    settings.write_text('[management_roles]\noperator = ["ops"]\n')
    files = ("--users-file", str(users), "--groups-file", str(groups), "--config", str(settings))
    broker = start(*OPTIONS, *files, store="memory:")
    broker.wait_for("listening on")
    url = url_of(broker)
    assert get(url, "/api/v1/overview")[0] == 401
    assert get(url, "/api/v1/overview", "mara:x")[0] == 401
    assert get(url, "/api/v1/overview", "nils:n") == (
        403,
        {"error": "user nils belongs to no group of management_roles: ask an admin"},
    )
    for login in ("anna:a", "olaf:o", "mara:m"):
        assert get(url, "/api/v1/overview", login)[0] == 200
    broker.wait_for("login of 'mara' from 127.0.0.1 refused: wrong password")
    broker.wait_for("'nils' from 127.0.0.1 may not use: management")
    users.write_text("anna=b\nolaf=o\nmara=m\n")
    wait_for(lambda: get(url, "/api/v1/overview", "anna:a")[0], lambda status: status == 401)
    assert get(url, "/api/v1/overview", "anna:b")[0] == 200


def test_over_tls(start: Start, tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate = tmp_path / "server.pem"
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(certificate)
    broker = start(*OPTIONS, "--management-tls", "--tls-certificate", str(certificate), store="memory:")
    broker.wait_for("listening on")
    url = url_of(broker)
    context = ssl.create_default_context()
    authority.configure_trust(context)
    assert url.startswith("https://")
    assert get(url, "/api/v1/overview", context=context)[0] == 200
    with pytest.raises(OSError):
        get(url.replace("https", "http"), "/api/v1/overview")


def test_the_journal_says_what_keeps_its_files(start: Start, connect: Connect) -> None:
    broker = start(*OPTIONS)
    broker.wait_for("listening on")
    connect(broker.port).request("SEND", b"x", destination="/queue/A", persistent="true")
    status, answer = get(url_of(broker), "/api/v1/journal")
    assert status == 200
    (kept,) = [each for each in answer["files"] if each["directory"].endswith("kahadb") and each["is_current"]]
    assert "message of queue://A" in kept["reasons"]
    assert answer["bytes"] >= kept["size"] > 0
    in_memory = start(*OPTIONS, store="memory:", name="b")
    in_memory.wait_for("listening on")
    assert get(url_of(in_memory), "/api/v1/journal")[0] == 404


def test_the_pages_commands(start: Start) -> None:
    command = block("docs/management.md", "console", "pybroker start")
    options = shlex.split(command.partition("--store /mnt/shared")[2])
    assert options[:1] == ["--management"]
    broker = start(*options[:1], "127.0.0.1:0", store="memory:")
    broker.wait_for("listening on")
    url = url_of(broker)
    target = shlex.split(block("docs/management.md", "console", "page_size"))[-1]
    assert get(url, target.removeprefix("localhost:8161"))[1]["page_size"] == 10
    *options, target, _, body = shlex.split(block("docs/management.md", "console", "/move").removeprefix("$ curl "))
    assert options == ["-s", "-X", "POST", "-H", "Content-Type: application/json"]
    request = urllib.request.Request(f"http://{target}".replace("http://localhost:8161", url), body.encode())
    request.add_header("Content-Type", "application/json")
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(request, timeout=SECONDS)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (("--management", "0.0.0.0:0"), "management would be open to everyone at 0.0.0.0: set a users_file"),
        (("--management", "8161", "--bind", "0.0.0.0"), "management would be open to everyone at 0.0.0.0"),
        (("--management", "x:y"), "'y' is neither a port number nor `off`: write HOST:PORT"),
        (("--management", "127.0.0.1:61613", "--stomp", "61613"), "stomp and management cannot both have port 61613"),
        ((*OPTIONS, "--management-tls"), "management_tls needs a certificate: set tls_certificate"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(start: Start, options: tuple[str, ...], error: str) -> None:
    broker = start(*options, store="memory:")
    broker.wait_for(re.escape(error))
    assert broker.join() == 2
