"""The same message seen by Java over OpenWire and by a STOMP client, in both directions."""

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.stomp_client import Frame, StompClient
from tests.java.checks import Laboratory, Outcomes, compare, parametrized

pytestmark = [pytest.mark.component("activemq"), pytest.mark.timeout(300)]

EXPECTED: dict[str, Any] = {
    "bytesFromStomp": {
        "body": "0001ff0a",
        "correlation id": None,
        "destination": "queue://Interop.bytesFromStomp",
        "expires": False,
        "has a timestamp": True,
        "jms type": None,
        "persistent": False,
        "priority": 4,
        "properties": {},
        "reply to": "null",
        "type": "BytesMessage",
    },
    "bytesToStomp": [
        {
            "body": "\x00\x01\\xff\n",
            "content-length": "4",
            "destination": "/queue/Interop.bytesToStomp",
            "persistent": "true",
            "priority": "4",
        }
    ],
    "compressedToStomp": [
        {
            "body": "text text text text text text text text text text text text text text text "
            "text text text text text ",
            "destination": "/queue/Interop.compressedToStomp",
            "persistent": "true",
            "priority": "4",
        },
        {
            "body": "bytes bytes bytes bytes bytes bytes bytes bytes bytes bytes bytes bytes "
            "bytes bytes bytes bytes bytes bytes bytes bytes ",
            "content-length": "120",
            "destination": "/queue/Interop.compressedToStomp",
            "persistent": "true",
            "priority": "4",
        },
    ],
    "emptyFromStomp": {
        "body": "",
        "correlation id": None,
        "destination": "queue://Interop.emptyFromStomp",
        "expires": False,
        "has a timestamp": True,
        "jms type": None,
        "persistent": False,
        "priority": 4,
        "properties": {},
        "reply to": "null",
        "type": "TextMessage",
    },
    "everyHeaderFromStomp": {
        "body": "x",
        "correlation id": "correlated",
        "destination": "queue://Interop.everyHeaderFromStomp",
        "expires": True,
        "has a timestamp": True,
        "jms type": "kind",
        "persistent": True,
        "priority": 7,
        "properties": {
            "JMSXGroupID": "String group",
            "JMSXGroupSeq": "Integer 3",
            "color": "String a:b\\c\nd ß",
            "number": "String 5",
        },
        "reply to": "queue://Interop.replies",
        "type": "TextMessage",
    },
    "everyHeaderToStomp": [
        {
            "body": "x",
            "boolean": "true",
            "byte": "1",
            "correlation-id": "correlated",
            "destination": "/queue/Interop.everyHeaderToStomp",
            "double": "6.5",
            "float": "5.5",
            "int": "3",
            "long": "4",
            "persistent": "true",
            "priority": "7",
            "reply-to": "/queue/Interop.everyHeaderToStomp.replies",
            "short": "2",
            "string": "a:b\\d\ne ß",
            "type": "kind",
        }
    ],
    "javaAsksStomp": {"reply": "answer", "correlation id": "c1"},
    "largeFromStomp": True,
    "otherTypesToStomp": [
        {"body": "", "destination": "/queue/Interop.otherTypesToStomp", "persistent": "true", "priority": "4"},
        {"body": "", "destination": "/queue/Interop.otherTypesToStomp", "persistent": "true", "priority": "4"},
    ],
    "refusedByStomp": {"body": "refused", "left": []},
    "selectorOnStompHeaders": ["red", "red"],
    "shared": {
        "java": ["to all"],
        "stomp": [{"body": "to all", "destination": "/topic/Interop.shared", "priority": "4"}],
    },
    "stompAsksJava": {
        "body": "re question",
        "correlation-id": "c7",
        "destination": "temporary",
        "persistent": "true",
        "priority": "4",
    },
    "textFromStomp": {
        "body": "Grüße, 東京",
        "correlation id": None,
        "destination": "queue://Interop.textFromStomp",
        "expires": False,
        "has a timestamp": True,
        "jms type": None,
        "persistent": False,
        "priority": 4,
        "properties": {},
        "reply to": "null",
        "type": "TextMessage",
    },
    "textToStomp": [
        {"body": "Grüße, 東京, 😀", "destination": "/queue/Interop.textToStomp", "persistent": "true", "priority": "4"},
        {"body": "", "destination": "/queue/Interop.textToStomp", "persistent": "true", "priority": "4"},
    ],
    "topicToStomp": [
        {"body": "m0", "destination": "/topic/Interop.topicToStomp", "persistent": "true", "priority": "4"},
        {"body": "m1", "destination": "/topic/Interop.topicToStomp", "persistent": "true", "priority": "4"},
    ],
    "transactionFromStomp": ["m0", "m1"],
}

VOLATILE = {"message-id", "timestamp", "subscription", "ack", "expires", "content-type"}


