"""The peer of an OpenWire connection: sends commands in the negotiated wire format."""

from collections.abc import Sequence
from typing import Final

from pybroker.broker.domain.big_endian import INT, int_at
from pybroker.broker.domain.errors import BrokerError
from pybroker.broker.domain.openwire.commands import (
    ConnectionErrorCommand,
    DataStructure,
    ExceptionResponse,
    Response,
)
from pybroker.broker.domain.openwire.layout import RESPONSE, packed
from pybroker.broker.domain.openwire.marshal.codec import WireFormat
from pybroker.broker.domain.openwire.marshal.transcode import is_verbatim
from pybroker.transports.openwire.faults import throwable
from pybroker.transports.session import Link

_RESPONSE = packed("iB", RESPONSE.run("command_id"))
"""The frame of a Response: size, data type, fields."""
_RESPONSE_BYTES: Final = _RESPONSE.size - INT.size
_RESPONSE_TYPE: Final = Response.DATA_TYPE
_NUMBER_AT: Final = _RESPONSE_BYTES - INT.size
"""The offset of the number of the command that a Response answers."""


def answered_command(chunk: bytes, start: int, stop: int) -> int:
    """Return the number of the command that a frame answers, if it is a plain Response; -1 for anything else.

    The frame, from its data type at `start` to its end at `stop`, must be loose, and without caching.
    """
    if stop - start != _RESPONSE_BYTES or chunk[start] != _RESPONSE_TYPE:
        return -1
    return int_at(chunk, start + _NUMBER_AT)


class Peer:
    """The peer of one connection.

    Attributes:
        wire: the negotiated format.
        is_loose: it sends and reads commands loose and without caching.
        is_verbatim: it sends and reads messages in the bytes that the store keeps.
        write: sends bytes; the link's own function, to save a call.
    """

    __slots__ = ("_link", "is_loose", "is_verbatim", "wire", "write")

    def __init__(self, link: Link, wire: WireFormat) -> None:
        self._link = link
        self.wire = wire
        self.write = link.write
        self.is_loose = not wire.tight and not wire.cache_size
        self.is_verbatim = is_verbatim(wire)

    def send(self, command: DataStructure) -> None:
        """Send one command."""
        for piece in self.wire.encode_frame_pieces(command):
            self.write(piece)

    def respond(self, command_ids: Sequence[int]) -> None:
        """Send a plain Response to each command."""
        if self.is_loose:
            pack = _RESPONSE.pack
            self.write(b"".join([pack(_RESPONSE_BYTES, _RESPONSE_TYPE, 0, False, each) for each in command_ids]))
        else:
            for command_id in command_ids:
                self.send(Response(correlation_id=command_id))

    def refuse(self, command_id: int, error: BrokerError, *, xa: bool = False) -> None:
        """Answer a command with an exception."""
        self.send(ExceptionResponse(correlation_id=command_id, exception=throwable(error, xa=xa)))

    def send_connection_error(self, error: BrokerError) -> None:
        """Report an error of a command that requires no response."""
        self.send(ConnectionErrorCommand(exception=throwable(error)))
