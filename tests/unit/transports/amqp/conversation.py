"""AMQP clients without sockets: a broker in memory, links whose time the test moves, and a disk that can wait."""

import itertools
from typing import Any, Final, NamedTuple

from pybroker.broker.core.broker import BrokerCore
from pybroker.broker.core.policy import DestinationPolicy, PolicyMap
from pybroker.broker.domain.amqp.frames import (
    AMQP_HEADER,
    SASL_HEADER,
    AmqpFrame,
    AmqpFrameDecoder,
    AmqpInput,
    AmqpLimits,
    encode_frame,
)
from pybroker.broker.domain.amqp.performatives import (
    AmqpAccepted,
    AmqpAttach,
    AmqpBegin,
    AmqpDetach,
    AmqpDisposition,
    AmqpFlow,
    AmqpOpen,
    AmqpSource,
    AmqpTarget,
    AmqpTransfer,
    SaslInit,
)
from pybroker.broker.domain.amqp.sections import AmqpBodyKind, AmqpMessage, decode_message, encode_message
from pybroker.broker.domain.amqp.sections import AmqpMessageHeader as Header
from pybroker.broker.domain.amqp.sections import AmqpMessageProperties as Properties
from pybroker.broker.domain.amqp.values import Symbol
from pybroker.broker.domain.security import WITHOUT_LOGINS, Authenticator
from pybroker.transports.amqp.inbound import AmqpTransformer
from pybroker.transports.amqp.session import AmqpSession, self_description
from tests.timers import ManualTimers
from tests.unit.transports.mqtt.conversation import NOW_MS, Link, SlowStore

ACCEPTED: Final = AmqpAccepted()
BIG: Final = (1 << 31) - 1


def text(body: str, *, durable: bool = True, to: str | None = None, **properties: Any) -> bytes:
    """Return the payload of a message whose body is a string."""
    values: dict[Any, Any] = dict(properties)
    return encode_message(
        AmqpMessage(
            header=Header(durable=durable),
            properties=None if to is None else Properties(to=to),
            application_properties=values or None,
            body_kind=AmqpBodyKind.VALUE,
            body=body,
        )
    )


class Received(NamedTuple):
    """A message to a client: the transfer of its first frame, and the message."""

    transfer: AmqpTransfer
    message: AmqpMessage

    @property
    def body(self) -> object:
        """Its body."""
        return self.message.body


class World:
    """A broker and its clients.

    Attributes:
        now_ms: the broker's clock.
        timers: the broker's timers.
    """

    def __init__(
        self,
        authenticator: Authenticator = WITHOUT_LOGINS,
        limits: AmqpLimits | None = None,
        policy: DestinationPolicy | None = None,
        transformer: AmqpTransformer = AmqpTransformer.JMS,
    ) -> None:
        self.now_ms = NOW_MS
        self.store = SlowStore()
        policies = None if policy is None else PolicyMap(default=policy)
        self.broker = BrokerCore("b", store=self.store, clock=lambda: self.now_ms, policies=policies)
        self.timers = ManualTimers()
        self.broker.usage.paging.after = self.timers.after
        self._authenticator = authenticator
        self._limits = limits or AmqpLimits()
        self._transformer = transformer
        self._numbers = itertools.count(1)

    def connect(self) -> "Peer":
        """Return a client that has sent nothing."""
        link = Link()
        session = AmqpSession(
            broker=self.broker,
            link=link,
            connection_id=f"ID:host-1-{next(self._numbers)}",
            limits=self._limits,
            clock=lambda: self.now_ms,
            transformer=self._transformer,
            properties=self_description("1"),
            authenticator=self._authenticator,
        )
        link.session = session
        return Peer(session, link)

    def open(self, container_id: str = "c1", **fields: Any) -> "Peer":
        """Return a client with an open connection, and a session on channel 0."""
        peer = self.connect()
        peer.secure()
        answers = peer.send(AmqpOpen(container_id=container_id, **fields))
        [opened] = answers
        assert isinstance(opened, AmqpOpen), answers
        peer.opened = opened
        peer.begin()
        return peer


