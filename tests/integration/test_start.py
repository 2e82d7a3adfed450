# mypy: disable-error-code="call-overload"
"""`pybroker start` and `status` as a user meets them: one serves, one waits, a stop hands over; mistakes."""

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pybroker.locks.file import FileLock
from pybroker.store.journal.format import EOF_MARKER, encode_batch, encode_record
from tests.integration.cluster import START_SECONDS, BrokerProcess, Pair, free_port

PYBROKER = [sys.executable, "-m", "pybroker.broker.app.cli"]


def run(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*PYBROKER, *arguments], capture_output=True, text=True, timeout=60, check=False, **options)


class TestPair:
    def test_one_serves_and_one_waits(self, pair):
        master, standby = pair.wait_for_master(), pair.wait_for_standby()
        roles = {master.name: "MASTER", standby.name: "STANDBY"}
        status = pair.wait_for_status(
            lambda status: {member["name"]: member["role"] for member in status["members"]} == roles
        )
        assert status["master"] == master.name
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", standby.port))

    def test_a_stop_sends_what_is_owed_and_hands_over_at_once(self, pair, connect):
        master, standby = pair.wait_for_master(), pair.wait_for_standby()
        client = connect(master.port)
        for number in range(50):
            client.send("SEND", b"x", destination="/queue/Q", persistent="true", receipt=str(number))
        client.read_until("RECEIPT", receipt_id="49")
        assert master.terminate() == 0
        standby.wait_for("listening on")
        consumer = connect(standby.port)
        consumer.send("SUBSCRIBE", id="1", destination="/queue/Q")
        frames = [consumer.read() for _ in range(50)]
        assert not any("redelivered" in frame.headers for frame in frames), "no one had seen them"

    def test_after_a_stop_only_what_was_seen_is_marked_redelivered(self, pair, connect):
        master, standby = pair.wait_for_master(), pair.wait_for_standby()
        client = connect(master.port)
        client.send("SUBSCRIBE", id="1", destination="/queue/Q", ack="client", **{"activemq.prefetchSize": "2"})
        for number in range(4):
            client.request("SEND", str(number).encode(), destination="/queue/Q", persistent="true")
        assert master.terminate() == 0
        standby.wait_for("listening on")
        consumer = connect(standby.port)
        consumer.send("SUBSCRIBE", id="1", destination="/queue/Q")
        marks = {frame.body: "redelivered" in frame.headers for frame in (consumer.read() for _ in range(4))}
        assert marks == {b"0": True, b"1": True, b"2": False, b"3": False}

    def test_a_replaced_lock_file_ends_mastership(self, pair, connect):
        master, standby = pair.wait_for_master(), pair.wait_for_standby()
        client = connect(master.port)
        lock = Path(pair.store, "kahadb", "lock")
        lock.rename(lock.with_suffix(".old"))
        master.wait_for("lost the lock: clients are cut off")
        client.read_to_end()
        assert pair.wait_for_master()
        standby.wait_for("becoming master|waiting")

    def test_status_shows_who_was_killed(self, pair):
        master, standby = pair.wait_for_master(), pair.wait_for_standby()
        pair.wait_for_status(lambda status: status["master"] == master.name)
        master.kill()
        standby.wait_for("listening on")
        pair.wait_for_status(lambda status: status["master"] == standby.name)
        text = run("status", "--store", pair.store).stdout
        assert text.startswith(f"master: {standby.name} at stomp://127.0.0.1:{standby.port}")
        assert f"{master.name}" in text
        assert "gone, was master" in text


@pytest.mark.parametrize(
    "options",
    ["--lock flock", "--lock-poll 20ms", "--sync periodic", "--sync never", "--no-journal-preallocate"],
)
def test_a_standby_takes_over_whatever_the_settings(tmp_path, connect, options):
    with Pair(tmp_path, *options.split()) as pair:
        master, standby = pair.wait_for_master(), pair.wait_for_standby()
        assert pair.wait_for_status(lambda status: status["master"] is not None)["master"] == master.name
        assert (
            connect(master.port).request("SEND", b"x", destination="/queue/Q", persistent="true").command == "RECEIPT"
        )
        master.kill()
        standby.wait_for("listening on")
        consumer = connect(standby.port)
        consumer.send("SUBSCRIBE", id="1", destination="/queue/Q")
        assert consumer.read().body == b"x"


