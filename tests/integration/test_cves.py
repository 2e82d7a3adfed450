"""The attacks of ActiveMQ's CVEs, each tried on a running broker, a client or their decoders: none has the effect.

A test is named by its CVE; where several are one attack, by the first. Source: security.md, section 9.

These lines of that table are about parts that pybroker does not have yet, and are to be tested with them:

* the web console and Jolokia: 2016-0734 (click-jacking), 2016-0782, 2016-6810, 2018-8006, 2020-1941, 2020-13947,
  2026-41043 and 2026-52760 (texts of messages in pages), 2026-42253 (message properties in headers of HTTP; the same
  attack on STOMP's headers is here), and the roles of 2024-32114, 2026-49157 and 2026-49877;
* LDAP: 2014-3612 and 2021-26117 (the same attack on a file of users is here);
* networks of brokers: 2026-49434;
* MQTT and AMQP: 2025-66168, 2026-40046 and 2026-59878 (what their frames do to pybroker's listeners is here).
"""

import ast
import contextlib
import ctypes
import os
import pickle
import re
import socket
import ssl
import struct
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

import pybroker
from benchmarks.fuzz.corpus import openwire_frames
from pybroker.broker.domain.destination import Destination, DestinationType, queue, topic
from pybroker.broker.domain.openwire import commands as wire
from pybroker.broker.domain.openwire.loose import MalformedOpenWire
from pybroker.broker.domain.openwire.marshal.codec import WireFormat
from pybroker.broker.domain.openwire.marshal.wireformat import Offer, decode_offer, encode_offer
from pybroker.broker.domain.openwire.values import encode_map
from pybroker.broker.domain.security import User
from pybroker.client.errors import ClientError, UntrustedBroker, UnusableURI
from pybroker.security import hashes, users_toml
from pybroker.security.accounts import Account
from tests.descriptors import targets
from tests.integration.cluster import BrokerProcess, free_port
from tests.integration.openwire_client import OpenWireClient
from tests.integration.stomp_client import Disconnected, StompClient

Start = Callable[..., BrokerProcess]

SPRING = "org.springframework.context.support.ClassPathXmlApplicationContext"
SOURCES = Path(pybroker.__file__).parent
GROWTH_KB = 50 << 10
"""What the broker's process may grow by in an attack, as in `make fuzz`."""

RULES = """
[[rules]]
queue = ">"
read = ["alice", "bob"]
write = ["alice", "bob"]

[[rules]]
queue = "OWN.>"
admin = ["alice", "bob"]

[[rules]]
topic = ">"
read = ["*"]
write = ["*"]
admin = ["*"]

[default]
read = ["root"]
write = ["root"]
admin = ["root"]
"""


class Serving:
    """A broker with all listeners."""

    def __init__(self, process: BrokerProcess, openwire: int, auto: int) -> None:
        self.process = process
        self.openwire = openwire
        self.auto = auto
        self.stomp = process.port
        self.clients = contextlib.ExitStack()

    @property
    def ports(self) -> tuple[int, ...]:
        return self.openwire, self.auto, self.stomp

    def log_in(self, name: str, user: str | None = None) -> OpenWireClient:
        client = OpenWireClient(self.openwire, name, user, None if user is None else "pw")
        return self.clients.enter_context(contextlib.closing(client))

    def open(self, **headers: Any) -> StompClient:
        """Return a STOMP client."""
        return self.clients.enter_context(contextlib.closing(StompClient(self.stomp, **headers)))

    def peak_kb(self) -> int:
        """Return the most memory that the process had resident, in KB."""
        found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{self.process.process.pid}/status").read_text())
        assert found is not None
        return int(found[1])

    def assert_serves(self) -> None:
        """Send and receive with a client of each protocol."""
        name = f"CHECK.{free_port()}"
        for uri in (f"tcp://127.0.0.1:{self.openwire}", f"stomp://127.0.0.1:{self.stomp}"):
            with pybroker.connect(uri, timeout=20) as connection:
                connection.send(name, "x")
                with connection.consumer(name) as consumer:
                    received = consumer.receive(20)
                    assert received is not None
                    assert received.body == "x"


