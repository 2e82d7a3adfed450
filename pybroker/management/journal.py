"""`/api/v1/journal`: the data files of the store, and what keeps each, as `pybroker journal why` finds it.

That reads the whole journal, which may take minutes; so it is a process of its own, and its answer is kept for a
while. It reads the store's files, so a standby answers too.
"""

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from aiohttp import web

from pybroker.broker.domain.node_requests import RequestFailed
from pybroker.management.rest import API
from pybroker.management.routes import Route
from pybroker.management.site import json_answer
from pybroker.management.snapshots import Shared, Snapshots

FRESH_SECONDS: Final = 30.0
STALE_SECONDS: Final = 600.0

WAIT_SECONDS: Final = 50.0
"""How long a request waits for the answer; the next one gets it."""

READ_SECONDS: Final = 1800.0

_LINE_BYTES_MAX: Final = 16 << 20
_WRITTEN: Final = "being written"

Explanation = Mapping[str, Any]


def routes(snapshots: Snapshots) -> Sequence[Route]:
    """Return the route of the journal."""

    async def explain() -> Explanation:
        store = (await snapshots.overview.get())["store"]
        if not store:
            raise RequestFailed(HTTPStatus.NOT_FOUND, "this store has no journal: it is a database, or in memory")
        return _answer(await _lines(store))

    shared = Shared(explain, FRESH_SECONDS, STALE_SECONDS)

    async def answer(request: web.Request) -> web.StreamResponse:
        reading = asyncio.ensure_future(shared.get())
        done, _ = await asyncio.wait([reading], timeout=WAIT_SECONDS)
        if not done:
            reading.cancel()
            text = "the journal is large and still being read: ask again in a minute"
            raise RequestFailed(HTTPStatus.SERVICE_UNAVAILABLE, text)
        return json_answer(reading.result())

    summary = "The data files of the journal, and what keeps each. It is read once in half a minute at most."
    return [Route(method="GET", path=f"{API}/journal", handler=answer, summary=summary, answer={"type": "object"})]


async def _lines(store: str) -> list[dict[str, Any]]:
    """Return the lines of `pybroker journal why`.

    Raises:
        RequestFailed: it has failed.
    """
    command = [sys.executable, "-P", "-m", "pybroker.broker.app.cli", "journal", "why", "--json", "--store", store]
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=_LINE_BYTES_MAX,
    )
    try:
        async with asyncio.timeout(READ_SECONDS):
            output, errors = await process.communicate()
    except BaseException:
        process.kill()
        raise
    if process.returncode and not output:
        reason = errors.decode(errors="replace").strip().rpartition("\n")[2]
        raise RequestFailed(HTTPStatus.CONFLICT, f"the journal cannot be read: {reason}")
    return [json.loads(line) for line in output.splitlines()]


def _answer(lines: Sequence[Mapping[str, Any]]) -> Explanation:
    files = [_file(line) for line in lines if line.get("kind") == "file"]
    return {"files": files, "bytes": sum(each["size"] for each in files)}


def _file(line: Mapping[str, Any]) -> dict[str, Any]:
    path = Path(line["path"])
    reasons = line["reasons"]
    return {
        "name": path.name,
        "directory": str(path.parent),
        "size": line["size"],
        "is_current": any(each["cause"] == _WRITTEN for each in reasons),
        "is_kept": line["held"],
        "reasons": [_reason(each) for each in reasons],
        "remedies": [each["remedy"] for each in reasons],
        "note": line["note"],
    }


def _reason(reason: Mapping[str, Any]) -> str:
    count = reason["count"]
    return f"{count:,} × {reason['what']}" if count > 1 else str(reason["what"])
