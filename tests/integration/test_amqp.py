"""AMQP end to end: qpid-proton as client, over sockets, WebSocket and TLS, and masters that are killed."""

import math
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest
import trustme
from proton import ConnectionException, Event, Message, ProtonException, SSLDomain, Timeout
from proton.handlers import MessagingHandler, TransactionHandler
from proton.reactor import Container, Copy, DurableSubscription, Selector
from proton.utils import BlockingConnection, BlockingReceiver, LinkDetached
from websockets.sync.client import connect as open_websocket
from websockets.typing import Subprotocol

from pybroker.broker.domain.amqp.frames import encode_frame
from pybroker.broker.domain.amqp.performatives import AmqpClose, AmqpOpen
from pybroker.broker.domain.security import User
from pybroker.security import hashes, users_toml
from pybroker.security.accounts import Account
from tests.integration.cluster import BrokerProcess, free_port
from tests.integration.stomp_client import StompClient

Start = Callable[..., BrokerProcess]
SECONDS: Final = 30.0
NOTHING_SECONDS: Final = 0.2
"""The time in which nothing comes."""


def connect(*ports: int, container: str | None = None, **options: Any) -> BlockingConnection:
    """Connect to whichever member serves."""
    deadline = time.monotonic() + SECONDS
    while True:
        for port in ports:
            try:
                return BlockingConnection(f"127.0.0.1:{port}", timeout=SECONDS, container_id=container, **options)
            except (ConnectionException, OSError):
                assert time.monotonic() < deadline, "no member serves"
        time.sleep(0.01)


def master_of(connection: BlockingConnection) -> int:
    """Return the port of the member that serves a connection."""
    assert connection.conn is not None
    return int(connection.conn.connected_address.rpartition(":")[2])


@pytest.fixture
def port(start: Start) -> int:
    """The AMQP port of a broker on a store in memory."""
    number = free_port()
    start("--amqp", str(number), store="memory:").wait_for("listening on")
    return number


@pytest.fixture
def members(start: Start, tmp_path: Path) -> tuple[dict[int, BrokerProcess], Callable[[int], None]]:
    """Two members on one store by their AMQP ports, and how to replace one that is killed."""
    running: dict[int, BrokerProcess] = {}

    def begin(number: int) -> None:
        running[number] = start("--amqp", str(number), store=tmp_path / "store", name=f"n{number}")

    for number in (free_port(), free_port()):
        begin(number)
    return running, begin


def test_proton_sends_and_receives(port: int) -> None:
    with closing(connect(port)) as connection:
        sender = connection.create_sender("queue://q")
        sender.send(Message(body="hello", properties={"x": 1}, durable=True))
        receiver = connection.create_receiver("q", credit=1)
        message = receiver.receive(timeout=SECONDS)
        assert message.body == "hello"
        assert message.properties == {"x": 1}
        assert message.delivery_count == 0
        receiver.accept()


def test_large_message(port: int) -> None:
    body = bytes(range(256)) * 8192
    with closing(connect(port)) as connection:
        connection.create_sender("large").send(Message(body=body, durable=True))
        receiver = connection.create_receiver("large", credit=1)
        assert receiver.receive(timeout=SECONDS).body == body
        receiver.accept()


def test_one_port_takes_amqp_too(start: Start) -> None:
    number = free_port()
    start("--auto", str(number), store="memory:").wait_for("listening on")
    with closing(connect(number)) as connection:
        connection.create_sender("q").send(Message(body="x"))
        assert connection.create_receiver("q", credit=1).receive(timeout=SECONDS).body == "x"


def test_stomp_and_amqp(start: Start) -> None:
    number = free_port()
    broker = start("--amqp", str(number), "--amqp-transformer", "jms", store="memory:")
    broker.wait_for("listening on")
    with closing(connect(number)) as connection, closing(StompClient(broker.port)) as stomp:
        stomp.request("SUBSCRIBE", id="1", destination="/queue/to-stomp")
        connection.create_sender("queue://to-stomp").send(Message(body="from AMQP", properties={"x": "y"}))
        frame = stomp.read()
        assert (frame.body, frame.headers["x"]) == (b"from AMQP", "y")
        stomp.send("SEND", b"from STOMP", destination="/queue/to-amqp", persistent="true")
        receiver = connection.create_receiver("to-amqp", credit=1)
        message = receiver.receive(timeout=SECONDS)
        assert (message.body, message.durable) == ("from STOMP", True)


