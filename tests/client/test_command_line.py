"""`pybroker produce`, `consume` and `browse` as programs, against pybroker and a stock ActiveMQ."""

import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from pybroker.broker.app import client
from pybroker.broker.app.output import BufferedOutput
from pybroker.broker.domain.destination import queue as queue_of
from pybroker.client import connect
from pybroker.testing import Broker, Cluster
from tests.client.brokers import Pair
from tests.client.test_tls import secured
from tests.conftest import Java

PYBROKER = [sys.executable, "-m", "pybroker.broker.app.cli"]
EVERY_TYPE = Path(__file__).parent / "java" / "EveryType.java"
FULL = Path("/dev/full")


def run(*arguments: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*PYBROKER, *arguments], capture_output=True, timeout=60, check=False, **options)


def done(*arguments: str, **options: Any) -> bytes:
    found = run(*arguments, **options)
    assert found.returncode == 0, found.stderr.decode()
    return found.stdout


@pytest.fixture
def name(queue: str) -> str:
    return queue.removeprefix("queue://")


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


class TestBodies:
    @pytest.mark.component("activemq")
    def test_what_java_sent_arrives_as_it_was(self, broker_uri: str, name: str, java: Java) -> None:
        original, saved, copied = f"{name}.original", f"{name}.saved", f"{name}.copied"
        java.run(EVERY_TYPE, "send", broker_uri, original, saved)
        with connect(broker_uri, timeout=30) as connection:
            count = len(list(connection.browse(f"queue://{saved}")))
        lines = done("consume", "--url", broker_uri, saved, "--json", "--count", str(count), "--idle", "30s")
        counts = done("produce", "--url", broker_uri, copied, "--json", input=lines)
        stamps = [json.loads(line)["headers"]["JMSTimestamp"] for line in lines.splitlines()]
        with connect(broker_uri, timeout=30) as connection:
            assert [message.timestamp for message in connection.browse(f"queue://{copied}")] == stamps
        assert done("browse", "--url", broker_uri, saved) == b""
        described = [java.run(EVERY_TYPE, "describe", broker_uri, queue).splitlines() for queue in (original, copied)]
        assert json.loads(counts) == {"sent": len(stamps), "confirmed": len(stamps) - 1}  # one is not persistent
        assert described[1] == described[0]
        assert len(described[0]) == len(stamps) == count

    def test_json_goes_where_it_came_from(self, broker_uri: str, name: str) -> None:
        done("produce", "--url", broker_uri, name, "tea")
        line = done("consume", "--url", broker_uri, name, "--json", "--count", "1")
        done("produce", "--url", broker_uri, "--json", input=line)
        assert done("browse", "--url", broker_uri, name).endswith(b"  tea\n")

    def test_bytes_are_printed_as_they_are(self, broker_uri: str, name: str) -> None:
        done("produce", "--url", broker_uri, name, "--bytes", input=b"\xff\xfe\r\n\xc3\xa4\n")
        assert done("consume", "--url", broker_uri, name, "--count", "2") == b"\xff\xfe\r\n\xc3\xa4\n"

    def test_text_that_is_no_utf8_is_refused(self, broker_uri: str, name: str) -> None:
        found = run("produce", "--url", broker_uri, name, input=b"good\n\xff\nnever\n")
        assert found.returncode == 1
        assert b"text 2 is no UTF-8: send it with --bytes" in found.stderr
        assert b"sent 1, each confirmed" in found.stderr
        assert done("consume", "--url", broker_uri, name, "--count", "1") == b"good\n"
        assert done("browse", "--url", broker_uri, name) == b""

    def test_map_is_printed_as_json(self, broker_uri: str, name: str) -> None:
        with connect(broker_uri, timeout=30) as connection:
            connection.send(f"queue://{name}", {"grams": 250})
        assert done("consume", "--url", broker_uri, name, "--count", "1") == b'{"grams": 250}\n'

    def test_body_that_stomp_hides_is_not_consumed(self, broker_uri: str, stomp_uri: str, name: str) -> None:
        with connect(broker_uri, timeout=30) as connection:
            for body in ("first", {"grams": 250}, "last"):
                connection.send(f"queue://{name}", body)
        found = run("consume", "--url", stomp_uri, name, "--count", "3", "--idle", "30s")
        assert (found.returncode, found.stdout) == (1, b"first\nlast\n")
        assert b"use tcp://" in found.stderr
        assert done("consume", "--url", broker_uri, name, "--count", "1") == b'{"grams": 250}\n'

    def test_message_without_form_in_stomp_does_not_count_as_sent(self, stomp_uri: str, name: str) -> None:
        lines = b'{"body": "a"}\n{"body": "b", "properties": {"none": null}}\n{"body": "c"}\n'
        found = run("produce", "--url", stomp_uri, name, "--json", input=lines)
        assert found.returncode == 1
        assert json.loads(found.stdout) in ({"sent": 1, "confirmed": 1}, {"sent": 2, "confirmed": 2})
        shown = done("browse", "--url", stomp_uri, name).splitlines()
        assert len(shown) == json.loads(found.stdout)["sent"]

    def test_headers_are_jms_headers_or_properties(self, broker_uri: str, name: str) -> None:
        headers = ("JMSPriority=7", "correlation-id=c", "reply-to=/topic/R", "region=eu", "weight:=4.5", "JMSType=t")
        arguments = [argument for header in headers for argument in ("--header", header)]
        done("produce", "--url", broker_uri, name, "x", "--non-persistent", *arguments)
        (line,) = done("browse", "--url", broker_uri, name, "--json").splitlines()
        found = json.loads(line)
        expected = {"JMSPriority": 7, "JMSCorrelationID": "c", "JMSReplyTo": "topic://R", "JMSType": "t"}
        assert found["properties"] == {"region": "eu", "weight": 4.5}
        assert expected.items() <= found["headers"].items()
        assert found["headers"]["JMSDeliveryMode"] == "NON_PERSISTENT"


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Let child processes be interrupted by SIGINT also where it is ignored, as in a background job of a shell."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def logger_level() -> Iterator[None]:
    """Let a command run in this process, where it silences the client's logger permanently."""
    logger = logging.getLogger("pybroker.client")
    before = logger.level
    yield
    logger.setLevel(before)


