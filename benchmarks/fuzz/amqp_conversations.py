"""Conversations of AMQP 1.0: performatives of every type in their roles, some out of order, repeated or mutated.

`valid` is a conversation as clients have it. `parts` begins like it, and goes on with frames that a client may send in
another state: outcomes of what was not delivered, transfers without credit, transactions that were never declared, a
second open. Delivery ids of the broker begin at 0 in each session and transaction ids at 1 in each connection, so that
low numbers settle what it has sent, and discharge what it has declared.

```text
channel   0 the session of the conversation      200 that of the markers, which begins and ends
handle    0 sender   1 receiver   2 coordinator   3 receiver of a topic   4 a link of its own
```
"""

from collections.abc import Callable
from random import Random
from struct import pack
from typing import Any, Final

from benchmarks.fuzz import amqp_values, bytes_mutations, corpus
from benchmarks.fuzz.values import NAME_COUNT, NAMES, QUEUE, SELECTORS, TOPIC
from pybroker.broker.domain.amqp import performatives as amqp
from pybroker.broker.domain.amqp.frames import AMQP_HEADER, EMPTY_FRAME, SASL_HEADER, encode_frame
from pybroker.broker.domain.amqp.values import AmqpDescribed, AmqpValue, Symbol, UnsignedLong

_MARKER_CHANNEL: Final = 200
_WINDOW: Final = 1 << 20
_BEGIN: Final = amqp.AmqpBegin(next_outgoing_id=0, incoming_window=_WINDOW, outgoing_window=_WINDOW)
MARKER: Final = encode_frame(_MARKER_CHANNEL, _BEGIN) + encode_frame(_MARKER_CHANNEL, amqp.AmqpEnd())
"""A session that begins and ends: the broker answers each begin."""
_BEGUN: Final = bytes((0, 0x53, 0x11))
_ANSWERED: Final = bytes((0x60, 0, _MARKER_CHANNEL))
"""The first field of the broker's begin, remote-channel."""

SENDER: Final = 0
RECEIVER: Final = 1
COORDINATOR: Final = 2
_DURABLE: Final = 3
_BODY: Final = b"\0\x53\x77\xa1\x04body"
_STORED: Final = b"\0\x53\x70\xc0\x02\x01\x41"
"""The header section of a durable message."""
_IDS: Final = (0, 0, 0, 1, 1, 2, 3, 4, 7, 100, (1 << 31) - 1, 1 << 31, (1 << 32) - 1)
_CREDITS: Final = (0, 1, 1, 3, 10, 100, (1 << 31) - 1, (1 << 32) - 1)
_HANDLES: Final = (0, 0, 1, 1, 2, 2, 3, 4, 4, 1_023, (1 << 32) - 1)
_CONTAINERS: Final = 12
"""Container ids that cases share: so few that two connections have the same one now and then."""
_SHARED: Final = 0.3
_MUTATED: Final = 0.2
_PREFIXES: Final = ("queue://", "queue://", "topic://", "", "temp-queue://", "temp-topic://")


def answers(data: bytes) -> int:
    """Return how many markers have been answered in what a broker has sent."""
    count = offset = 0
    while offset + 8 <= len(data):
        if data.startswith(b"AMQP", offset):
            offset += 8
            continue
        size = max(8, int.from_bytes(data[offset : offset + 4], "big"))
        if offset + size <= len(data):
            count += data.startswith(_BEGUN, offset + 8) and data.startswith(_ANSWERED, offset + 14)
        offset += size
    return count


def parts(dice: Random, number: int, login: tuple[str | None, str | None], frames_max: int) -> tuple[bytes, ...]:
    """Return the parts of a case.

    Args:
        dice: all choices.
        number: of the case.
        login: user and password.
        frames_max: most frames behind the first part.
    """
    maker = AmqpFrames(dice, number, login)
    chance = dice.random()
    if chance < 0.1:  # in the handshake, where most frames are the last
        pieces = [SASL_HEADER, maker.sasl(), AMQP_HEADER, maker.open()]
        return b"", b"".join(bytes_mutations.rearranged(pieces, dice))
    if chance < 0.4:
        begin, *rest = valid(maker)
        return begin, *bytes_mutations.rearranged(rest, dice)
    return maker.beginning(), *(maker.frame() for _ in range(dice.randint(1, frames_max)))


