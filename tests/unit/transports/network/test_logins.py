"""Logins of a bridge at both of its brokers, and what its users may do there."""

import asyncio
import logging
from typing import Any

import pytest

from pybroker.broker.domain.destination import parse, queue
from pybroker.broker.domain.network.connector import NetworkConnector
from pybroker.broker.domain.openwire.commands import BrokerId, BrokerInfo, MessageDispatch
from pybroker.broker.domain.openwire.marshal.codec import WireFormat
from pybroker.broker.domain.openwire.marshal.wireformat import broker_offer, encode_offer
from pybroker.broker.domain.rules import Grants, Rule, Rules
from pybroker.broker.domain.security import Authenticator, Credentials, Decided, User
from pybroker.transports.network.bridge import BridgeEnd
from pybroker.transports.network.connector import BridgeState
from tests.unit.transports.network.bridges import Near, TwoBrokers, named_broker
from tests.unit.transports.network.dialling import Far, Place, run
from tests.unit.transports.openwire.conversation import OpenWireClient, of_kind, texts

A, B = queue("A"), queue("B")
HIDDEN = "hidden-word"


class Passwords(Authenticator):
    """Knows users by their passwords, which may change; each is in a group of its own name.

    Attributes:
        asked: the names and passwords of all logins.
    """

    def __init__(self, **passwords: str) -> None:
        self.passwords = passwords
        self.asked: list[tuple[str | None, str | None]] = []

    def authenticate(self, credentials: Credentials, decided: Decided) -> None:
        self.asked.append((credentials.user, credentials.password))
        name = credentials.user or ""
        is_right = name in self.passwords and self.passwords[name] == credentials.password
        decided(User(name, frozenset((name,))) if is_right else credentials.refusal)


def rules(**readers: str) -> Rules:
    """Return rules by which users of these groups may read some queues, and no other may do anything."""
    reading = [
        Rule(parse(f"queue://{name}"), Grants(frozenset((group,)), frozenset(("w",)), frozenset(("w",))))
        for name, group in readers.items()
    ]
    return Rules((*reading, Rule(parse("queue://>"), Grants(*[frozenset(("root",))] * 3))))


def received(client: OpenWireClient) -> list[str | None]:
    return texts(of_kind(client.receive(), MessageDispatch))


# ---------------------------------------------------------------- at the remote broker


def test_wrong_password_is_retried_ever_later(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(place: Place) -> None:
        users = Passwords(u="right")
        far = Far(place.far_server, authenticator=users)
        uri = f"static:(tcp://127.0.0.1:{far.listen()})?maxReconnectDelay=10000"
        life = place.dial(uri, user_name="u", password=HIDDEN)
        lines = await place.until_failures(6)
        assert lines == [
            f"User name [u] or password is invalid.; the next attempt is in {each} s" for each in (1, 2, 4, 8, 10, 10)
        ]
        assert len(place.lines) == len(place.failures), "one line for each attempt"
        assert users.asked[0] == ("u", HIDDEN)
        users.passwords["u"] = HIDDEN
        await place.until_up(life)
        assert HIDDEN not in f"{life.row}{life}"

    run(caplog, scenario)
    assert HIDDEN not in caplog.text


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ({}, (None, None)),
        ({"user_name": "u", "password": "p"}, ("u", "p")),
        ({"user_name": "u", "password": "p", "remote_user_name": "r", "remote_password": "q"}, ("r", "q")),
        ({"user_name": "u", "password": "p", "remote_user_name": "r"}, ("r", None)),
        ({"user_name": "u", "password": "p", "remote_password": "q"}, ("u", "q")),
    ],
)
def test_remote_broker_sees_its_own_login(given: dict[str, Any], sent: tuple[str | None, str | None]) -> None:
    users = Passwords()
    TwoBrokers(authenticator=users, **given)
    assert users.asked == [sent]


def test_password_is_sent_in_connection_info_alone() -> None:
    session, link = Near(named_broker("near")).bridge(user_name="u", password=HIDDEN, sync_durable_subs=True)
    wire = WireFormat(version=12)
    introduction = BrokerInfo(broker_id=BrokerId("x"), broker_name="far")
    session.receive(encode_offer(broker_offer()) + wire.encode_frame(introduction))
    assert session.is_connected
    assert link.output.count(HIDDEN.encode()) == 1
    assert HIDDEN not in repr(NetworkConnector(user_name="u", password=HIDDEN, remote_password=HIDDEN))