class TestOutput:
    @pytest.mark.skipif(not FULL.exists(), reason="this machine has no /dev/full")
    def test_full_disk_under_the_counts_is_one_line(self, broker_uri: str, name: str) -> None:
        with FULL.open("wb") as full:
            command = [*PYBROKER, "produce", "--url", broker_uri, name, "a"]
            found = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, timeout=60, check=False)
        assert found.returncode == 1
        assert found.stderr == b"pybroker: the output cannot be written: No space left on device\n"

    @pytest.mark.skipif(not FULL.exists(), reason="this machine has no /dev/full")
    def test_full_disk_loses_no_message(self, broker_uri: str, name: str) -> None:
        done("produce", "--url", broker_uri, name, "a", "b", "c")
        with FULL.open("wb") as full:
            found = subprocess.run(
                [*PYBROKER, "consume", "--url", broker_uri, name], stdout=full, stderr=subprocess.PIPE, check=False
            )
        assert found.returncode == 1
        assert b"the output cannot be written: No space left" in found.stderr
        assert b"wrote 0 messages, acknowledged 0" in found.stderr
        assert done("consume", "--url", broker_uri, name, "--count", "3") == b"a\nb\nc\n"

    def test_closed_output_loses_no_message(self, broker_uri: str, name: str) -> None:
        done("produce", "--url", broker_uri, name, "a")
        command = ["/bin/sh", "-c", 'exec "$@" >&-', "sh", *PYBROKER, "consume", "--url", broker_uri, name]
        found = subprocess.run(command, stderr=subprocess.PIPE, timeout=60, check=False)
        assert (found.returncode, found.stderr.count(b"\n")) == (2, 1), found.stderr
        assert b"standard output: it is closed" in found.stderr
        assert done("consume", "--url", broker_uri, name, "--count", "1") == b"a\n"

    def test_broken_pipe_loses_no_message(self, broker_uri: str, name: str) -> None:
        done("produce", "--url", broker_uri, name, "a", "b", "c")
        reader, writer = os.pipe()
        os.close(reader)
        with os.fdopen(writer, "wb") as pipe:
            found = subprocess.run(
                [*PYBROKER, "consume", "--url", broker_uri, name], stdout=pipe, stderr=subprocess.PIPE, check=False
            )
        assert found.returncode == 1
        assert b"the reader of the output is gone" in found.stderr
        assert done("consume", "--url", broker_uri, name, "--count", "3") == b"a\nb\nc\n"

    @pytest.mark.usefixtures("interruptible")
    def test_follower_shows_a_message_at_once(self, broker_uri: str, name: str) -> None:
        command = [*PYBROKER, "consume", "--url", broker_uri, name, "--follow"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as follower:
            assert follower.stdout is not None
            try:
                done("produce", "--url", broker_uri, name, "now")
                assert follower.stdout.readline() == b"now\n"
                follower.send_signal(signal.SIGINT)
                assert follower.wait(30) == 130
            finally:
                follower.kill()
        assert done("browse", "--url", broker_uri, name) == b""


class InterruptedOutput(BufferedOutput):
    """Gets SIGINT, so many times, as soon as something is written and before it can be acknowledged."""

    def __init__(self, descriptor: int, times: int) -> None:
        super().__init__(descriptor)
        self._times = times

    def flush(self) -> None:
        super().flush()
        for _ in range(self._times):
            signal.raise_signal(signal.SIGINT)


@pytest.mark.usefixtures("interruptible", "logger_level")
class TestInterrupt:
    @staticmethod
    def consume(uri: str, name: str, *, times: int, count: int | None = None) -> client.Received:
        with Path(os.devnull).open("wb") as sink:
            output = InterruptedOutput(sink.fileno(), times)
            return client.consume(
                client.Access(url=uri), queue_of(name), output, client.as_text, selector=None, count=count, idle=None
            )

    def test_sigint_before_the_acknowledgement_waits_for_it(self, broker_uri: str, name: str) -> None:
        done("produce", "--url", broker_uri, name, "a")
        found = self.consume(broker_uri, name, times=1)
        assert (found.is_interrupted, found.acknowledged, found.failure) == (True, 1, None)
        assert done("browse", "--url", broker_uri, name) == b""
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler

    def test_second_sigint_leaves_the_message_to_the_broker(self, broker_uri: str, name: str) -> None:
        done("produce", "--url", broker_uri, name, "a")
        found = self.consume(broker_uri, name, times=2)
        assert (found.is_interrupted, found.acknowledged) == (True, 0)
        assert done("browse", "--url", broker_uri, name).endswith(b"  a\n")

    def test_ignored_sigint_stays_ignored(self, broker_uri: str, name: str) -> None:
        done("produce", "--url", broker_uri, name, "a")
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        assert self.consume(broker_uri, name, times=2, count=1).is_interrupted is False


class TestFailover:
    def test_produce_and_consume_go_on_with_the_next(self, pair: Pair, name: str) -> None:
        count = 6_000
        command = [*PYBROKER, "produce", "--url", pair.uri, name, "--json"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as sender:
            assert sender.stdin is not None
            for number in range(count):
                if number == count // 2:
                    sender.stdin.flush()
                    pair.kill()
                sender.stdin.write(b'{"type": "text", "body": "%d"}\n' % number)
            output, errors = sender.communicate(timeout=90)
        assert json.loads(output) == {"sent": count, "confirmed": count}, errors
        assert b"the broker is lost" in errors
        assert b"connected again" in errors
        found = done("consume", "--url", pair.uri, name, "--count", str(count), "--idle", "30s")
        assert [int(line) for line in found.splitlines()] == list(range(count))

    def test_failure_reports_how_much_is_confirmed(self) -> None:
        with Broker() as broker:
            command = [*PYBROKER, "produce", "--url", broker.uri, "Q", "--json"]
            with subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            ) as sender:
                assert sender.stdin is not None
                sender.stdin.write(b'{"body": "x"}\n' * 150)
                sender.stdin.flush()
                deadline = time.monotonic() + 30
                with connect(broker.uri, timeout=30) as connection:
                    while len(list(connection.browse("queue://Q"))) < 150:
                        assert time.monotonic() < deadline
                broker.close()
                output, errors = sender.communicate(b'{"body": "x"}\n', timeout=30)
        counts = json.loads(output)
        assert sender.returncode == 1
        assert counts["sent"] in (150, 151)
        assert 50 <= counts["confirmed"] <= 150
        assert f"{counts['confirmed']} of them confirmed".encode() in errors or counts["sent"] == counts["confirmed"]
        assert b"the connection broke" in errors

    def test_timeout_ends_the_wait_for_a_broker(self) -> None:
        with Cluster(1) as cluster:
            cluster.kill9("master")
            found = run("consume", "--url", cluster.uri, "Q", "--timeout", "500ms")
        assert found.returncode == 1
        assert b"no broker answers at failover:" in found.stderr


class TestAccess:
    def test_no_one_there(self) -> None:
        found = run("produce", "--url", "tcp://127.0.0.1:1", "Q", "x")
        assert found.returncode == 1
        assert b"no broker answers at tcp://127.0.0.1:1" in found.stderr

    @pytest.mark.parametrize("url", ["", "a:1", "http://a:1", "tcp://user:secret@a:1", "tcp://a", "tcp://a:1?b=c"])
    def test_unusable_url_is_a_usage_error(self, url: str) -> None:
        found = run("consume", "--url", url, "Q")
        assert found.returncode == 2
        assert b"--url" in found.stderr
        assert b"secret" not in found.stderr

    def test_other_protocol_is_named(self, broker: Broker) -> None:
        port = broker.stomp_address[1]
        found = run("consume", "--url", f"tcp://127.0.0.1:{port}", "Q")
        assert found.returncode == 1
        assert b"does not speak OpenWire" in found.stderr

    def test_selector_that_is_none_is_refused(self, broker_uri: str) -> None:
        found = run("consume", "--url", broker_uri, "Q", "--selector", "a >")
        assert found.returncode == 1
        assert found.stderr.startswith(b"pybroker: ")
        assert found.stderr.count(b"\n") == 1
        assert b"Traceback" not in found.stderr

    def test_tls_with_authority_and_certificate(self, tmp_path: Path) -> None:
        authority = trustme.CA()
        ca, own = tmp_path / "ca.pem", tmp_path / "own.pem"
        authority.cert_pem.write_to_path(ca)
        authority.issue_cert("client").private_key_and_cert_chain_pem.write_to_path(own)
        with secured(authority, tmp_path, "--tls-client-ca", str(ca)) as port:
            for scheme in ("ssl", "auto+ssl"):
                url = ("--url", f"{scheme}://127.0.0.1:{port}", "--ca", str(ca), "--cert", str(own))
                done("produce", *url, "Q", "x")
                assert done("consume", *url, "Q", "--count", "1") == b"x\n"
            refused = run("produce", "--url", f"ssl://127.0.0.1:{port}", "Q", "x", "--timeout", "5s")
            assert refused.returncode == 1
            assert b"certificate verify failed" in refused.stderr
            assert refused.stderr.endswith(b" (--ca)\n")
            without = run("produce", *url[:4], "Q", "x", "--timeout", "5s")
            assert without.returncode == 1
            assert without.stderr.endswith(b" (--cert and --key)\n")
            missing = run("produce", *url, "--key", str(ca), "Q", "x")
        assert missing.returncode == 2
        assert b"--key: there is no private key in" in missing.stderr

    @pytest.mark.parametrize(
        ("files", "problem"),
        [
            (("--cert", "cert"), "--key: there is no private key in {cert}; name the file that has"),
            (("--cert", "key"), "--cert: there is no certificate in {key}"),
            (("--cert", "cert", "--key", "other"), "--key: the key in {other} does not belong to {cert}"),
            (("--cert", "cert", "--key", "sealed"), "--key: the password does not open the key in {sealed}"),
            (("--ca", "key"), "--ca: {key}: "),
        ],
    )
    def test_certificate_without_its_key_names_the_option(
        self, tmp_path: Path, files: tuple[str, ...], problem: str
    ) -> None:
        authority = trustme.CA()
        own, other = authority.issue_cert("client"), authority.issue_cert("other")
        paths = {name: tmp_path / name for name in ("cert", "key", "other", "sealed")}
        own.cert_chain_pems[0].write_to_path(paths["cert"])
        own.private_key_pem.write_to_path(paths["key"])
        other.private_key_pem.write_to_path(paths["other"])
        key = load_pem_private_key(own.private_key_pem.bytes(), None)
        sealed = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
        paths["sealed"].write_bytes(sealed)
        arguments = [str(paths.get(each, each)) for each in files]
        environment = {**os.environ, "PYBROKER_KEY_PASSWORD": "wrong"}
        found = run("produce", "--url", "ssl://127.0.0.1:1", *arguments, "Q", "x", env=environment)
        assert (found.returncode, found.stderr.count(b"\n")) == (2, 1)
        assert found.stderr.decode().startswith("pybroker: " + problem.format(**paths))

    def test_password_comes_from_file_or_environment(self, broker: Broker, tmp_path: Path) -> None:
        file = tmp_path / "password"
        file.write_text("secret\n")
        url = ("--url", broker.uri, "--user", "ops")
        done("produce", *url, "--password-file", str(file), "PASSWORD", "x")
        done("produce", *url, "PASSWORD", "x", env={**os.environ, "PYBROKER_PASSWORD": "secret"})
        both = run("produce", *url, "--password-file", str(file), "--ask-password", "PASSWORD", "x")
        assert both.returncode == 2

    def test_arguments_are_checked_before_anything_is_sent(self) -> None:
        for arguments in (("produce",), ("produce", "Q", "x", "--header", "x"), ("consume", "Q", "--idle", "soon")):
            assert run(*arguments).returncode == 2
        with contextlib.suppress(FileNotFoundError):
            assert run("consume", "Q", "--ca", "/nowhere").returncode == 2


def test_start_loads_no_client() -> None:
    loaded = "print([name for name in sys.modules if name.startswith('pybroker.client')])"
    code = f"import sys, pybroker.broker.app.cli, pybroker.broker.app.serve; {loaded}"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"
