"""Bytes to STOMP frames, and frames to bytes. Knows versions, escapes and limits; no commands and no conversation.

Source: STOMP 1.2, "Augmented BNF", with ActiveMQ 5.17's tolerances:

```text
 EOLs and NULs   command EOL   name:value EOL …   EOL   body                       NUL
 skipped         UTF-8, trimmed, first header of    blank, content-length bytes, or up to the first NUL
                 a name wins; "name" alone: empty   or CR
```

EOL is LF. One CR before it belongs to it in 1.0 and 1.2, and to the line in 1.1; an otherwise blank line ends the
headers in every version. A `content-length` is obeyed on every command. Values are trimmed in 1.0.

Every byte is examined a bounded number of times, whatever the chunks: a position is remembered between them.
"""

import re
from collections.abc import Iterator, Mapping
from io import BytesIO

from pybroker.broker.domain.stomp.errors import StompProtocolError
from pybroker.broker.domain.stomp.frames import (
    ESCAPERS,
    Frame,
    StompLimits,
    Version,
    readable_name,
    shortened,
    unescape,
)

HEART_BEAT = b"\n"

_GAP = re.compile(rb"[\x00\r\n\t ]*")
"""The bytes allowed between frames: heart-beats, the line end after a NUL, further NULs and blanks."""

_LENGTH_DIGITS_MAX = 18
"""A content-length with more digits exceeds any limit; Python would take seconds to convert a long enough one."""

FRAME_END = b"\0\n"
"""The end of a server's frame: the NUL and, as in ActiveMQ, a line feed, which makes captures readable."""


WHOLE_BYTES_MIN = 1 << 20
"""The part of a body that has to be there before the rest of it is gathered in a buffer of its own, whose bytes become
the body's without a copy."""

_Head = tuple[str, dict[str, str], int, int | None]
"""A frame without its body: command, headers, bytes from the command through the blank line, and the
`content-length`, None when the body ends at the first NUL. A bare tuple, because each frame makes one."""


