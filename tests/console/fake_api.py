"""A member that is simulated: REST of a master or standby with what a test puts there, below the real console.

`python -m tests.console.fake_api` serves it to look at.
"""

import asyncio
import json
import math
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import parse_qsl, unquote

from aiohttp import web

from pybroker.broker.domain.node_requests import (
    ConsumerRow,
    DestinationRow,
    ManagementRole,
    RequestFailed,
    SubscriptionRow,
)
from pybroker.management import console_routes
from pybroker.management.connections import OpenConnections
from pybroker.management.history import TotalsHistory
from pybroker.management.known_names import with_known_parameters
from pybroker.management.link import NodeLink
from pybroker.management.operation_stream import OperationStream
from pybroker.management.paging import PageRequest
from pybroker.management.server import api_routes
from pybroker.management.site import json_answer, make_application
from pybroker.management.snapshots import Snapshots
from pybroker.management.visitors import Visitor, Visitors
from tests.console.fake_network import FakeNetwork

API: Final = "/api/v1"
DLQ: Final = "ActiveMQ.DLQ"

HOSTILE: Final = (
    '"><script>alert(1)</script>',
    "<img src=x onerror=alert(1)>",
    "javascript:alert(1)//",
    "\u202egnp.exe\u202c \u200b\u2066x\u2069",
    "سجل/a?b#c%2F&d=e",
    "a" * 180,
)
"""Names that harm what reads them as HTML, as an address, or as text of one direction."""

Row = dict[str, Any]


def destination(name: str, kind: str = "queue", **values: Any) -> Row:
    """Return a queue or topic as REST has it."""
    empty = dict.fromkeys(DestinationRow._fields, 0) | {"is_temporary": False, "is_paused": False}
    computed = {"memory_percent": 0, "average_wait_seconds": 0.012, "average_message_bytes": 1200}
    rates = {"enqueue_rate": 12.5, "dequeue_rate": 11.0}
    is_dlq = {"is_dead_letter_queue": name == DLQ}
    return empty | computed | rates | is_dlq | {"kind": kind, "name": name} | values


def message(number: int, **values: Any) -> Row:
    """Return a message as REST has it."""
    return {
        "message_id": f"ID:host-40213-1795756037596-4:{number}:1:1:1",
        "position": number,
        "state": "waiting",
        "redelivery_count": 0,
        "holder": None,
        "destination": "queue://ORDERS",
        "original_destination": None,
        "reply_to": None,
        "correlation_id": None,
        "type": None,
        "persistent": True,
        "priority": 4,
        "timestamp_ms": round(time.time() * 1000) - 60_000 * number,
        "expiration_ms": 0,
        "group_id": None,
        "group_sequence": 0,
        "user": "shop",
        "properties": {"region": "north", "attempt": number, "isUrgent": number % 2 == 0},
        "size": 180 + number,
        "body_type": "text",
        "body": json.dumps({"order": 1000 + number, "items": [{"sku": "A-7", "count": 2}], "total": 12.50}),
        "body_is_cut": False,
        "dead_letter_cause": None,
    } | values


def consumer(name: str, number: int, **values: Any) -> Row:
    """Return a consumer of a queue as REST has it."""
    empty = dict.fromkeys(ConsumerRow._fields, 0)
    flags = dict.fromkeys(("is_exclusive", "is_retroactive", "is_no_local", "is_browser"), False)
    texts = {"selector": "", "subscription": "", "kind": "queue", "user": "shop"}
    ids = {"consumer_id": f"ID:c-{number}:1:1", "connection_id": f"ID:c-{number}", "client_id": f"shop-{number}"}
    return empty | flags | texts | ids | {"destination": name, "prefetch": 1000, "enqueued": 4210} | values


def connection(number: int, **values: Any) -> Row:
    """Return a connection as REST has it."""
    found = {"connection_id": f"ID:c-{number}", "client_id": f"shop-{number}", "user": "shop", "is_blocked": False}
    counts = {"consumers": 1, "producers": 1, "transactions": 0}
    return found | counts | {"peer": f"10.0.0.{number % 250}:41810", "listener": "openwire+ssl"} | values


