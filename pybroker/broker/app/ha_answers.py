"""Answers what the management process asks about the pair: the state of high availability, and a request to step down.

The state is read from the store in a thread of its own, one at a time: a share that hangs keeps that thread alone, and
the end of the process does not wait for it.
"""

import asyncio
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Final

from pybroker import blocking
from pybroker.broker.app.ha_state import HaState
from pybroker.broker.app.node import Node
from pybroker.broker.app.request_types import Arguments, Method, SendRows
from pybroker.broker.domain import audit
from pybroker.broker.domain.node_requests import RequestFailed

READ_SECONDS: Final = 3.0


class HaAnswers:
    """The answers about the pair of one member.

    Attributes:
        read: returns the state; blocks for the store.
        node: the present run of the member; None before the first.
    """

    def __init__(self, name: str) -> None:
        """Create them for a member of this name."""
        self._name = name
        self.read: Callable[[], HaState] | None = None
        self.node: Node | None = None
        self._reading: asyncio.Task[HaState] | None = None
        self._began_at = 0.0
        self.methods: Final[Mapping[str, Method]] = {"ha": self._state, "step_down": self._step_down}

    def close(self) -> None:
        """Read nothing more."""
        if self._reading is not None:
            self._reading.cancel()

    async def _state(self, arguments: Arguments, send: SendRows) -> object:
        if self.read is None:
            raise RequestFailed(HTTPStatus.SERVICE_UNAVAILABLE, "this member is starting")
        loop = asyncio.get_running_loop()
        if self._reading is None or self._reading.done():
            self._began_at = loop.time()
            self._reading = asyncio.create_task(blocking.call(self.read, "ha-state"))
        reading = self._reading
        await asyncio.wait({reading}, timeout=READ_SECONDS)
        if not reading.done():
            seconds = loop.time() - self._began_at
            raise RequestFailed(HTTPStatus.GATEWAY_TIMEOUT, f"the store has not answered for {seconds:.0f} s")
        return reading.result()

    async def _step_down(self, arguments: Arguments, send: SendRows) -> object:
        if self.node is None:
            raise RequestFailed(HTTPStatus.SERVICE_UNAVAILABLE, "this member is starting")
        force, to = bool(arguments["force"]), str(arguments.get("to", ""))
        refusal = await self.node.request_stepdown(force=force, to=to)
        if refusal:
            raise RequestFailed(HTTPStatus.CONFLICT, refusal)
        act = "had the master step down by force:" if force else "had the master step down:"
        if to:
            act = f"had the master hand over to {to}:"
        audit.operated(arguments["user"], arguments["address"], act, self._name)
        return {}
