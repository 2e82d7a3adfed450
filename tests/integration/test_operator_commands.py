"""The commands for operators on real brokers: a pair whose master is killed, a stopped store, a terminal, the page."""

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import shlex
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trustme
from click.testing import CliRunner, Result

from pybroker.broker.app.cli import commands
from tests.integration.cluster import BrokerProcess, Pair
from tests.integration.stomp_client import StompClient
from tests.pages import block

SECONDS = 30.0
OPTIONS = ("--management", "127.0.0.1:0")

Start = Callable[..., BrokerProcess]


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYBROKER_MANAGEMENT_URL", "PYBROKER_STORE", "PYBROKER_USER", "PYBROKER_PASSWORD"):
        monkeypatch.delenv(name, raising=False)


def url_of(broker: BrokerProcess) -> str:
    return broker.wait_for(r"management at (https?://127.0.0.1:\d+)")[1]


def serving(broker: BrokerProcess) -> str:
    """Return the URL of a broker once its health check says that it is the master."""
    broker.wait_for("listening on")
    done("queues", "--url", url_of(broker), "--wait", "30s")
    return url_of(broker)


def run(*arguments: str, **variables: str) -> Result:
    return CliRunner().invoke(commands, arguments, env=variables)


def done(*arguments: str) -> str:
    found = run(*arguments)
    assert found.exit_code == 0, found.output + str(found.exception)
    return found.stdout


def until(ask: Callable[[], str], part: str) -> str:
    """Ask until a part is in the answer: lists are a few seconds old at most."""
    deadline = time.monotonic() + SECONDS
    while part not in (found := ask()):
        assert time.monotonic() < deadline, found
    return found


def send(port: int, queue: str, *bodies: str) -> None:
    with contextlib.closing(StompClient(port)) as client:
        for body in bodies:
            client.send("SEND", body.encode(), destination=f"/queue/{queue}", persistent="true", receipt=body)
            client.read_until("RECEIPT")


def test_queues_finds_the_new_master_after_a_kill(tmp_path: Path) -> None:
    with Pair(tmp_path / "store", *OPTIONS) as pair:
        master, standby = pair.wait_for_master(), pair.wait_for_standby()
        urls = ("--url", f"{url_of(master)},{url_of(standby)}")
        done("queues", *urls, "--wait", "30s")
        send(master.port, "ORDERS", "1", "2", "3")
        until(lambda: done("queues", *urls, "--format", "dstat"), f"{'ORDERS':50}  {3:10}")
        pair.wait_for_status(lambda status: all(each.get("management") for each in status["members"]))
        until(lambda: done("queues", "--store", pair.store), "ORDERS")
        assert run("queues", "--url", url_of(standby)).exit_code == 4
        master.kill()
        found = run("queues", *urls, "--wait", "30s", "--json")
        assert (found.exit_code, json.loads(found.stdout)["items"][0]["size"]) == (0, 3)
        sentence = f"does not run, or cannot be reached: asking {url_of(standby)}, which is the master"
        assert f"pybroker: {url_of(master)} {sentence}\n" in found.stderr
        assert done("purge", "ORDERS", "--store", pair.store, "--yes") == "purged 3 messages of ORDERS\n"
        standby.kill()
        assert run("queues", *urls).exit_code == 3


def test_stepdown_makes_the_standby_the_master(tmp_path: Path) -> None:
    with Pair(tmp_path / "store", *OPTIONS) as pair:
        master, standby = pair.wait_for_master(), pair.wait_for_standby()
        urls = ("--url", f"{url_of(master)},{url_of(standby)}")
        until(lambda: done("top", *urls, "--wait", "30s"), "standby, ready")
        assert done("stepdown", "--dry-run", *urls) == f"would have {url_of(master)} step down\n"
        assert done("stepdown", "--yes", *urls) == f"{url_of(master)} steps down: a standby becomes the master\n"
        until(lambda: run("queues", *urls, "--wait", "30s").stderr, f"asking {url_of(standby)}, which is")
        assert "pair: " in done("top", *urls, "--wait", "30s")


def test_a_stopped_store_is_read_and_not_changed(tmp_path: Path, start: Start) -> None:
    store = str(tmp_path / "store")
    broker = start(*OPTIONS, store=store)
    broker.wait_for("listening on")
    send(broker.port, "ORDERS", "first", "second")
    send(broker.port, "B", "x")
    broker.kill()
    before = {path: path.read_bytes() for path in Path(store).rglob("*") if path.is_file()}
    found = run("queues", "--store", store)
    assert found.stdout.splitlines() == ["NAME    SIZE", "B          1", "ORDERS     2"]
    assert "is read from its journal" in found.stderr
    page = json.loads(done("messages", "ORDERS", "--store", store, "--json", "--limit", "1"))
    (message,) = page["messages"]
    assert (message["body"], message["destination"], page["cursor"]) == ("first", "queue://ORDERS", 1)
    page = json.loads(done("messages", "ORDERS", "--store", store, "--json", "--after", "1"))
    assert ([each["body"] for each in page["messages"]], page["cursor"]) == (["second"], None)
    whole = done("messages", "ORDERS", "--store", store, "--id", message["message_id"])
    assert whole.endswith("\n\nfirst\n")
    assert run("messages", "ORDERS", "--store", store, "--id", "ID:none").exit_code == 1
    found = run("purge", "ORDERS", "--store", store, "--yes")
    assert found.exit_code == 3
    assert "for all else a member has to run" in found.stderr
    assert {path: path.read_bytes() for path in Path(store).rglob("*") if path.is_file()} == before


def test_members_without_management_are_named(tmp_path: Path, start: Start) -> None:
    broker = start(store=tmp_path / "store", name="a")
    broker.wait_for("listening on")
    found = run("queues", "--store", str(tmp_path / "store"))
    assert found.exit_code == 3
    assert "have no management that can be reached from here (a on " in found.stderr


