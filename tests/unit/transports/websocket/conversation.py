"""Frames of a WebSocket client, a fake link, and an inner session that records what it gets."""

import struct
from collections.abc import Callable, Sequence
from typing import Any

from pybroker.broker.domain.effort import EFFORT
from pybroker.broker.domain.errors import BrokerError
from pybroker.transports.session import Link
from pybroker.transports.websocket.origins import OriginRule
from pybroker.transports.websocket.session import WebSocketSession, WebSocketSettings
from pybroker.transports.websocket.subprotocols import STOMP

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
MASK = bytes.fromhex("a1b2c3d4")
KEY = "dGhlIHNhbXBsZSBub25jZQ=="
ACCEPTED = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
"""The key and the answer of RFC 6455, 1.3."""
MESSAGE_BYTES_MAX = 300_000


def request(*lines: str, start: str = "GET / HTTP/1.1", without: str = "") -> bytes:
    """Return a request for an upgrade with more lines, without the header of a name."""
    usual = ("Host: b.example:61614", "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13")
    headers = [each for each in (*usual, f"Sec-WebSocket-Key: {KEY}") if not without or not each.startswith(without)]
    return "\r\n".join((start, *headers, *lines, "", "")).encode("latin-1")


def frame(
    opcode: int, payload: bytes = b"", *, fin: bool = True, rsv: int = 0, mask: bytes = MASK, form: int | None = None
) -> bytes:
    """Return a client's frame; without a mask it is one of a server. `form` is the form of the length, 126 or 127."""
    size = len(payload)
    if form is None:
        form = size if size < 126 else 126 if size < 1 << 16 else 127
    length = {126: struct.pack("!H", size & 0xFFFF), 127: struct.pack("!Q", size)}.get(form, b"")
    masked = bytes(byte ^ mask[index % 4] for index, byte in enumerate(payload)) if mask else payload
    return bytes((fin << 7 | rsv << 4 | opcode, (0x80 if mask else 0) | form)) + length + mask + masked


def server_frames(data: bytes) -> list[tuple[int, bytes]]:
    """Return opcodes and payloads of what a server has sent; each is unfragmented, and none is masked."""
    found = []
    while data:
        assert data[0] & 0xF0 == 0x80, "FIN alone"
        size, at = data[1], 2
        assert size < 128, "not masked"
        if size >= 126:
            at = 4 if size == 126 else 10
            size = int.from_bytes(data[2:at], "big")
        found.append((data[0] & 15, data[at : at + size]))
        assert len(data) >= at + size, "whole"
        data = data[at + size :]
    return found


def close_code(payload: bytes) -> int:
    return int.from_bytes(payload[:2], "big")


class FakeLink:
    """A connection's link; time stands still until the test moves it."""

    peer = "10.0.0.1:5"
    certificate: str | None = None
    reading_since: float | None = 100.0
    ending = ""

    def __init__(self) -> None:
        self.output: list[bytes] = []
        self.is_closed = False
        self.now = 100.0
        self.wake: float | None = None
        self.is_input_waiting = False
        self.is_slice_spent = False
        self.calls: list[tuple[object, ...]] = []
        self.session: WebSocketSession

    def write(self, data: bytes | memoryview) -> None:
        assert not self.is_closed, "written after close"
        self.output.append(bytes(data))

    def write_pieces(self, pieces: Sequence[bytes]) -> None:
        for piece in pieces:
            self.write(piece)

    def close(self) -> None:
        self.is_closed = True

    def time(self) -> float:
        return self.now

    def wake_at(self, when: float | None) -> None:
        self.wake = when

    def is_slice_over(self) -> bool:
        EFFORT.is_large = False
        return self.is_slice_spent

    def reserve_frame(self, size: int, received: int) -> None:
        self.calls.append(("reserve", size, received))

    def release_frame(self) -> None:
        self.calls.append(("release frame",))

    def in_thread(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        work()
        done()

    def pause_reading(self) -> None:
        self.calls.append(("pause",))

    def resume_reading(self) -> None:
        self.calls.append(("resume",))

    def hold_input(self) -> None:
        self.session.hold()

    def release_input(self) -> None:
        self.session.release()

    def give_up(self, error: BrokerError) -> None:
        self.session.give_up(error)

    def sent(self) -> bytes:
        """Return and forget what was written."""
        data = b"".join(self.output)
        self.output.clear()
        return data


class InnerSession:
    """Records its input; a `Session`, whose frames are single bytes: C closes, E sends an error and closes, H holds."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.is_connected = False
        self.received = b""
        self.events: list[object] = []
        self.is_held = False
        self._left = b""

    def receive(self, chunk: bytes) -> bool:
        assert not self._left, "the bytes before were not carried out"
        assert not self.is_held, "received while held"
        self._left = chunk
        return self.proceed()

    def proceed(self) -> bool:
        while self._left and not self.is_held:
            byte, self._left = self._left[:1], self._left[1:]
            self.received += byte
            if byte == b"C":
                self._left = b""
                self.link.close()
            elif byte == b"E":
                self._left = b""
                self.link.write(b"ERROR\n\n\0\n")
                self.link.close()
            elif byte == b"H":
                self.link.hold_input()
            elif byte == b"S":  # its slice is over
                return True
        return False

    def written(self) -> None:
        self.events.append("written")

    def handed_over(self) -> None:
        self.events.append("handed over")

    def pause_writing(self) -> None:
        self.events.append("pause writing")

    def hold(self) -> None:
        self.is_held = True

    def release(self) -> None:
        self.is_held = False

    def on_timer(self) -> None:
        self.events.append("timer")

    def stopping(self) -> None:
        self.events.append("stopping")

    def give_up(self, error: BrokerError) -> None:
        self.link.write(b"ERROR\n\n\0\n")
        self.link.close()

    def lost(self) -> None:
        self.events.append("lost")


class Conversation:
    """A session and its link."""

    def __init__(self, make: Callable[[Link], Any] = InnerSession, origins: str = "same-host") -> None:
        self.link = FakeLink()
        self.made: list[Any] = []

        def inner(link: Link) -> Any:
            self.made.append(make(link))
            return self.made[-1]

        settings = WebSocketSettings(
            families={STOMP: inner},
            origins=OriginRule(origins),
            message_bytes_max=MESSAGE_BYTES_MAX,
            handshake_seconds=30,
        )
        self.session = self.link.session = WebSocketSession(self.link, settings)

    @property
    def inner(self) -> Any:
        (inner,) = self.made
        return inner

    def feed(self, *chunks: bytes) -> None:
        """Feed as a connection does: nothing after a close, and what is left before other bytes."""
        for chunk in chunks:
            if not self.link.is_closed:
                is_left = self.session.receive(chunk)
                while is_left:
                    is_left = self.session.proceed()

    def ask(self, *chunks: bytes) -> list[tuple[int, bytes]]:
        """Feed chunks, and return the frames of the answer."""
        self.feed(*chunks)
        return server_frames(self.link.sent())


def upgraded(make: Callable[[Link], Any] = InnerSession) -> Conversation:
    """Return a conversation behind its handshake."""
    conversation = Conversation(make)
    conversation.feed(request("Sec-WebSocket-Protocol: v12.stomp"))
    assert conversation.link.sent().startswith(b"HTTP/1.1 101 ")
    return conversation


def cut(data: bytes, cuts: Sequence[int]) -> list[bytes]:
    """Return the chunks between some places."""
    ends = sorted({min(each, len(data)) for each in cuts} | {len(data)})
    return [data[start:end] for start, end in zip([0, *ends], ends, strict=False)]
