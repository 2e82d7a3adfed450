"""The HTTP server: pages of rows, errors in one sentence, and clients that misbehave."""

import asyncio
import json
import time
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import pytest

from pybroker.broker.domain.node_requests import BranchRow, JobRow, RequestFailed
from pybroker.broker.domain.node_state import NodeState
from pybroker.broker.domain.role import Role
from pybroker.management import connections
from pybroker.management import site as site_module
from pybroker.management.operations import IDS_MAX
from pybroker.management.rest import API
from tests.unit.management.simulated import Site, row, site

ROWS = [
    row("b", size=2, consumers=1, enqueued=5, message_bytes=50),
    row("a/ä", size=0),
    row("c", size=9),
    row("t", "topic", enqueued=3),
]
MISSING = "there is no queue 'd': check the name, which is case-sensitive"
OF_CONNECTIONS = "page, page_size, sort, order, name, connection_id"
STANDBY = {"broker_name": "b", "store": "", "role": "STANDBY", "since_ms": 0}


def destinations(arguments: Mapping[str, Any]) -> Any:
    return [each for each in ROWS if arguments.get("name") in (None, each.name)]


METHODS = {"destinations": destinations, "overview": lambda _: STANDBY}


def ask(target: str, **more: Any) -> tuple[int, Any]:
    """Ask a server of its own."""

    async def run() -> tuple[int, Any]:
        async with site(METHODS) as there:
            return await there.ask(target, **more)

    return asyncio.run(run())


def names(target: str) -> tuple[list[str], int]:
    status, answer = ask(target)
    assert status == 200, answer
    return [each["name"] for each in answer["items"]], answer["count"]


@pytest.mark.parametrize(
    ("query", "expected", "count"),
    [
        ("", ["b", "a/ä", "c"], 3),
        ("sort=size&order=desc", ["c", "b", "a/ä"], 3),
        ("sort=name", ["a/ä", "b", "c"], 3),
        ("sort=average_message_bytes&order=desc&page_size=1", ["b"], 3),
        ("page_size=2&page=2", ["c"], 3),
        ("page=9", [], 3),
        ("name=A/", ["a/ä"], 1),
        ("filter=empty", ["a/ä"], 1),
        ("filter=nonempty&sort=size", ["b", "c"], 2),
        ("filter=noConsumer", ["a/ä", "c"], 2),
    ],
)
def test_pages_are_filtered_and_sorted(query: str, expected: list[str], count: int) -> None:
    assert names(f"/api/v1/queues?{query}") == (expected, count)


def test_topics_have_pages_of_their_own() -> None:
    assert names("/api/v1/topics") == (["t"], 1)


@pytest.mark.parametrize(
    ("query", "word"),
    [
        ("sort=color", "there is no column 'color'"),
        ("order=up", "order is asc or desc"),
        ("page=0", "page is a number from 1"),
        ("page=-1", "page is a number from 1"),
        ("page=1e3", "page is a number from 1"),
        ("page=99999999999999999999", "page is a number from 1"),
        ("page_size=1001", "page_size is a number from 1 to 1000"),
        ("filter=x", "filter is one of empty"),
    ],
)
def test_a_query_that_is_not_valid_is_refused(query: str, word: str) -> None:
    status, answer = ask(f"/api/v1/queues?{query}")
    assert status == 400
    assert word in answer["error"]


@pytest.mark.parametrize(
    ("target", "method", "sentence"),
    [
        ("queues?pagesize=1", "GET", "there is no parameter 'pagesize' here: did you mean 'page_size'?"),
        ("queues?name=b&Filters=empty", "GET", "there is no parameter 'Filters' here: did you mean 'filter'?"),
        (
            "connections?filter=empty",
            "GET",
            f"there is no parameter 'filter' here: there are {OF_CONNECTIONS}",
        ),
        ("queues/b/messages?cuont=1", "GET", "there is no parameter 'cuont' here: did you mean 'count'?"),
        ("overview?x=1", "GET", "there is no parameter 'x' here: this request has none"),
        ("openapi.json?x=1", "GET", "there is no parameter 'x' here: this request has none"),
        ("queues/b/purge?selector=n%3D1", "POST", "there is no parameter 'selector' here: this request has none"),
        ("jobs/ID:1?next_time=5", "DELETE", "there is no parameter 'next_time' here: did you mean 'next_time_ms'?"),
    ],
)
def test_an_unknown_parameter_is_refused(target: str, method: str, sentence: str) -> None:
    assert ask(f"{API}/{target}", method=method) == (400, {"error": sentence})


