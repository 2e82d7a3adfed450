"""The answer to an operation on many messages: while it is under way, something is written every second.

```text
done within a second     200, JSON: the result; or an error with its status
else                     200, an empty line a second, and the result: JSON, before which there may be blanks
… with the field         Accept: application/x-ndjson
                         200, {"affected": 4000, "examined": 4100} a second, and the result as the last line
```

A proxy gives a request up for which nothing comes, after a minute as nginx and HAProxy are usually set up, and closes
the connection, which would end the operation. If the member ends meanwhile, the result has the last counts, and the
error.
"""

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Final

from aiohttp import web

from pybroker.broker.domain.node_requests import ProgressRow, RequestFailed
from pybroker.management.site import json_answer, stream_answer

LINES: Final = "application/x-ndjson"
"""The media type of lines of JSON."""

_JSON: Final = "application/json"
_UNKNOWN: Final = {"skipped": None, "in_flight": None, "is_cancelled": False}


class OperationStream:
    """The answer to one request."""

    def __init__(self, request: web.Request) -> None:
        self._request = request
        self._has_lines = LINES in request.headers.get("Accept", "")
        self._answer: web.StreamResponse | None = None
        self._progress = ProgressRow(0, 0)

    async def report(self, rows: list[list[Any]]) -> None:
        """Write how far it is.

        Raises:
            CancelledError: the client has closed the connection.
        """
        self._progress = ProgressRow(*rows[-1])
        if self._answer is None:
            self._answer = stream_answer(LINES if self._has_lines else _JSON)
            await self._answer.prepare(self._request)
        await _write(self._answer, _line(self._progress._asdict()) if self._has_lines else b"\n")

    async def end(self, result: Mapping[str, Any]) -> web.StreamResponse:
        """Write the result, and return the answer."""
        if self._answer is None:
            return json_answer(result)
        await _write(self._answer, _line(result))
        return self._answer

    async def fail(self, error: RequestFailed) -> web.StreamResponse:
        """Write why there is no result, and return the answer; it has status 200, if something was written before.

        Raises:
            RequestFailed: nothing was written.
        """
        if self._answer is None:
            raise error
        return await self.end(self._progress._asdict() | _UNKNOWN | {"error": error.text})


async def _write(answer: web.StreamResponse, data: bytes) -> None:
    try:
        await answer.write(data)
    except ConnectionError as error:  # as the server ends the work for a client that leaves before a write
        raise asyncio.CancelledError from error


def _line(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value).encode() + b"\n"
