"""`pybroker.testing` and its pytest plug-in, with brokers that are killed, frozen, cut off and out of disk."""

import contextlib
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from pybroker.broker.domain.openwire.values import Long
from pybroker.client.sync import connect
from pybroker.testing import Broker, Cluster, ClusterError, State
from pybroker.testing.launcher import fork_server
from tests.conftest import Java
from tests.descriptors import targets
from tests.integration.stomp_client import Disconnected, StompClient
from tests.pace import in_time

pytest_plugins = ["pytester"]

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 30.0
SILENCE_SECONDS = 0.2
"""Enough for loopback to show what should not come."""

QUEUE = "/queue/PLUGIN"


@pytest.fixture(scope="module", autouse=True)
def _fork_server() -> Iterator[None]:
    """Load the broker once for these tests."""
    with fork_server():
        yield


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


def put(client: StompClient, body: bytes, **headers: str) -> str:
    """Send a persistent message; return what was answered."""
    return client.request("SEND", body, destination=QUEUE, **{"persistent": "true", **headers}).command


def consume(port: int, count: int) -> list[bytes]:
    """Consume so many messages."""
    with contextlib.closing(StompClient(port)) as client:
        client.send("SUBSCRIBE", id="1", destination=QUEUE)
        return [client.read_until("MESSAGE").body for _ in range(count)]


def refuses(port: int) -> bool:
    """Return True if no one listens there."""
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) != 0


def is_quiet(client: StompClient) -> bool:
    """Return True if nothing comes for a while."""
    client._socket.settimeout(SILENCE_SECONDS)
    try:
        client._socket.recv(1, socket.MSG_PEEK)
    except TimeoutError:
        return True
    else:
        return False
    finally:
        client._socket.settimeout(PATIENCE_SECONDS)


class Witness:
    """Knows processes by descriptors of theirs, and so when they have ended, whichever process collects them."""

    def __init__(self, *pids: int) -> None:
        self._descriptors = [os.pidfd_open(pid) for pid in pids]

    def all_ended(self, seconds: float = PATIENCE_SECONDS) -> bool:
        deadline = time.monotonic() + seconds
        try:
            return all(
                select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))[0]
                for descriptor in self._descriptors
            )
        finally:
            for descriptor in self._descriptors:
                os.close(descriptor)


# ---------------------------------------------------------------- one broker


class TestBroker:
    @pytest.mark.alone
    def test_broker_is_ready_in_under_300_ms(self) -> None:
        took = []
        for _ in range(5):
            began = time.monotonic()
            with Broker() as broker:
                took.append(time.monotonic() - began)
                assert not refuses(broker.stomp_port)
        print(f"ready in {', '.join(f'{1000 * seconds:.0f} ms' for seconds in took)}")
        assert in_time(min(took), 0.3)

    def test_broker_supports_stomp_and_openwire(self) -> None:
        with Broker() as broker:
            assert broker.uri == f"tcp://127.0.0.1:{broker.openwire_port}"
            assert broker.stomp_address == ("127.0.0.1", broker.stomp_port)
            client = StompClient(broker.stomp_port)
            assert put(client, b"x") == "RECEIPT"
            assert consume(broker.stomp_port, 1) == [b"x"]
            client.close()
            with socket.create_connection(("127.0.0.1", broker.openwire_port), PATIENCE_SECONDS) as openwire:
                assert b"ActiveMQ" in openwire.recv(100)

    def test_broker_restarts_on_its_ports_and_empty(self) -> None:
        with Broker() as broker:
            ports = broker.stomp_port, broker.openwire_port
            client = StompClient(broker.stomp_port)
            put(client, b"x")
            client.close()
            broker.kill9()
            assert broker.state is State.GONE
            assert broker.exit_code == -signal.SIGKILL
            assert refuses(broker.stomp_port)
            broker.restart()
            assert (broker.stomp_port, broker.openwire_port) == ports
            client = StompClient(broker.stomp_port)
            client.send("SUBSCRIBE", id="1", destination=QUEUE)
            assert is_quiet(client)
            client.close()

    def test_an_orderly_stop(self) -> None:
        with Broker() as broker:
            assert broker.stop() == 0
            assert any("stopped" in line for line in broker.log)

    def test_several_at_a_time(self) -> None:
        with Broker() as one, Broker() as other:
            assert one.pid != other.pid
            assert one.stomp_port != other.stomp_port

    def test_settings_and_configuration(self, tmp_path: Path) -> None:
        config = tmp_path / "broker.toml"
        config.write_text('[[policies]]\nqueue = "SMALL"\nno_such_policy = 1\n')
        with pytest.raises(ClusterError, match=r"exit code 2(?s:.)*no_such_policy"), Broker(config=config):
            pass
        with Broker(settings={"frame_max": "1kb"}) as broker:
            client = StompClient(broker.stomp_port)
            client.send("SEND", b"x" * 5000, destination=QUEUE)
            assert client.read().command == "ERROR"
            client.close()

    def test_broker_cannot_be_used_before_or_after_its_block(self) -> None:
        broker = Broker()
        with pytest.raises(ClusterError, match="`with` statement"):
            broker.restart()
        with broker:
            pass
        assert broker.state is State.GONE
        assert any("listening on" in line for line in broker.log), "the log can still be read"
        with pytest.raises(ClusterError):
            broker.kill9()

    def test_the_tests_environment_does_not_reach_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PYBROKER_SYNC", "nonsense")
        with Broker() as broker:
            assert broker.state is State.MASTER


