"""STOMP over WebSocket, end to end: the library `websockets` and stomp.py as clients, and requests byte by byte."""

import contextlib
import json
import queue
import re
import signal
import socket
import ssl
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import stomp
import trustme
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin, Subprotocol

from pybroker.broker.domain.security import User
from pybroker.security import hashes, users_toml
from pybroker.security.accounts import Account
from tests.integration.cluster import BrokerProcess, Pair, free_port
from tests.integration.forked import run_forked
from tests.integration.stomp_client import StompClient
from tests.unit.transports.certificates import Certificates
from tests.unit.transports.websocket.conversation import ACCEPTED, request

Start = Callable[..., BrokerProcess]
SECONDS = 30.0
V12 = Subprotocol("v12.stomp")


class StompSocket:
    """A STOMP client over WebSocket, which takes each message as one frame."""

    def __init__(self, url: str, *, is_binary: bool = False, heart_beat: str = "0,0", **options: Any) -> None:
        self._opening = connect(url, subprotocols=[V12], max_size=None, ping_interval=None, **options)
        self._stack = contextlib.ExitStack()
        self._heart_beat = heart_beat
        self.is_binary = is_binary
        self.socket: ClientConnection
        self.session = ""

    def __enter__(self) -> "StompSocket":
        with contextlib.ExitStack() as stack:
            self.socket = stack.enter_context(self._opening)
            answer = self.ask("CONNECT", accept_version="1.2", host="test", heart_beat=self._heart_beat)
            assert answer.startswith("CONNECTED\n")
            self.session = re.findall("^session:(.*)$", answer, re.MULTILINE)[0]
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def send(self, command: str, body: str = "", **headers: str) -> None:
        lines = "".join(f"{name.replace('_', '-')}:{value}\n" for name, value in headers.items())
        text = f"{command}\n{lines}\n{body}\0"
        self.socket.send(text.encode() if self.is_binary else text)

    def receive(self) -> str | bytes:
        """Return the next frame that is no heart-beat."""
        while (message := self.socket.recv(timeout=SECONDS)) in ("\n", b"\n"):
            pass
        text = message if isinstance(message, str) else message.decode("latin-1")
        assert text.endswith("\0\n"), "one whole frame"
        return message

    def ask(self, command: str, body: str = "", **headers: str) -> str:
        """Return the next frame after a command, which is text."""
        self.send(command, body, **headers)
        frame = self.receive()
        return frame if isinstance(frame, str) else frame.decode()

    def done(self, command: str, body: str = "", **headers: str) -> None:
        """Send a command, and have it confirmed."""
        assert self.ask(command, body, receipt="r", **headers) == "RECEIPT\nreceipt-id:r\n\n\0\n"

    def closed(self) -> int:
        """Return the code of the close frame that comes next, but for heart-beats."""
        with contextlib.suppress(ConnectionClosed):
            while (found := self.socket.recv(timeout=SECONDS)) == "\n":
                pass
            raise AssertionError(f"no close frame, but {found!r}")
        assert self.socket.close_code is not None
        return self.socket.close_code


@pytest.fixture
def serve(start: Start) -> Callable[..., tuple[BrokerProcess, str]]:
    """Start a broker with a WebSocket listener; return it with its URL."""

    def serve(*extra: str, store: object = "memory:") -> tuple[BrokerProcess, str]:
        port = free_port()
        broker = start("--ws", str(port), *extra, store=store)
        broker.wait_for("listening on")
        return broker, f"ws://127.0.0.1:{port}"

    return serve


def raw(url: str, data: bytes) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=SECONDS)
    made.sendall(data)
    return made


def read_head(made: socket.socket) -> str:
    answer = b""
    while b"\r\n\r\n" not in answer:
        chunk = made.recv(1)
        assert chunk, answer
        answer += chunk
    return answer.decode()


@pytest.fixture(scope="module")
def shared() -> Iterator[tuple[int, str]]:
    """The ports of a broker for STOMP and, as URL, for WebSocket."""
    port, stomp_port = free_port(), free_port()
    broker = BrokerProcess("memory:", name="shared", port=stomp_port, extra=("--ws", str(port)))
    try:
        broker.wait_for("listening on")
        yield stomp_port, f"ws://127.0.0.1:{port}"
    finally:
        broker.close()


