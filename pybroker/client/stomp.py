"""The client's STOMP 1.2: requests become frames, frames become events.

Every subscription acknowledges its messages one by one, in every mode of the API: an ACK of several would cover all
messages in between. STOMP has no frame for producers and temporary destinations; the broker creates the latter at their
first use. For such a request the client begins and aborts an empty transaction, which the broker answers.

STOMP restores less than OpenWire. The broker does not recognise a message that is sent again after a reconnect;
`stomp_messages` marks it. A temporary destination gets a new name from the new broker, so replies to requests from
before the break do not arrive.

Source: STOMP 1.2; ActiveMQ 5.17's STOMP transport.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from pybroker.broker.domain.errors import ProtocolError
from pybroker.broker.domain.inactivity import InactivityMonitor
from pybroker.broker.domain.stomp.codec import HEART_BEAT, FrameDecoder, encode_frame
from pybroker.broker.domain.stomp.frames import ESCAPERS, Frame, StompLimits, Version
from pybroker.client.conversation import (
    Acknowledge,
    AddConsumer,
    AddProducer,
    AddTemporary,
    Answered,
    BeginTransaction,
    CommitTransaction,
    CreateDestination,
    DeleteDestination,
    Delivered,
    Ended,
    ErrorReported,
    Event,
    Exhausted,
    ListDestinations,
    Login,
    LoginFailed,
    Opened,
    Pull,
    Release,
    RemoveConsumer,
    RemoveDurable,
    RemoveProducer,
    Request,
    RollbackTransaction,
    SendMessage,
    SetPrefetch,
)
from pybroker.client.errors import (
    ClientError,
    ConnectionLost,
    DestinationRefused,
    FrameTooLarge,
    LoginRefused,
    NoRoom,
    NotAuthorized,
    ProtocolViolation,
    Refused,
    SelectorRefused,
    TransactionRolledBack,
    UnsendableMessage,
)
from pybroker.client.stomp_messages import read_message, send_body, send_headers, write_destination

INACTIVITY_MS: Final = 30_000
INITIAL_DELAY_MS: Final = 10_000
FRAME_BYTES_MAX: Final = 100 * 1024 * 1024
"""ActiveMQ's limit to a body; an option of the URI changes it."""

_HEAD_BYTES_MAX: Final = 16 * 1024 * 1024
"""The limit to received headers. The properties of Java messages become headers, so it is larger than for sent ones."""

_HEADERS_MAX: Final = StompLimits().header_count - 8
"""The limit to a message's headers: ActiveMQ's and pybroker's to those of a frame, without `receipt` and the like."""

_HEADER_BYTES_MAX: Final = StompLimits().header_line_bytes
"""The limit to a header line of both. Beyond it they close the connection, and the message would be sent again."""

_CHECKED_CHARS: Final = _HEADER_BYTES_MAX // 8
"""The characters above which a header is measured: one takes four bytes at most, or two if it is escaped."""

_GREETING_SECONDS: Final = 10.0
"""The time that a peer has for CONNECTED: the kernel of a frozen broker also accepts connections."""

_DISCONNECT_RECEIPT: Final = "goodbye"

_NO_PULLS: Final = "STOMP cannot pull single messages: a consumer with prefetch 0 needs OpenWire"

_ToSend: TypeAlias = tuple[str, dict[str, str], bytes]
"""A frame: command, headers, body."""