# ---------------------------------------------------------------- several on one store


class TestCluster:
    def test_the_first_is_master_and_the_others_are_closed(self) -> None:
        with Cluster(3) as cluster:
            assert [member.state for member in cluster.members] == [State.MASTER, State.STANDBY, State.STANDBY]
            assert [refuses(member.stomp_port) for member in cluster.members] == [False, True, True]
            assert re.fullmatch(r"failover:\((tcp://127\.0\.0\.1:\d+,){2}tcp://127\.0\.0\.1:\d+\)", cluster.uri)
            assert cluster.stomp_uri == f"failover:({','.join(member.stomp_uri for member in cluster.members)})"
            assert cluster.stomp_addresses == [("127.0.0.1", member.stomp_port) for member in cluster.members]

    def test_a_killed_master_is_replaced_and_comes_back_as_standby(self, cluster: Cluster) -> None:
        client = StompClient(cluster.wait_master().stomp_port)
        assert put(client, b"kept") == "RECEIPT"
        killed = cluster.kill9("master")
        with pytest.raises(Disconnected):
            client.read()
        client.close()
        new_master = cluster.wait_master()
        assert (killed.name, new_master.name) == ("a", "b")
        assert refuses(killed.stomp_port)
        assert consume(new_master.stomp_port, 1) == [b"kept"]
        assert cluster.restart(killed).state is State.STANDBY
        cluster.kill9("master")
        assert cluster.wait_master() is killed

    @pytest.mark.component("activemq")
    def test_its_uri_is_one_for_activemqs_own_client(self, cluster: Cluster, java: Java, tmp_path: Path) -> None:
        program = (ROOT / "examples" / "Orders.java").read_text()
        source = tmp_path / "Orders.java"
        source.write_text(re.sub(r'"failover:.*?"', f'"{cluster.uri}"', program))
        assert cluster.uri in source.read_text()
        java.run(source, "send")
        cluster.kill9("master")
        assert java.run(source, "receive").split("\n")[:3] == ["order 1", "order 2", "order 3"]

    def test_an_orderly_stop_hands_over(self, cluster: Cluster) -> None:
        assert cluster.stop("master").exit_code == 0
        assert cluster.wait_master().name == "b"

    def test_the_standby_can_go_and_come(self, cluster: Cluster) -> None:
        cluster.kill9("standby")
        assert cluster.member("b").state is State.GONE
        assert cluster.wait_master().name == "a"
        cluster.restart("b")
        assert cluster.wait_standby().name == "b"

    def test_a_frozen_master_is_silent_and_goes_on(self, cluster: Cluster) -> None:
        client = StompClient(cluster.member("a").stomp_port)
        frozen = cluster.freeze("master")
        client.send("SEND", b"x", destination=QUEUE, persistent="true", receipt="1")
        assert is_quiet(client)
        assert frozen.is_frozen
        assert not frozen.is_serving
        cluster.thaw()
        assert client.read_until("RECEIPT").headers["receipt-id"] == "1"
        assert cluster.wait_master() is frozen
        client.close()

    def test_a_frozen_master_keeps_the_lock_until_it_is_killed(self) -> None:
        with Cluster() as cluster:
            cluster.freeze("master")
            assert cluster._resources
            cluster._resources.timeout_seconds = 0.5  # waits only for what never comes
            with pytest.raises(ClusterError, match=r"no member serves within 0.5 s: a is master, frozen, b is standby"):
                cluster.wait_master()
            cluster._resources.timeout_seconds = PATIENCE_SECONDS
            assert not cluster.kill9("master").is_frozen
            assert cluster.wait_master().name == "b"

    def test_a_partition_silences_a_master_that_stays_one(self, cluster: Cluster) -> None:
        client = StompClient(cluster.member("a").stomp_port)
        master = cluster.partition("master")
        client.send("SEND", b"delayed", destination=QUEUE, persistent="true", receipt="1")
        assert is_quiet(client)
        assert master.state is State.MASTER
        assert cluster.member("b").state is State.STANDBY
        cluster.heal()
        assert client.read_until("RECEIPT").headers["receipt-id"] == "1"
        assert consume(cluster.wait_master().stomp_port, 1) == [b"delayed"]
        client.close()

    def test_a_master_killed_behind_a_partition_is_replaced(self, cluster: Cluster) -> None:
        client = StompClient(cluster.member("a").stomp_port)
        cluster.partition("master")
        cluster.kill9("master")
        assert cluster.wait_master().name == "b"
        assert is_quiet(client), "no one could notify it"
        cluster.heal()
        with pytest.raises(Disconnected):
            client.read()
        client.close()

    def test_full_disk_refuses_persistent_sends_until_it_has_space(self, cluster: Cluster) -> None:
        client = StompClient(cluster.member("a").stomp_port)
        assert put(client, b"before") == "RECEIPT"
        cluster.fill_disk()
        sent = 1
        while put(client, b"x" * 100_000) == "RECEIPT":
            sent += 1
            assert sent < 100, "the reserve is for acknowledgements"
        assert client.request("SEND", b"x", destination="/queue/OTHER").command == "RECEIPT", "not stored"
        master = cluster.wait_master()
        assert master.name == "a"
        assert any("refused until there is space" in line for line in master.log)
        cluster.kill9("master")
        client.close()
        new_master = cluster.wait_master()
        assert consume(new_master.stomp_port, sent)[0] == b"before"
        client = StompClient(new_master.stomp_port)
        cluster.free_disk()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while put(client, b"after") != "RECEIPT":
            assert time.monotonic() < deadline
        client.close()

    def test_scheduled_messages_are_taken_over_on_a_nearly_full_disk(self) -> None:
        """Space for all that a take-over of the other messages writes, and not for a copy of the scheduler's file."""
        with Cluster(1) as cluster:
            member = cluster.member("a")
            client = StompClient(member.stomp_port)
            assert put(client, b"kept") == "RECEIPT"
            client.close()
            with connect(cluster.uri) as connection:
                for _ in range(40):
                    connection.send("LATER", "x" * 50_000, properties={"AMQ_SCHEDULED_DELAY": Long(600_000)})
            ballast = cluster.store / "ballast"
            ballast.write_bytes(bytes(100_000))
            cluster.fill_disk()
            ballast.unlink()
            cluster.restart(member)
            assert consume(member.stomp_port, 1) == [b"kept"]

    def test_a_store_that_is_given_is_kept(self, tmp_path: Path) -> None:
        with Cluster(1, store=tmp_path / "store") as cluster:
            client = StompClient(cluster.member("a").stomp_port)
            put(client, b"kept")
            client.close()
        with Cluster(1, store=tmp_path / "store") as cluster:
            assert consume(cluster.member("a").stomp_port, 1) == [b"kept"]

    def test_members_by_name(self, cluster: Cluster) -> None:
        assert cluster.member("b") is cluster.members[1]
        assert cluster.member(cluster.members[0]) is cluster.members[0]
        with pytest.raises(ClusterError, match="no member is called 'c': there are a, b, master and standby"):
            cluster.kill9("c")

    def test_what_cannot_be_done_is_an_error(self, cluster: Cluster) -> None:
        cluster.kill9("standby")
        with pytest.raises(ClusterError, match="b is not running"):
            cluster.freeze("b")
        with pytest.raises(ClusterError, match="a is running"):
            cluster.member("a").start()

    def test_the_log_holds_both_sides(self, cluster: Cluster) -> None:
        cluster.kill9("a")
        cluster.restart("a")
        messages = [line.split(": ", 1)[1] for line in cluster.member("a").log if ": " in line]
        listening = next(index for index, line in enumerate(messages) if line.startswith("listening on"))
        killed = messages.index("killed with SIGKILL")
        waiting = next(index for index, line in enumerate(messages) if line.startswith("standby: waiting"))
        assert listening < killed < waiting


