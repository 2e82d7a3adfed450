"""Rows of the interop matrix of bridges: what must hold for messages that go one way over a bridge.

`PYBROKER_CUTS=20` cuts the bridge so often in the row of persistent messages; a failure names its seed, and
`PYBROKER_SEED` repeats it.
"""

import os
import random
import threading
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from pybroker.client.errors import DestinationRefused, Timeout
from pybroker.client.messages import Message
from pybroker.client.sync import connect
from tests.integration.stomp_client import StompClient
from tests.java.bridged import (
    PROBE_SECONDS,
    QUIET_SECONDS,
    SECONDS,
    BridgedEnd,
    Way,
    prove,
    read,
    text_of,
    without_probes,
)

Row = Callable[[Way], None]

CUTS = int(os.environ.get("PYBROKER_CUTS", "5"))
SEED = int(os.environ.get("PYBROKER_SEED", str(random.SystemRandom().randrange(1 << 32))))
RECEIVED_BETWEEN_CUTS = 50
"""The limit to the messages that come over the bridge before the next cut, once it is up again."""


def early_demand(way: Way) -> None:
    way.near.texts(way.queue("EARLY"), "1", "2")
    assert read(way.early, 2) == ["1", "2"]


def late_demand(way: Way) -> None:
    way.near.texts(way.queue("LATE"), "1", "2")
    with way.far.consumer(way.queue("LATE")) as consumer:
        assert read(consumer, 2) == ["1", "2"]
        way.near.texts(way.queue("LATE"), "3")
        assert read(consumer, 1) == ["3"]


def non_persistent(way: Way) -> None:
    expected = [str(number) for number in range(50)]
    way.near.texts(way.queue("QUICK"), *expected, persistent=False)
    with way.far.consumer(way.queue("QUICK")) as consumer:
        assert read(consumer, 50) == expected


def topic(way: Way) -> None:
    with way.far.consumer(way.topic("NEWS")) as one, way.far.consumer(way.topic("NEWS")) as other:
        prove(one, lambda text: way.near.texts(way.topic("NEWS"), text))
        way.near.texts(way.topic("NEWS"), "1", "2")
        assert without_probes(one, 2) == without_probes(other, 2) == ["1", "2"]


def selector(way: Way) -> None:
    with way.far.consumer(way.queue("CHOSEN"), selector="colour = 'red'") as consumer:
        for text, colour in (("1", "blue"), ("2", "red"), ("3", "blue"), ("4", "red")):
            way.near.texts(way.queue("CHOSEN"), text, properties={"colour": colour})
        assert read(consumer, 2) == ["2", "4"]


def wildcard(way: Way) -> None:
    with way.far.consumer(way.queue("WILD.>")) as consumer:
        way.near.texts(way.queue("WILD.A"), "1")
        assert read(consumer, 1) == ["1"]
        way.near.texts(way.queue("WILD.B.C"), "2")
        assert read(consumer, 1) == ["2"]


def composite(way: Way) -> None:
    with way.far.consumer(f"{way.queue('PART.A')},{way.queue('PART.B')}") as consumer:
        way.near.texts(way.queue("PART.A"), "1")
        assert read(consumer, 1) == ["1"]
        way.near.texts(way.queue("PART.B"), "2")
        assert read(consumer, 1) == ["2"]


def durable(way: Way) -> None:
    """What is sent while the subscriber is away waits for it, although the bridge was cut meanwhile."""
    with connect(way.far.uri, client_id="reader") as client:
        with client.consumer(way.topic("JOURNAL"), durable="log") as consumer:
            prove(consumer, lambda text: way.near.texts(way.topic("JOURNAL"), text))
        way.near.texts(way.topic("JOURNAL"), "1")
        way.cut()
        way.near.texts(way.topic("JOURNAL"), "2")
        with client.consumer(way.topic("JOURNAL"), durable="log") as consumer:
            assert without_probes(consumer, 2, may_repeat=way.far.kind == "activemq") == ["1", "2"]
        client.unsubscribe("log", timeout=SECONDS)


def reply_to_the_near_end(way: Way) -> None:
    replies(requester=way.near, replier=way.far, service=way.queue("SERVICE.FAR"))


def reply_to_the_far_end(way: Way) -> None:
    replies(requester=way.far, replier=way.near, service=way.queue("SERVICE.NEAR"))


def replies(*, requester: BridgedEnd, replier: BridgedEnd, service: str) -> None:
    """Send requests, each of which is answered over the bridge in the other direction."""

    def serve() -> None:
        with replier.consumer(service) as consumer:
            for _ in range(3):
                answer(replier, consumer.receive(timeout=SECONDS))

    server = threading.Thread(target=serve, daemon=True)
    server.start()
    answers = [requester.connection.request(service, str(n), timeout=SECONDS).body for n in range(3)]
    server.join(SECONDS)
    assert answers == ["re: 0", "re: 1", "re: 2"]


def answer(replier: BridgedEnd, request: Message) -> None:
    """Reply to a request, which may overtake the advisory of its temporary queue: they come over two connections."""
    assert request.reply_to is not None
    assert request.correlation_id is not None
    for _ in range(int(SECONDS / PROBE_SECONDS)):
        try:
            replier.connection.send(
                request.reply_to, f"re: {request.body}", correlation_id=request.correlation_id, timeout=SECONDS
            )
        except DestinationRefused:
            threading.Event().wait(PROBE_SECONDS)
        else:
            return
    raise AssertionError(f"{request.reply_to} is not known at the other end")