def test_nothing_that_was_accepted_is_lost_when_masters_are_killed(
    members: tuple[dict[int, BrokerProcess], Callable[[int], None]],
) -> None:
    """Every message that was accepted is delivered, whichever members were killed."""
    running, begin = members
    ports = list(running)
    accepted: list[str] = []
    for round_number in range(4):
        connection = connect(*ports)
        sender = connection.create_sender("queue://kills")
        for number in range(40):
            body = f"{round_number}.{number}"
            sender.send(Message(body=body, durable=True))
            accepted.append(body)
        master = master_of(connection)
        running[master].kill()
        begin(master)
        with pytest.raises(ProtonException):
            sender.send(Message(body="lost", durable=True), timeout=SECONDS)
    received: set[str] = set()
    with closing(connect(*ports)) as connection:
        receiver = connection.create_receiver("queue://kills", credit=50)
        while len(received) < len(accepted):
            received.add(str(receiver.receive(timeout=SECONDS).body))
            receiver.accept()
    assert sorted(received) == sorted(accepted)


# ---------------------------------------------------------------- what clients do with links


def bodies(receiver: BlockingReceiver, count: int) -> list[object]:
    """Receive and accept messages."""
    found: list[object] = []
    for _ in range(count):
        found.append(receiver.receive(timeout=SECONDS).body)
        receiver.accept()
    return found


def nothing_comes(receiver: BlockingReceiver) -> bool:
    try:
        receiver.receive(timeout=NOTHING_SECONDS)
    except Timeout:
        return True
    return False


class OneByOne(MessagingHandler):
    """Asks for one message after the other.

    Attributes:
        received: the bodies.
        left: the credit, and the messages that wait, as they were at each message.
    """

    def __init__(self, port: int, count: int) -> None:
        super().__init__(prefetch=0)
        self._url = f"127.0.0.1:{port}"
        self._count = count
        self.received: list[object] = []
        self.left: set[tuple[int, int]] = set()

    def on_start(self, event: Event) -> None:
        connection = event.container.connect(self._url, reconnect=False)
        event.container.create_receiver(connection, "q").flow(1)

    def on_message(self, event: Event) -> None:
        receiver: Any = event.receiver
        self.received.append(event.message.body)
        self.left.add((receiver.credit, receiver.queued))
        if len(self.received) == self._count:
            receiver.connection.close()
        else:
            receiver.flow(1)


def test_one_credit_at_a_time_keeps_the_order(port: int) -> None:
    count = 1000
    with closing(connect(port)) as connection:
        sender = connection.create_sender("q")
        for number in range(count):
            sender.send(Message(body=number))
    reader = OneByOne(port, count)
    Container(reader).run()
    assert reader.received == list(range(count))
    assert reader.left == {(0, 0)}


def test_released_message_comes_again_and_rejected_one_is_a_dead_letter(port: int) -> None:
    with closing(connect(port)) as connection:
        connection.create_sender("q").send(Message(body="m", durable=True))
        receiver = connection.create_receiver("q", credit=1)
        assert receiver.receive(timeout=SECONDS).body == "m"
        receiver.release(delivered=True)
        assert receiver.receive(timeout=SECONDS).body == "m"
        receiver.reject()
        assert bodies(connection.create_receiver("ActiveMQ.DLQ", credit=1), 1) == ["m"]


def test_durable_subscription_with_selector(port: int) -> None:
    options = [DurableSubscription(), Selector("x = 1")]
    with closing(connect(port, container="c")) as connection:
        receiver = connection.create_receiver("topic://t", name="sub", options=options)
        receiver.detach()
    with closing(connect(port)) as connection:
        sender = connection.create_sender("topic://t")
        for number in (1, 2, 1):
            sender.send(Message(body=number, properties={"x": number}, durable=True))
    with closing(connect(port, container="c")) as connection:
        receiver = connection.create_receiver("topic://t", name="sub", options=options, credit=5)
        assert bodies(receiver, 2) == [1, 1]
        receiver.close()
        receiver = connection.create_receiver("topic://t", name="sub", options=options, credit=5)
        assert nothing_comes(receiver)