def test_an_unknown_field_of_a_body_is_refused() -> None:
    sentence = "there is no field 'selectr' here: did you mean 'selector'?"
    assert ask(f"{API}/queues/b/remove", method="POST", body={"selectr": "n"}) == (400, {"error": sentence})
    sentence = "there is no field 'x' here: this request has none"
    assert ask(f"{API}/queues/b/purge", method="POST", body={"x": 1}) == (400, {"error": sentence})


@pytest.mark.parametrize("target", ["/live?x=1", "/metrics?x=1", "/admin/xml/queues.jsp?x=1"])
def test_paths_of_other_tools_take_any_parameter(target: str) -> None:
    assert ask(target)[0] == 200


def test_one_queue_by_its_name() -> None:
    status, answer = ask("/api/v1/queues/a%2F%C3%A4")
    assert (status, answer["name"], answer["memory_percent"]) == (200, "a/ä", 0)
    assert ask("/api/v1/queues/d") == (404, {"error": MISSING})


@pytest.mark.parametrize(
    ("target", "method", "status"),
    [
        ("/nothing", "GET", 404),
        ("/api/v1/../../etc/passwd", "GET", 404),
        ("/api/v1/%2e%2e/overview", "GET", 404),
        ("/api/v1/queues/%00", "GET", 404),
        ("/fileserver/x", "PUT", 404),
        ("/api/v1/overview", "PUT", 405),
        ("/api/v1/overview", "MOVE", 405),
        ("/api/v1/overview", "DELETE", 405),
    ],
)
def test_other_requests_get_one_sentence(target: str, method: str, status: int) -> None:
    found, answer = ask(target, method=method)
    assert found == status
    assert list(answer) == ["error"]


def test_the_deletion_of_what_is_not_there_is_refused() -> None:
    async def run() -> None:
        async with site({"delete": lambda asked: {"deleted": asked["target"] == "topic://t"}}) as there:
            assert await there.ask("/api/v1/queues/d", "DELETE") == (404, {"error": MISSING})
            assert await there.ask("/api/v1/topics/t", "DELETE") == (200, {"deleted": True})

    asyncio.run(run())


def test_an_error_of_the_node_is_passed_on() -> None:
    def refuse(_: Mapping[str, Any]) -> Any:
        raise RequestFailed(HTTPStatus.SERVICE_UNAVAILABLE, "this member is not the master: it is standby")

    def fail(_: Mapping[str, Any]) -> Any:
        raise KeyError("a mistake")

    async def run() -> None:
        async with site({"destinations": refuse, "connections": fail}) as there:
            expected = {"error": "this member is not the master: it is standby"}
            assert await there.ask("/api/v1/queues") == (503, expected)
            status, answer = await there.ask("/api/v1/connections")
            assert (status, answer) == (500, {"error": "the member has failed to answer: see its log"})

    asyncio.run(run())


def test_health_checks_need_no_login() -> None:
    async def run() -> None:
        async with site(METHODS, has_users=True) as there:
            assert (await there.ask_raw("/master"))[0] == 200
            there.link.tell(NodeState(role=Role.STANDBY, obstacle="", at=1e12))
            await there.until(lambda: there.ask_raw("/master"), 503)
            assert (await there.ask_raw("/standby", "HEAD"))[::2] == (200, "")

    asyncio.run(run())


def test_a_member_that_hangs_is_told_of_at_once() -> None:
    async def run() -> None:
        async with site(METHODS) as there:
            there.link.tell(NodeState(role=Role.MASTER, obstacle="", at=time.monotonic() - 30))
            await there.until(lambda: there.ask_raw("/master"), 503)
            status, answer = await there.ask("/api/v1/queues")
            assert (status, answer["error"][:38]) == (504, "the member has been silent for 30 s: i")

    asyncio.run(run())


def test_many_readers_are_one_request_to_the_node() -> None:
    async def run() -> None:
        async with site(METHODS) as there:
            answers = await asyncio.gather(*[there.ask("/api/v1/queues") for _ in range(50)])
            assert [status for status, _ in answers] == [200] * 50
            assert [method for method, _ in there.node.asked].count("destinations") == 1

    asyncio.run(run())


