"""What operators do over HTTP, on a real broker: browse, send, purge, move, retry, pause, delete, cut off."""

import base64
import json
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import pytest

from tests.integration.cluster import BrokerProcess
from tests.integration.stomp_client import Disconnected, StompClient

SECONDS = 30.0
DURABLE: Any = {"activemq.subscriptionName": "s"}

Connect = Callable[..., StompClient]


class Api:
    """A client of `/api/v1`."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker
        self.url = broker.wait_for(r"management at (http://127.0.0.1:\d+)")[1] + "/api/v1"

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        request = urllib.request.Request(self.url + path, method=method)
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=SECONDS) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    def done(self, method: str, path: str, body: Any = None) -> Any:
        status, answer = self.ask(method, path, body)
        assert status == 200, answer
        return answer

    def send(self, queue: str, *bodies: str, **properties: Any) -> None:
        for body in bodies:
            fields = {"body": body, "properties": properties}
            self.done("POST", f"/queues/{quote(queue, safe='')}/messages", fields)

    def bodies(self, queue: str) -> list[str]:
        page = self.done("GET", f"/queues/{quote(queue, safe='')}/messages?body=full")
        return [each["body"] for each in page["messages"]]


@pytest.fixture(scope="module")
def api() -> Iterator[Api]:
    broker = BrokerProcess("memory:", name="a", port=0, extra=("--management", "127.0.0.1:0"))
    try:
        broker.wait_for("listening on")
        yield Api(broker)
    finally:
        broker.close()


@pytest.fixture
def stomp_port(api: Api) -> int:
    return int(api.broker.wait_for(r"stomp://127.0.0.1:(\d+)")[1])


def until(ask: Callable[[], Any], is_reached: Callable[[Any], bool]) -> Any:
    deadline = time.monotonic() + SECONDS
    while not is_reached(found := ask()):
        assert time.monotonic() < deadline, found
    return found


@pytest.mark.parametrize("name", ["ORDERS", "a/b", "ä ö", '"><script>alert(1)</script>', "a#b%2Fc", "a.b:c;d", "{a}"])
def test_names_of_every_kind(api: Api, name: str) -> None:
    api.send(name, "x")
    assert api.bodies(name) == ["x"]
    encoded = quote(name, safe="")
    assert api.done("GET", f"/queues/{encoded}")["name"] == name
    message_id = api.done("GET", f"/queues/{encoded}/messages")["messages"][0]["message_id"]
    found = api.done("GET", f"/queues/{encoded}/messages/{quote(message_id, safe='')}")
    assert (found["destination"], found["body"]) == (f"queue://{name}", "x")
    assert api.done("POST", f"/queues/{encoded}/purge", {})["affected"] == 1
    assert api.done("DELETE", f"/queues/{encoded}") == {"deleted": True}
    assert api.ask("GET", f"/queues/{encoded}")[0] == 404


def test_pages_follow_the_cursor(api: Api) -> None:
    api.send("PAGES", *map(str, range(7)))
    found: list[str] = []
    after, end = "", ""
    while end != "last":
        page = api.done("GET", f"/queues/PAGES/messages?count=3{after}")
        found += [each["body"] for each in page["messages"]]
        after, end = f"&after={page['cursor']}", page["end"]
    assert found == list("0123456")
    page = api.done("GET", "/queues/PAGES/messages?count=2&after=4")
    assert [each["body"] for each in page["messages"]] == ["5", "6"]
    page = api.done("GET", "/queues/PAGES/messages?count=2&last=true")
    assert ([each["body"] for each in page["messages"]], page["end"]) == (["5", "6"], "last")
    for query in ("last=true&after=4", "last=true&selector=n=1", "last=1"):
        assert api.ask("GET", f"/queues/PAGES/messages?{query}")[0] == 400


def test_a_selection_is_counted_then_moved_copied_and_removed(api: Api) -> None:
    for number in range(4):
        api.send("FROM", str(number), n=number)
    selection = {"selector": "n > 1"}
    counted = api.done("POST", "/queues/FROM/move", selection | {"target": "queue://TO", "dry_run": True})
    assert counted["affected"] == 2
    assert api.bodies("FROM") == list("0123")
    assert api.done("POST", "/queues/FROM/move", selection | {"target": "queue://TO"})["affected"] == 2
    assert (api.bodies("FROM"), api.bodies("TO")) == (list("01"), list("23"))
    copied = api.done("POST", "/queues/FROM/copy", {"target": "queue://TO", "maximum": 1})
    assert (copied["affected"], api.bodies("TO")) == (1, list("230"))
    first = api.done("GET", "/queues/TO/messages")["messages"][0]
    assert first["original_destination"] == "queue://FROM"
    assert api.done("POST", "/queues/TO/remove", {"message_ids": [first["message_id"]]})["affected"] == 1
    assert api.bodies("TO") == list("30")
    api.broker.wait_for("'anonymous' from 127.0.0.1 moved messages to queue://TO from queue://FROM: 2 messages")


def test_a_dead_letter_says_why_and_is_retried(api: Api, connect: Connect, stomp_port: int) -> None:
    with_consumer = connect(stomp_port)
    with_consumer.send("SUBSCRIBE", id="1", destination="/queue/WORK", ack="client-individual")
    with_consumer.send("SEND", b"x", destination="/queue/WORK", persistent="true")
    frame = with_consumer.read_until("MESSAGE")
    with_consumer.send("NACK", id=frame.headers["ack"])
    letters = "/queues/ActiveMQ.DLQ/messages"
    (letter,) = until(lambda: api.ask("GET", letters)[1].get("messages"), bool)
    assert letter["original_destination"] == "queue://WORK"
    assert "NACK" in letter["dead_letter_cause"]
    assert api.done("GET", "/queues/ActiveMQ.DLQ")["is_dead_letter_queue"] is True
    assert api.done("POST", "/queues/ActiveMQ.DLQ/retry", {})["affected"] == 1
    assert with_consumer.read_until("MESSAGE").body == b"x"


def test_a_paused_queue_delivers_nothing(api: Api, connect: Connect, stomp_port: int) -> None:
    api.send("PAUSED", "1")
    api.done("POST", "/queues/PAUSED/pause", {})
    assert api.done("GET", "/queues/PAUSED")["is_paused"] is True
    consumer = connect(stomp_port)
    consumer.send("SUBSCRIBE", id="1", destination="/queue/PAUSED", receipt="r")
    consumer.read_until("RECEIPT")
    consumer.send("SEND", b"2", destination="/queue/PAUSED", receipt="s")
    consumer.read_until("RECEIPT")
    assert consumer.backlog == []
    assert api.done("GET", "/queues/PAUSED")["size"] == 2
    api.done("POST", "/queues/PAUSED/resume", {})
    assert [consumer.read_until("MESSAGE").body for _ in range(2)] == [b"1", b"2"]


def test_a_connection_is_cut_off_and_its_subscription_deleted(api: Api, connect: Connect, stomp_port: int) -> None:
    client = connect(stomp_port, client_id="anna")
    client.send("SUBSCRIBE", id="s", destination="/topic/T", receipt="r", **DURABLE)
    client.read_until("RECEIPT")
    (subscription,) = until(lambda: api.done("GET", "/subscriptions")["items"], bool)
    key = quote(subscription["key"], safe="")
    assert (subscription["is_active"], subscription["client_id"]) == (True, "anna")
    assert api.ask("DELETE", f"/subscriptions/{key}")[0] == 409
    (connection,) = [each for each in api.done("GET", "/connections")["items"] if each["client_id"] == "anna"]
    api.done("DELETE", f"/connections/{quote(connection['connection_id'], safe='')}")
    client.read_until("ERROR")
    with pytest.raises(Disconnected):
        client.read()
    api.done("POST", "/topics/T/messages", {"body": "later"})
    found = until(lambda: api.ask("GET", f"/subscriptions/{key}/messages")[1].get("messages"), bool)
    assert [each["body"] for each in found] == ["later"]
    until(lambda: api.ask("DELETE", f"/subscriptions/{key}")[0], lambda status: status == 200)
    until(lambda: api.done("GET", "/subscriptions")["items"], lambda items: not items)


def test_scheduled_messages(api: Api) -> None:
    api.send("LATER", "x", AMQ_SCHEDULED_DELAY=3_600_000)
    (job,) = api.done("GET", "/jobs")["items"]
    assert (job["destination"], job["delay_ms"]) == ("queue://LATER", 3_600_000)
    assert api.done("DELETE", f"/jobs/{quote(job['job_id'], safe='')}") == {"removed": 1}
    assert api.done("GET", "/jobs") == {"items": [], "count": 0, "page_size": 100, "cursor": None}
    assert api.ask("DELETE", "/jobs/ID:none")[0] == 404


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "word"),
    [
        ("POST", "/queues/NONE/purge", {}, 404, "there is no queue 'NONE': check the name"),
        ("DELETE", "/queues/NONE", None, 404, "there is no queue 'NONE': check the name"),
        ("DELETE", "/topics/NONE", None, 404, "there is no topic 'NONE': check the name"),
        ("POST", "/queues/NONE/pause", {}, 404, "there is no queue 'NONE': check the name"),
        ("GET", "/queues/NONE/messages", None, 404, "there is no queue 'NONE': check the name"),
        ("POST", "/queues/ERRORS/remove", {}, 400, "remove needs a selector or message_ids"),
        ("POST", "/queues/ERRORS/remove", {"selector": "n ="}, 400, "selector: expected a value, found the end"),
        ("POST", "/queues/ERRORS/remove", {"selector": 5}, 400, "selector is a text"),
        ("POST", "/queues/ERRORS/remove", {"message_ids": [1]}, 400, "message_ids is a list of texts"),
        ("POST", "/queues/ERRORS/remove", {"selectr": "n"}, 400, "there is no field 'selectr' here"),
        ("POST", "/queues/ERRORS/remove", [], 400, "the body is a JSON object"),
        ("POST", "/queues/ERRORS/move", {"target": "B"}, 400, "target is queue://NAME or topic://NAME"),
        ("POST", "/queues/ERRORS/retry", {}, 409, "'ERRORS' is no dead letter queue"),
        ("POST", "/queues", {"name": ""}, 400, "name"),
        ("POST", "/queues", {}, 400, "name"),
        ("POST", "/queues", {"name": "A.*"}, 400, "would be a wildcard"),
        ("POST", "/queues", {"name": "A,B"}, 400, "names several destinations"),
        ("POST", "/queues", {"name": "x" * 20_000}, 400, "A name of 20000 characters"),
        ("DELETE", "/connections/x", None, 404, "there is no connection 'x'"),
        ("POST", "/transactions/x/commit", {}, 404, "there is no branch in doubt 'x'"),
        ("GET", "/queues/ERRORS/messages?selector=(", None, 400, "column 2"),
        ("GET", "/queues/ERRORS/messages?count=501", None, 400, "count is a number from 1 to 500"),
        ("GET", "/queues/ERRORS/messages/ID:none", None, 404, "there is no message 'ID:none'"),
        ("GET", "/subscriptions/none/messages", None, 404, "none"),
        ("GET", "/queues/ERRORS/purge", None, 405, "has no method GET"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(
    api: Api, method: str, path: str, body: Any, status: int, word: str
) -> None:
    api.done("POST", "/queues", {"name": "ERRORS"})
    found, answer = api.ask(method, path, body)
    assert (found, list(answer)) == (status, ["error"])
    assert word in answer["error"]


@pytest.mark.parametrize("size", [1 << 20, 20 << 20])
def test_large_messages(api: Api, stomp_port: int, size: int) -> None:
    """They go to the management process in pieces; of more than 16 MB its body is left out."""
    with socket.create_connection(("127.0.0.1", stomp_port), timeout=SECONDS) as client:
        client.sendall(b"CONNECT\naccept-version:1.2\nhost:x\n\n\0")
        head = f"SEND\ndestination:/queue/LARGE\nn:1\nreceipt:1\ncontent-length:{size}\n\n".encode()
        client.sendall(head + b"x" * size + b"\0DISCONNECT\nreceipt:2\n\n\0")
        while client.recv(1 << 10):
            pass
    (found,) = api.done("GET", "/queues/LARGE/messages")["messages"]
    assert found["size"] > size
    assert (found["properties"]["n"], found["body_is_cut"]) == ("1", True)
    whole = api.done("GET", f"/queues/LARGE/messages/{quote(found['message_id'], safe='')}")
    is_shown = size < 16 << 20
    assert whole["body"] == (base64.b64encode(b"x" * size).decode() if is_shown else None)
    assert whole["body_is_cut"] is not is_shown
    assert api.done("POST", "/queues/LARGE/purge", {})["affected"] == 1