def test_user_without_admin_is_no_bridge_and_its_log_says_why(caplog: pytest.LogCaptureFixture) -> None:
    users = Passwords(w="p")
    brokers = TwoBrokers(authenticator=users)
    assert brokers.session.end is BridgeEnd.REFUSED
    assert brokers.near.begun == [], "it was never up"
    advisories = Rule(parse("topic://ActiveMQ.Advisory.>"), Grants(*[frozenset(("w",))] * 3))
    brokers.far.use_rules(Rules((*rules(A="w").rules, advisories)))
    brokers.connect(user_name="w", password="p")
    producer = brokers.client(brokers.near.broker, "p")
    consumer = OpenWireClient(brokers.far, authenticator=users)
    consumer.connect("c", user_name="w", password="p")
    consumer.open_session()
    consumer.consume(A)
    producer.send(A, "1", "2", "3")
    caplog.clear()
    brokers.pump()
    assert received(consumer) == []
    lines = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    remedy = "a bridge needs the right admin for all queues: add a group of user w to a rule for >"
    assert len(lines) == 1, "of three messages that are refused at once"
    assert remedy in lines[0]
    assert len(brokers.near.broker.queues[A].pending) == 3, "they wait, and are no dead letters"


# ---------------------------------------------------------------- at its own broker


def test_wrong_local_password_dials_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(place: Place) -> None:
        users = place.authenticator = Passwords(u="right")
        far = Far(place.far_server)
        life = place.dial(f"tcp://127.0.0.1:{far.listen()}", user_name="u", password=HIDDEN)
        lines = await place.until_failures(3)
        refused = (
            "this broker refuses the bridge: User name [u] or password is invalid.: correct user_name and password"
        )
        assert [line.startswith(refused) for line in lines] == [True] * 3
        assert [line.rpartition(" in ")[2] for line in lines] == ["1 s", "2 s", "4 s"]
        assert not place.far_server.connections
        users.passwords["u"] = HIDDEN
        await place.until_up(life)

    run(caplog, scenario)
    assert HIDDEN not in caplog.text


def test_decision_after_a_stop_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    class Slow(Authenticator):
        asked = asyncio.Event()

        def authenticate(self, credentials: Credentials, decided: Decided) -> None:
            self.decided = decided
            self.asked.set()

    async def scenario(place: Place) -> None:
        slow = place.authenticator = Slow()
        life = place.dial("tcp://127.0.0.1:1", user_name="u")
        await slow.asked.wait()
        life.stop()
        slow.decided(User("u"))
        await asyncio.sleep(0)
        assert place.lines == []
        assert life.row.state == BridgeState.STOPPED.value

    run(caplog, scenario)


def test_destination_that_the_user_may_not_read_stays(caplog: pytest.LogCaptureFixture) -> None:
    brokers = TwoBrokers()
    brokers.cut()
    producer, reader = brokers.client(brokers.near.broker, "p"), brokers.client(brokers.far, "c")
    producer.send(A, "a")
    producer.send(B, "b")
    brokers.near.broker.use_rules(rules(A="u", B="other"))
    brokers.near.user = User("u", frozenset(("u",)))
    brokers.connect()
    caplog.clear()
    reader.consume(B, 1)
    reader.consume(A, 2)
    brokers.pump()
    assert received(reader) == ["a"]
    (line,) = [each.getMessage() for each in caplog.records if each.name.endswith("network.forwarding_half")]
    assert line.endswith("no messages of queue://B go to far: User u is not authorized to read from: queue://B")
    assert len(brokers.near.broker.queues[B].pending) == 1


def test_bridge_without_a_login_reads_all_that_it_forwards() -> None:
    brokers = TwoBrokers()
    brokers.cut()
    producer, reader = brokers.client(brokers.near.broker, "p"), brokers.client(brokers.far, "c")
    producer.send(A, "a")
    brokers.near.broker.use_rules(rules())
    brokers.connect()
    reader.consume(A)
    brokers.pump()
    assert received(reader) == ["a"]