class StompConversation:
    """`conversation.Conversation` for STOMP."""

    def __init__(
        self,
        *,
        host: str = "",
        inactivity_ms: int = INACTIVITY_MS,
        initial_delay_ms: int = INITIAL_DELAY_MS,
        frame_bytes_max: int = FRAME_BYTES_MAX,
    ) -> None:
        """Create a conversation; it sends nothing before `open`, because STOMP has no greeting.

        Args:
            host: the host name of the URI, for virtual hosts.
            inactivity_ms: the silence after which the peer is dead; 0 for no limit. Heart-beats are more frequent.
            initial_delay_ms: the delay before the monitor starts.
            frame_bytes_max: the largest body, in both directions.
        """
        self._login: Login | None = None
        self._connection_id = ""
        self._host = host
        self._inactivity_seconds = inactivity_ms / 1000
        self._initial_seconds = initial_delay_ms / 1000
        self._frame_bytes_max = frame_bytes_max
        limits = StompLimits(
            header_line_bytes=_HEAD_BYTES_MAX,
            header_count=_HEAD_BYTES_MAX // 16,
            head_bytes=_HEAD_BYTES_MAX,
            body_bytes=frame_bytes_max,
        )
        self._decoder = FrameDecoder(limits)
        self._out = bytearray()
        self._is_open = False
        self._is_restoring = False
        self._has_heartbeats = False
        self._monitor: InactivityMonitor | None = None
        self._greeting_due_at: float | None = None
        self._sizes: dict[int, int] = {}  # the body sizes of unanswered sends

    @property
    def can_release(self) -> bool:
        """Return False: a NACK makes a message a dead letter."""
        return False

    def open(self, login: Login) -> None:
        """Log in, see `Conversation.open`."""
        self._put(("CONNECT", self._connect_headers(login), b""), Version.V1_0)
        self._login, self._connection_id = login, login.connection_id

    # ------------------------------------------------------------ in

    def receive(self, chunk: bytes) -> list[Event]:
        """Process bytes, see `Conversation.receive`."""
        if self._monitor is not None:
            self._monitor.has_read = True
        events: list[Event] = []
        try:
            for frame in self._decoder.feed(chunk):
                events += self._events(frame)
        except ProtocolError as error:
            raise self._unreadable(error) from error
        return events

    def _unreadable(self, error: ProtocolError) -> ClientError:
        limit = self._frame_bytes_max
        if self._is_open and str(error).startswith("The maximum data length"):
            text = f"the broker sends a body of more than {limit} bytes; the URI may allow more"
            return FrameTooLarge(text, size=limit + 1, limit=limit)
        return ProtocolViolation(f"the peer does not speak STOMP: {error}")

    def _events(self, frame: Frame) -> Sequence[Event]:
        headers = frame.headers
        match frame.command:
            case "MESSAGE" if self._is_open:
                consumer = headers.get("subscription", "")
                if not (consumer.isascii() and consumer.isdigit() and len(consumer) < _DIGITS_MAX):
                    raise ProtocolViolation("the broker sends a message without a known subscription")
                if headers.get("browser") == "end" and headers.get("message-id") == "0":
                    return (Exhausted(int(consumer)),)
                return (Delivered(int(consumer), read_message(frame)),)
            case "RECEIPT" if self._is_open:
                return self._answered(headers.get("receipt-id", ""), None)
            case "ERROR":
                return self._refused(frame) if self._is_open else (self._login_error(frame),)
            case "CONNECTED" if self._login is not None and not self._is_open:
                return self._opened(headers)
            case command:
                raise ProtocolViolation(f"the peer does not speak STOMP 1.2: {command[:20]!r}")

    def _opened(self, headers: Mapping[str, str]) -> Sequence[Event]:
        version = headers.get("version", "1.0")
        if version != Version.V1_2.value:
            raise ProtocolViolation(f"the broker speaks STOMP {version[:20]} only, the client needs 1.2")
        self._decoder.version = Version.V1_2
        self._is_open = True
        self._is_restoring = self._login is not None and self._login.is_again
        self._has_heartbeats = not headers.get("heart-beat", "0,0").startswith("0,")
        return (Opened(),)

    def _login_error(self, frame: Frame) -> LoginFailed | Ended:
        text = frame.headers.get("message") or "no reason given"
        error = login_refusal(text, is_again=self._login is not None and self._login.is_again)
        return Ended(f"the broker does not take the connection: {text}") if error is None else LoginFailed(error)

    def _answered(self, receipt: str, error: ClientError | None) -> Sequence[Event]:
        if receipt == _DISCONNECT_RECEIPT:
            return (Ended("closed"),)
        if not (receipt.isascii() and receipt.isdigit() and len(receipt) < _DIGITS_MAX):
            raise ProtocolViolation("the broker sends a receipt for an unknown request")
        self._sizes.pop(int(receipt), None)
        return (Answered(int(receipt), error),)

    def _refused(self, frame: Frame) -> Sequence[Event]:
        receipt = frame.headers.get("receipt-id")
        if receipt is not None:
            return self._answered(receipt, refusal(frame.headers, frame.body))
        if _TOO_LARGE.match(frame.headers.get("message", "")):
            return (self._too_large(),)
        return (ErrorReported(refusal(frame.headers, frame.body)),)

    def _too_large(self) -> Answered:
        """Return the refusal of the largest unanswered send: the broker does not name the message that is too large."""
        if not self._sizes:
            raise FrameTooLarge("a message of a transaction is larger than the broker allows", size=0, limit=0)
        number = max(self._sizes, key=self._sizes.__getitem__)
        size = self._sizes.pop(number)
        error = FrameTooLarge(f"a body of {size} bytes is larger than the broker allows", size=size, limit=size - 1)
        return Answered(number, error)

    # ------------------------------------------------------------ out

    def request(self, request: Request, number: int, *, answer: bool) -> None:
        """Encode a request, see `Conversation.request`."""
        frames = self._frames(request, number)
        if answer:
            frames[-1][1]["receipt"] = str(number)
            if isinstance(request, SendMessage):
                self._sizes[number] = len(frames[-1][2])
        for frame in frames:
            self._put(frame)

    def close(self) -> None:
        """Disconnect in order, see `Conversation.close`."""
        self._put(("DISCONNECT", {"receipt": _DISCONNECT_RECEIPT}, b""))

    def bytes_to_send(self) -> bytes:
        """Return the bytes to send, see `Conversation.bytes_to_send`."""
        data = bytes(self._out)
        self._out.clear()
        if self._is_open:
            self._is_restoring = False  # the state sends all restored requests at `Opened`
        return data

    def tick(self, now: float) -> float:
        """Do the work due, see `Conversation.tick`."""
        if self._login is None:
            return float("inf")
        if not self._is_open:
            self._greeting_due_at = self._greeting_due_at or now + _GREETING_SECONDS
            if now >= self._greeting_due_at:
                raise ConnectionLost("the peer sends nothing: perhaps it is no broker, or a frozen one")
            return self._greeting_due_at
        if not self._inactivity_seconds or not self._has_heartbeats:
            return float("inf")
        if self._monitor is None:
            first = now + self._initial_seconds
            self._monitor = InactivityMonitor(self._inactivity_seconds, first, now)
        if self._monitor.is_peer_dead(now):
            raise ConnectionLost(f"the broker was silent for more than {self._inactivity_seconds:g} s")
        if self._monitor.is_heartbeat_due(now):
            self._out += HEART_BEAT
            self._monitor.wrote()
        return self._monitor.next_check

    def _put(self, frame: _ToSend, version: Version = Version.V1_2) -> None:
        self._out += encode_frame(*frame, version)
        if self._monitor is not None:
            self._monitor.wrote()

    def _connect_headers(self, login: Login) -> dict[str, str]:
        headers = {"accept-version": "1.2", "host": self._host or "localhost", "client-id": login.client_id}
        if login.user is not None:
            headers["login"] = login.user
        if login.password is not None:
            headers["passcode"] = login.password
        for name, value in headers.items():
            if any(mark in value for mark in "\n\0"):
                raise LoginRefused(f"{name} has a line end or a NUL, for which STOMP has no form")
        # The monitor sends a byte in every two thirds of the duration, and expects one in every whole duration.
        receive_ms = int(self._inactivity_seconds * 1000 / 3)
        headers["heart-beat"] = f"{2 * receive_ms},{receive_ms}"
        return headers

    def _frames(self, request: Request, number: int) -> list[_ToSend]:
        match request:
            case SendMessage(message=message):
                headers = send_headers(
                    message, self._connection_id, again=self._is_restoring or message.redelivery_count > 0
                )
                body = send_body(message.body, headers, message.kind)
                if len(headers) > _HEADERS_MAX or len(max(headers.values(), key=len)) > _CHECKED_CHARS:
                    _check_headers(headers)
                if len(body) > self._frame_bytes_max:
                    text = f"a body of {len(body)} bytes, at most {self._frame_bytes_max} are allowed"
                    raise FrameTooLarge(text, size=len(body), limit=self._frame_bytes_max)
                return [("SEND", headers, body)]
            case Acknowledge():
                return _acks(request)
            case BeginTransaction(transaction=transaction):
                return [("BEGIN", {"transaction": str(transaction)}, b"")]
            case CommitTransaction(transaction=transaction):
                return [("COMMIT", {"transaction": str(transaction)}, b"")]
            case RollbackTransaction(transaction=transaction):
                return [("ABORT", {"transaction": str(transaction)}, b"")]
            case AddConsumer():
                return [("SUBSCRIBE", self._subscribe_headers(request), b"")]
            case RemoveConsumer(consumer=consumer):
                return [("UNSUBSCRIBE", {"id": str(consumer)}, b"")]
            case RemoveDurable(name=name):
                return [("UNSUBSCRIBE", {"id": name, "activemq.subscriptionName": name}, b"")]
            case Pull():
                raise UnsendableMessage(_NO_PULLS)
            case Release():
                raise UnsendableMessage("STOMP cannot release a single message")
            case SetPrefetch():
                raise UnsendableMessage("STOMP cannot change the prefetch of a consumer: that needs OpenWire")
            case CreateDestination() | DeleteDestination() | ListDestinations():
                raise UnsendableMessage("STOMP cannot create, delete or list destinations: that needs OpenWire")
            case AddProducer() | RemoveProducer() | AddTemporary():
                return _empty_transaction(number)

    def _subscribe_headers(self, request: AddConsumer) -> dict[str, str]:
        headers = {
            "id": str(request.consumer),
            "destination": write_destination(request.destination, self._connection_id),
            "ack": "client-individual",
            "activemq.prefetchSize": str(request.prefetch),
        }
        if not request.prefetch:
            raise UnsendableMessage(_NO_PULLS)
        if request.browser:
            headers["browser"] = "true"
        if request.selector is not None:
            if "\0" in request.selector:
                raise UnsendableMessage("a selector with a NUL, for which STOMP has no form")
            headers["selector"] = request.selector
        if request.durable is not None:
            headers["activemq.subscriptionName"] = request.durable
        if request.no_local:
            headers["activemq.noLocal"] = "true"
        if request.exclusive:
            headers["activemq.exclusive"] = "true"
        if request.priority:
            headers["activemq.priority"] = str(request.priority)
        return headers