def subscription(key: str, name: str, **values: Any) -> Row:
    """Return a durable subscription as REST has it."""
    empty = dict.fromkeys(SubscriptionRow._fields, 0)
    texts = {"client_id": "app1", "destination": "PRICES", "selector": "", "connection_id": ""}
    return empty | texts | {"key": key, "name": name, "is_active": False, "is_no_local": False} | values


def member(name: str, role: str, **values: Any) -> Row:
    """Return a member of the state of high availability."""
    at_ms = round(time.time() * 1000)
    return {
        "name": name,
        "role": role,
        "is_alive": True,
        "is_silent": False,
        "host": f"{name}.example.org",
        "pid": 4711,
        "version": "0.1.0",
        "started_ms": at_ms - 90_000_000,
        "since_ms": at_ms - 8_000_000,
        "age_ms": 700,
        "epoch": 7,
        "promotion_count": 3,
        "listeners": [f"tcp://{name}.example.org:61616"] if role == "MASTER" else [],
        "lag_bytes": 0 if role == "STANDBY" else None,
        "lag_seconds": 0.02 if role == "STANDBY" else None,
        "followed": None,
        "journal_end": None,
        "settings_digest": "f00d5eedcafe",
        "obstacles": [],
        "warnings": [],
        "checked_ms": at_ms - 900,
        "clean_ms": at_ms - 900,
        "standby_ready": True if role == "STANDBY" else None,
        "management": None,
        "problem": None,
    } | values


def _event(kind: str, at_ms: int, name: str, **values: Any) -> Row:
    return {"at_ms": at_ms, "member": name, "kind": kind} | values


