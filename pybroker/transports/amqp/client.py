"""Carries out the frames of an open AMQP connection: its sessions, and what they have in common."""

from pybroker.broker.domain.amqp.errors import AmqpError
from pybroker.broker.domain.amqp.frames import AmqpFrame
from pybroker.broker.domain.amqp.performatives import (
    AmqpAttach,
    AmqpBegin,
    AmqpDetach,
    AmqpDisposition,
    AmqpEnd,
    AmqpFlow,
    AmqpTransfer,
)
from pybroker.broker.domain.errors import RequestError, ResourceLimit
from pybroker.transports.amqp.channel import AmqpChannel
from pybroker.transports.amqp.peer import AmqpPeer
from pybroker.transports.amqp.refusals import (
    FRAMING_ERROR,
    NOT_ALLOWED,
    RESOURCE_LIMIT,
    SessionRefused,
    condition_of,
)
from pybroker.transports.amqp.transactions import AmqpTransactions


class AmqpClient:
    """A connected client.

    Attributes:
        peer: its end of the connection.
    """

    def __init__(self, peer: AmqpPeer) -> None:
        """Create a client without sessions."""
        self.peer = peer
        self._channels: dict[int, AmqpChannel] = {}
        self._transactions = AmqpTransactions(peer.connection)

    def obey(self, frame: AmqpFrame) -> None:
        """Carry out a frame.

        Raises:
            AmqpError: the connection ends.
        """
        performative = frame.performative
        if performative is None:
            return
        if isinstance(performative, AmqpBegin):
            self._begin(frame.channel, performative)
            return
        channel = self._channels.get(frame.channel)
        if channel is None:
            raise AmqpError(f"A frame on the channel {frame.channel}, which has no session", FRAMING_ERROR)
        try:
            match performative:
                case AmqpTransfer():
                    channel.transfer(performative, frame.payload)
                case AmqpDisposition():
                    channel.disposition(performative)
                    self._pump()
                case AmqpFlow():
                    channel.flow(performative)
                case AmqpAttach():
                    channel.attach(performative)
                case AmqpDetach():
                    channel.detach(performative)
                case AmqpEnd():
                    self._end(channel)
                case _:
                    raise AmqpError(f"{type(performative).__name__} came on an open connection", NOT_ALLOWED)
        except SessionRefused as error:
            channel.refuse(error)
        except RequestError as error:
            channel.refuse(SessionRefused(str(error), condition_of(error)))

    def _pump(self) -> None:
        """Have sessions go on that have waited for deliveries to be settled."""
        if self.peer.is_held or self.peer.suspended:
            for channel in list(self._channels.values()):
                channel.pump()

    def _begin(self, number: int, begin: AmqpBegin) -> None:
        if number in self._channels:
            raise AmqpError(f"The channel {number} has a session already", NOT_ALLOWED)
        if number >= self.peer.limits.channels:
            raise AmqpError(f"The channel {number}: {self.peer.limits.channels - 1} is the largest", FRAMING_ERROR)
        try:
            self.peer.connection.add_session()
        except ResourceLimit as error:
            raise AmqpError(str(error), RESOURCE_LIMIT) from error
        self._channels[number] = AmqpChannel(number, begin, self.peer, self._transactions)

    def _end(self, channel: AmqpChannel) -> None:
        del self._channels[channel.number]
        self.peer.connection.remove_session()
        channel.end()

    def end_of_chunk(self) -> None:
        """Answer what was gathered from a chunk of input."""
        for channel in self._channels.values():
            channel.end_of_chunk()

    def written(self) -> None:
        """React to all output having left the process."""
        peer = self.peer
        peer.connection.written()
        peer.is_slow = False
        for channel in list(self._channels.values()):
            channel.written()
        if not peer.is_slow:  # what waited may have been too much for the client again
            peer.resume(peer)
        for channel in list(self._channels.values()):
            if channel.draining:
                channel.pump()

    def pause(self) -> None:
        """Pause deliveries until `written`, as the client reads too slowly."""
        self.peer.is_slow = True
        self.peer.hold(self.peer)

    def on_timer(self) -> None:
        """Have sessions go on without those whose windows are closed; settle what could not be sent; finish drains."""
        channels = list(self._channels.values())
        for channel in channels:  # first all of these: the others' drains are not held up after that
            channel.suspend()
        for channel in channels:
            channel.on_timer()

    def finish_deferred(self) -> None:
        """Send or refuse the messages that wait for space, as the client leaves."""
        for channel in list(self._channels.values()):
            channel.finish_deferred()

    def close(self) -> None:
        """Close the connection; unsettled messages go back to the core. Harmless when repeated."""
        for channel in self._channels.values():
            channel.abandon()
        self._channels = {}
        self._transactions.clear()
        self.peer.connection.close()
        self.peer.release_references()
