"""A master's questions for records of a follower's copy, and the answers, which come in their order.

Used on the event loop.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from pybroker.broker.domain.replica.frames import FrameBody, ReadRecord, RecordPiece
from pybroker.broker.domain.replica.manifest import MalformedFrame

RECORD_BYTES_MAX: Final = 1 << 30
"""The longest record that is taken: a batch is no longer than a data file's offsets reach, and messages are shorter."""


class RecordQuestions:
    """The questions on one connection.

    Args:
        send: sends a frame that is no operation.
    """

    def __init__(self, send: Callable[[FrameBody], None]) -> None:
        self._send = send
        self._waiting: deque[asyncio.Future[bytes]] = deque()
        self._pieces: list[bytes] = []
        self._left = 0
        """Bytes that are left of the present answer, once its first piece has come."""
        self._has_ended = False

    async def ask(self, question: ReadRecord) -> bytes:
        """Return a record, with its header; nothing if the follower has none, or has gone."""
        if self._has_ended:
            return b""
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting.append(answer)
        self._send(question)
        return await answer

    def take(self, piece: RecordPiece) -> bool:
        """Take a piece of the present answer; return False if none is awaited.

        Raises:
            MalformedFrame: the record is too long, or the piece is not the next one of it.
        """
        if not self._waiting:
            return False
        size = len(piece.content)
        if piece.left > RECORD_BYTES_MAX:
            raise MalformedFrame(f"a record of more than {RECORD_BYTES_MAX} bytes")
        if self._pieces and self._left != size + piece.left:
            raise MalformedFrame(f"{piece.left} bytes are left of a record of which {self._left} were")
        if piece.left and not size:
            raise MalformedFrame("a piece of a record without bytes")
        self._pieces.append(bytes(piece.content))
        self._left = piece.left
        if not piece.left:
            answer, record = self._waiting.popleft(), b"".join(self._pieces)
            self._pieces = []
            if not answer.done():  # who asked may not wait any more
                answer.set_result(record)
        return True

    def end(self) -> None:
        """Answer nothing any more: the connection has ended."""
        self._has_ended = True
        while self._waiting:
            answer = self._waiting.popleft()
            if not answer.done():
                answer.set_result(b"")