def test_browser_leaves_messages_in_the_queue(port: int) -> None:
    with closing(connect(port)) as connection:
        sender = connection.create_sender("q")
        for number in range(3):
            sender.send(Message(body=number))
        browser = connection.create_receiver("q", options=Copy(), credit=10)
        assert [browser.receive(timeout=SECONDS).body for _ in range(3)] == [0, 1, 2]
        browser.close()
        assert bodies(connection.create_receiver("q", credit=10), 3) == [0, 1, 2]


def test_request_and_reply_over_a_dynamic_node(port: int) -> None:
    with closing(connect(port)) as client, closing(connect(port)) as service:
        replies = client.create_receiver(None, dynamic=True, credit=1)
        address = replies.link.remote_source.address
        assert address is not None
        assert address.startswith("temp-queue://ID:")
        client.create_sender("requests").send(Message(body="2 + 2", reply_to=address, correlation_id=7))
        request = service.create_receiver("requests", credit=1).receive(timeout=SECONDS)
        relay = service.create_sender(None)
        relay.send(Message(address=request.reply_to, body=4, correlation_id=request.correlation_id))
        reply = replies.receive(timeout=SECONDS)
        assert (reply.body, reply.correlation_id) == (4, 7)
        replies.close()
        with pytest.raises(LinkDetached):
            service.create_sender(address)


def test_refused_link_leaves_the_connection_open(port: int) -> None:
    with closing(connect(port)) as connection:
        with pytest.raises(LinkDetached) as refused:
            connection.create_receiver("q", options=Selector("color ="))
        assert refused.value.condition == "amqp:invalid-field"
        connection.create_sender("q").send(Message(body="m"))
        assert bodies(connection.create_receiver("q", credit=1), 1) == ["m"]


def test_container_id_in_use_is_refused(port: int) -> None:
    with closing(connect(port, container="one")), pytest.raises(ConnectionException) as refused:
        BlockingConnection(f"127.0.0.1:{port}", timeout=SECONDS, container_id="one")
    assert "already connected" in str(refused.value)


def test_stopping_broker_says_so(start: Start) -> None:
    number = free_port()
    broker = start("--amqp", str(number), store="memory:")
    broker.wait_for("listening on")
    connection = connect(number)
    receiver = connection.create_receiver("q", credit=1)
    broker.terminate()
    with pytest.raises(ConnectionException) as ended:
        receiver.receive(timeout=SECONDS)
    assert "amqp:connection:forced" in str(ended.value)


class Mover(MessagingHandler, TransactionHandler):
    """Moves messages from one queue to another in transactions; the first of them is rolled back.

    Attributes:
        moved: the bodies of messages whose transaction was committed.
        counts: the delivery counts of the messages, in the order of their deliveries.
    """

    def __init__(self, port: int, count: int) -> None:
        super().__init__(prefetch=0, auto_accept=False)
        self._url = f"127.0.0.1:{port}"
        self._count = count
        self.moved: list[object] = []
        self.counts: list[int] = []
        self._pending: list[object] = []
        self._transaction: Any = None
        self._has_aborted = False

    def on_start(self, event: Event) -> None:
        self._container = event.container
        self._connection = event.container.connect(self._url)
        self._receiver = event.container.create_receiver(self._connection, "from")
        self._sender = event.container.create_sender(self._connection, "to")
        self._container.declare_transaction(self._connection, handler=self)

    def on_transaction_declared(self, event: Event) -> None:
        self._transaction = event.transaction
        self._receiver.flow(2)

    def on_message(self, event: Event) -> None:
        self.counts.append(event.message.delivery_count)
        self._pending.append(event.message.body)
        self._transaction.send(self._sender, Message(body=event.message.body, durable=True))
        self._transaction.accept(event.delivery)
        if len(self._pending) == 2:
            if self._has_aborted:
                self._transaction.commit()
            else:
                self._has_aborted = True
                self._transaction.abort()

    def on_transaction_committed(self, event: Event) -> None:
        self.moved += self._pending
        self._next()

    def on_transaction_aborted(self, event: Event) -> None:
        self._next()

    def _next(self) -> None:
        self._pending = []
        if len(self.moved) < self._count:
            self._container.declare_transaction(self._connection, handler=self)
        else:
            self._connection.close()


def test_transactions_move_messages(port: int) -> None:
    with closing(connect(port)) as connection:
        sender = connection.create_sender("from")
        for number in range(4):
            sender.send(Message(body=number, durable=True))
        mover = Mover(port, 4)
        Container(mover).run()
        assert sorted(map(str, mover.moved)) == ["0", "1", "2", "3"]
        assert len(mover.counts) == 6
        assert bodies(connection.create_receiver("to", credit=10), 4) == mover.moved
        assert nothing_comes(connection.create_receiver("from", credit=10))