def cuts(way: Way) -> None:
    """Nothing persistent is lost, and nothing comes twice, although the bridge is cut at random under load."""
    chooser, stopping, sent = random.Random(SEED), threading.Event(), [0]

    def produce() -> None:
        while not stopping.is_set():
            way.near.texts(way.queue("CUTS"), str(sent[0]))
            sent[0] += 1

    producer = threading.Thread(target=produce, daemon=True)
    with way.far.consumer(way.queue("CUTS"), ack="individual") as consumer:
        found: list[int] = []

        def receive() -> None:
            message = consumer.receive(timeout=SECONDS)
            message.ack()
            found.append(int(text_of(message)))

        producer.start()
        for _ in range(CUTS):
            for _ in range(chooser.randrange(1, RECEIVED_BETWEEN_CUTS)):
                receive()
            way.cut()
            after = sent[0]
            while found[-1] <= after:
                receive()
        stopping.set()
        producer.join(SECONDS)
        while len(found) < sent[0]:
            receive()
        assert sorted(found) == [*range(sent[0])], f"once each, seed {SEED}"
        with pytest.raises(Timeout):
            consumer.receive(timeout=QUIET_SECONDS)


def loop_rule(way: Way) -> None:
    """A message does not go back to the broker that it came from, even if its only consumer is there."""
    with way.far.consumer(way.queue("LOOP"), ack="individual") as consumer:
        way.near.texts(way.queue("LOOP"), "1")
        assert read(consumer, 1) == ["1"]
    with way.near.consumer(way.queue("LOOP")) as elsewhere, pytest.raises(Timeout):
        elsewhere.receive(timeout=QUIET_SECONDS)
    with way.far.consumer(way.queue("LOOP")) as consumer:
        message = consumer.receive(timeout=SECONDS)
        assert (message.body, message.redelivered) == ("1", True)


def fields(way: Way) -> None:
    """Headers and properties come as they were sent."""
    headers = {"priority": 7, "type": "invoice", "correlation_id": "c-1", "group_id": "g", "properties": {"n": 3}}
    way.near.texts(way.queue("FIELDS"), "x", reply_to="ANSWERS", **headers)
    with way.far.consumer(way.queue("FIELDS")) as consumer:
        message = consumer.receive(timeout=SECONDS)
    assert {name: getattr(message, name) for name in headers} == headers
    assert (str(message.reply_to), message.persistent, message.redelivered) == ("queue://ANSWERS", True, False)


def stomp_to_openwire(way: Way) -> None:
    with closing(StompClient(way.near.stomp)) as client:
        client.request("SEND", b"text", destination=f"/queue/{way.queue('MIXED.A')}", persistent="true", colour="red")
        client.request(
            "SEND", b"\0\xff", destination=f"/queue/{way.queue('MIXED.A')}", persistent="true", content_length="2"
        )
    with way.far.consumer(way.queue("MIXED.A")) as consumer:
        text, data = (consumer.receive(timeout=SECONDS) for _ in range(2))
    assert (text.body, text.properties["colour"], data.body) == ("text", "red", b"\0\xff")


def openwire_to_stomp(way: Way) -> None:
    way.near.texts(way.queue("MIXED.B"), "text", properties={"colour": "red"})
    way.near.connection.send(way.queue("MIXED.B"), b"\0\xff", timeout=SECONDS)
    with closing(StompClient(way.far.stomp)) as client:
        client.send("SUBSCRIBE", id="1", destination=f"/queue/{way.queue('MIXED.B')}")
        text, data = (client.read_until("MESSAGE") for _ in range(2))
    assert (text.body, text.headers["colour"], data.body) == (b"text", "red", b"\0\xff")


JAVA: dict[str, Any] = {
    "everyHeader": {
        "body": "Grüße, 東京",
        "correlation id": "correlated",
        "type": "kind",
        "reply to": "queue://replies",
        "priority": 7,
        "delivery mode": 2,
        "same id": True,
        "same times": True,
        "same destination": True,
        "redelivered": False,
        "properties": {
            "boolean": "Boolean true",
            "byte": "Byte 1",
            "double": "Double 6.5",
            "float": "Float 5.5",
            "int": "Integer 3",
            "long": "Long 4",
            "short": "Short 2",
            "string": "String ß",
        },
    },
    "everyKind": [1, 1.5, ["first", 2], "object", "no body"],
    "requestAndReply": {"body": "re: question", "correlated": True},
    "transactions": {
        "first": ["m0", "m1", "m2", "m3", "m4"],
        "again": [[f"m{number}", True, 2] for number in range(5)],
        "silent": True,
    },
}
"""What the checks of `Bridges.java` return."""


def java_clients(way: Way) -> None:
    answers = {"way": way.name, "remote": way.far.uri}
    outcomes = way.programs.area("Bridges", way.near.uri, answer=lambda _, question: answers[question])
    assert outcomes == JAVA


ROWS: tuple[Row, ...] = (
    early_demand,
    late_demand,
    non_persistent,
    topic,
    selector,
    wildcard,
    composite,
    durable,
    reply_to_the_near_end,
    reply_to_the_far_end,
    cuts,
    loop_rule,
    fields,
    stomp_to_openwire,
    openwire_to_stomp,
    java_clients,
)

REPLIES: tuple[Row, ...] = (reply_to_the_near_end, reply_to_the_far_end)
"""Rows that use both directions of a bridge, so that one of them has both rows."""