class StompSide:
    """The STOMP half of each check."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._topic: StompClient | None = None

    def answer(self, check: str, question: str) -> Any:
        """Run the check's request."""
        name = f"Interop.{check}"
        if question in ("subscribe", "received 1", "received 2"):
            return self._on_topic(question, f"/topic/{name}")
        with contextlib.closing(StompClient(self._port)) as client:
            return self._do(client, question, f"/queue/{name}", f"/topic/{name}")

    def _on_topic(self, question: str, topic: str) -> Any:
        if question == "subscribe":
            self._topic = StompClient(self._port)
            self._topic.send("SUBSCRIBE", id="1", destination=topic, receipt="r")
            self._topic.read_until("RECEIPT")
            return "done"
        assert self._topic is not None
        with contextlib.closing(self._topic) as client:
            return [described(client.read_until("MESSAGE")) for _ in range(int(question[-1]))]

    def _do(self, client: StompClient, question: str, queue: str, topic: str) -> Any:
        match question.split():
            case ["send", *_]:
                if "transaction" in question:
                    client.request("BEGIN", transaction="t")
                for headers, body in SENT[question]:
                    destination = topic if "topic" in question else queue
                    assert client.request("SEND", body, destination=destination, **headers).command == "RECEIPT"
                if "transaction" in question:
                    client.request("COMMIT", transaction="t")
            case ["receive", count]:
                client.send("SUBSCRIBE", id="1", destination=queue)
                return [described(client.read_until("MESSAGE")) for _ in range(int(count))]
            case ["request"]:
                client.send("SUBSCRIBE", id="1", destination="/temp-queue/answers")
                headers = {"reply-to": "/temp-queue/answers", "correlation-id": "c7"}
                client.send("SEND", b"question", destination=queue, **headers)
                return described(client.read_until("MESSAGE"))
            case ["reply"]:
                client.send("SUBSCRIBE", id="1", destination=queue)
                request = client.read_until("MESSAGE")
                assert request.headers["reply-to"].startswith("/remote-temp-queue/")
                headers = {"correlation-id": request.headers["correlation-id"]}
                sent = client.request("SEND", b"answer", destination=request.headers["reply-to"], **headers)
                assert sent.command == "RECEIPT"
            case ["nack"]:
                client.send("SUBSCRIBE", id="1", destination=queue, ack="client-individual")
                client.request("NACK", id=client.read_until("MESSAGE").headers["ack"])
            case _:
                raise AssertionError(question)
        return "done"


def _in(transaction: str, *bodies: bytes) -> list[tuple[dict[str, str], bytes]]:
    return [({"transaction": transaction, "persistent": "true"}, body) for body in bodies]


SENT: dict[str, list[tuple[dict[str, str], bytes]]] = {
    "send text": [({}, "Grüße, 東京".encode())],
    "send bytes": [({"content-length": "4"}, b"\x00\x01\xff\n")],
    "send empty": [({}, b"")],
    "send large": [({"persistent": "true"}, ("äx" * (1 << 20)).encode())],
    "send headers": [
        (
            {
                "persistent": "true",
                "priority": "7",
                "expires": "4102444800000",
                "correlation-id": "correlated",
                "type": "kind",
                "reply-to": "/queue/Interop.replies",
                "color": "a:b\\c\nd ß",
                "number": "5",
                "JMSXGroupID": "group",
                "JMSXGroupSeq": "3",
            },
            b"x",
        )
    ],
    "send colors": [({"color": color}, color.encode()) for color in ("red", "blue", "red")],
    "send in a transaction": _in("t", b"m0", b"m1"),
    "send to the topic": [({}, b"to all")],
}


def described(frame: Frame) -> dict[str, Any]:
    """Return a frame as data that is the same in every run."""
    headers = {name: value for name, value in sorted(frame.headers.items()) if name not in VOLATILE}
    for name in ("reply-to", "destination"):
        if "temp-" in headers.get(name, ""):
            headers[name] = "temporary" if headers[name].startswith("/temp-queue/") else "another's temporary"
    return {"body": frame.body.decode("utf-8", "backslashreplace"), **headers}


@pytest.fixture(scope="module")
def outcomes(laboratory: Laboratory, request: pytest.FixtureRequest) -> Callable[[str], Outcomes]:
    """Run the checks one by one, each with its STOMP half."""
    known: dict[str, Outcomes] = {}

    def run(broker: str) -> Outcomes:
        if broker not in known:
            uri, stomp = (request.getfixturevalue(f"{broker}_{kind}") for kind in ("uri", "stomp"))
            side = StompSide(stomp)
            known[broker] = laboratory.programs.area("Interop", uri, answer=side.answer)
        return known[broker]

    return run


@parametrized("Interop", EXPECTED)
def test_outcome(outcomes: Callable[[str], Outcomes], broker: str, area: str, check: str) -> None:
    compare(outcomes(broker), broker, area, check, EXPECTED)