@pytest.fixture
def serve(start: Start) -> Iterator[Callable[..., Serving]]:
    """Start brokers; their clients are closed in the end."""
    with contextlib.ExitStack() as clients:

        def serve(*extra: str, store: object = "memory:") -> Serving:
            openwire, auto = free_port(), free_port()
            process = start("--openwire", str(openwire), "--auto", str(auto), *extra, store=store)
            process.wait_for("listening on")
            serving = Serving(process, openwire, auto)
            clients.enter_context(serving.clients)
            return serving

        yield serve


@pytest.fixture
def guarded(serve: Callable[..., Serving], tmp_path: Path) -> Serving:
    """A broker with the users alice and bob, and rules for them."""
    secret = hashes.hashed("pw")
    accounts = {name: Account(User(name, frozenset((name,))), secret) for name in ("alice", "bob", "root")}
    users, rules = tmp_path / "users.toml", tmp_path / "rules.toml"
    users.write_text(users_toml.written(accounts))
    users.chmod(0o600)
    rules.write_text(RULES)
    return serve("--users-file", str(users), "--rules-file", str(rules))


@contextlib.contextmanager
def bait() -> Iterator[tuple[str, list[object]]]:
    """Serve a URL that no one may fetch; yield it and the connections that came."""
    came: list[object] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.05)
        over = threading.Event()

        def accept() -> None:
            while not over.is_set():
                with contextlib.suppress(TimeoutError):
                    came.append(server.accept()[1])

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}/poc.xml", came
        finally:
            over.set()
            thread.join()


def exchanged(port: int, data: bytes) -> bytes:
    """Send bytes, and return all that comes until the broker closes, or after the end of what was sent."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        received = b""
        try:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            while chunk := connection.recv(1 << 16):
                received += chunk
        except OSError:
            return received
        return received


# ---------------------------------------------------------------- code and objects


def test_cve_2023_46604_exception_classes_are_names() -> None:
    """A peer names a class in an exception, which the reader made with a URL; here it is a text, for broker and client.

    The broker is one that logs each import, program and connection of its own: an audit hook sees them all.
    """
    openwire = free_port()
    with bait() as (url, came):
        thrown = wire.Throwable(class_name=SPRING, message=url)
        carried = wire.ExceptionResponse(correlation_id=1, exception=thrown)
        broker = start_audited(openwire)
        try:
            for number, command in enumerate(
                (
                    carried,
                    wire.ConnectionErrorCommand(exception=thrown),
                    wire.DataResponse(correlation_id=1, data=carried),
                    wire.MessageAck(destination=queue("Q"), ack_type=1, message_count=1, poison_cause=thrown),
                    wire.ActiveMQMessage(destination=queue("Q"), data_structure=carried, persistent=True),
                )
            ):
                with contextlib.closing(OpenWireClient(openwire, f"c{number}")) as client:
                    if isinstance(command, wire.MessageAck):
                        command.consumer_id = wire.ConsumerId(client.name, 1, 1)
                    if isinstance(command, wire.ActiveMQMessage):
                        command.producer_id = client.producer
                        command.message_id = wire.OpenWireMessageId(None, client.producer, 1)
                    client.send(command)
                    client.send(wire.ShutdownInfo())
                    client.read_to_end()
            with contextlib.closing(OpenWireClient(openwire, "witness")) as client:
                assert isinstance(client.request(wire.FlushCommand()), wire.Response)
        finally:
            assert broker.terminate() == 0
        (canary,) = [line for line in broker.lines if line.startswith("AUDIT")]
        assert "canary" in canary, "the only one shows that the hook works"
        for answer in (carried, wire.ConnectionErrorCommand(exception=thrown)):
            assert refused_by(answer).count(url) <= 1
        assert came == []


def start_audited(openwire: int) -> BrokerProcess:
    """Start a broker whose audit hook logs."""

    class Audited(BrokerProcess):
        module = "tests.integration.audited"

    broker = Audited("memory:", name="a", port=free_port(), extra=("--openwire", str(openwire)))
    broker.wait_for("listening on")
    return broker


def refused_by(answer: Any) -> str:
    """Have a broker answer the ConnectionInfo of pybroker's client with a command; return the error that it raises."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def play() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(encode_offer(Offer()))
                connection.recv(1 << 16)
                connection.sendall(WireFormat(12).encode_frame(answer))
                with contextlib.suppress(OSError):
                    while connection.recv(1 << 16):
                        pass

        thread = threading.Thread(target=play)
        thread.start()
        with pytest.raises(ClientError) as raised:
            pybroker.connect(f"tcp://127.0.0.1:{server.getsockname()[1]}", timeout=2)
        thread.join(20)
    assert not thread.is_alive()
    return str(raised.value)