def test_web_page_speaks_amqp(start: Start) -> None:
    number = free_port()
    start("--ws", str(number), store="memory:").wait_for("listening on")
    with open_websocket(f"ws://127.0.0.1:{number}", subprotocols=[Subprotocol("amqp")]) as page:
        assert page.subprotocol == "amqp"
        page.send(b"AMQP\0\1\0\0")
        assert page.recv(timeout=SECONDS) == b"AMQP\0\1\0\0"
        page.send(encode_frame(0, AmqpOpen(container_id="page")))
        answer = page.recv(timeout=SECONDS)
        assert isinstance(answer, bytes)
        assert b"queue-prefix" in answer
        page.send(encode_frame(0, AmqpClose()))
        assert page.recv(timeout=SECONDS) == encode_frame(0, AmqpClose())


def test_durable_backlog_is_at_the_next_master(
    members: tuple[dict[int, BrokerProcess], Callable[[int], None]],
) -> None:
    running, _ = members
    connection = connect(*running, container="c")
    connection.create_receiver("topic://t", name="sub", options=DurableSubscription()).detach()
    sender = connection.create_sender("topic://t")
    for number in range(20):
        sender.send(Message(body=number, durable=True))
    running[master_of(connection)].kill()
    with closing(connect(*running, container="c")) as connection:
        receiver = connection.create_receiver("topic://t", name="sub", options=DurableSubscription(), credit=5)
        assert bodies(receiver, 20) == list(range(20))


class Streamer(MessagingHandler):
    """Sends without waiting for answers, until the connection is lost.

    Attributes:
        accepted: the bodies of the messages that were accepted.
    """

    def __init__(self, port: int, when_accepted: int, kill: Callable[[], None]) -> None:
        super().__init__(auto_settle=True)
        self._url = f"127.0.0.1:{port}"
        self._when_accepted = when_accepted
        self._kill = kill
        self._sent: dict[str, int] = {}
        self.accepted: list[int] = []

    def on_start(self, event: Event) -> None:
        connection = event.container.connect(self._url, reconnect=False)
        event.container.create_sender(connection, "queue://stream")

    def on_sendable(self, event: Event) -> None:
        sender: Any = event.sender
        while sender.credit:
            number = len(self._sent)
            self._sent[sender.send(Message(body=number, durable=True)).tag] = number

    def on_accepted(self, event: Event) -> None:
        delivery: Any = event.delivery
        self.accepted.append(self._sent[delivery.tag])
        if len(self.accepted) == self._when_accepted:
            self._kill()


def test_accepted_messages_of_a_stream_survive_the_master(
    members: tuple[dict[int, BrokerProcess], Callable[[int], None]],
) -> None:
    running, _ = members
    with closing(connect(*running)) as connection:
        master = master_of(connection)
    streamer = Streamer(master, 3000, running[master].kill)
    Container(streamer).run()
    assert len(streamer.accepted) >= 3000
    with closing(connect(*running)) as connection:
        receiver = connection.create_receiver("queue://stream", credit=1000)
        missing = set(streamer.accepted)
        while missing:
            body: Any = receiver.receive(timeout=SECONDS).body
            missing.discard(body)
            receiver.accept()


class KilledMover(MessagingHandler, TransactionHandler):
    """Moves a message from one queue to another in a transaction, around whose discharge the master is killed.

    Attributes:
        is_committed: the client knows that the transaction is committed.
    """

    def __init__(self, port: int, kill_seconds: float | None, kill: Callable[[], None]) -> None:
        """Kill the master a time after the discharge; None: before it; infinite: when it is answered."""
        super().__init__(prefetch=0, auto_accept=False)
        self._url = f"127.0.0.1:{port}"
        self._kill_seconds = kill_seconds
        self._kill = kill
        self._transaction: Any = None
        self.is_committed = False

    def on_start(self, event: Event) -> None:
        self._container = event.container
        connection = event.container.connect(self._url, reconnect=False)
        self._receiver = event.container.create_receiver(connection, "from")
        self._sender = event.container.create_sender(connection, "to")
        event.container.declare_transaction(connection, handler=self)

    def on_transaction_declared(self, event: Event) -> None:
        self._transaction = event.transaction
        self._receiver.flow(1)

    def on_message(self, event: Event) -> None:
        self._transaction.accept(event.delivery)
        self._transaction.send(self._sender, Message(body=event.message.body, durable=True))

    def on_settled(self, event: Event) -> None:
        """Discharge the transaction once the broker has answered the message, and so has its acknowledgement, too."""
        if event.link != self._sender:
            return
        if self._kill_seconds is None:
            self._kill()
            return
        self._transaction.commit()
        if math.isfinite(self._kill_seconds):
            self._container.schedule(self._kill_seconds, self)

    def on_timer_task(self, event: Event) -> None:
        self._kill()

    def on_transaction_committed(self, event: Event) -> None:
        self.is_committed = True
        if math.isinf(self._kill_seconds or 0):
            self._kill()