def test_a_change_is_in_the_next_list() -> None:
    paused: set[str] = set()

    def queues(_: Mapping[str, Any]) -> Any:
        return [row("b", is_paused="b" in paused)]

    def pause(_: Mapping[str, Any]) -> Any:
        paused.add("b")
        return {}

    async def run() -> None:
        async with site(METHODS | {"destinations": queues, "pause": pause}) as there:
            for expected in (False, True):
                _, page = await there.ask("/api/v1/queues")
                assert page["items"][0]["is_paused"] is expected
                assert (await there.ask("/api/v1/queues/b/pause", "POST"))[0] == 200

    asyncio.run(run())


def test_another_version_below_a_running_member_is_reported() -> None:
    async def run() -> None:
        async with site(METHODS, version="0.0.1") as there:
            status, answer = await there.ask("/api/v1/overview")
            assert status == 503
            assert "restart it" in answer["error"]
            assert (await there.ask_raw("/master"))[0] == 200

    asyncio.run(run())


def test_the_openapi_document_names_what_there_is() -> None:
    status, answer = ask("/api/v1/openapi.json")
    assert (status, answer["openapi"]) == (200, "3.1.0")
    queues = answer["paths"]["/api/v1/queues"]["get"]
    assert "filter" in [each["name"] for each in queues["parameters"]]
    assert queues["security"] == [{"login": []}]
    assert "security" not in answer["paths"]["/live"]["get"]
    assert answer["paths"]["/api/v1/queues/{name}"]["get"]["parameters"][0]["in"] == "path"


def test_every_documented_path_is_served() -> None:
    async def run() -> None:
        async with site(METHODS | {"connections": lambda _: [], "consumers": lambda _: []}) as there:
            _, document = await there.ask("/api/v1/openapi.json")
            for path, operations in document["paths"].items():
                if "get" in operations and "{" not in path:
                    status, answer = await there.ask(path)
                    assert status in (200, 501) or path in ("/standby", f"{API}/journal"), (path, answer)

    asyncio.run(run())


def test_a_slow_head_closes_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.05)
    monkeypatch.setattr(connections, "KEEP_ALIVE_SECONDS", 0.05)

    async def run() -> bytes:
        async with site(METHODS) as there:
            return await there.exchange(b"GET /live HTTP/1.1\r\nHost: x\r\nX")

    assert asyncio.run(run()) == b""


async def _open(there: Site) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", there.port)


def test_of_too_many_connections_the_longest_idle_is_closed() -> None:
    async def run() -> None:
        async with site(METHODS) as there:
            first, *others = [await _open(there) for _ in range(connections.CONNECTIONS_MAX)]
            assert (await there.ask_raw("/live"))[0] == 200
            assert await first[0].read() == b""
            for reader, writer in others[-1:]:
                writer.write(b"GET /live HTTP/1.0\r\n\r\n")
                assert (await reader.read()).startswith(b"HTTP/1.0 200")
            for _, writer in (first, *others):
                writer.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("head", "error"),
    [
        (
            b"GET /live HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 20_000,
            "the address or a header of the request is longer than 8,190 bytes",
        ),
        (
            b"GET /live?" + b"x" * 20_000 + b" HTTP/1.1\r\nHost: x",
            "the address or a header of the request is longer than 8,190 bytes",
        ),
        (b"FOO<> /live HTTP/1.1\r\nHost: x", "this is no valid request in HTTP/1.1"),
        (b"GET /live?\xd9\xa1 HTTP/1.1\r\nHost: x", "this is no valid request in HTTP/1.1"),
    ],
)
def test_what_is_no_request_in_http_is_refused_in_json(head: bytes, error: str) -> None:
    async def run() -> None:
        async with site(METHODS) as there:
            answer = await there.exchange(head + b"\r\n\r\n")
            status, _, rest = answer.partition(b"\r\n")
            assert status.split()[1] == b"400"
            assert b"application/json" in rest
            assert json.loads(rest.partition(b"\r\n\r\n")[2]) == {"error": error}

    asyncio.run(run())


def test_a_large_body_is_refused() -> None:
    async def run() -> None:
        async with site(METHODS) as there:
            body = "x" * (site_module.BODY_BYTES_MAX + 1)
            status, error = await there.ask("/api/v1/queues/A/messages", "POST", {"body": body})
            assert (status, error) == (413, {"error": "the body is larger than 2,097,152 bytes"})

    asyncio.run(run())