@pytest.mark.parametrize(
    ("lines", "status", "protocol"),
    [
        ((), 101, None),
        (("Sec-WebSocket-Protocol: v10.stomp, v11.stomp, v12.stomp",), 101, "v12.stomp"),
        (("Sec-WebSocket-Protocol: stomp",), 101, "stomp"),
        (("Sec-WebSocket-Protocol: mqtt, v11.stomp",), 101, "v11.stomp"),
        (("Sec-WebSocket-Protocol: v11.stomp, mqtt",), 101, "mqtt"),
        (("Sec-WebSocket-Protocol: mqtt, mqttv3.1",), 101, "mqttv3.1"),
        (("Sec-WebSocket-Protocol: xstomp",), 400, None),
        (("Sec-WebSocket-Protocol: amqp",), 101, "amqp"),
        (("Origin: http://b.example",), 101, None),
        (("Origin: http://evil.example",), 403, None),
        (("Sec-WebSocket-Extensions: permessage-deflate",), 101, None),
    ],
)
@pytest.mark.parametrize("path", ["/", "/a/b?x=1"])
def test_request_has_the_answer_of_the_table(
    shared: tuple[int, str], path: str, lines: tuple[str, ...], status: int, protocol: str | None
) -> None:
    with raw(shared[1], request(*lines, start=f"GET {path} HTTP/1.1")) as made:
        head = read_head(made)
    assert head.startswith(f"HTTP/1.1 {status} ")
    assert (f"Sec-WebSocket-Accept: {ACCEPTED}\r\n" in head) == (status == 101)
    assert re.findall(r"Sec-WebSocket-Protocol: (\S+)", head) == ([protocol] if protocol else [])
    assert "Sec-WebSocket-Extensions" not in head
    assert "Server:" not in head


@pytest.mark.parametrize(("method", "status"), [("GET", 200), ("HEAD", 200), ("OPTIONS", 200), ("POST", 405)])
def test_request_of_a_health_check_is_answered(shared: tuple[int, str], method: str, status: int) -> None:
    with raw(shared[1], f"{method} / HTTP/1.1\r\nHost: b\r\n\r\n".encode()) as made:
        assert read_head(made).startswith(f"HTTP/1.1 {status} ")


@pytest.mark.parametrize("is_binary", [False, True])
def test_conversation(shared: tuple[int, str], is_binary: bool) -> None:
    with StompSocket(shared[1] + "/stomp", is_binary=is_binary) as client:
        client.done("SUBSCRIBE", id="1", destination="/queue/A", ack="client-individual")
        client.send("SEND", "ünïcode 🎉", destination="/queue/A")
        message = client.receive()
        assert isinstance(message, bytes) is is_binary
        text = message if isinstance(message, str) else message.decode()
        assert text.endswith("\n\nünïcode 🎉\0\n")
        ack = re.findall(r"^ack:(.*)$", text, re.MULTILINE)[0]
        client.done("BEGIN", transaction="t")
        client.done("SEND", "later", destination="/queue/B", transaction="t")
        client.done("ACK", id=ack, transaction="t")
        client.done("COMMIT", transaction="t")
        assert client.ask("SUBSCRIBE", id="2", destination="/queue/B").endswith("\n\nlater\0\n")
        client.done("DISCONNECT")
        assert client.closed() == 1000


def test_large_messages_of_text_and_bytes(shared: tuple[int, str]) -> None:
    body = "é" * 600_000
    with StompSocket(shared[1]) as client, contextlib.closing(StompClient(shared[0])) as plain:
        client.done("SUBSCRIBE", id="1", destination="/queue/LARGE")
        client.send("SEND", body, destination="/queue/LARGE")
        assert str(client.receive()).endswith(f"\n\n{body}\0\n")
        plain.send("SEND", b"\xff" * 2_000_000, destination="/queue/LARGE", content_length="2000000")
        message = client.receive()
        assert isinstance(message, bytes)
        assert message.endswith(b"\n\n" + b"\xff" * 2_000_000 + b"\0\n")


def test_frame_may_be_cut_into_messages_and_they_into_frames(shared: tuple[int, str]) -> None:
    """As stompjs does with `splitLargeFrames`."""
    with StompSocket(shared[1]) as client:
        client.done("SUBSCRIBE", id="1", destination="/queue/CUT")
        client.socket.send("SEND\ndestination:/queue/CUT\n\nab")
        client.socket.send(["c", "d", "e"])
        client.socket.send("f\0SEND\ndestination:/queue/CUT\n\ng\0")
        assert str(client.receive()).endswith("\n\nabcdef\0\n")
        assert str(client.receive()).endswith("\n\ng\0\n")