class Peer:
    """One client.

    Attributes:
        opened: the broker's open.
        frames: the frames that came with the last answer.
        channel: the channel of what it sends, unless another one is named.
    """

    opened: AmqpOpen

    def __init__(self, session: AmqpSession, link: Link) -> None:
        self.session = session
        self.link = link
        self.frames: list[AmqpFrame] = []
        self.channel = 0
        self._decoder = AmqpFrameDecoder(AmqpLimits(frame_bytes_max=1 << 30))
        self._delivery_ids = itertools.count()

    def feed(self, *data: bytes) -> list[AmqpInput]:
        """Send bytes; return the headers and frames that came."""
        self.session.receive(b"".join(data))
        return self.receive()

    def receive(self) -> list[AmqpInput]:
        """Return what the broker has sent since the last call."""
        data = bytes(self.link.output)
        self.link.output.clear()
        found = list(self._decoder.feed(data))
        assert not self._decoder.received, "the broker writes whole frames"
        if data:
            self.session.written()
        self.frames = [each for each in found if isinstance(each, AmqpFrame)]
        return found

    def performatives(self) -> list[Any]:
        """Return the performatives of the frames that came since the last call."""
        return [each.performative for each in self.receive() if isinstance(each, AmqpFrame)]

    def send(self, *performatives: Any, channel: int | None = None, payload: bytes = b"") -> list[Any]:
        """Send frames; return the performatives of the answers."""
        if channel is None:
            channel = self.channel
        data = [
            encode_frame(channel, each, payload if isinstance(each, AmqpTransfer) else b"") for each in performatives
        ]
        return [each.performative for each in self.feed(*data) if isinstance(each, AmqpFrame)]

    def secure(self, mechanism: str = "ANONYMOUS", response: bytes | None = b"x") -> list[AmqpInput]:
        """Send the headers, and log in; return the last answers."""
        self.feed(SASL_HEADER)
        self.feed(encode_frame(0, SaslInit(mechanism=Symbol(mechanism), initial_response=response)))
        return self.feed(AMQP_HEADER) if not self.link.closed else []

    def begin(self, channel: int = 0, window: int = BIG) -> None:
        """Begin a session."""
        begin = AmqpBegin(next_outgoing_id=0, incoming_window=window, outgoing_window=BIG)
        [answer] = self.send(begin, channel=channel)
        assert isinstance(answer, AmqpBegin), answer
        assert answer.remote_channel == channel

    # ------------------------------------------------------------ links

    def sender(self, address: str | None, handle: int = 0, *, name: str | None = None, **fields: Any) -> list[Any]:
        """Attach a link on which this client sends; return the answers."""
        target = fields.pop("target", AmqpTarget(address=address))
        attach = AmqpAttach(
            name=name or f"s{handle}",
            handle=handle,
            role=False,
            source=AmqpSource(),
            target=target,
            initial_delivery_count=0,
            **fields,
        )
        return self.send(attach)

    def receiver(self, address: str | None, handle: int = 1, *, name: str | None = None, **fields: Any) -> list[Any]:
        """Attach a link on which this client receives; return the answers. Fields that a source has go into that."""
        of_source = {
            each: fields.pop(each)
            for each in ("durable", "dynamic", "distribution_mode", "filter", "default_outcome", "capabilities")
            if each in fields
        }
        source = fields.pop("source", AmqpSource(address=address, **of_source))
        attach = AmqpAttach(
            name=name or f"r{handle}", handle=handle, role=True, source=source, target=AmqpTarget(), **fields
        )
        return self.send(attach)

    def credit(self, credit: int, handle: int = 1, *, delivery_count: int = 0, **fields: Any) -> list[Any]:
        """Give credit to a link; return the answers."""
        flow = AmqpFlow(
            next_incoming_id=fields.pop("next_incoming_id", 0),
            incoming_window=fields.pop("incoming_window", BIG),
            next_outgoing_id=0,
            outgoing_window=BIG,
            handle=handle,
            delivery_count=delivery_count,
            link_credit=credit,
            **fields,
        )
        return self.send(flow)

    def detach(self, handle: int, *, closed: bool = True) -> list[Any]:
        """Detach a link; return the answers."""
        return self.send(AmqpDetach(handle=handle, closed=closed))

    # ------------------------------------------------------------ messages

    def transfer(self, payload: bytes, handle: int = 0, *, settled: bool = False, **fields: Any) -> list[Any]:
        """Send a message in one frame; return the answers."""
        number = next(self._delivery_ids)
        transfer = AmqpTransfer(
            handle=handle,
            delivery_id=number,
            delivery_tag=number.to_bytes(4, "big"),
            message_format=0,
            settled=settled,
            **fields,
        )
        return self.send(transfer, payload=payload)

    def messages(self, frames: list[AmqpFrame] | None = None) -> list[Received]:
        """Return the messages among frames, by default those that came since the last call."""
        if frames is None:
            self.receive()
            frames = self.frames
        found: list[Received] = []
        first: AmqpTransfer | None = None
        parts: list[bytes] = []
        for frame in frames:
            if isinstance(frame.performative, AmqpTransfer):
                first = first or frame.performative
                parts.append(frame.payload)
                if not frame.performative.more:
                    found.append(Received(first, decode_message(b"".join(parts))))
                    first, parts = None, []
        return found

    def take(self, credit: int, handle: int = 1, **fields: Any) -> list[object]:
        """Give credit; return the bodies of the messages that came."""
        self.credit(credit, handle, **fields)
        return [each.body for each in self.messages(self.frames)]

    def settle(
        self,
        first: int,
        state: Any = ACCEPTED,
        *,
        last: int | None = None,
        settled: bool = True,
    ) -> list[Any]:
        """Settle deliveries; return the answers."""
        return self.send(AmqpDisposition(role=True, first=first, last=last, settled=settled, state=state))

    def drop(self) -> None:
        """Lose the connection."""
        self.session.lost()
