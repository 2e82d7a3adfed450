# mypy: disable-error-code="arg-type"
"""A bare STOMP 1.2 client over a blocking socket: small, exact, and it shows every frame as it came."""

import socket
import ssl
from dataclasses import dataclass

TIMEOUT_SECONDS = 20.0


@dataclass
class Frame:
    """One frame from the server."""

    command: str
    headers: dict[str, str]
    body: bytes


class Disconnected(Exception):
    """The broker closed, or the connection broke."""


class StompClient:
    """One connection. Every failure of the socket is `Disconnected`."""

    def __init__(
        self, port: int, *, is_connected: bool = True, tls: ssl.SSLContext | None = None, **headers: str
    ) -> None:
        try:
            self._socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_SECONDS)
            if tls is not None:
                self._socket = tls.wrap_socket(self._socket, server_hostname="127.0.0.1")
        except OSError as error:
            raise Disconnected(str(error)) from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = b""
        self.backlog: list[Frame] = []
        if not is_connected:
            return
        try:
            self.send("CONNECT", accept_version="1.2", host="test", **headers)
            assert self.read().command == "CONNECTED"
        except BaseException:
            self._socket.close()
            raise

    def close(self) -> None:
        self._socket.close()

    def send(self, command: str, body: bytes = b"", **headers: str) -> None:
        """Send a frame; underscores in header names become hyphens."""
        lines = "".join(f"{name.replace('_', '-')}:{_escaped(str(value))}\n" for name, value in headers.items())
        self.send_bytes(f"{command}\n{lines}\n".encode() + body + b"\0")

    def send_bytes(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise Disconnected(str(error)) from error

    def read(self) -> Frame:
        """Return the next frame."""
        while True:
            self._buffer = self._buffer.lstrip(b"\n")
            frame = self._parse()
            if frame is not None:
                return frame
            self._fill()

    def read_until(self, command: str, **headers: str) -> Frame:
        """Return the next frame of a kind; frames before it go to `backlog`."""
        wanted = {name.replace("_", "-"): value for name, value in headers.items()}
        while True:
            frame = self.read()
            if frame.command == command and wanted.items() <= frame.headers.items():
                return frame
            self.backlog.append(frame)

    def request(self, command: str, body: bytes = b"", **headers: str) -> Frame:
        """Send a frame with a receipt and return the RECEIPT or the ERROR."""
        self.send(command, body, receipt="request", **headers)
        while True:
            frame = self.read()
            if frame.headers.get("receipt-id") == "request" or frame.command == "ERROR":
                return frame
            self.backlog.append(frame)

    def read_to_end(self) -> bytes:
        """Return what is left until the broker closes."""
        try:
            while True:
                self._fill()
        except Disconnected:
            return self._buffer

    def _fill(self) -> None:
        try:
            chunk = self._socket.recv(1 << 16)
        except OSError as error:
            raise Disconnected(str(error)) from error
        if not chunk:
            raise Disconnected("closed by the broker")
        self._buffer += chunk

    def _parse(self) -> Frame | None:
        head, separator, rest = self._buffer.partition(b"\n\n")
        if not separator:
            return None
        command, *lines = head.decode().split("\n")
        headers: dict[str, str] = {}
        for line in lines:
            name, _, value = line.partition(":")
            headers.setdefault(name, _unescaped(value))
        end = int(headers["content-length"]) if "content-length" in headers else rest.find(b"\0")
        if end < 0 or len(rest) <= end:
            return None
        self._buffer = rest[end + 1 :]
        return Frame(command, headers, rest[:end])


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace(":", "\\c")


def _unescaped(text: str) -> str:
    return text.replace("\\c", ":").replace("\\n", "\n").replace("\\\\", "\\")