class TestStatus:
    def test_without_a_master_the_exit_code_is_4(self, tmp_path):
        found = run("status", "--store", str(tmp_path))
        assert found.returncode == 4
        assert found.stdout.startswith("no master: ")
        assert "is free" in found.stdout
        assert list(tmp_path.iterdir()) == []

    def test_with_a_master_it_is_0_and_json_parses(self, start, tmp_path):
        start().wait_for("listening on")
        command = ("status", "--store", str(tmp_path / "store"), "--json")
        deadline = time.monotonic() + START_SECONDS
        while (found := run(*command)).returncode != 0:  # it writes its entry behind what it logs
            assert time.monotonic() < deadline, found
        assert json.loads(found.stdout)["master"] == "a"

    def test_standby_that_could_not_serve_makes_it_5(self, start, tmp_path):
        """Its port is another program's: it waits all the same, for the port may become free."""
        start().wait_for("listening on")
        command = ("status", "--store", str(tmp_path / "store"))
        with socket.create_server(("127.0.0.1", 0)) as other:
            port = other.getsockname()[1]
            with contextlib.closing(BrokerProcess(str(tmp_path / "store"), name="b", port=port)) as standby:
                standby.wait_for(f"could not serve if it became master now: stomp: cannot use 127.0.0.1 port {port}")
                deadline = time.monotonic() + START_SECONDS
                while (found := run(*command)).returncode != 5:
                    assert time.monotonic() < deadline, found
        assert "COULD NOT SERVE: stomp: cannot use" in found.stdout

    def test_a_store_that_is_not_there(self, tmp_path):
        found = run("status", "--store", str(tmp_path / "no"))
        assert (found.returncode, found.stdout) == (2, "")
        assert "not a directory" in found.stderr
        assert list(tmp_path.iterdir()) == []

    def test_what_waits_and_a_full_store_are_shown(self, start, connect, tmp_path):
        broker = start("--journal-file-max", "1mb", "--journal-batch-max", "1mb", "--store-limit", "2mb")
        broker.wait_for("listening on")
        client, sent = connect(broker.port), 0
        while client.request("SEND", b"x" * 100_000, destination="/queue/Q", persistent="true").command == "RECEIPT":
            sent += 1
        command = ("status", "--store", str(tmp_path / "store"))
        deadline = time.monotonic() + START_SECONDS
        while "STORE FULL" not in (found := run(*command)).stdout:  # members renew their entries every two seconds
            assert time.monotonic() < deadline, found
        assert re.search(
            rf"  {sent:,} messages waiting, 0 in flight, 1 connection, \d+ of [\d,]+ MB of memory, ", found.stdout
        )
        found = json.loads(run(*command, "--json").stdout)
        load = found["members"][0]["load"]
        assert load == load | {"connections": 1, "waiting": sent, "in_flight": 0, "is_full": True}
        assert load["loop_lag_ms"] >= 0
        assert 0 < load["memory_bytes"] < load["memory_bytes_max"]
        assert found["disk_free_bytes"] > 0


@pytest.mark.parametrize("command", ["check", "dump", "why", "compact"])
def test_journal_tools_create_no_store(tmp_path, command):
    arguments = ["ID:1"] if command == "why" else []
    assert run("journal", command, str(tmp_path / "no"), *arguments).returncode != 0
    assert list(tmp_path.iterdir()) == []


def test_a_new_store_is_a_warning_with_its_whole_path(start, tmp_path):
    broker = start()
    broker.wait_for(f"WARNING serve: there is no store in {tmp_path}/store yet: creating a new, empty one")
    broker.wait_for("listening on")
    assert broker.terminate() == 0
    again = start("--no-create-store")
    again.wait_for("listening on")
    assert not any("creating a new" in line for line in again.lines)


def test_a_variable_that_is_no_setting_is_a_warning(tmp_path):
    environment = os.environ | {"PYBROKER_STOMPP": "1", "PYBROKER_SYNC": "perhaps"}
    command = [sys.executable, "-m", "pybroker.broker.app.cli", "start", "--store", "memory:", "--stomp", "0"]
    found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=environment)
    assert found.returncode == 2, "of the other variable"
    assert "PYBROKER_SYNC" in found.stderr
    environment["PYBROKER_SYNC"] = "always"
    with subprocess.Popen(
        [*command, "--openwire", "off"], stderr=subprocess.PIPE, text=True, env=environment
    ) as broker:
        assert broker.stderr is not None
        line = next(line for line in broker.stderr if "WARNING" in line)
        broker.terminate()
    assert line.endswith("has no effect: PYBROKER_STOMPP: did you mean PYBROKER_STOMP?\n")