# ---------------------------------------------------------------- nothing is left


SCRIPT = """
import os, select, sys
from pybroker.testing import Cluster
from pybroker.testing.launcher import fork_server

with fork_server() as held, Cluster() as cluster:
    cluster.freeze("standby")
    {first}
    print(held._process.pid, *(member.pid for member in cluster.members), flush=True)
    {last}
"""


@contextlib.contextmanager
def script(last: str, first: str = "pass") -> Iterator[tuple[subprocess.Popen[str], Witness]]:
    """Run a program with a cluster, one member frozen, to its last line."""
    command = [sys.executable, "-c", SCRIPT.format(first=first, last=last)]
    environment = {**os.environ, "TMPDIR": tempfile.gettempdir()}
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            pids = [int(word) for word in process.stdout.readline().split()]
            assert len(pids) == 3
            yield process, Witness(*pids)
        finally:
            process.kill()


class TestNothingIsLeft:
    @pytest.fixture(autouse=True)
    def temporary(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """A directory for temporary ones, where nothing is to be left."""
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        return tmp_path

    def test_after_the_end_of_a_with_statement(self, temporary: Path) -> None:
        threads = set(threading.enumerate())
        with Cluster() as cluster:
            witness = Witness(*(member.pid for member in cluster.members))
            cluster.freeze("standby")
            assert cluster.store.is_relative_to(temporary)
        assert witness.all_ended(0.0)
        assert list(temporary.iterdir()) == []
        assert set(threading.enumerate()) <= threads
        assert all(refuses(member.stomp_port) for member in cluster.members)

    def test_after_an_exception(self) -> None:
        def fail(cluster: Cluster) -> None:
            witnesses.append(Witness(*(member.pid for member in cluster.members)))
            raise ZeroDivisionError

        witnesses: list[Witness] = []
        with pytest.raises(ZeroDivisionError), Cluster() as cluster:
            fail(cluster)
        assert witnesses[0].all_ended(0.0)

    def test_after_a_start_that_failed(self, temporary: Path) -> None:
        threads = set(threading.enumerate())
        with pytest.raises(ClusterError, match=r"exit code 2(?s:.)*--sync"), Cluster(settings={"sync": "sometimes"}):
            pass
        assert set(threading.enumerate()) <= threads
        assert list(temporary.iterdir()) == []

    def test_no_descriptors(self) -> None:
        with Broker():
            pass
        before = Counter(targets())
        with Cluster() as cluster, Broker():
            cluster.kill9()
            cluster.restart("a")
        assert not Counter(targets()) - before, "what other tests have left may go meanwhile"

    @pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
    def test_after_a_signal_that_ends_it(self, number: int, temporary: Path) -> None:
        with script("sys.stdin.read()") as (process, witness):
            process.send_signal(number)
            assert witness.all_ended()
        assert list(temporary.iterdir()) == [], "the fork server removes what its owner could not"

    def test_after_an_abrupt_exit(self) -> None:
        with script("sys.stdin.readline(); os._exit(3)") as (process, witness):
            assert process.stdin is not None
            print(file=process.stdin, flush=True)  # not before its processes are witnessed
            assert process.wait(PATIENCE_SECONDS) == 3
            assert witness.all_ended()

    def test_after_sigkill_though_a_forked_child_lives_on(self) -> None:
        """A process that has inherited the fork server's socket; it ends when this test lets it."""
        child = "os.fork() or (sys.stdin.read(), os._exit(0))"
        with script("sys.stdin.read()", first=child) as (process, witness):
            process.kill()
            assert witness.all_ended()

    def test_after_an_interrupt(self) -> None:
        # A signal just before a system call does not interrupt it: what waits without end might never notice it.
        # And where a shell runs the tests in its background, all that they start begins with the signal ignored.
        first = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
        with script("while not select.select([sys.stdin], [], [], 0.1)[0]: pass", first) as (process, witness):
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE_SECONDS) != 0
            assert witness.all_ended()

    def test_killed_fork_server_ends_its_brokers_and_is_reported(self) -> None:
        with script("held._process.kill(); cluster.members[0]._process.join(20); cluster.restart('a')") as (
            process,
            witness,
        ):
            assert process.wait(PATIENCE_SECONDS) == 1
            assert witness.all_ended()

    def test_brokers_survive_the_thread_that_started_them(self) -> None:
        started: list[Broker] = []

        def start() -> None:
            started.append(Broker().__enter__())

        thread = threading.Thread(target=start)
        thread.start()
        thread.join()
        (broker,) = started
        with contextlib.closing(broker):
            client = StompClient(broker.stomp_port)
            assert put(client, b"x") == "RECEIPT"
            client.close()