class FakeApi:
    """The state of the member, and what it was asked to change.

    Attributes:
        role: that of the member.
        user_role: that of the user.
        changes: each POST and DELETE with its path and body.
        refusals: the error for a path, instead of its answer.
        progress: if it is not empty, operations take their time, and say one after the other that so many messages were
            affected; see `finish`.
        asked: the number of requests.
        asked_at: the times of the requests for a path, in seconds of the monotonic clock.
        delays: the seconds that the answer for a path takes.
    """

    def __init__(self) -> None:
        at_ms = round(time.time() * 1000)
        self.role = "MASTER"
        self.user_role = "admin"
        self.changes: list[tuple[str, str, Any]] = []
        self.refusals: dict[str, tuple[int, str]] = {}
        self.progress: Sequence[int] = ()
        self._finish: Callable[[], object] | None = None
        self.asked = 0
        self.asked_at: defaultdict[str, list[float]] = defaultdict(list)
        self.delays: dict[str, float] = {}
        self.queues = [
            destination("ORDERS", size=1234, in_flight=12, consumers=2, producers=1, enqueued=98210, dequeued=96976),
            destination("ORDERS.EU", size=3, consumers=1, enqueued=40, dequeued=37),
            destination(DLQ, size=120, enqueued=131, dequeued=11, enqueue_rate=0.02, dequeue_rate=0.0),
            destination("INVOICES", is_paused=True, size=88, consumers=1, memory_percent=71, memory_bytes=7_400_000),
            *(destination(f"BULK.{number:03}", enqueued=number) for number in range(120)),
        ]
        self.topics = [destination("PRICES", "topic", consumers=3, producers=1, enqueued=600, enqueue_rate=310.0)]
        self.messages = {
            "ORDERS": [message(number) for number in range(1, 131)],
            DLQ: [
                message(
                    number,
                    destination=f"queue://{DLQ}",
                    original_destination="queue://ORDERS",
                    redelivery_count=6,
                    dead_letter_cause="java.lang.Throwable: Exceeded redelivery policy limit: 6, cause:null",
                )
                for number in range(1, 121)
            ],
            "app1:gone": [message(number, position=number) for number in range(60)],
        }
        self.messages["ORDERS"][1] |= {"state": "in flight", "holder": connection(1) | {"consumer_id": "ID:c-1:1:1"}}
        self.messages["ORDERS"][2] |= {"body_type": "bytes", "body": "AAECA/8gcHlicm9rZXI="}
        self.subscriptions = [
            subscription("app1:sub1", "sub1", is_active=True, connection_id="ID:c-1", selector="n > 3", size=2),
            subscription("app1:gone", "gone", size=41_000, enqueued=41_000),
        ]
        self.network = FakeNetwork()
        self.connections = [connection(1), connection(2, is_blocked=True, transactions=1), connection(3)]
        self.consumers = [consumer("ORDERS", 1, in_flight=12), consumer("ORDERS", 2, prefetch=5, in_flight=5)]
        self.jobs = [
            {
                "job_id": f"ID:host-1-2-3:{number}",
                "next_time_ms": at_ms + 61_000 * (number + 1),
                "start_time_ms": at_ms,
                "cron": "0 * * * *" if number == 0 else "",
                "delay_ms": 0 if number == 0 else 60_000,
                "period_ms": 0,
                "repeat": 0,
                "run_count": number,
                "destination": "queue://REPORTS",
                "size": 412,
            }
            for number in range(3)
        ]
        self.branches = [{"branch": "4660:67747269:62717561", "user": "shop", "sent": 3, "acknowledged": 1}]
        self.reasons: list[Row] = []
        self.replica: Row | None = None
        self.members = [member("a", "MASTER"), member("b", "STANDBY", lag_bytes=2048)]

    # ------------------------------------------------------------ reading

    def overview(self) -> Row:
        """Return `/overview`."""
        at_ms = round(time.time() * 1000)
        found: Row = {
            "version": "0.1.0",
            "pid": 4711,
            "host": "a.example.org",
            "broker_name": "a" if self.role == "MASTER" else "b",
            "store": "/mnt/shared/store",
            "is_persistent": True,
            "role": self.role,
            "since_ms": at_ms - 8_000_000,
        }
        if self.role != "MASTER":
            return found
        waiting = sum(row["size"] - row["in_flight"] for row in self.queues)
        totals = {
            "connections": len(self.connections),
            "destinations": len(self.queues) + len(self.topics),
            "waiting": waiting,
            "in_flight": 12,
            "memory_bytes": 218_000_000,
            "memory_bytes_max": 1_000_000_000,
            "is_full": False,
            "spool_bytes": 0,
            "spool_bytes_max": 10_737_418_240,
            "is_spool_full": False,
            "refused": 0,
            "scheduled": len(self.jobs),
            "loop_lag_seconds": 0.0042,
            "loop_lag_cause": "",
        }
        usage = {
            "storeUsage": 78_000_000_000,
            "storeLimit": 100_000_000_000,
            "tempUsage": 0,
            "tempLimit": 10_737_418_240,
        }
        listeners = ["tcp://a.example.org:61616", "stomp+ssl://a.example.org:61614"]
        more = {"broker_id": "ID:a-21413-1795756037596-7547941187117786:1", "listeners": listeners, "epoch": 7}
        return found | more | {"totals": totals, "usage": usage, "removed": {}}

    def state(self) -> Row:
        """Return `/ha`."""
        at_ms = round(time.time() * 1000)
        phases = {"waiting": 86_400_000, "following": 12, "binding": 3, "opening": 41, "loading": 18, "listening": 2}
        promotion = _event("promotion", at_ms - 8_000_000, "a", epoch=7, phases=phases, total_ms=76)
        return {
            "store": "/mnt/shared/store",
            "store_kind": "directory",
            "state": "degraded" if self.reasons else "healthy",
            "reasons": self.reasons,
            "last_clean_check_ms": at_ms - 900,
            "name": "a" if self.role == "MASTER" else "b",
            "role": self.role,
            "since_ms": at_ms - 8_000_000,
            "epoch": 7,
            "master": next((each["name"] for each in self.members if each["role"] == "MASTER"), None),
            "lock": {
                "kind": "file",
                "path": "/mnt/shared/store/kahadb/lock",
                "is_held": True,
                "holder": self.members[0]["name"],
                "holder_pid": None,
                "held_since_ms": at_ms - 8_000_050,
                "confirmed_ms": at_ms - 400,
            },
            "members": self.members,
            "store_identity": None,
            "disk_free_bytes": 410_000_000_000,
            "listeners": ["tcp://a.example.org:61616"],
            "reconnections": 14,
            "promotions": [promotion],
            "history": [
                {
                    "at_ms": at_ms - 3_000_000,
                    "member": "b",
                    "kind": "healthy",
                    "role": "STANDBY",
                    "degraded_ms": 42_000,
                },
                _event("degraded", at_ms - 3_042_000, "b", role="STANDBY", reasons=["the clocks differ by 2.4 s"]),
                promotion,
                {
                    "at_ms": at_ms - 8_000_090,
                    "member": "a",
                    "kind": "role",
                    "role": "PROMOTING",
                    "reason": "the lock is won",
                },
            ],
            "replica": self.replica,
        }

    def history(self) -> Row:
        """Return `/history`: an hour with waves."""
        at_ms = round(time.time() * 1000)
        points: list[Row] = []
        enqueued = dequeued = 0
        for index in range(360):
            enqueued += round(900 + 700 * math.sin(index / 40) ** 2 + 140 * math.sin(index * 1.7))
            dequeued += round(900 + 690 * math.sin(index / 40 - 0.2) ** 2 + 60 * math.sin(index * 2.3))
            points.append(
                {
                    "at_ms": at_ms - (360 - index) * 10_000,
                    "enqueued": enqueued,
                    "dequeued": dequeued,
                    "size": 1200 + round(300 * math.sin(index / 25)),
                    "connections": 40 + index // 60,
                    "memory_bytes": 218_000_000,
                    "loop_lag_seconds": 0.002 + 0.02 * (index % 97 == 0),
                }
            )
        return {"interval_seconds": 10, "points": points}

    def journal(self) -> Row:
        """Return `/journal`."""
        files = [
            {
                "name": name,
                "directory": "/mnt/shared/store/kahadb",
                "size": size,
                "is_current": name == "db-5.log",
                "is_kept": bool(reasons),
                "reasons": reasons,
                "remedies": ["let their consumer take them" for _ in reasons],
                "note": "",
            }
            for name, size, reasons in (
                ("db-1.log", 33_554_432, ["4 messages of queue://ORDERS"]),
                ("db-4.log", 33_554_432, []),
                ("db-5.log", 8_210_000, ["it is the current file"]),
            )
        ]
        return {"files": files, "bytes": 75_318_864}

    # ------------------------------------------------------------ requests

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer a request of REST."""
        self.asked += 1
        raw = request.raw_path.partition("?")[0].partition(API)[2].strip("/")
        parts = [_unquoted(part) for part in raw.split("/")]
        path = "/".join(parts)
        self.asked_at[path].append(time.monotonic())
        await asyncio.sleep(self.delays.get(path, 0))
        body = json.loads(await request.read() or b"{}")
        refusal = self.refusals.get(path) or self.refusals.get(f"{request.method} {path}")
        if refusal is not None:
            raise RequestFailed(HTTPStatus(refusal[0]), refusal[1])
        query = dict(parse_qsl(request.query_string, keep_blank_values=True))
        if request.method == "GET":
            return json_answer(self._get(parts, query))
        if self.user_role == "monitor":
            raise RequestFailed(HTTPStatus.FORBIDDEN, "this needs the role operator, and shop has monitor")
        if not body.get("dry_run"):
            self.changes.append((request.method, path, body))
            if self.progress:
                return await self._long(request, partial(self._change, request.method, parts, body))
        return json_answer(self._change(request.method, parts, body))

    async def _long(self, request: web.Request, change: Callable[[], Any]) -> web.StreamResponse:
        """Carry out an operation that takes its time."""
        may_end = asyncio.Event()
        self._finish = partial(asyncio.get_running_loop().call_soon_threadsafe, may_end.set)
        stream = OperationStream(request)
        for affected in self.progress:
            await stream.report([[affected, affected]])
        await may_end.wait()
        return await stream.end(change())

    def finish(self) -> None:
        """Have the operation that takes its time carried out."""
        assert self._finish is not None, "none has begun"
        self._finish()

    def _get(self, parts: Sequence[str], query: Mapping[str, str]) -> Any:
        everywhere: Mapping[str, Callable[[], Any]] = {
            "overview": self.overview,
            "whoami": lambda: {"user": "shop", "role": self.user_role},
            "ha": self.state,
            "journal": self.journal,
        }
        if parts[0] in everywhere:
            return everywhere[parts[0]]()
        if self.role != "MASTER":
            raise RequestFailed(HTTPStatus.SERVICE_UNAVAILABLE, "this member is not the master: it is standby")
        lists: Mapping[str, tuple[list[Row], str]] = {
            "queues": (self.queues, "name"),
            "topics": (self.topics, "name"),
            "subscriptions": (self.subscriptions, "name"),
            "connections": (self.connections, "client_id"),
            "consumers": (self.consumers, "destination"),
        }
        match parts:
            case ["history"]:
                return self.history()
            case ["network", part]:
                return _page(self.network.rows(part), self.network.names[part], query)
            case ["transactions"]:
                return _page(self.branches, "branch", query)
            case ["jobs"]:
                return self._jobs(query)
            case [kind] if kind in lists:
                return _page(*lists[kind], query)
            case ["queues" | "topics" as kind, name]:
                return _found(lists[kind][0], "name", name)
            case ["queues" | "subscriptions", name, "messages"]:
                return self._browse(name, query)
            case ["queues", name, "messages", message_id]:
                return _found(self.messages.get(name, []), "message_id", message_id)
        raise RequestFailed(HTTPStatus.NOT_FOUND, f"there is nothing at {'/'.join(parts)}")

    def _jobs(self, query: Mapping[str, str]) -> Any:
        after, size = query.get("after", ""), int(query.get("page_size", 100))
        places = [f"{each['next_time_ms']}:{each['job_id']}" for each in self.jobs]
        first = places.index(after) + 1 if after else 0
        cursor = places[first + size - 1] if first + size < len(places) else None
        return {
            "items": self.jobs[first : first + size],
            "count": len(places),
            "page_size": size,
            "cursor": cursor,
        }

    def _browse(self, name: str, query: Mapping[str, str]) -> Any:
        if query.get("selector", "").endswith("==="):
            raise RequestFailed(HTTPStatus.BAD_REQUEST, f"the selector {query['selector']!r} is not valid")
        after, count = int(query.get("after", -1)), int(query.get("count", 50))
        rest = [each for each in self.messages.get(name, []) if each["position"] > after]
        rest = rest[-count:] if "last" in query else rest
        found = rest[:count]
        end = "last" if len(rest) <= count else "count"
        cursor = found[-1]["position"] if found else after
        return {"messages": found, "cursor": cursor, "end": end, "examined": len(found)}

    def _change(self, method: str, parts: Sequence[str], body: Mapping[str, Any]) -> Any:
        match parts:
            case ["queues", name, "remove" | "move" | "copy" | "retry" | "purge" as verb]:
                return self._operate(name, verb, body)
            case ["queues", name, "pause" | "resume" as verb]:
                _found(self.queues, "name", name)["is_paused"] = verb == "pause"
            case ["queues", _, "messages"] | ["topics", _, "messages"]:
                return {"message_id": "ID:sent-1:1"}
            case ["queues" | "topics" as kind] if method == "POST":
                rows = self.queues if kind == "queues" else self.topics
                rows.append(destination(body["name"], kind[:-1]))
                return {"created": True}
            case ["queues" | "topics", name] if method == "DELETE":
                self.queues = [row for row in self.queues if row["name"] != name]
                self.topics = [row for row in self.topics if row["name"] != name]
                return {"deleted": True}
            case ["network", "connectors", name, verb]:
                self.network.switch(name, verb)
            case ["connections", name]:
                self.connections = [row for row in self.connections if row["connection_id"] != name]
            case ["subscriptions", name]:
                self.subscriptions = [row for row in self.subscriptions if row["key"] != name]
            case ["jobs", name]:
                self.jobs = [row for row in self.jobs if row["job_id"] != name]
                return {"removed": 1}
            case ["transactions", name, _]:
                self.branches = [row for row in self.branches if row["branch"] != name]
        return {}

    def _operate(self, name: str, verb: str, body: Mapping[str, Any]) -> Any:
        messages = self.messages.setdefault(name, [])
        ids = body.get("message_ids")
        chosen = [
            each for each in messages if each["state"] == "waiting" and (ids is None or each["message_id"] in ids)
        ]
        chosen = chosen[: body.get("maximum", len(chosen))]
        if not body.get("dry_run") and verb != "copy":
            self.messages[name] = [each for each in messages if each not in chosen]
            _found(self.queues, "name", name)["size"] -= len(chosen)
        in_flight = sum(each["state"] != "waiting" for each in messages)
        counts = {"affected": len(chosen), "examined": len(messages), "skipped": 0, "in_flight": in_flight}
        return counts | {"is_cancelled": False, "error": None}


def _page(rows: Sequence[Row], name: str, query: Mapping[str, str]) -> Any:
    kept = {
        "nonempty": lambda row: row["size"] > 0,
        "empty": lambda row: not row["size"],
        "noConsumer": lambda row: not row["consumers"],
    }.get(query.get("filter", ""), lambda row: True)
    wanted = query.get("connection_id")
    rows = [row for row in rows if kept(row) and wanted in (None, row.get("connection_id"))]
    columns = tuple(rows[0]) if rows else (query.get("sort", ""),)
    asked = PageRequest.of(query, columns)
    return asked.cut(rows, lambda row: str(row[name]), lambda row, column: row[column]).as_json(lambda row: row)


def _found(rows: Sequence[Row], column: str, value: str) -> Row:
    for row in rows:
        if row[column] == value:
            return row
    raise RequestFailed(HTTPStatus.NOT_FOUND, f"there is no {value!r}")


def _unquoted(part: str) -> str:
    return unquote(part)


# ---------------------------------------------------------------- the server


class FakeVisitors(Visitors):
    """Lets every request in: the API decides by its own role."""

    def __init__(self) -> None:
        """Begin."""

    async def visitor(self, headers: Mapping[str, str], address: str) -> Visitor:
        """Return the one user."""
        return Visitor("shop", ManagementRole.ADMIN, address)


class ConsoleServer:
    """Serves the console and a `FakeApi`, in a thread of its own; a stopped one can be started again.

    Attributes:
        url: the address of the console.
        prefix: the path below which a reverse proxy would have it.
    """

    def __init__(self, api: FakeApi, prefix: str = "") -> None:
        """Take a port, and start."""
        self.api = api
        self.port = 0
        self.prefix = prefix
        self.start()

    @property
    def url(self) -> str:
        """The address of the console."""
        return f"http://127.0.0.1:{self.port}{self.prefix}/console/"

    def start(self) -> None:
        """Serve, on the same port as before."""
        started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(started)), daemon=True)
        self._thread.start()
        assert started.wait(10)

    def stop(self) -> None:
        """Close the port and all connections, as the end of the process does."""
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(10)
        assert not self._thread.is_alive()

    async def _serve(self, started: threading.Event) -> None:
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        link = NodeLink()  # the routes do not use it, as their handlers are replaced
        snapshots = Snapshots(link)
        routes = [
            *console_routes.routes(),
            *[
                with_known_parameters(replace(each, handler=self.api.answer, role=None))
                for each in api_routes(link, snapshots, TotalsHistory(snapshots))
            ],
        ]
        prefixed = [replace(each, path=self.prefix + each.path) for each in routes]
        application = make_application(prefixed, FakeVisitors())
        runner = web.AppRunner(application, handle_signals=False, handler_cancellation=True)
        await runner.setup()
        assert runner.server is not None
        connections = OpenConnections(runner.server)
        server = await asyncio.get_running_loop().create_server(connections.make, "127.0.0.1", self.port)
        self.port = server.sockets[0].getsockname()[1]
        started.set()
        await self._ended.wait()
        server.close()
        for each in list(runner.server.connections):
            each.force_close()
            if each.transport is not None:
                each.transport.abort()
        await runner.cleanup()


if __name__ == "__main__":
    fake = FakeApi()
    fake.queues += [destination(name, size=2) for name in HOSTILE]
    served = ConsoleServer(fake)
    print(served.url)
    with suppress(KeyboardInterrupt):
        threading.Event().wait()