def valid(maker: "AmqpFrames") -> tuple[bytes, ...]:
    """Return a conversation in which each frame is allowed: sends, all outcomes, transactions, detach, end, close."""
    queue = f"queue://FUZZ.V.{maker.number % NAME_COUNT}"
    outcomes = (amqp.AmqpReleased(), amqp.AmqpModified(delivery_failed=True), amqp.AmqpRejected(), amqp.AmqpAccepted())
    first = amqp.AmqpTransactionalState(txn_id=_txn_id(1))
    accepted = amqp.AmqpTransactionalState(txn_id=_txn_id(1), outcome=amqp.AmqpAccepted())
    return (
        maker.handshake(),
        _frame(_BEGIN),
        _frame(sender(SENDER, queue)),
        _frame(receiver(RECEIVER, queue)),
        _frame(coordinator(COORDINATOR)),
        *(maker.send(SENDER) for _ in outcomes),
        maker.send(SENDER, settled=True),
        _frame(credit(RECEIVER, 3)),
        *(_frame(_disposition(number, state)) for number, state in enumerate(outcomes[:3])),
        _frame(credit(RECEIVER, 100)),
        _frame(_disposition(3, outcomes[3])),
        maker.request(amqp.AmqpDeclare()),
        maker.send(SENDER, state=first),
        _frame(_disposition(4, accepted)),
        maker.request(amqp.AmqpDischarge(txn_id=_txn_id(1), fail=False)),
        maker.request(amqp.AmqpDeclare()),
        maker.send(SENDER, state=amqp.AmqpTransactionalState(txn_id=_txn_id(2))),
        maker.request(amqp.AmqpDischarge(txn_id=_txn_id(2), fail=True)),
        _frame(credit(RECEIVER, 0)),
        *(_frame(amqp.AmqpDetach(handle=handle, closed=True)) for handle in (SENDER, RECEIVER, COORDINATOR)),
        _frame(amqp.AmqpEnd()),
        _frame(amqp.AmqpClose()),
    )


def sender(handle: int, address: str | None) -> amqp.AmqpAttach:
    """Return the attach of a link by which the client sends."""
    source, target = amqp.AmqpSource(), amqp.AmqpTarget(address=address)
    return amqp.AmqpAttach(
        name=f"sender-{handle}", handle=handle, role=False, source=source, target=target, initial_delivery_count=0
    )


def receiver(handle: int, address: str | None, **terminus: Any) -> amqp.AmqpAttach:
    """Return the attach of a link by which the client receives; `terminus` are fields of its source."""
    source, target = amqp.AmqpSource(address=address, **terminus), amqp.AmqpTarget()
    return amqp.AmqpAttach(name=f"receiver-{handle}", handle=handle, role=True, source=source, target=target)


def coordinator(handle: int) -> amqp.AmqpAttach:
    """Return the attach of a link to the coordinator of transactions."""
    target = amqp.AmqpCoordinator(capabilities=(Symbol("amqp:local-transactions"),))
    return amqp.AmqpAttach(
        name="coordinator", handle=handle, role=False, source=amqp.AmqpSource(), target=target, initial_delivery_count=0
    )


def credit(handle: int, count: int) -> amqp.AmqpFlow:
    """Return the flow that gives a link credit."""
    return amqp.AmqpFlow(
        next_incoming_id=0, incoming_window=_WINDOW, next_outgoing_id=0, outgoing_window=_WINDOW,
        handle=handle, delivery_count=0, link_credit=count,
    )  # fmt: skip


def _frame(performative: Any, payload: bytes = b"", channel: int = 0) -> bytes:
    return encode_frame(channel, performative, payload)


def _disposition(delivery_id: int, state: Any) -> amqp.AmqpDisposition:
    return amqp.AmqpDisposition(role=True, first=delivery_id, settled=True, state=state)