def _acks(request: Acknowledge) -> list[_ToSend]:
    command, headers = "ACK", dict[str, str]()
    if request.poison is not None:
        command = "NACK"  # ActiveMQ accepts no NACK in a transaction
    elif request.transaction is not None:
        headers["transaction"] = str(request.transaction)
    return [(command, {"id": str(message.receipt), **headers}, b"") for message in request.messages]


def _empty_transaction(number: int) -> list[_ToSend]:
    """Return the frames of an empty transaction, whose last one the broker answers."""
    headers = {"transaction": f"nothing-{number}"}
    return [("BEGIN", dict(headers), b""), ("ABORT", headers, b"")]


# ---------------------------------------------------------------- refusals

_DIGITS_MAX: Final = 19

_TOO_LARGE: Final = re.compile(r"The maximum (data length|frame size) was exceeded")

_KINDS: Final[Mapping[str, type[Refused]]] = {
    "InvalidDestinationException": DestinationRefused,
    "DestinationDoesNotExistException": DestinationRefused,
    "SecurityException": NotAuthorized,
    "InvalidSelectorException": SelectorRefused,
    "ResourceAllocationException": NoRoom,
}
"""The error for each Java exception, by its name without the package. The body of ActiveMQ's ERROR begins with it."""

_KINDS_BY_PHRASE: Final[Sequence[tuple[re.Pattern[str], type[Refused]]]] = (
    (re.compile(r"selector|at column [0-9]+$", re.IGNORECASE), SelectorRefused),
    (re.compile(r"not authorized", re.IGNORECASE), NotAuthorized),
    (re.compile(r"does not exist|Invalid .*Destination header|destination's name", re.IGNORECASE), DestinationRefused),
    (re.compile(r"\b(disk|memory|store|quota|room|space|limit)\b", re.IGNORECASE), NoRoom),
)
"""The error for phrases of a message: pybroker sends no exception names, and ActiveMQ none for security."""

