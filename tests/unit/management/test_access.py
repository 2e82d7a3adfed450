"""Who may do what over HTTP: logins, roles, pages of other sites, and programs of this host."""

import asyncio
import base64
import time
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import pytest

from pybroker.broker.domain.node_requests import RequestFailed
from pybroker.broker.domain.node_state import NodeState
from pybroker.broker.domain.role import Role
from pybroker.management.visitors import is_same_origin
from tests.unit.management.simulated import site

OVERVIEW = {"broker_name": "b", "role": "STANDBY", "since_ms": 0}


def login(arguments: Mapping[str, Any]) -> Any:
    """Verify users whose password is their name, and their role too."""
    if arguments["user"] != arguments["password"]:
        raise RequestFailed(HTTPStatus.UNAUTHORIZED, "user name or password is wrong")
    return {"user": arguments["user"], "role": arguments["user"].upper()}


METHODS = {"login": login, "overview": lambda _: OVERVIEW, "denied": lambda _: None}


def basic(name: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


def test_a_login_is_needed_and_verified_once() -> None:
    async def run() -> None:
        async with site(METHODS, has_users=True) as there:
            status, headers, _ = await there.ask_raw("/api/v1/overview")
            assert (status, headers["www-authenticate"]) == (401, 'Basic realm="pybroker", charset="UTF-8"')
            assert (await there.ask("/api/v1/overview", Authorization=basic("monitor", "no")))[0] == 401
            for _ in range(3):
                assert (await there.ask("/api/v1/overview", Authorization=basic("monitor", "monitor")))[0] == 200
            assert [method for method, _ in there.node.asked].count("login") == 2

    asyncio.run(run())


def test_a_login_is_verified_again_after_the_users_have_changed() -> None:
    async def run() -> None:
        async with site(METHODS, has_users=True) as there:
            allowed = basic("monitor", "monitor")
            assert (await there.ask("/api/v1/overview", Authorization=allowed))[0] == 200
            there.node.methods = METHODS | {"login": lambda _: login({"user": "a", "password": "b"})}
            there.link.tell(NodeState(role=Role.MASTER, obstacle="", at=time.monotonic(), users_version=1))
            await there.until(lambda: there.ask("/api/v1/overview", Authorization=allowed), 401)

    asyncio.run(run())


@pytest.mark.parametrize("header", ["Basic", "Basic !", "Basic YWJj", "Bearer eDp5", "Basic /w=="])
def test_what_is_no_login_is_refused(header: str) -> None:
    async def run() -> None:
        async with site(METHODS, has_users=True) as there:
            assert (await there.ask("/api/v1/overview", Authorization=header))[0] == 401
            assert "login" not in [method for method, _ in there.node.asked]

    asyncio.run(run())


def test_more_logins_than_can_wait_are_refused() -> None:
    async def run() -> None:
        released = asyncio.Event()

        async def wait(arguments: Mapping[str, Any]) -> Any:
            await released.wait()
            return login(arguments)

        async with site(METHODS | {"login": wait}, has_users=True) as there:
            asked = [
                asyncio.create_task(there.ask("/api/v1/overview", Authorization=basic(f"u{number}", "x")))
                for number in range(130)
            ]
            done, _ = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
            assert done.pop().result() == (503, {"error": "too many logins wait for their verification"})
            released.set()
            statuses = [(await each)[0] for each in asked]
            assert set(statuses) == {401, 503}
            assert statuses.count(401) >= 100

    asyncio.run(run())


@pytest.mark.parametrize("host", ["127.0.0.1:{port}", "localhost:{port}", "LOCALHOST", "[::1]:{port}", "127.0.0.1"])
def test_without_users_programs_of_this_host_may_do_everything(host: str) -> None:
    async def run() -> None:
        async with site(METHODS) as there:
            assert (await there.ask("/api/v1/overview", Host=host.format(port=there.port)))[0] == 200

    asyncio.run(run())


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8161", "127.0.0.1.evil.example", "10.0.0.1", ""])
def test_without_users_a_name_that_leads_here_is_refused(host: str) -> None:
    async def run() -> None:
        async with site(METHODS) as there:
            status, answer = await there.ask("/api/v1/overview", Host=host)
            assert status == 403
            assert "set users_file" in answer["error"]

    asyncio.run(run())


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, True),
        ({"Origin": "http://h:8161"}, True),
        ({"Origin": "https://h:8161"}, True),
        ({"Origin": "HTTP://H:8161"}, True),
        ({"Origin": "http://h"}, False),
        ({"Origin": "http://evil"}, False),
        ({"Origin": "null"}, False),
        ({"Origin": "http://h:8161.evil"}, False),
        ({"Sec-Fetch-Site": "same-origin", "Origin": "http://h:8161"}, True),
        ({"Sec-Fetch-Site": "none"}, True),
        ({"Sec-Fetch-Site": "same-site", "Origin": "http://h:8161"}, False),
        ({"Sec-Fetch-Site": "cross-site"}, False),
        ({"Sec-Fetch-Site": "same-origin", "Origin": "http://evil"}, False),
    ],
)
def test_pages_of_other_sites_are_told_apart(headers: dict[str, str], expected: bool) -> None:
    assert is_same_origin({"Host": "h:8161"} | headers, "http") is expected