class FrameDecoder:
    """Turns chunks into frames.

    Attributes:
        version: the rules for frames not decoded yet; set it as soon as the version is agreed.
        body_bytes_max: how long their bodies may be; `limits.body_bytes` unless it is set.
        head_bytes_max: how long command and headers together may be; `limits.head_bytes` unless it is set.
    """

    __slots__ = ("_body", "_buffer", "_head", "_limits", "_scanned", "body_bytes_max", "head_bytes_max", "version")

    def __init__(self, limits: StompLimits) -> None:
        self.version = Version.V1_0
        self.body_bytes_max = limits.body_bytes
        self.head_bytes_max = limits.head_bytes
        self._limits = limits
        self._buffer = bytearray()
        # About the frame at the buffer's start: its head once complete, and how far its end was looked for in vain.
        self._head: _Head | None = None
        self._scanned = 0
        self._body: BytesIO | None = None
        """The body that has come of a large unfinished frame; the buffer is empty then."""

    def feed(self, chunk: bytes) -> Iterator[Frame]:
        """Yield each frame that `chunk` completes, decoding it only when requested.

        So a frame may change `version` for the next one, and frames before a broken one are not lost. The iterator
        must be exhausted before the next chunk, except when no more chunks follow.

        Raises:
            ProtocolError: the bytes are no frame, or exceed a limit. Nothing can be decoded after that.
        """
        data: bytes | bytearray = chunk
        start = 0
        if self._body is not None:
            start = self._gather(self._body, chunk)
            if not start:
                return
            yield self._gathered(self._body)
        elif self._buffer:
            self._buffer += chunk
            data = self._buffer
        while True:
            if not self._scanned:
                start = _skip_gap(data, start)
            if start == len(data):
                break
            decoded = self._decode(data, start)
            if decoded is None:
                break
            frame, start = decoded
            yield frame
        self._keep(data, start)

    @property
    def received(self) -> int:
        """How many bytes of an unfinished frame have come."""
        if self._body is not None and self._head is not None:
            return self._head[2] + self._body.tell()
        return len(self._buffer)

    @property
    def unfinished(self) -> int:
        """The length of the unfinished frame, 0 for none.

        Without a content-length it is not known, and taken for the next power of two.
        """
        head = self._head
        if head is None or head[3] is None:
            received = self.received
            return 1 << received.bit_length() if received else 0
        return head[2] + head[3] + 1

    def clear(self) -> None:
        """Drop all bytes: the connection has ended, and the garbage collection that finds this object may come late."""
        self._buffer = bytearray()
        self._head = self._body = None
        self._scanned = 0

    def _keep(self, data: bytes | bytearray, start: int) -> None:
        """Keep the unfinished frame that begins at `start`, and nothing else."""
        if data is self._buffer:
            del self._buffer[:start]
        elif start < len(data):
            self._buffer = bytearray(memoryview(data)[start:])
        head = self._head
        if head is not None and len(self._buffer) - head[2] >= WHOLE_BYTES_MIN:
            self._body = BytesIO()
            with memoryview(self._buffer) as view:
                self._body.write(view[head[2] :])
            self._buffer = bytearray()

    def _gather(self, body: BytesIO, chunk: bytes) -> int:
        """Add a chunk to a large body; return where the next frame begins in it, 0 if this one goes on."""
        assert self._head is not None, "a body follows its head"
        body_bytes = self._head[3]
        if body_bytes is None:
            end = chunk.find(0)
            if body.tell() + (len(chunk) if end < 0 else end) > self.body_bytes_max:
                raise self._body_too_long()
        else:
            end = body_bytes - body.tell()
            if end >= len(chunk):
                end = -1
            elif chunk[end]:
                raise _no_trailing_null()
        if end < 0:
            body.write(chunk)
            return 0
        body.write(memoryview(chunk)[:end])
        return end + 1

    def _gathered(self, body: BytesIO) -> Frame:
        assert self._head is not None, "a body follows its head"
        command, headers, _, _ = self._head
        self._head = self._body = None
        self._scanned = 0
        return Frame(command, headers, body.getvalue())  # which shares the bytes

    def _decode(self, data: bytes | bytearray, start: int) -> tuple[Frame, int] | None:
        """Return the frame at `start` and where it ends, or None when it is not complete."""
        head = self._head
        if head is None:
            head = self._find_head(data, start)
            if head is None:
                return None
        command, headers, head_bytes, body_bytes = head
        body_start = start + head_bytes
        if body_bytes is not None:
            body_end = body_start + body_bytes
            if body_end >= len(data):
                self._head, self._scanned = head, len(data) - start
                return None
            if data[body_end]:
                raise _no_trailing_null()
        else:
            body_end = data.find(0, max(body_start, start + self._scanned))
            if (len(data) if body_end < 0 else body_end) - body_start > self.body_bytes_max:
                raise self._body_too_long()
            if body_end < 0:
                self._head, self._scanned = head, len(data) - start
                return None
        self._head = None
        self._scanned = 0
        return Frame(command, headers, _slice(data, body_start, body_end)), body_end + 1

    # ------------------------------------------------------------ head

    def _find_head(self, data: bytes | bytearray, start: int) -> _Head | None:
        """Return the head of the frame at `start` once its blank line has come.

        The first NUL bounds the search: no head has one, so bytes behind it belong to a body or another frame, and
        looking for a line end there would read the rest of the chunk once per frame.
        """
        scan = start + self._scanned
        nul = data.find(0, scan)
        bound = len(data) if nul < 0 else nul
        # Two bytes back, for a blank line that the last chunk began.
        scan = max(start, scan - 2)
        end = data.find(b"\n\n", scan, bound)
        blank = end + 2
        stop = bound if end < 0 else end
        if data.find(13, scan, stop) >= 0:
            blank_with_cr = data.find(b"\n\r\n", scan, stop + 1)
            if blank_with_cr >= 0:
                end, blank = blank_with_cr, blank_with_cr + 3
        if end >= 0:
            return self._parse_head(_slice(data, start, end), blank - start)
        if nul >= 0:
            raise StompProtocolError(
                "A null byte came before the blank line that ends the headers",
                "Write a blank line between headers and body, also where both are empty.",
            )
        self._check_unfinished_head(data, start)
        self._scanned = len(data) - start
        return None

    def _parse_head(self, head: bytes, size: int) -> _Head:
        try:
            text = head.decode()
        except UnicodeDecodeError as error:
            raise StompProtocolError("Headers must be UTF-8", f"Byte {error.start} of this frame is not.") from error
        if "\r" in text and self.version is not Version.V1_1:
            text = text.replace("\r\n", "\n").removesuffix("\r")
        command, *lines = text.split("\n")
        if len(lines) > self._limits.header_count:
            raise StompProtocolError(
                "The maximum number of headers was exceeded", f"A frame may have {self._limits.header_count}."
            )
        if len(head) > self._limits.command_bytes:
            self._check_lines(head)
        headers = _parse_headers(lines)
        if self.version is Version.V1_0:
            headers = {name: value.strip() for name, value in headers.items()}
        if "\\" in text:
            headers = {name: unescape(value, self.version) for name, value in headers.items()}
        length = headers.get("content-length")
        return command.strip(), headers, size, None if length is None else self._body_bytes(length)

    def _body_bytes(self, text: str) -> int:
        digits = text.strip()
        if not (digits.isascii() and digits.isdigit()):
            raise StompProtocolError(
                "Specified content-length is not a valid integer",
                f"It is {shortened(text)!r} and should be the number of bytes in the body.",
            )
        if len(digits) > _LENGTH_DIGITS_MAX or int(digits) > self.body_bytes_max:
            raise self._body_too_long()
        return int(digits)

    # ------------------------------------------------------------ limits

    def _check_unfinished_head(self, data: bytes | bytearray, start: int) -> None:
        size = len(data) - start
        if size > self._limits.command_bytes and data.find(b"\n", start, start + self._limits.command_bytes + 2) < 0:
            raise self._command_too_long()
        if size > self.head_bytes_max:
            raise self._head_too_long()

    def _check_lines(self, head: bytes) -> None:
        command, *lines = head.split(b"\n")
        if len(command) > self._limits.command_bytes:
            raise self._command_too_long()
        if max(map(len, lines), default=0) > self._limits.header_line_bytes:
            raise StompProtocolError(
                "The maximum header length was exceeded", f"A line may have {self._limits.header_line_bytes} bytes."
            )
        if len(head) > self.head_bytes_max:
            raise self._head_too_long()

    def _command_too_long(self) -> StompProtocolError:
        return StompProtocolError(
            "The maximum command length was exceeded", f"A command may have {self._limits.command_bytes} bytes."
        )

    def _head_too_long(self) -> StompProtocolError:
        return StompProtocolError(
            "The maximum header length was exceeded",
            f"Command and headers may have {self.head_bytes_max} bytes together.",
        )

    def _body_too_long(self) -> StompProtocolError:
        return StompProtocolError(
            "The maximum data length was exceeded", f"A body may have {self.body_bytes_max} bytes here."
        )