# ---------------------------------------------------------------- the plug-in


PIDS = """
    with open("pids", "a") as pids:
        print(*(member.pid for member in {members}), file=pids)
"""


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A directory for test-suites whose only plug-in is ours."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.makeini("[pytest]")  # or it would be looked for in the directories above
    return pytester


def run(suite: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    """Run a suite with our plug-in in a process of its own."""
    options = ("-p", "pybroker.testing.plugin", "-p", "no:cacheprovider", "--strict-markers", "-W", "error")
    return suite.runpytest_subprocess(*options, *arguments, timeout=100)


def left(suite: pytest.Pytester) -> list[int]:
    """Return the processes of a suite's recorded brokers that still run."""
    recorded = [int(word) for word in (suite.path / "pids").read_text().split()]
    assert recorded
    return [pid for pid in recorded if "pybroker.testing.fork_server" in command_line(pid)]


def command_line(pid: int) -> str:
    """Return the command line of a process; empty for one that has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode()
    except (FileNotFoundError, ProcessLookupError):
        return ""


class TestPlugin:
    def test_fixtures(self, suite: pytest.Pytester) -> None:
        suite.makepyfile(
            "def test_one(broker):"
            + PIDS.format(members="[broker]")
            + """
    assert broker.uri == f"tcp://127.0.0.1:{broker.openwire_port}"

def test_several(ha_cluster):"""
            + PIDS.format(members="ha_cluster.members")
            + """
    ha_cluster.freeze("standby")
    ha_cluster.thaw()
    killed = ha_cluster.kill9("master")
    assert ha_cluster.wait_master() is not killed
    assert len(ha_cluster.members) == 2
"""
        )
        result = run(suite)
        result.assert_outcomes(passed=2)
        assert "listening on" not in result.stdout.str(), "logs are for failures"
        assert left(suite) == []

    def test_the_logs_are_in_the_report_of_a_failure(self, suite: pytest.Pytester) -> None:
        suite.makepyfile(
            "def test_failing(ha_cluster, broker):"
            + PIDS.format(members="[*ha_cluster.members, broker]")
            + """
    ha_cluster.kill9("a")
    ha_cluster.wait_master()
    assert not "this fails"
"""
        )
        result = run(suite)
        result.assert_outcomes(failed=1)
        result.stdout.re_match_lines_random(
            [
                r"-+ broker a \(gone\) -+",
                r"-+ broker b \(master\) -+",
                r"-+ broker memory \(master\) -+",
                r".* listening on stomp://127\.0\.0\.1:\d+, tcp://.*",
                r".* test: killed with SIGKILL",
                r".* standby: waiting for the lock .*",
            ]
        )
        assert left(suite) == []

    def test_a_cluster_of_another_scope_is_reported_too(self, suite: pytest.Pytester) -> None:
        suite.makepyfile(
            """
import pytest
from pybroker.testing import Cluster

@pytest.fixture(scope="module")
def mine():
    with Cluster(1) as cluster:
        yield cluster

@pytest.fixture
def failing(mine):
    raise RuntimeError

def test_error_in_setup(failing): pass
def test_passing(mine): assert mine.wait_master().name == "a"
"""
        )
        result = run(suite)
        result.assert_outcomes(passed=1, errors=1)
        result.stdout.re_match_lines([r"-+ broker a \(master\) -+"])

    def test_a_broker_that_does_not_start_reports_why(self, suite: pytest.Pytester) -> None:
        suite.makepyfile(
            """
import pytest

@pytest.mark.pybroker(settings={"no_such_setting": 1})
def test_never_run(broker): pass
"""
        )
        result = run(suite)
        result.assert_outcomes(errors=1)
        result.stdout.fnmatch_lines(["*ClusterError: memory ended with exit code 2*", "*no-such-setting*"])

    def test_the_marker_chooses(self, suite: pytest.Pytester) -> None:
        (suite.path / "broker.toml").write_text("no_such_setting = 1\n")
        suite.makepyfile(
            """
import pytest

pytestmark = pytest.mark.pybroker(settings={"sync": "never"}, config="broker.toml")

@pytest.mark.pybroker(members=3, settings={"sync": "never"})
def test_of_its_own(ha_cluster, broker):
    assert [member.name for member in ha_cluster.members] == ["a", "b", "c"]

def test_of_the_module(ha_cluster): pass
"""
        )
        result = run(suite)
        result.assert_outcomes(passed=1, errors=1)
        result.stdout.fnmatch_lines([f"*no_such_setting (in {suite.path}/broker.toml)*"])

    @pytest.mark.parametrize("arguments", ["member=3", "3"])
    def test_a_marker_that_is_wrong(self, suite: pytest.Pytester, arguments: str) -> None:
        suite.makepyfile(f"import pytest\n@pytest.mark.pybroker({arguments})\ndef test_it(broker): pass\n")
        result = run(suite)
        result.assert_outcomes(errors=1)
        result.stdout.fnmatch_lines(["*wrong *; it is pybroker(*members=2*"])

    def test_plugin_describes_its_marker_and_fixtures(self, suite: pytest.Pytester) -> None:
        run(suite, "--markers").stdout.fnmatch_lines(["@pytest.mark.pybroker(*, members=2, settings={}, config=None)*"])
        run(suite, "--fixtures").stdout.re_match_lines_random([r"broker .*", r"ha_cluster .*"])

    def test_processes_side_by_side(self, suite: pytest.Pytester) -> None:
        suite.makepyfile(
            "import os, pytest\n"
            "@pytest.mark.parametrize('number', range(6))\n"
            "def test_failover(ha_cluster, broker, number):"
            + PIDS.format(members="[*ha_cluster.members, broker]")
            + """
    ha_cluster.kill9("master")
    assert ha_cluster.wait_master().name == "b"
    assert number != 5, os.environ["PYTEST_XDIST_WORKER"]
"""
        )
        result = run(suite, "-p", "xdist", "-n", "2")
        result.assert_outcomes(passed=5, failed=1)
        result.stdout.re_match_lines([r"-+ broker b \(master\) -+", r".* listening on .*"])
        assert left(suite) == []

    def test_a_killed_run_leaves_nothing(self, suite: pytest.Pytester) -> None:
        suite.makepyfile(
            "def test_for_ever(ha_cluster):"
            + PIDS.format(members="ha_cluster.members")
            + """
    ha_cluster.freeze("standby")
    os.write(int(os.environ["READY"]), b"1")
    signal.pause()

import os, signal
"""
        )
        ready, announced = os.pipe()
        os.set_inheritable(announced, True)
        command = [sys.executable, "-m", "pytest", "-p", "pybroker.testing.plugin", "-s"]
        environment = {**os.environ, "READY": str(announced), "TMPDIR": str(suite.path)}
        with subprocess.Popen(
            command, cwd=suite.path, pass_fds=[announced], env=environment, stdout=subprocess.DEVNULL
        ) as process:
            os.close(announced)
            try:
                assert os.read(ready, 1) == b"1"
                witness = Witness(*map(int, (suite.path / "pids").read_text().split()))
            finally:
                os.close(ready)
                process.kill()
            assert witness.all_ended()

    def test_plugin_loads_nothing_until_a_broker_is_needed(self, suite: pytest.Pytester) -> None:
        suite.makepyfile(
            """
import sys

def test_it():
    assert [name for name in sys.modules if name.startswith("pybroker")] == [
        "pybroker", "pybroker.testing", "pybroker.testing.plugin"
    ]
"""
        )
        run(suite).assert_outcomes(passed=1)

    def test_nothing_of_the_broker_is_loaded_into_the_tests_process(self, suite: pytest.Pytester) -> None:
        suite.makepyfile(
            """
import sys

def test_it(ha_cluster, broker):
    loaded = [name for name in sys.modules if name.startswith("pybroker.")]
    assert [name for name in loaded if not name.startswith("pybroker.testing")] == ["pybroker.errors"]
"""
        )
        run(suite).assert_outcomes(passed=1)


# ---------------------------------------------------------------- documents and examples


FILE = re.compile(r"<!-- file: (\S+) -->\n```\w*\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, unpacked into a directory: what `pip install` puts on the path, entry points included."""
    built, site = tmp_path_factory.mktemp("wheel"), tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(built)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(site)
    return site


def call(*command: str, cwd: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """Run a Python program as a user does who has installed the package."""
    environment = {**os.environ, "PYTHONPATH": str(site)}
    environment.pop("PYTEST_DISABLE_PLUGIN_AUTOLOAD", None)
    return subprocess.run(
        [sys.executable, *command], cwd=cwd, env=environment, capture_output=True, text=True, timeout=100, check=False
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The files of the page, and what keeps pytest from looking for its configuration further up."""
    files = dict(FILE.findall((ROOT / "docs" / "testing.md").read_text()))
    assert files.pop("test_replicated_orders.py"), "it needs an etcd: test_replication_page.py runs it"
    assert files.keys() == {"orders.py", "test_orders.py", "requirements.txt", "failover.py"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return tmp_path


def test_example_of_the_page_tests_a_failover_in_ten_seconds(project: Path, installed: Path) -> None:
    began = time.monotonic()
    done = call("-m", "pytest", cwd=project, site=installed)
    seconds = time.monotonic() - began
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
    print(f"{seconds:.1f} s")
    assert in_time(seconds, 10)


def test_the_page_without_pytest(project: Path, installed: Path) -> None:
    done = call("failover.py", cwd=project, site=installed)
    assert done.stdout.startswith("a is gone, b serves at failover:(tcp://127.0.0.1:"), done.stderr


def test_the_pages_other_blocks_are_tests_that_pass(tmp_path: Path, installed: Path) -> None:
    page = (ROOT / "docs" / "testing.md").read_text()
    blocks = re.findall(r"(?<!-->\n)^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    for number, block in enumerate(blocks):
        (tmp_path / f"test_{number}.py").write_text(block)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    done = call("-m", "pytest", cwd=tmp_path, site=installed)
    assert f"{len(blocks)} passed" in done.stdout, done.stdout + done.stderr
    assert len(blocks) == 2


def test_the_readme_shows_the_test_of_the_page() -> None:
    (shown,) = re.findall(r"```python\n(from orders .*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert shown == dict(FILE.findall((ROOT / "docs" / "testing.md").read_text()))["test_orders.py"]


def test_the_page_names_what_there_is() -> None:
    """Each name in its tables of properties and methods is one, and the other way round."""
    page = (ROOT / "docs" / "testing.md").read_text()
    tables = page.split("### Where clients connect")[1].split("### How real that is")[0]
    rows = [line for line in tables.splitlines() if line.startswith("| `")]
    for name in (name for row in rows for name in re.findall(r"`(\w+)(?:\([a-z]*\))?`", row.split("|")[1])):
        assert hasattr(Cluster(), name) or hasattr(Broker, name), name
    named = set(re.findall(r"`(\w+)(?:\([a-z]*\))?`", page))
    public = {name for name in [*dir(Cluster()), *dir(Broker())] if not name.startswith("_")}
    assert public - named <= INTERNAL


INTERNAL = {"close", "close_proxies", "condition", "is_frozen", "is_serving", "start", "log_excerpt"}
"""Names that `pybroker.testing` itself calls, or that the page describes in other words."""


def test_the_example_passes_its_tests(tmp_path: Path, installed: Path) -> None:
    example = tmp_path / "orders"
    shutil.copytree(ROOT / "examples" / "orders", example, ignore=shutil.ignore_patterns("__pycache__"))
    (example / "pytest.ini").write_text("[pytest]\n")
    done = call("-m", "pytest", cwd=example, site=installed)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "7 passed" in done.stdout