def test_messages_and_changes(start: Start) -> None:
    broker = start(*OPTIONS, store="memory:")
    url = ("--url", serving(broker))
    send(broker.port, "ORDERS", *map(str, range(7)))
    found = run("messages", "ORDERS", "--limit", "3", *url)
    assert [line.split()[-1] for line in found.stdout.splitlines()[1:]] == ["0", "1", "2"]
    assert re.search(r"--after \d+", found.stderr)
    assert done("move", "ORDERS", "B", "--maximum", "2", "--yes", *url) == "moved 2 messages of ORDERS to queue://B\n"
    answer = json.loads(done("copy", "B", "C", "--dry-run", "--json", *url))
    assert (answer["affected"], answer["dry_run"]) == (2, True)
    found = run("retry", "B", "--yes", *url)
    assert found.exit_code == 1
    assert found.stderr.startswith("pybroker: 'B' is no dead letter queue")
    assert found.stderr.endswith(": use move, and name their target\n")
    assert done("pause", "ORDERS", *url) == "paused ORDERS\n"
    until(lambda: done("queues", *url), "paused")
    assert done("resume", "ORDERS", *url) == "resumed ORDERS\n"
    assert done("create", "topic://PRICES", *url) == "created topic://PRICES\n"
    assert done("delete", "topic://PRICES", "--yes", *url) == "deleted topic://PRICES\n"
    found = run("delete", "topic://PRICES", "--yes", *url)
    assert (found.exit_code, found.stdout) == (1, "")
    assert found.stderr == "pybroker: there is no topic 'PRICES': check the name, which is case-sensitive\n"
    with contextlib.closing(StompClient(broker.port, client_id="app1")) as client:
        rows = json.loads(until(lambda: done("connections", "--json", "--name", "app1", *url), "app1"))["items"]
        assert done("cut-off", rows[0]["connection_id"], "--yes", *url).startswith("cut off ")
        client.read_until("ERROR")


def test_over_tls_with_a_login(start: Start, tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate, trusted = tmp_path / "server.pem", tmp_path / "ca.pem"
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(certificate)
    authority.cert_pem.write_to_path(trusted)
    users = tmp_path / "users.properties"
    users.write_text("olaf=o\n")
    users.chmod(0o600)
    groups = tmp_path / "groups.properties"
    groups.write_text("operators=olaf\n")
    files = ("--users-file", str(users), "--groups-file", str(groups), "--tls-certificate", str(certificate))
    broker = start(*OPTIONS, "--management-tls", *files, store="memory:")
    broker.wait_for("listening on")
    url = ("--url", url_of(broker), "--user", "olaf")
    assert run("queues", *url, "--ca", str(trusted), "--wait", "30s", PYBROKER_PASSWORD="o").exit_code == 0
    assert run("queues", *url, "--ca", str(trusted), PYBROKER_PASSWORD="x").exit_code == 5
    found = run("queues", *url, PYBROKER_PASSWORD="o")
    assert found.exit_code == 3
    assert "its certificate is not trusted" in found.stderr
    assert "(--ca)" in found.stderr


# ---------------------------------------------------------------- a terminal


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    mine, other = pty.openpty()
    fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    yield mine, other
    os.close(mine)


def read_until(terminal: int, part: str) -> str:
    text, deadline = "", time.monotonic() + SECONDS
    while part not in text:
        assert select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))[0], text
        text += os.read(terminal, 65536).decode(errors="replace")
    return text


@pytest.mark.parametrize("variables", [{}, {"NO_COLOR": "1"}])
def test_top_obeys_its_keys(start: Start, terminal: tuple[int, int], variables: dict[str, str]) -> None:
    broker = start(*OPTIONS, store="memory:")
    serving(broker)
    send(broker.port, "ORDERS", "x")
    mine, other = terminal
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    command = [sys.executable, "-m", "pybroker.broker.app.cli", "top", "--interval", "500ms", "--url", url_of(broker)]
    environment = kept | {"TERM": "xterm-256color", "COLORTERM": ""} | variables
    with subprocess.Popen(command, stdin=other, stdout=other, stderr=other, env=environment) as process:
        os.close(other)
        text = read_until(mine, "ORDERS")
        assert "members: " in text or "pair: " in text
        os.write(mine, b"\x1b[C")
        text += read_until(mine, "sort: OUT/S")
        os.write(mine, b"q")
        text += read_until(mine, "\x1b[?1049l")
        assert process.wait(SECONDS) == 0
    assert bool(re.search(r"\x1b\[(?:\d+;)*3[0-7]m", text)) is not bool(variables)


# ---------------------------------------------------------------- the page


def test_the_commands_of_the_page(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each line of the page's example, with the member of the test in place of the pair."""
    broker = start(*OPTIONS, store="memory:")
    serving(broker)
    send(broker.port, "ORDERS", *map(str, range(3)))
    send(broker.port, "ActiveMQ.DLQ", "dead")
    lines = block("docs/management.md", "sh", "pybroker queues").splitlines()
    exported, *used = [line for line in lines if line]
    assert exported.startswith("export PYBROKER_MANAGEMENT_URL=")
    monkeypatch.setenv("PYBROKER_MANAGEMENT_URL", url_of(broker))
    until(lambda: done("queues"), "ActiveMQ.DLQ")
    names: list[str] = []
    for line in used:
        program, *words = shlex.split(line, comments=True)
        assert program == "pybroker"
        names.append(words[0])
        found = run(*words)
        assert found.exit_code == 0, (line, found.output, found.exception)
    assert {"queues", "messages", "move", "purge", "top"} <= set(names)