def encode_frame(command: str, headers: Mapping[str, str], body: bytes, version: Version) -> bytes:
    """Return a server's frame, its values escaped as the version has it."""
    escape = ESCAPERS[version]
    lines = [command, *[f"{readable_name(name)}:{escape(value)}" for name, value in headers.items()], "", ""]
    return b"".join(("\n".join(lines).encode(errors="replace"), body, FRAME_END))


# ---------------------------------------------------------------- private


def _skip_gap(data: bytes | bytearray, start: int) -> int:
    """Return where the next frame begins, or the end of data."""
    if start < len(data) and data[start] <= 32:
        match = _GAP.match(data, start)
        assert match is not None, "the pattern matches nothing, too"
        return match.end()
    return start


def _no_trailing_null() -> StompProtocolError:
    return StompProtocolError(
        "content-length bytes were read and there was no trailing null byte",
        "content-length counts bytes, not characters, and a NUL follows the body.",
    )


def _slice(data: bytes | bytearray, start: int, end: int) -> bytes:
    """Cut bytes out with one copy, also from a bytearray."""
    if isinstance(data, bytes):
        return data[start:end]
    with memoryview(data) as view:
        return bytes(view[start:end])


def _parse_headers(lines: list[str]) -> dict[str, str]:
    """Return names and raw values of header lines; of a repeated name the first."""
    pairs = [line.partition(":") for line in lines]
    headers = {name: value for name, _, value in pairs}
    if len(headers) != len(pairs):
        headers = {name: value for name, _, value in reversed(pairs)}
    if "" in headers:
        raise StompProtocolError("A header has no name", "Write name:value, one per line.")
    return headers
