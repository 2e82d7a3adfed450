"""The peer of an OpenWire connection: sends commands in the negotiated wire format."""

from collections.abc import Sequence

from pybroker.broker.domain.big_endian import INT
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
_RESPONSE_BYTES, _RESPONSE_TYPE = _RESPONSE.size - INT.size, Response.DATA_TYPE


class Peer:
    """The peer of one connection.

    Attributes:
        wire: the negotiated format.
        is_verbatim: it sends and reads messages in the bytes that the store keeps.
        write: sends bytes; the link's own function, to save a call.
    """

    __slots__ = ("_is_loose", "_link", "is_verbatim", "wire", "write")

    def __init__(self, link: Link, wire: WireFormat) -> None:
        self._link = link
        self.wire = wire
        self.write = link.write
        self._is_loose = not wire.tight and not wire.cache_size
        self.is_verbatim = is_verbatim(wire)

    def send(self, command: DataStructure) -> None:
        """Send one command."""
        for piece in self.wire.encode_frame_pieces(command):
            self.write(piece)

    def respond(self, command_ids: Sequence[int]) -> None:
        """Send a plain Response to each command."""
        if self._is_loose:
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