_EXCEPTION: Final = re.compile(r"(?P<name>[\w$]+(?:\.[\w$]+)+)(?::|\s|$)")


def refusal(headers: Mapping[str, str], body: bytes) -> ClientError:
    """Return the error that an ERROR frame means."""
    text = headers.get("message") or "no reason given"
    match = _EXCEPTION.match(body[:_EXCEPTION_BYTES_MAX].decode(errors="replace"))
    kind = match["name"] if match else ""
    name = kind.rpartition(".")[2]
    if name == "TransactionRolledBackException":
        return TransactionRolledBack(text)
    known = _KINDS.get(name)
    if known is None and not kind:
        known = next((cause for pattern, cause in _KINDS_BY_PHRASE if pattern.search(text)), None)
    return (known or Refused)(text, kind=kind)


_EXCEPTION_BYTES_MAX: Final = 1000

_BAD_CREDENTIALS: Final = re.compile(
    r"User name .* or password is invalid|not authorized|authenticat|credential", re.IGNORECASE
)
_CLIENT_ID_IN_USE: Final = re.compile(r"already connected", re.IGNORECASE)


def login_refusal(text: str, *, is_again: bool) -> ClientError | None:
    """Return the permanent error that an ERROR in answer to CONNECT means; None if another attempt may succeed."""
    if text.startswith("Invalid Protocol version"):
        return ProtocolViolation(f"the broker does not speak STOMP 1.2: {text}")
    if _BAD_CREDENTIALS.search(text):
        return LoginRefused(f"the broker refuses the login: {text}")
    # After a break the client's former connection may still have the client id, until the broker finds it dead.
    if _CLIENT_ID_IN_USE.search(text) and not is_again:
        return LoginRefused(f"the broker refuses the client id: {text}")
    return None


def _check_headers(headers: Mapping[str, str]) -> None:
    """Check headers whose frame may be too large for a broker.

    Raises:
        UnsendableMessage: it is.
    """
    if len(headers) > _HEADERS_MAX:
        raise UnsendableMessage(
            f"{len(headers)} headers and properties, where STOMP allows {_HEADERS_MAX}: use OpenWire"
        )
    for name, value in headers.items():
        size = len(f"{name}:{ESCAPERS[Version.V1_2](value)}".encode())
        if size > _HEADER_BYTES_MAX:
            raise UnsendableMessage(
                f"{name}: a header of {size} bytes, where STOMP allows {_HEADER_BYTES_MAX}: put it into the body, or "
                "use OpenWire"
            )
