"""The link to the node: it tells its state, line by line, and gets a byte a second as a sign of life."""

import asyncio
import logging
import socket
from typing import Final, Self, cast

from pybroker.broker.domain.node_state import LINE_BYTES_MAX, NodeState

SIGN_SECONDS: Final = 1.0
SIGN: Final = b"."

_log = logging.getLogger(__name__)


class NodeLink(asyncio.Protocol):
    """The management process's end of the link.

    Attributes:
        state: the node's last state; None before the first.
        ended: is done when the node has ended, or closed the link.
    """

    def __init__(self) -> None:
        self.state: NodeState | None = None
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line = b""

    @classmethod
    async def connect(cls, end: socket.socket) -> Self:
        """Return the link over one end of a connected pair of sockets."""
        _, link = await asyncio.get_running_loop().create_unix_connection(cls, sock=end)
        return link

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to give signs of life."""
        self._transport = cast("asyncio.Transport", transport)
        self._give_sign()

    def data_received(self, data: bytes) -> None:
        """Take over the last state that is complete."""
        *lines, self._line = (self._line + data).split(b"\n")
        assert len(self._line) < LINE_BYTES_MAX, "the node writes shorter lines"
        if lines:
            self.state = NodeState.from_line(lines[-1])

    def connection_lost(self, exc: Exception | None) -> None:
        """End: the node has."""
        self._timer.cancel()
        if not self.ended.done():
            self.ended.set_result(None)

    def _give_sign(self) -> None:
        if not self._transport.get_write_buffer_size():  # else the node hangs, and a sign is waiting
            self._transport.write(SIGN)
        self._timer = asyncio.get_running_loop().call_later(SIGN_SECONDS, self._give_sign)