class TestMistakes:
    """Each is one line that names the setting, with an exit code that is not 0, and nothing changed on disk."""

    def refused(self, tmp_path, *arguments: str) -> str:
        before = sorted(tmp_path.rglob("*"))
        found = run("start", *arguments)
        assert found.returncode != 0
        assert found.stdout == ""
        assert found.stderr.startswith("pybroker: ")
        assert found.stderr.count("\n") == 1
        assert sorted(tmp_path.rglob("*")) == before
        return found.stderr

    def test_a_taken_port(self, tmp_path):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            text = self.refused(tmp_path, "--store", str(tmp_path / "s"), "--stomp", str(port))
        assert f"stomp: cannot use 127.0.0.1 port {port}: Address already in use" in text

    def test_an_address_of_another_machine(self, tmp_path):
        text = self.refused(tmp_path, "--store", str(tmp_path / "s"), "--bind", "192.0.2.1", "--stomp", "0")
        assert "bind: cannot use 192.0.2.1" in text

    def test_a_store_that_is_a_file(self, tmp_path):
        (tmp_path / "file").write_text("x")
        text = self.refused(tmp_path, "--store", str(tmp_path / "file"), "--stomp", "0")
        assert "store: " in text
        assert "not a directory" in text

    def test_a_store_that_is_not_a_kahadb(self, tmp_path):
        (tmp_path / "db-1.log").write_bytes(b"<html>" * 1000)
        text = self.refused(tmp_path, "--store", str(tmp_path), "--stomp", "0")
        assert "db-1.log" in text

    def test_a_store_of_a_newer_format(self, tmp_path):
        journal = tmp_path / "s" / "kahadb"
        journal.mkdir(parents=True)
        newer = encode_batch([encode_record(b"\x63\x00")]) + EOF_MARKER
        (journal / "db-1.log").write_bytes(newer)
        found = run("start", "--store", str(tmp_path / "s"), "--stomp", "0", "--openwire", "off")
        assert found.returncode == 1
        assert "unknown command type 99 in a sound record; a newer version wrote this store" in found.stderr
        assert [path.name for path in journal.glob("db*")] == ["db-1.log"]
        assert (journal / "db-1.log").read_bytes() == newer

    @pytest.mark.parametrize("directory", ["kahadb", "scheduler"])
    def test_pipe_as_data_file(self, tmp_path, directory):
        for name in ("kahadb", "scheduler"):
            (tmp_path / "s" / name).mkdir(parents=True)
        os.mkfifo(tmp_path / "s" / directory / "db-7.log")
        found = run("start", "--store", str(tmp_path / "s"), "--stomp", "0", "--openwire", "off")
        assert found.returncode == 1
        assert re.search(r"^pybroker: .*db-7\.log cannot be read: it is no regular file; ", found.stderr, re.MULTILINE)

    def test_pipe_as_lock_file(self, tmp_path):
        (tmp_path / "s" / "kahadb").mkdir(parents=True)
        os.mkfifo(tmp_path / "s" / "kahadb" / "lock")
        found = run("start", "--store", str(tmp_path / "s"), "--stomp", "0", "--openwire", "off")
        assert found.returncode == 1
        assert "cannot open the lock file: it is no regular file; move it away" in found.stderr

    def test_a_bad_setting(self, tmp_path):
        text = self.refused(tmp_path, "--store", str(tmp_path / "s"), "--sync", "sometimes")
        assert "--sync" in text
        assert "'always'" in text

    def test_a_name_that_is_taken(self, start, tmp_path):
        start(name="same").wait_for("listening on")
        found = run("start", "--store", str(tmp_path / "store"), "--name", "same", "--stomp", "0")
        assert found.returncode == 2
        assert "name: " in found.stderr


@pytest.mark.parametrize("name", ["pybroker.index", "pybroker.broker"])
def test_pipe_as_file_that_can_be_made_again_is_no_obstacle(start, tmp_path, name):
    (tmp_path / "store" / "kahadb").mkdir(parents=True)
    os.mkfifo(tmp_path / "store" / "kahadb" / name)
    start().wait_for("listening on")


class TestClients:
    def test_produce_browse_consume(self, broker):
        url = ["--url", f"stomp://127.0.0.1:{broker.port}"]
        sent = run("produce", *url, "ORDERS", "one", "two", "--header", "region=eu")
        assert sent.stdout == "sent 2, each confirmed by the broker\n"
        run("produce", *url, "queue://ORDERS", input="three\nfour\n")
        browsed = run("browse", *url, "ORDERS", "--selector", "region = 'eu'").stdout
        assert [line.split()[1] for line in browsed.splitlines()] == ["one", "two"]
        first = run("consume", *url, "/queue/ORDERS", "--count", "1", "--json").stdout
        assert json.loads(first)["body"] == "one"
        assert json.loads(first)["properties"] == {"region": "eu"}
        assert run("consume", *url, "ORDERS", "--count", "3").stdout == "two\nthree\nfour\n"
        assert run("consume", *url, "ORDERS", "--idle", "200ms").stdout == ""

    def test_the_brokers_output_is_passed_on(self, broker):
        found = run("consume", "--url", f"stomp://127.0.0.1:{broker.port}", "Q", "--selector", "a >")
        assert found.returncode == 1
        sentence = "the broker refuses the selector: expected a value, found the end at column 4"
        assert found.stderr == f"pybroker: {sentence}\n"

    def test_no_one_there(self):
        found = run("produce", "--url", "stomp://127.0.0.1:1", "Q", "x")
        assert found.returncode == 1
        assert "no broker answers at stomp://127.0.0.1:1" in found.stderr


def test_scheduler_of_another_broker_is_refused(tmp_path: Path) -> None:
    store, theirs = tmp_path / "data", tmp_path / "theirs"
    theirs.mkdir()
    lock = FileLock(theirs / "lock", clock=lambda: 0)
    lock.acquire()
    broker = BrokerProcess(str(store), name="a", port=free_port(), extra=("--scheduler-store", str(theirs)))
    with contextlib.closing(broker):
        broker.wait_for("lock is held by another broker, which schedules in")
        assert broker.join() == 1
    lock.release()
    assert [path.name for path in theirs.iterdir()] == ["lock"]