def test_the_metrics_of_a_standby_have_no_destinations() -> None:
    async def run() -> None:
        async with site(METHODS, role=Role.STANDBY) as there:
            status, headers, text = await there.ask_raw("/metrics")
            assert (status, headers["content-type"].split(";")[0]) == (200, "text/plain")
            assert 'pybroker_role{role="standby"} 1.0' in text
            assert "pybroker_standby_ready 1.0" in text
            assert "activemq_" not in text

    asyncio.run(run())


def test_times_are_accepted_where_they_are_returned() -> None:
    asked: list[Mapping[str, Any]] = []

    def jobs(arguments: Mapping[str, Any]) -> Any:
        asked.append(arguments)
        return {"total": 2, "cursor": [1795758064123, "ID:a:1"]}

    def remove_job(arguments: Mapping[str, Any]) -> Any:
        asked.append(arguments)
        return {"removed": 1}

    async def run() -> None:
        async with site({"jobs": jobs, "remove_job": remove_job}) as there:
            _, page = await there.ask("/api/v1/jobs")
            assert (await there.ask(f"/api/v1/jobs?after={page['cursor']}"))[0] == 200
            assert (await there.ask("/api/v1/jobs/ID:a:1?next_time_ms=1795758064123", "DELETE"))[0] == 200

    asyncio.run(run())
    assert asked[1]["cursor"] == [1795758064123, "ID:a:1"]
    assert asked[2]["next_time"] == 1795758064123


def test_scheduled_messages_have_pages_like_other_lists() -> None:
    job = JobRow("ID:a:1", 5, 1, "", 4, 0, 0, 0, "queue://Q", 7)

    def jobs(arguments: Mapping[str, Any]) -> Any:
        assert (arguments["count"], arguments["cursor"]) in [(2, None), (100, [5, "ID:a:1"])]
        return [job], {"total": 3, "cursor": None if arguments["cursor"] else [5, "ID:a:1"]}

    async def run() -> None:
        async with site({"jobs": jobs}) as there:
            first = {"items": [job._asdict()], "count": 3, "page_size": 2, "cursor": "5:ID:a:1"}
            assert await there.ask("/api/v1/jobs?page_size=2") == (200, first)
            last = {"items": [job._asdict()], "count": 3, "page_size": 100, "cursor": None}
            assert await there.ask("/api/v1/jobs?after=5:ID:a:1") == (200, last)
            assert (await there.ask("/api/v1/jobs?page_size=501"))[0] == 400
            _, document = await there.ask("/api/v1/openapi.json")
            listed = document["paths"]["/api/v1/jobs"]["get"]["responses"]["200"]["content"]["application/json"][
                "schema"
            ]
            assert list(listed["properties"]) == list(first)
            assert list(listed["properties"]["items"]["items"]["properties"]) == list(job._asdict())

    asyncio.run(run())


def test_transactions_in_doubt_have_pages_like_other_lists() -> None:
    rows = [BranchRow("XID:1", "anna", 3, 4), BranchRow("XID:2", "bob", 5, 0), BranchRow("OTHER", "bob", 1, 0)]

    async def run() -> None:
        async with site({"branches": lambda _: rows}) as there:
            status, page = await there.ask("/api/v1/transactions?name=xid&sort=sent&order=desc&page_size=1")
            expected = {"items": [rows[1]._asdict()], "count": 2, "page": 1, "page_size": 1}
            assert (status, page) == (200, expected)
            assert (await there.ask("/api/v1/transactions?connection_id=x"))[0] == 400
            del rows[1]
            assert (await there.ask("/api/v1/transactions"))[1]["count"] == 2, "it is as it is now"

    asyncio.run(run())


def test_a_message_with_a_header_that_is_too_long_is_refused() -> None:
    status, answer = ask("/api/v1/queues/a/messages", method="POST", body={"group_id": "x" * 70_000})
    assert (status, answer["error"][:26]) == (400, "a string of 70000 bytes: n")
    assert ask("/api/v1/queues/a/messages", method="POST", body={"properties": {"x" * 70_000: 1}})[0] == 400


def test_more_ids_than_a_request_may_have_are_refused() -> None:
    """The node reads a request in one turn of its event loop."""
    ids = [str(number) for number in range(IDS_MAX + 1)]
    status, answer = ask("/api/v1/queues/a/remove", method="POST", body={"message_ids": ids})
    assert (status, answer["error"][:32]) == (400, "message_ids has at most 1000: na")
    assert ask("/api/v1/queues/a/remove", method="POST", body={"message_ids": ids[1:]})[0] == 501  # comes to the node