def test_heart_beats_are_messages_and_a_silent_client_is_closed(shared: tuple[int, str]) -> None:
    with StompSocket(shared[1], heart_beat="60000,200") as client:  # on a busy machine its own may come late
        assert client.socket.recv(timeout=SECONDS) == "\n"
        client.socket.send("\n")
        assert client.socket.recv(timeout=SECONDS) == "\n"
    with StompSocket(shared[1], heart_beat="200,200") as client:
        assert client.closed() == 1000


def test_ping_is_answered_amid_a_frame(shared: tuple[int, str]) -> None:
    with StompSocket(shared[1]) as client:
        client.socket.send("SEND\ndestination:/queue/PING\n\nab")
        assert client.socket.ping(b"there?").wait(SECONDS)


def test_protocol_error_has_its_code(shared: tuple[int, str]) -> None:
    with StompSocket(shared[1]) as client:
        assert "Unknown STOMP action: BOGUS" in client.ask("BOGUS").replace("\\c", ":")
        assert client.closed() == 1002


def test_broker_that_stops_has_its_code(serve: Callable[..., tuple[BrokerProcess, str]]) -> None:
    broker, url = serve()
    with StompSocket(url) as client:
        broker.process.send_signal(signal.SIGTERM)
        assert client.closed() == 1001
    assert broker.join() == 0


def test_close_frame_gives_messages_back(shared: tuple[int, str]) -> None:
    with StompSocket(shared[1]) as client:
        client.done("SEND", "x", destination="/queue/BACK")
        assert "MESSAGE" in client.ask("SUBSCRIBE", id="1", destination="/queue/BACK", ack="client")
    with StompSocket(shared[1]) as client:
        assert "redelivered:true" in client.ask("SUBSCRIBE", id="1", destination="/queue/BACK", ack="auto")


def test_origins_are_those_of_the_setting(serve: Callable[..., tuple[BrokerProcess, str]]) -> None:
    broker, url = serve("--websocket-origins", "https://app.example, null")
    for origin in ("https://app.example", "null", None):
        with StompSocket(url, origin=origin and Origin(origin)):
            pass
    for refused in ("http://app.example", "http://127.0.0.1", "https://evil.example"):
        with pytest.raises(InvalidStatus, match="403"), StompSocket(url, origin=Origin(refused)):
            pass
    broker.wait_for("refused: pages of https://evil.example may not connect to this broker: list them in websocket_or")


def test_one_port_takes_websocket_too(start: Start) -> None:
    port = free_port()
    broker = start("--auto", str(port), store="memory:")
    broker.wait_for("listening on")
    with StompSocket(f"ws://127.0.0.1:{port}") as client, contextlib.closing(StompClient(port)) as plain:
        client.done("SUBSCRIBE", id="1", destination="/queue/A")
        plain.send("SEND", b"both", destination="/queue/A")
        assert str(client.receive()).endswith("\n\nboth\0\n")


def test_wss_asks_for_the_clients_certificate(start: Start, tmp_path: Path) -> None:
    files, port = Certificates(directory=tmp_path), free_port()
    broker = start(
        *("--ws-ssl", str(port), "--tls-certificate", str(files.both), "--tls-client-ca", str(files.authority)),
        store="memory:",
    )
    broker.wait_for(f"listening on .*wss://127.0.0.1:{port}")
    url = f"wss://127.0.0.1:{port}"
    with StompSocket(url, ssl=files.client_context(files.client)) as client:
        client.done("SEND", "x", destination="/queue/A")
    with pytest.raises((OSError, EOFError, WebSocketException)):
        StompSocket(url, ssl=files.client_context()).__enter__()


def test_login_holds_what_is_sent_behind_it(serve: Callable[..., tuple[BrokerProcess, str]], tmp_path: Path) -> None:
    """A password is verified in a thread, while frames of the same message and others wait."""
    file = tmp_path / "users.toml"
    accounts = {"alice": Account(User("alice"), hashes.hashed("sesame"))}
    file.write_text(users_toml.written(accounts))
    broker, url = serve("--users-file", str(file))
    connect_frame = "CONNECT\naccept-version:1.2\nhost:h\nlogin:alice\npasscode:{}\n\n\0"
    with connect(url, subprotocols=[V12]) as page:
        page.send(connect_frame.format("sesame") + "SEND\ndestination:/queue/A\n\nfirst\0")
        page.send("SEND\ndestination:/queue/A\n\nsecond\0SUBSCRIBE\nid:1\ndestination:/queue/A\n\n\0")
        answers = [str(page.recv(timeout=SECONDS)) for _ in range(3)]
        assert [each.partition("\n\n")[2] for each in answers] == ["\0\n", "first\0\n", "second\0\n"]
        file.write_text(users_toml.written({"bob": accounts["alice"]}))
        broker.process.send_signal(signal.SIGHUP)
        assert "User alice has changed: log in again" in str(page.recv(timeout=SECONDS)).replace("\\c", ":")
        with pytest.raises(ConnectionClosed):
            page.recv(timeout=SECONDS)
        assert page.close_code == 1008
    with connect(url, subprotocols=[V12]) as page:
        page.send(connect_frame.format("wrong"))
        assert "password is invalid" in str(page.recv(timeout=SECONDS))
        with pytest.raises(ConnectionClosed):
            page.recv(timeout=SECONDS)
        assert page.close_code == 1002