@pytest.mark.parametrize("kill_seconds", [None, 0, 0.001, 0.002, 0.004, math.inf])
def test_transaction_is_atomic_when_the_master_is_killed(
    members: tuple[dict[int, BrokerProcess], Callable[[int], None]], kill_seconds: float | None
) -> None:
    """The message is in one of the queues, once: in the second if the commit was answered."""
    running, _ = members
    with closing(connect(*running)) as connection:
        connection.create_sender("from").send(Message(body="m", durable=True))
        master = master_of(connection)
    mover = KilledMover(master, kill_seconds, running[master].kill)
    Container(mover).run()
    assert running[master].process.poll() is not None
    with closing(connect(*running)) as connection:
        found = {}
        for queue in ("from", "to"):
            connection.create_sender(queue).send(Message(body="end"))
            receiver = connection.create_receiver(queue, credit=10)
            found[queue] = 0
            while bodies(receiver, 1) == ["m"]:
                found[queue] += 1
    assert sorted(found.values()) == [0, 1]
    if kill_seconds is None:
        assert found["from"] == 1
    if mover.is_committed:
        assert found["to"] == 1
    assert mover.is_committed or kill_seconds != math.inf
    assert not mover.is_committed or kill_seconds is not None


# ---------------------------------------------------------------- logins and TLS

RULES: Final = """
[[rules]]
queue = "alices.>"
read = ["users"]
write = ["users"]
admin = ["users"]
"""


def test_login_and_rights(start: Start, tmp_path: Path) -> None:
    users, rules, number = tmp_path / "users.toml", tmp_path / "rules.toml", free_port()
    account = Account(User("alice", frozenset(("users",))), hashes.hashed("sesame"))
    users.write_text(users_toml.written({"alice": account}))
    rules.write_text(RULES)
    options = ("--users-file", str(users), "--rules-file", str(rules), "--amqp", str(number))
    start(*options, store="memory:").wait_for("listening on")
    for user, password in (("alice", "open"), (None, None)):
        with pytest.raises(ConnectionException):
            BlockingConnection(f"127.0.0.1:{number}", timeout=SECONDS, user=user, password=password)
    with closing(connect(number, user="alice", password="sesame", allow_insecure_mechs=True)) as connection:
        connection.create_sender("alices.orders").send(Message(body="m"))
        for create in (connection.create_sender, connection.create_receiver):
            with pytest.raises(LinkDetached) as refused:
                create("others")
            assert refused.value.condition == "amqp:unauthorized-access"
        assert bodies(connection.create_receiver("alices.orders", credit=1), 1) == ["m"]


@pytest.mark.component("proton-tls")
def test_tls(start: Start, tmp_path: Path) -> None:
    authority, number = trustme.CA(), free_port()
    issued = authority.issue_cert("127.0.0.1")
    certificate = tmp_path / "server.pem"
    issued.private_key_and_cert_chain_pem.write_to_path(certificate)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    start("--amqp-ssl", str(number), "--tls-certificate", str(certificate), store="memory:").wait_for("listening on")
    domain = SSLDomain(SSLDomain.MODE_CLIENT)
    domain.set_trusted_ca_db(str(tmp_path / "ca.pem"))
    domain.set_peer_authentication(SSLDomain.VERIFY_PEER)
    with closing(BlockingConnection(f"amqps://127.0.0.1:{number}", timeout=SECONDS, ssl_domain=domain)) as connection:
        connection.create_sender("q").send(Message(body="m"))
        assert bodies(connection.create_receiver("q", credit=1), 1) == ["m"]