def _txn_id(number: int) -> bytes:
    return pack(">Q", number)


class AmqpFrames:
    """Makes the frames of one conversation.

    Attributes:
        number: of the case.
        container_id: of its connection.
    """

    def __init__(self, dice: Random, number: int, login: tuple[str | None, str | None]) -> None:
        """Begin a conversation.

        Args:
            dice: all choices.
            number: of the case.
            login: user and password.
        """
        self._dice = dice
        self._login = login
        self.number = number
        is_shared = dice.random() < _SHARED
        self.container_id = f"fuzz-{dice.randrange(_CONTAINERS)}" if is_shared else f"fuzz-one-{number}"
        self._is_shared = is_shared
        self._delivery_id = 0
        self._makers: tuple[Callable[[], bytes], ...] = (
            *(self._transfer,) * 6, *(self._settle,) * 5, *(self._flow,) * 4, *(self._attach,) * 4,
            *(self._transact,) * 3, *(self._detach,) * 2, self._session, self._connection, self._any,
        )  # fmt: skip

    # ------------------------------------------------------------ what begins a conversation

    def handshake(self) -> bytes:
        """Return what comes before the first session."""
        return SASL_HEADER + self.sasl() + AMQP_HEADER + self.open()

    def sasl(self) -> bytes:
        """Return the login."""
        user, password = self._login
        if user is None:
            return _frame(amqp.SaslInit(mechanism=Symbol("ANONYMOUS")))
        return _frame(
            amqp.SaslInit(mechanism=Symbol("PLAIN"), initial_response=f"\0{user}\0{password}".encode())
        )  # fmt: skip

    def open(self) -> bytes:
        """Return open."""
        size = self._dice.choice((None, None, 512, 4_096, 65_536))
        return _frame(amqp.AmqpOpen(container_id=self.container_id, hostname="h", max_frame_size=size, channel_max=255))

    def beginning(self) -> bytes:
        """Return a handshake, a session, and its links with their credit."""
        durable = receiver(_DURABLE, f"topic://{TOPIC}", durable=2 if self._is_shared else 0)
        flows = [credit(RECEIVER, self._dice.choice((1, 10, 100))), credit(_DURABLE, 10)]
        links = (sender(SENDER, f"queue://{QUEUE}"), receiver(RECEIVER, f"queue://{QUEUE}"), coordinator(COORDINATOR))
        return self.handshake() + b"".join(map(_frame, (_BEGIN, *links, durable, *flows)))

    # ------------------------------------------------------------ frames that are right

    def send(self, handle: int, *, settled: bool = False, state: Any = None, payload: bytes = _STORED + _BODY) -> bytes:
        """Return a transfer with the next delivery id."""
        number = self._delivery_id
        self._delivery_id += 1
        transfer = amqp.AmqpTransfer(
            handle=handle,
            delivery_id=number,
            delivery_tag=b"%d" % number,
            message_format=0,
            settled=settled,
            state=state,
        )
        return _frame(transfer, payload)

    def request(self, request: amqp.AmqpDeclare | amqp.AmqpDischarge) -> bytes:
        """Return a transfer to the coordinator."""
        if isinstance(request, amqp.AmqpDeclare):
            body = b"\0\x53\x31\x45"
        else:
            body = b"\0\x53\x32\xc0\x0c\x02\xa0\x08" + request.txn_id + (b"\x41" if request.fail else b"\x42")
        return self.send(COORDINATOR, payload=b"\0\x53\x77" + body)

    # ------------------------------------------------------------ frames that may be out of place

    def frame(self) -> bytes:
        """Return a frame that a client may send in some state, a captured one, or one that is mutated."""
        dice = self._dice
        made = dice.choice(corpus.amqp_frames()) if dice.random() < 0.03 else dice.choice(self._makers)()
        return _mutated(made, dice) if dice.random() < _MUTATED else made

    def _handle(self) -> int:
        return self._dice.choice(_HANDLES)

    def _address(self) -> str | None:
        dice = self._dice
        if dice.random() < 0.5:
            return dice.choice((f"queue://{QUEUE}", f"topic://{TOPIC}"))
        return None if dice.random() < 0.1 else dice.choice(_PREFIXES) + dice.choice(NAMES)

    def _attach(self) -> bytes:
        dice = self._dice
        handle = self._handle()
        match dice.randrange(5):
            case 0:
                made = coordinator(handle)
            case 1 | 2:
                made = sender(handle, self._address())
                made.initial_delivery_count = dice.choice((0, 0, 0, None, 5, (1 << 32) - 1))
                if isinstance(made.target, amqp.AmqpTarget):
                    made.target.dynamic = dice.choice((None, None, None, True))
            case _:
                made = receiver(handle, self._address(), **self._terminus())
        made.name = dice.choice((made.name, made.name, "receiver-3", "other", "", "x" * 300))
        made.snd_settle_mode = dice.choice((None, None, 0, 1, 2, 9))
        made.rcv_settle_mode = dice.choice((None, None, 0, 1, 9))
        if dice.random() < 0.1:
            made.unsettled = {b"1": None, b"2": AmqpDescribed(UnsignedLong(0x24), [])}
        if dice.random() < 0.1:
            made.source = None
        return self._encoded(made)

    def _terminus(self) -> dict[str, Any]:
        dice = self._dice
        selector = AmqpDescribed(UnsignedLong(0x0000468C00000004), dice.choice(SELECTORS))
        no_local = AmqpDescribed(Symbol("apache.org:no-local-filter:list"), [])
        fields: dict[str, tuple[Any, ...]] = {
            "durable": (0, 1, 2, 7),
            "dynamic": (True,),
            "distribution_mode": (Symbol("copy"), Symbol("move"), Symbol("x")),
            "filter": (
                {Symbol("s"): selector},
                {Symbol("n"): no_local},
                {Symbol("s"): selector, Symbol("x"): None},
                {},
            ),
            "expiry_policy": (Symbol("never"), Symbol("link-detach"), Symbol("x")),
            "capabilities": ((Symbol("topic"),), (Symbol("queue"),), (Symbol("temporary-topic"),), ()),
            "default_outcome": (amqp.AmqpReleased(), amqp.AmqpAccepted(), amqp.AmqpModified(undeliverable_here=True)),
        }
        return {name: dice.choice(values) for name, values in fields.items() if dice.random() < 0.15}

    def _flow(self) -> bytes:
        dice = self._dice
        made = credit(self._handle(), dice.choice(_CREDITS))
        if dice.random() < 0.2:
            made.handle = made.delivery_count = made.link_credit = None
        made.delivery_count = dice.choice((made.delivery_count, made.delivery_count, *_IDS))
        made.next_incoming_id = dice.choice((0, 0, None, *_IDS))
        made.incoming_window = dice.choice((_WINDOW, _WINDOW, _WINDOW, 0, 1, (1 << 32) - 1))
        made.drain, made.echo = dice.choice((None, None, True)), dice.choice((None, None, True))
        return self._encoded(made)

    def _transfer(self) -> bytes:
        dice = self._dice
        body = dice.choice((_STORED + _BODY, _BODY, _STORED + _BODY, amqp_values.message(dice), b""))
        if dice.random() < 0.6:
            return self.send(dice.choice((SENDER, SENDER, SENDER, 4)), settled=dice.random() < 0.2, payload=body)
        made = amqp.AmqpTransfer(
            handle=self._handle(),
            delivery_id=dice.choice((self._delivery_id, self._delivery_id, None, *_IDS)),
            delivery_tag=dice.choice((b"t", b"1", None, b"", b"x" * 33)),
            message_format=dice.choice((0, 0, None, 1, (1 << 32) - 1)),
            settled=dice.choice((None, None, True, False)),
            more=dice.choice((None, None, True)),
            state=dice.choice((None, None, self._state())),
            aborted=dice.choice((None, None, None, True)),
            resume=dice.choice((None, None, None, True)),
        )
        return self._encoded(made, body)

    def _settle(self) -> bytes:
        dice = self._dice
        first = dice.choice(_IDS)
        made = amqp.AmqpDisposition(
            role=dice.random() < 0.9,
            first=first,
            last=dice.choice((None, None, first, (first + 2) % (1 << 32), *_IDS)),
            settled=dice.choice((True, True, False, None)),
            state=self._state(),
        )
        return self._encoded(made)

    def _state(self) -> Any:
        """Return a state of a delivery, alone or in a transaction."""
        dice = self._dice
        error = amqp.AmqpErrorCondition(condition=Symbol("x"), description="y" * dice.choice((1, 200)))
        annotations: dict[AmqpValue, AmqpValue] = {Symbol("x-opt-a"): "b"}
        outcome = dice.choice((
            amqp.AmqpAccepted(), amqp.AmqpAccepted(), amqp.AmqpReleased(), amqp.AmqpRejected(),
            amqp.AmqpRejected(error=error), amqp.AmqpModified(delivery_failed=True),
            amqp.AmqpModified(undeliverable_here=True), amqp.AmqpModified(message_annotations=annotations),
        ))  # fmt: skip
        if dice.random() < 0.3:
            return amqp.AmqpTransactionalState(txn_id=self._txn_id(), outcome=dice.choice((outcome, None)))
        return dice.choice((outcome, outcome, outcome, None, amqp.AmqpReceived(section_number=0, section_offset=0)))

    def _txn_id(self) -> bytes:
        return self._dice.choice((*map(_txn_id, (1, 1, 1, 2, 3)), b"", b"x" * 40))

    def _transact(self) -> bytes:
        dice = self._dice
        if dice.random() < 0.5:
            return self.request(amqp.AmqpDeclare())
        if dice.random() < 0.5:
            return self.request(amqp.AmqpDischarge(txn_id=_txn_id(dice.choice((1, 1, 2, 3))), fail=dice.random() < 0.5))
        state = amqp.AmqpTransactionalState(txn_id=self._txn_id())
        return self.send(SENDER, state=state)

    def _detach(self) -> bytes:
        return self._encoded(amqp.AmqpDetach(handle=self._handle(), closed=self._dice.choice((True, False, None))))

    def _session(self) -> bytes:
        """Return the begin or end of a session, perhaps one that has begun or ended."""
        dice = self._dice
        made: Any = amqp.AmqpEnd()
        if dice.random() < 0.6:
            made = amqp.AmqpBegin(
                next_outgoing_id=dice.choice(_IDS), incoming_window=dice.choice(_CREDITS),
                outgoing_window=dice.choice(_CREDITS), handle_max=dice.choice((None, 0, 5)),
                remote_channel=dice.choice((None, None, 0, 7)),
            )  # fmt: skip
        return self._encoded(made)

    def _connection(self) -> bytes:
        """Return what belongs to the beginning or the end of a connection."""
        return self._dice.choice(
            (self.open(), _frame(amqp.AmqpClose()), AMQP_HEADER, SASL_HEADER, self.sasl(), EMPTY_FRAME)
        )

    def _any(self) -> bytes:
        """Return a performative whose fields are of any type."""
        dice = self._dice
        return amqp_values.frame(dice, amqp_values.performative(dice))

    def _encoded(self, performative: Any, payload: bytes = b"") -> bytes:
        """Return a frame on the conversation's channel, now and then on another one."""
        dice = self._dice
        return _frame(performative, payload, 0 if dice.random() < 0.9 else dice.choice((1, 2, 255, 256, 65_535)))


def _mutated(frame: bytes, dice: Random) -> bytes:
    """Return a frame with other content; its size is right most times, or the next frame would be lost in it."""
    others = corpus.amqp_frames()
    if dice.random() < 0.15:
        return bytes_mutations.mutated(frame, dice, others)
    content = frame[:8][4:] + bytes_mutations.mutated(frame[8:], dice, [each[8:] for each in others])
    return pack(">I", len(content) + 4) + content