def test_certificate_is_the_login_over_wss(start: Start, tmp_path: Path) -> None:
    authority, port, users = trustme.CA(), free_port(), tmp_path / "users.properties"
    authority.cert_pem.write_to_path(tmp_path / "authority.pem")
    for name in ("127.0.0.1", "page", "other"):
        issued = authority.issue_cert(name, common_name=name, organization_name="x", organization_unit_name="test")
        issued.private_key_and_cert_chain_pem.write_to_path(tmp_path / f"{name}.pem")
    users.write_text("page1=CN=page, OU=test, O=x\n")
    options = {
        "ws-ssl": port, "tls-certificate": tmp_path / "127.0.0.1.pem", "tls-client-ca": tmp_path / "authority.pem",
        "certificate-users-file": users,
    }  # fmt: skip
    broker = start(*(f"--{name}={value}" for name, value in options.items()), store="memory:")
    broker.wait_for("listening on")

    def context(name: str) -> ssl.SSLContext:
        made = ssl.create_default_context(cafile=str(tmp_path / "authority.pem"))
        made.load_cert_chain(tmp_path / f"{name}.pem")
        return made

    with StompSocket(f"wss://127.0.0.1:{port}", ssl=context("page")) as client:
        client.done("SEND", "x", destination="/queue/A")
    broker.wait_for("audit: 'page1' logged in from 127.0.0.1")
    with connect(f"wss://127.0.0.1:{port}", subprotocols=[V12], ssl=context("other")) as page:
        page.send("CONNECT\naccept-version:1.2\nhost:h\n\n\0")
        assert "No user for client certificate: CN=other, OU=test, O=x" in str(page.recv(timeout=SECONDS))


def test_management_shows_the_listener(serve: Callable[..., tuple[BrokerProcess, str]]) -> None:
    broker, url = serve("--management", "127.0.0.1:0")
    management = broker.wait_for(r"management at (http://127.0.0.1:\d+)")[1]
    with StompSocket(url):
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            with urllib.request.urlopen(f"{management}/metrics", timeout=SECONDS) as answer:
                if 'pybroker_connections{listener="ws"} 1.0' in answer.read().decode():
                    break
        else:
            raise AssertionError("the metrics never had the connection")
        with urllib.request.urlopen(f"{management}/api/v1/connections", timeout=SECONDS) as answer:
            assert [each["listener"] for each in json.load(answer)["items"]] == ["ws"]


def test_limits_of_the_listener(serve: Callable[..., tuple[BrokerProcess, str]]) -> None:
    broker, url = serve("--connections-max", "2", "--connections-reserved", "0", "--connect-timeout", "1s")
    with raw(url, b"GET / HTTP/1.1\r\nX: ") as slow:
        assert read_head(slow).startswith("HTTP/1.1 408 ")
    with raw(url, b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 101 + b"\r\n") as bomb:
        assert read_head(bomb).startswith("HTTP/1.1 431 ")
    with raw(url, request()) as half_open:
        assert read_head(half_open).startswith("HTTP/1.1 101 ")
        assert b"No CONNECT within 1 seconds" in half_open.recv(1000)
    with StompSocket(url), StompSocket(url), raw(url, b"") as third:
        assert read_head(third).startswith("HTTP/1.1 503 ")
    broker.wait_for("refused 127.0.0.1:")


@contextlib.contextmanager
def connected_like(client: StompSocket, port: int) -> Iterator[StompClient]:
    """Connect over TCP until the connection's id, which is random, is as long as that of another client."""
    for _ in range(100):
        with contextlib.closing(StompClient(port, is_connected=False)) as plain:
            plain.send("CONNECT", accept_version="1.2", host="test")
            if len(plain.read().headers["session"]) == len(client.session):
                yield plain
                return
    raise AssertionError("no connection has an id of that length")


