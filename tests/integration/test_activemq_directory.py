"""An ActiveMQ's journal in a directory that is not called `kahadb`: served, locked and handed back."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pybroker.locks.file import is_locked
from tests.integration.activemq_broker import ActiveMQProcess
from tests.integration.cluster import BrokerProcess
from tests.integration.stomp_client import StompClient

pytestmark = [pytest.mark.component("activemq"), pytest.mark.timeout(120)]

JAVA = Path(__file__).parents[1] / "java"


@pytest.fixture(scope="module")
def class_path(activemq_class_path: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Compile the stock broker."""
    classes = tmp_path_factory.mktemp("stock")
    command = ["javac", "-nowarn", "-cp", activemq_class_path, "-sourcepath", str(JAVA), "-d", str(classes)]
    done = subprocess.run(
        [*command, str(JAVA / "StockBroker.java")], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return os.pathsep.join((str(classes), activemq_class_path))


@pytest.fixture
def activemq(class_path: str, tmp_path: Path) -> Iterator[Callable[[str], ActiveMQProcess]]:
    """Starts an ActiveMQ whose journal is in a directory of that name in the store."""
    with contextlib.ExitStack() as running:

        def begin(name: str) -> ActiveMQProcess:
            process = ActiveMQProcess(class_path, tmp_path / "store", policies=[f"journal={name}"])
            return running.enter_context(contextlib.closing(process))

        yield begin


def send(port: int, body: bytes) -> None:
    with contextlib.closing(StompClient(port)) as client:
        client.send("SEND", body, destination="/queue/Q", persistent="true", receipt="r")
        assert client.read_until("RECEIPT", receipt_id="r")


def receive(port: int, count: int) -> list[bytes]:
    with contextlib.closing(StompClient(port)) as client:
        client.send("SUBSCRIBE", id="1", destination="/queue/Q", ack="auto")
        bodies = [client.read_until("MESSAGE").body for _ in range(count)]
        client.send("DISCONNECT", receipt="bye")
        assert client.read_until("RECEIPT", receipt_id="bye")
        return bodies


def stop(broker: ActiveMQProcess) -> None:
    broker.process.stdin.close()  # type: ignore[union-attr]
    assert broker.process.wait(60) == 0


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pybroker.broker.app.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("name", ["KahaDB", "orders-db"])
def test_a_journal_of_any_name_goes_to_and_fro(
    activemq: Callable[[str], ActiveMQProcess], start: Callable[..., BrokerProcess], tmp_path: Path, name: str
) -> None:
    store, directory = tmp_path / "store", tmp_path / "store" / name
    theirs = activemq(name).wait()
    send(theirs.stomp, b"theirs")

    standby = start("--journal-directory", name)
    standby.wait_for(f"waiting for the lock {directory}/lock")
    stop(theirs)
    standby.wait_for("listening on")
    assert is_locked(directory / "lock")
    send(standby.port, b"ours")
    status = json.loads(command("status", "--store", str(store), "--json").stdout)
    assert (status["lock"], status["locked"], status["master"]) == (f"{directory}/lock", True, "a")
    assert command("journal", "compact", str(store)).returncode == 2, "a tool finds it, and leaves it to its master"

    again = activemq(name)
    assert not (store / "kahadb").exists()
    standby.process.send_signal(signal.SIGTERM)
    again.wait()  # only now: our lock kept it out
    assert receive(again.stomp, 2) == [b"theirs", b"ours"]
    stop(again)
    checked = command("journal", "check", str(store))
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert str(directory) in checked.stdout


def test_members_with_two_journals_are_refused(start: Callable[..., BrokerProcess]) -> None:
    master = start()
    master.wait_for("listening on")
    other = start("--journal-directory", "db", name="b")
    assert other.join() == 2
    other.wait_for("journal_directory: this member's journal is in db, and that of the living member a .* in kahadb")


def test_doctor_looks_at_the_journal_that_is_named(activemq: Callable[[str], ActiveMQProcess], tmp_path: Path) -> None:
    store = tmp_path / "store"
    theirs = activemq("KahaDB").wait()
    flags = ("--store", str(store), "--stomp", "0", "--openwire", "0", "--json")
    found = command("doctor", *flags).stdout
    assert f"{store}/kahadb has no journal, and {store}/KahaDB has one" in found
    assert "set `journal_directory = 'KahaDB'` on all members" in found
    found = command("doctor", *flags, "--journal-directory", "KahaDB").stdout
    assert "has no journal" not in found
    assert "there is no store in" not in found
    stop(theirs)