def test_cve_2015_5254_object_messages_are_bytes(serve: Callable[..., Serving]) -> None:
    """An ObjectMessage carries a serialized object that is made when it is read (2022-41678: by management).

    Here its body is what was sent, byte for byte. Nothing in the package can make objects or code of bytes.
    """
    broker = serve()
    client = broker.log_in("c1")
    victims = (pickle.dumps(os.getpid), b"\xac\xed\0\5sr\0\x11java.util.HashMap", b"cos\nsystem\n(S'touch /tmp/x'\ntR.")
    for number, payload in enumerate(victims):
        client.request(client.message(queue("Q"), number + 1, kind=wire.ActiveMQObjectMessage, content=payload))
    first = client.message_of(client.consumer(queue("Q")))
    others = [client.message_of(wire.FlushCommand()) for _ in victims[1:]]
    assert [each.content for each in (first, *others)] == list(victims)
    stomp = broker.open()
    stomp.send("SUBSCRIBE", destination="/queue/P", id="1", transformation="jms-object-json")
    for number, payload in enumerate(victims):
        client.request(client.message(queue("P"), number + 9, kind=wire.ActiveMQObjectMessage, content=payload))
        assert "transformation-error" in stomp.read().headers
    broker.assert_serves()


def test_cve_2015_5254_no_module_makes_objects_of_bytes() -> None:
    """`pickle`, `marshal`, `shelve`, `eval`, `exec` and `__import__` are nowhere in the package."""
    forbidden: list[str] = []
    for path in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [each.name for each in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                names = [f"{node.func.id}()"]
            wrong = {"pickle", "marshal", "shelve", "dill", "eval()", "exec()", "__import__()", "compile()"}
            forbidden += [f"{path.name}: {name}" for name in names if name in wrong]
    assert forbidden == []


# ---------------------------------------------------------------- HTTP and management


REQUESTS = (
    b"PUT /fileserver/x.jsp HTTP/1.0\r\nContent-Length: 3\r\n\r\nabc",
    b"MOVE /fileserver/x HTTP/1.1\r\nDestination: file:///etc/cron.d/x\r\n\r\n",
    b"GET /admin/../../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /%2e%2e/%2e%2e/etc/passwd\0 HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /api/jolokia/exec/org.apache.activemq:type=Broker/addNetworkConnector/x HTTP/1.1\r\nHost: x\r\n\r\n",
    b"POST /api/message/Q?type=queue HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n<x>",
    b'GET /"><script>alert(1)</script> HTTP/1.1\r\nHost: x\r\n\r\n',
)


def test_cve_2016_3088_no_listener_takes_files(serve: Callable[..., Serving], tmp_path: Path) -> None:
    """A file server took PUT and MOVE (2015-1830: with `..`), and its API needed no login (2024-32114, 2026-49157).

    The listener for all protocols answers GET, since a WebSocket begins with one, and has nothing to say; no listener
    speaks HTTP otherwise, whatever the method and path. Nothing is written, and no text comes back.
    """
    broker = serve(store=tmp_path / "store")
    before = sorted(path for path in tmp_path.rglob("*") if "x" in path.name)
    for port in broker.ports:
        for request in REQUESTS:
            answer = exchanged(port, request)
            if answer.startswith(b"HTTP/"):
                assert request.startswith(b"GET ")
                assert answer.partition(b"\r\n\r\n")[2] == b""
            assert b"<script>" not in answer
            assert b"root:" not in answer
    assert sorted(path for path in tmp_path.rglob("*") if "x" in path.name) == before
    broker.assert_serves()


@pytest.mark.parametrize(
    "uri",
    [
        "vm://localhost?brokerConfig=xbean:http://127.0.0.1:1/poc.xml",
        "static:(vm://localhost?brokerConfig=xbean:http://127.0.0.1:1/poc.xml)",
        "masterslave:(vm://x?brokerConfig=xbean:file:///tmp/x)",
        "failover:(vm://localhost?brokerConfig=xbean:http://127.0.0.1:1/poc.xml)",
        "xbean:http://127.0.0.1:1/poc.xml",
        "tcp://127.0.0.1:1?brokerConfig=xbean:http://127.0.0.1:1/poc.xml",
        "discovery:(multicast://default)",
        "http://127.0.0.1:1",
    ],
)
def test_cve_2026_34197_uris_are_of_known_schemes(uri: str) -> None:
    """Operations took a URI whose scheme starts a broker from a file on another host (2026-40466, -42588, -41044).

    Schemes and options of a URI are lists of what is known.
    """
    with pytest.raises(UnusableURI):
        pybroker.connect(uri, timeout=1)


def test_cve_2026_45505_clients_cannot_add_connectors(serve: Callable[..., Serving]) -> None:
    """Who reached an operation added a connector by a URI. Commands of clients that name one do nothing."""
    broker = serve()
    with bait() as (url, came):
        client = broker.log_in("c1")
        evil = f"vm://x?brokerConfig=xbean:{url}"
        client.send(
            wire.BrokerInfo(
                broker_id=wire.BrokerId("evil"), broker_name="evil", broker_url=evil, broker_upload_url=evil,
                network_connection=True, duplex_connection=True, network_properties=f"uri={evil}",
            )
        )  # fmt: skip
        client.send(wire.ConnectionControl(connected_brokers=evil, reconnect_to=evil, rebalance_connection=True))
        client.request(wire.ControlCommand(command=f"addConnector {evil}"))
        client.request(wire.FlushCommand())
        assert came == []
    other = BrokerProcess("memory:", name="b", port=free_port(), extra=("--broker-name", "x;uri=vm://y\n"))
    with contextlib.closing(other):
        assert other.join() == 2
    broker.assert_serves()


def test_cve_2020_13920_nothing_else_listens(serve: Callable[..., Serving]) -> None:
    """JMX opened an RMI registry without a login (2020-11998). A broker listens on the ports of its settings alone."""
    broker = serve()
    inodes = {each.removeprefix("socket:[").rstrip("]") for each in targets(broker.process.process.pid)}
    rows = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    listening = {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A" and row[9] in inodes}
    assert listening == set(broker.ports)
    for port in broker.ports:
        assert not exchanged(port, b"JRMI\0\2K").startswith(b"\x4e"), "an acknowledgement of RMI"


# ---------------------------------------------------------------- lengths, floods


def test_cve_2025_27533_lengths_are_not_believed_by_decoders() -> None:
    """A length says how much memory to allocate, before a login (2026-50734, 2026-53917: in maps).

    Each four bytes of each frame are set to lengths that are none: memory stays in proportion to the frame.
    """
    offer = encode_offer(Offer(host="h"))[4:]
    decoders: list[tuple[Callable[[bytes], object], tuple[bytes, ...]]] = [
        (decode_offer, (offer,)),
        (WireFormat(12).decode, openwire_frames(12)),
        (WireFormat(12, tight=True).decode, openwire_frames(12, tight=True)),
    ]
    refused = 0
    tracemalloc.start()
    try:
        for decode, frames in decoders:
            for frame in frames:
                for at in range(1, min(len(frame), 160) - 3, 3):
                    for length in (0x7FFFFFFF, -1, len(frame) + 1):
                        data = frame[:at] + struct.pack(">i", length) + frame[at + 4 :]
                        tracemalloc.reset_peak()
                        before = tracemalloc.get_traced_memory()[0]
                        try:
                            decode(data)
                        except MalformedOpenWire:
                            refused += 1
                        assert tracemalloc.get_traced_memory()[1] - before < 1 << 20, (frame[0], at, length)
    finally:
        tracemalloc.stop()
    assert refused > 1_000


def test_cve_2025_27533_lengths_are_not_believed_by_a_broker(serve: Callable[..., Serving]) -> None:
    """The same before a login and after it, at a broker: the connection is closed, and its memory stays."""
    broker = serve()
    hello = encode_offer(Offer())
    peak = broker.peak_kb()
    for size in (0x7FFFFFFF, -1, -(1 << 31), 65_537, 104_857_601):
        exchanged(broker.openwire, hello + struct.pack(">i", size) + b"\3")
        exchanged(broker.auto, struct.pack(">i", size) + b"\1ActiveMQ")
        client = broker.log_in(f"c{size}")
        client.send_bytes(struct.pack(">i", size) + b"\x1c" * 100)
        if not 0 < size <= 104_857_600:
            assert isinstance(client.read_to_end()[-1], wire.ConnectionErrorCommand)
        client.close()
    properties = encode_map({"a": "x"})
    for bad in (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\0\0\x7f\xff"):
        client = broker.log_in(f"p{bad.hex()}")
        client.request(client.message(queue("Q"), marshalled_properties=bad + properties[4:]))
        client.close()
    assert broker.peak_kb() - peak < GROWTH_KB
    broker.assert_serves()


def test_cve_2026_49270_broker_infos_before_a_login_end_it(serve: Callable[..., Serving]) -> None:
    """A peer that has not logged in sends BrokerInfo after BrokerInfo, and is told of subscriptions (2026-50750)."""
    broker = serve()
    subscriber = broker.log_in("subscriber")
    subscriber.request(subscriber.consumer(topic("SECRET"), subscription_name="SECRET"))
    peak = broker.peak_kb()
    client = broker.log_in("")
    info = wire.BrokerInfo(
        broker_id=wire.BrokerId("x"), broker_name="x", network_connection=True, network_properties="a=b"
    )
    frame = WireFormat(12).encode_frame(info)
    with contextlib.suppress(OSError):
        for _ in range(1_000):
            client.send_bytes(frame * 100)
    heard: list[Any] = []
    with contextlib.suppress(OSError):
        heard = client.read_to_end()
    assert {type(each) for each in heard} <= {wire.WireFormatInfo, wire.BrokerInfo, wire.ConnectionErrorCommand}
    assert "SECRET" not in repr(heard)
    broker.process.wait_for("closed: more than 16 frames before a ConnectionInfo")
    assert broker.peak_kb() - peak < GROWTH_KB
    broker.assert_serves()


def test_cve_2026_53916_stomp_headers_and_lengths_have_limits(serve: Callable[..., Serving]) -> None:
    """A header line without an end, headers without end, and a `content-length` that is none (2026-49432)."""
    broker = serve()
    peak = broker.peak_kb()
    connect = b"CONNECT\naccept-version:1.2\nhost:h\n\n\0"
    attacks = [
        b"SEND\na:" + b"x" * 3_000_000,
        b"SEND\n" + b"a:b\n" * 1_000_000,
        *(
            b"SEND\ndestination:/queue/Q\ncontent-length:%s\n\nx\0" % length
            for length in (b"-1", b"+5", b" 5", b"5e3", b"9223372036854775808", b"0x5", b"9" * 5_000)
        ),
    ]
    for before in (b"", connect):
        for attack in attacks:
            answer = exchanged(broker.stomp, before + attack)
            frames = answer.replace(b"\0\n", b"\0").split(b"\0")
            assert frames[1 if before else 0].startswith(b"ERROR") or frames[-1] == b"", answer[:200]
    assert broker.peak_kb() - peak < GROWTH_KB
    broker.assert_serves()


def test_cve_2026_39304_key_updates_cost_no_memory(serve: Callable[..., Serving], tmp_path: Path) -> None:
    """A TLS 1.3 peer sends KeyUpdate after KeyUpdate, each of which asks for one: answers gather in memory.

    OpenSSL answers at most one that is pending. 10,000 are sent through OpenSSL's own function for it.
    """
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    issued.private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    port = free_port()
    broker = serve("--stomp-ssl", str(port), "--tls-certificate", str(tmp_path / "server.pem"))
    context = ssl.create_default_context()
    authority.configure_trust(context)
    library = ctypes.CDLL("libssl.so.3")
    library.SSL_key_update.argtypes = [ctypes.c_void_p, ctypes.c_int]
    library.SSL_do_handshake.argtypes = [ctypes.c_void_p]
    with (
        socket.create_connection(("127.0.0.1", port), timeout=20) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as client,
    ):
        assert client.version() == "TLSv1.3"
        client.sendall(b"CONNECT\naccept-version:1.2\nhost:h\n\n\0")
        assert client.recv(1 << 16).startswith(b"CONNECTED")
        address = id(client._sslobj) + object.__basicsize__ + ctypes.sizeof(ctypes.c_void_p)  # type: ignore[attr-defined]
        handle = ctypes.c_void_p.from_address(address)
        peak, sent = broker.peak_kb(), 0
        for _ in range(10_000):
            sent += library.SSL_key_update(handle, 1)
            library.SSL_do_handshake(handle)
        assert sent == 10_000
        assert broker.peak_kb() - peak < GROWTH_KB
        broker.assert_serves()
        client.sendall(b"SEND\ndestination:/queue/Q\nreceipt:r\n\nx\0")
        assert client.recv(1 << 16).startswith(b"RECEIPT")


MQTT = (
    b"\x10\xff\xff\xff\x7f\0\4MQTT\4\2\0\x3c\0\1a",
    b"\x10\xff\xff\xff\xff\xff\xff",
    b"\x10\x80\x80\x80\x80\x01\0\4MQTT",
    b"\x10\0",
    b"\x30\xff\xff\xff\x7f" + b"x" * 1_000,
)
AMQP = (
    b"AMQP\0\1\0\0\xff\xff\xff\xff\2\0\0\0",
    b"AMQP\0\1\0\0\0\0\0\7\2\0\0",
    b"AMQP\3\1\0\0\x7f\xff\xff\xff\2\1\0\0",
    b"AMQP\0\0\x09\1\1\0\0\xff\xff\xff\xff",
)


@pytest.mark.parametrize("opening", [*MQTT, *AMQP])
def test_cve_2025_66168_lengths_of_other_protocols_are_not_read(serve: Callable[..., Serving], opening: bytes) -> None:
    """A remaining length of MQTT that overflows (2026-40046), a frame size of AMQP that is negative (2026-59878)."""
    broker = serve()
    peak = broker.peak_kb()
    for port in broker.ports:
        for length in {*range(1, len(opening), max(1, len(opening) // 8)), len(opening)}:
            exchanged(port, opening[:length])
    assert broker.peak_kb() - peak < GROWTH_KB
    broker.assert_serves()


# ---------------------------------------------------------------- commands and rights


def test_cve_2014_3576_no_command_stops_a_broker(serve: Callable[..., Serving]) -> None:
    """A control command of any client shut the broker down (2015-7559), and a ShutdownInfo its transport."""
    broker = serve()
    witness = broker.log_in("witness")
    for number, command in enumerate(
        (
            wire.ControlCommand(command="shutdown"),
            wire.ControlCommand(command="terminate"),
            wire.ConnectionControl(close=True, exit=True, suspend=True),
            wire.ShutdownInfo(),
        )
    ):
        attacker = broker.log_in(f"attacker-{number}")
        attacker.send(command)
        attacker.close()
        unconnected = broker.log_in("")
        unconnected.send(command)
        unconnected.close()
        assert isinstance(witness.request(wire.FlushCommand()), wire.Response)
    broker.assert_serves()


def test_cve_2026_46605_to_remove_takes_a_right(guarded: Serving) -> None:
    """Whoever was connected could remove a destination with its messages."""
    alice = guarded.log_in("a", "alice")
    root = guarded.log_in("r", "root")
    root.request(root.message(queue("JOBS"), persistent=True))
    removal = wire.DestinationInfo(connection_id=wire.ConnectionId("a"), destination=queue("JOBS"), operation_type=1)
    assert alice.refusal(removal) == (
        "java.lang.SecurityException",
        "User alice is not authorized to remove: queue://JOBS",
    )
    assert alice.message_of(alice.consumer(queue("JOBS"))) is not None, "it is still there"
    assert alice.refusal(wire.DestinationInfo(
        connection_id=wire.ConnectionId("a"), destination=queue("NEW"), operation_type=0
    ))[1] == "User alice is not authorized to create: queue://NEW"  # fmt: skip


def test_cve_2026_54475_temporary_destinations_are_their_connections(guarded: Serving) -> None:
    """Replies are for the connection that made the temporary destination: no other may consume them, in any way."""
    alice, bob = guarded.log_in("a", "alice"), guarded.log_in("b", "bob")
    replies = Destination(DestinationType.TEMP_QUEUE, "a:1")
    alice.request(wire.DestinationInfo(connection_id=wire.ConnectionId("a"), destination=replies, operation_type=0))
    assert bob.refusal(bob.consumer(replies, 1))[0] == "javax.jms.InvalidDestinationException"
    for number, name in enumerate((">", "*", "a:*", "a:1,b:1"), 2):
        bob.request(bob.consumer(Destination(DestinationType.TEMP_QUEUE, name), number))
        bob.request(bob.consumer(queue(name), number + 10))
    stomp = guarded.open(login="bob", passcode="pw")
    for destination in ("/remote-temp-queue/a:1", "/queue/a:1", "/queue/>", "/remote-temp-queue/>"):
        stomp.request("SUBSCRIBE", destination=destination, id=destination)
    removal = wire.DestinationInfo(connection_id=wire.ConnectionId("b"), destination=replies, operation_type=1)
    assert isinstance(bob.request(removal), wire.ExceptionResponse)
    bob.request(bob.message(replies, 5))  # to answer is what they are for
    assert alice.message_of(alice.consumer(replies)).destination == replies
    assert isinstance(bob.request(wire.FlushCommand()), wire.Response)
    assert bob.dispatches() == []
    stomp.send("SEND", b"x", destination="/queue/OWN.q", receipt="last")
    stomp.read_until("RECEIPT", receipt_id="last")
    assert [frame for frame in stomp.backlog if frame.command == "MESSAGE"] == []


def test_cve_2026_61487_composites_have_the_rights_of_their_parts(guarded: Serving) -> None:
    """A composite of the type of a temporary queue was sent to real queues, past their rights."""
    alice = guarded.log_in("a", "alice")
    for number, kind in enumerate(DestinationType):
        name = "a:1,queue://NEW.secret,topic://ActiveMQ.Advisory.Queue"
        answer = alice.request(alice.message(Destination(kind, name), number + 1))
        assert isinstance(answer, wire.ExceptionResponse), kind
        stomp = guarded.open(login="alice", passcode="pw")
        prefix = kind.name.lower().replace("_", "-").replace("temp", "remote-temp")
        answer = stomp.request("SEND", b"x", destination=f"/{prefix}/x,/queue/NEW.secret")
        assert answer.command == "ERROR"
    root = guarded.log_in("r", "root")
    root.request(root.consumer(queue(">")))
    root.request(wire.FlushCommand())
    assert root.dispatches() == []


@pytest.mark.parametrize(
    ("user", "password"),
    [
        ("alice", ""),
        ("*", "pw"),
        (")(uid=*", "pw"),
        ("alice)(|(uid=*", "pw"),
        ("", ""),
        ("alice\0", "pw"),
        ("ALICE", "pw"),
    ],
)
def test_cve_2014_3612_a_login_takes_a_name_and_its_password(guarded: Serving, user: str, password: str) -> None:
    """An empty password was an anonymous bind of LDAP (2021-26117), and `*` any user. There is no LDAP yet."""
    client = guarded.log_in("")
    login = wire.ConnectionInfo(
        connection_id=wire.ConnectionId("x"), client_id="x", user_name=user, password=password
    )  # fmt: skip
    assert client.refusal(login)[0] == "java.lang.SecurityException"
    client.close()
    with pytest.raises((AssertionError, Disconnected)):
        StompClient(guarded.stomp, login=user.replace("\0", "?"), passcode=password)


# ---------------------------------------------------------------- texts


def test_cve_2014_3600_selectors_and_bodies_load_no_entity(serve: Callable[..., Serving], tmp_path: Path) -> None:
    """A selector was XPath over a message's XML, whose entities were loaded. There is no XPath, and no entity."""
    secret = tmp_path / "secret"
    secret.write_text("TOP-SECRET")
    broker = serve()
    with bait() as (url, came):
        stomp = broker.open()
        refused = stomp.request("SUBSCRIBE", destination="/queue/Q", id="0", selector="XPATH '//a[b=\"c\"]'")
        assert refused.command == "ERROR"
        stomp.request("SUBSCRIBE", destination="/queue/Q", id="1")
        for body in (
            f'<!DOCTYPE x [<!ENTITY e SYSTEM "file://{secret}">]><string>&e;</string>',
            f'<!DOCTYPE x [<!ENTITY % e SYSTEM "{url}"> %e;]><string>x</string>',
            f'<!DOCTYPE x SYSTEM "{url}"><string>x</string>',
            f'<string xmlns:xi="http://www.w3.org/2001/XInclude"><xi:include href="{url}"/></string>',
            "<!DOCTYPE x ["
            + '<!ENTITY a0 "ha">'
            + "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 12))
            + "]><string>&a11;</string>",
        ):
            peak = broker.peak_kb()
            stomp.send("SEND", body.encode(), destination="/queue/Q", transformation="jms-object-xml")
            frame = stomp.read_until("MESSAGE")
            assert ("transformation-error" in frame.headers) is body.startswith("<!DOCTYPE"), body
            assert b"TOP-SECRET" not in frame.body
            assert broker.peak_kb() - peak < GROWTH_KB
        assert came == []


def test_cve_2026_42253_properties_make_no_headers(serve: Callable[..., Serving]) -> None:
    """A message's property became a header of a response, with line ends. In STOMP's headers they are escaped."""
    broker = serve()
    stomp = broker.open()
    stomp.request("SUBSCRIBE", destination="/queue/Q", id="1")
    client = broker.log_in("c1")
    evil = "x\r\nreceipt-id:forged\n\n\0ERROR\nmessage:forged\n\n\0"
    properties = encode_map({"a": evil, "b\nreceipt-id:forged": "x", "c:d\r\n\r\n": evil})
    client.request(
        client.message(queue("Q"), marshalled_properties=properties, correlation_id=evil, jms_type=evil)
    )  # fmt: skip
    frame = stomp.read()
    assert frame.command == "MESSAGE"
    assert "receipt-id" not in frame.headers
    assert frame.headers["correlation-id"].startswith("x")
    stomp.send("SEND", b"x", destination="/queue/OTHER", receipt="r")
    answer = stomp.read()
    assert (answer.command, answer.headers["receipt-id"]) == ("RECEIPT", "r")


def test_cve_2017_15709_nothing_is_told_before_a_login(serve: Callable[..., Serving], tmp_path: Path) -> None:
    """The first commands had version of Java, system and paths in them. Here they have what a client needs."""
    broker = serve(store=tmp_path / "store")
    client = broker.log_in("")
    heard = [client.read() for _ in range(2)]
    assert {type(each) for each in heard} == {wire.WireFormatInfo, wire.BrokerInfo}
    told = repr(heard).lower() + exchanged(broker.stomp, b"ACK\n\n\0").decode().lower()
    uname = os.uname()
    for secret in (
        "python",
        "linux",
        uname.release,
        uname.version,
        str(tmp_path),
        "/home",
        "/usr",
        "uvloop",
        "openssl",
    ):
        assert secret.lower() not in told


def test_cve_2026_33227_no_name_becomes_a_path(serve: Callable[..., Serving], tmp_path: Path) -> None:
    """A path came from a client's text. Names of all kinds are bytes in the journal, and no file has one of them."""
    store = tmp_path / "deep" / "store"
    store.parent.mkdir()
    broker = serve("--create-store", store=store)
    evil = "../../escaped"
    client = broker.log_in(evil)
    client.request(client.message(queue(evil), 1, persistent=True))
    client.request(client.message(queue("/etc/escaped"), 2, persistent=True))
    client.request(client.consumer(topic(evil), 1, subscription_name=evil, selector=f"a = '{evil}'"))
    stomp = broker.open(client_id=f"{evil}\\stomp")
    named: dict[str, Any] = {"activemq.subscriptionName": evil}
    stomp.request("SUBSCRIBE", destination=f"/topic/{evil}", id=evil, **named)
    scheduled = stomp.request(
        "SEND", b"x", destination=f"/queue/{evil}", persistent="true", AMQ_SCHEDULED_DELAY="60000"
    )
    assert scheduled.command == "RECEIPT"
    assert broker.process.terminate() == 0
    assert [path for path in tmp_path.rglob("*") if "escaped" in path.name] == []
    assert {path.name for path in tmp_path.iterdir()} == {"deep"}
    assert any(b"escaped" in path.read_bytes() for path in store.rglob("db-*.log")), "they were stored"
    assert not Path("/etc/escaped").exists()


def test_cve_2018_11775_clients_verify_the_hosts_name(serve: Callable[..., Serving], tmp_path: Path) -> None:
    """A client took any certificate of its authority, also one for another host."""
    authority = trustme.CA()
    issued = authority.issue_cert("other.example")
    issued.private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    port = free_port()
    serve("--openwire-ssl", str(port), "--tls-certificate", str(tmp_path / "server.pem"))
    context = ssl.create_default_context()
    authority.configure_trust(context)
    for uri in (f"ssl://127.0.0.1:{port}", f"failover:(ssl://localhost:{port})"):
        with pytest.raises(UntrustedBroker):
            pybroker.connect(uri, timeout=10, ssl_context=context)