def test_message_is_the_same_in_the_journal(serve: Callable[..., tuple[BrokerProcess, str]], tmp_path: Path) -> None:
    store = tmp_path / "store"
    begun = round(time.time() * 1000)
    broker, url = serve(store=store)
    headers = {"destination": "/queue/A", "persistent": "true", "timestamp": "1", "n": "é", "priority": "7"}
    with StompSocket(url) as client, connected_like(client, broker.port) as plain:
        assert plain.request("SEND", "héllo".encode(), **headers).command == "RECEIPT"
        client.done("SEND", "héllo", **headers)
    assert broker.terminate() == 0
    ended = round(time.time() * 1000)
    dump = run_forked("journal", "dump", str(store), "--json").stdout
    records = [json.loads(line) for line in dump.splitlines() if '"ADD_MESSAGE"' in line]
    data = (store / "kahadb" / "db-1.log").read_bytes()
    found = []
    for each in records:
        record = data[each["offset"] : each["offset"] + each["size"]]
        record = record.replace(each["message_id"].partition(":-1:")[0].encode(), b"CONNECTION")
        arrivals = [at for at in range(len(record)) if begun <= int.from_bytes(record[at : at + 8]) <= ended]
        assert len(arrivals) == 1
        found.append(record[: arrivals[0]] + b"ARRIVAL" + record[arrivals[0] + 8 :])
    first, second = found
    assert len(first) == len(second)
    # Besides these, the broker numbers its messages.
    differing = [at for at in range(len(first)) if first[at] != second[at]]
    number = slice(differing[0], differing[-1] + 1)
    assert int.from_bytes(second[number]) - int.from_bytes(first[number]) == 1


def test_nothing_confirmed_is_lost_when_the_master_is_killed(tmp_path: Path) -> None:
    ports = {"a": free_port(), "b": free_port()}

    class WebSocketPair(Pair):
        def _start(self, name: str) -> BrokerProcess:
            self._extra = ("--ws", str(ports[name]))
            return super()._start(name)

    confirmed: list[str] = []
    with WebSocketPair(tmp_path / "store") as pair:
        for _ in range(3):
            master, standby = pair.wait_for_master(), pair.wait_for_standby()
            url = f"ws://127.0.0.1:{ports[master.name]}"
            with StompSocket(url) as client:
                for _ in range(20):
                    body = f"m{len(confirmed)}"
                    client.done("SEND", body, destination="/queue/A", persistent="true")
                    confirmed.append(body)
                master.kill()
                with pytest.raises(ConnectionClosed):
                    client.ask("SEND", "lost", destination="/queue/A", persistent="true", receipt="r")
            standby.wait_for("listening on")
            pair.restart(master)
        with StompSocket(f"ws://127.0.0.1:{ports[pair.wait_for_master().name]}") as client:
            client.send("SUBSCRIBE", id="1", destination="/queue/A", ack="auto")
            received = [str(client.receive()).partition("\n\n")[2].rstrip("\0\n") for _ in confirmed]
    assert received == confirmed


class Inbox(stomp.ConnectionListener):  # type: ignore[misc]
    """Collects what comes."""

    def __init__(self) -> None:
        self.messages: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.beats: queue.SimpleQueue[bool] = queue.SimpleQueue()

    def on_message(self, frame: Any) -> None:
        self.messages.put(frame.body)

    def on_heartbeat(self) -> None:
        self.beats.put(True)


@pytest.mark.parametrize("binary_mode", [False, True])
def test_stomp_py_over_websocket(shared: tuple[int, str], binary_mode: bool) -> None:
    port = int(shared[1].rpartition(":")[2])
    connection = stomp.WSStompConnection(
        [("127.0.0.1", port)],
        ws_path="/stomp",
        binary_mode=binary_mode,
        heartbeats=(10_000, 400),
        heart_beat_receive_scale=50,  # on a busy machine both sides' may come late
    )
    inbox = Inbox()
    connection.set_listener("inbox", inbox)
    connection.connect("user", "password", wait=True)
    try:
        connection.subscribe(f"/queue/PY{binary_mode}", id="1", ack="auto")
        connection.send(f"/queue/PY{binary_mode}", "hello ünïcode 🎉")
        connection.send(f"/queue/PY{binary_mode}", "x" * 300_000)
        assert inbox.messages.get(timeout=SECONDS) == "hello ünïcode 🎉"
        assert inbox.messages.get(timeout=SECONDS) == "x" * 300_000
        assert inbox.beats.get(timeout=SECONDS)
    finally:
        connection.disconnect()
