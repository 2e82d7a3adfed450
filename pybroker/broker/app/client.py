"""Runs `pybroker produce`, `consume` and `browse` on `pybroker.client`, against pybroker or ActiveMQ.

Loaded when such a command runs: a broker that starts needs no client.

- A send counts as confirmed when the broker has answered it; up to `WINDOW` are in flight, in the messages' order.
- A message is acknowledged after its output was written, and in a file synced. A message that cannot be read or shown
  whole stays with the broker.
- `failover:` URLs fail over: the client restores its state, and the command reports it on standard error.
"""

import logging
import re
import ssl
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pybroker.broker.app import message_json
from pybroker.broker.app.interrupts import Interrupts
from pybroker.broker.app.message_json import InvalidInput, Parcel
from pybroker.broker.app.output import BufferedOutput, OutputFailed
from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.errors import BrokerError, ConfigError
from pybroker.client.errors import (
    BrokerMissing,
    ClientError,
    LoginRefused,
    Refused,
    SelectorRefused,
    Timeout,
    UnreadableMessage,
    UntrustedBroker,
    UnusableURI,
)
from pybroker.client.messages import Kind, Message
from pybroker.client.sync import Connection, Consumer, Sending, connect
from pybroker.client.trust import client_context
from pybroker.client.uri import BrokerURI, parse

TIMEOUT_SECONDS: Final = 30.0
"""The default time limit for a broker's answer."""

WINDOW: Final = 100
"""The limit to sends, or unacknowledged messages, in flight: enough for one disk sync of a group commit."""

WINDOW_BYTES: Final = 16 * 1024 * 1024
"""The limit to the bytes of unanswered sends, or of unwritten output."""

_PROGRESS_SECONDS: Final = 1.0
_POLL_SECONDS: Final = 1.0
"""The interval of checks for a broker after its loss."""


class CommandFailed(BrokerError):
    """A command that the broker refused, or whose connection broke permanently."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The address and credentials of a broker.

    Attributes:
        url: the URL for `pybroker.client.connect`.
        timeout: seconds that a broker may take to answer, or to return after a break; None for the URL's.
        user: None for anonymous.
        password: None for none.
        ca_file: the trusted authorities, PEM; None for the system's.
        certificate_file: the client's certificate, PEM, perhaps with its key.
        key_file: that certificate's key.
        key_password: the password of an encrypted key.
    """

    url: str
    timeout: float | None = None
    user: str | None = None
    password: str | None = None
    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None
    key_password: str | None = None


class BrokerAvailability:
    """Tracks the connection to a broker; writes each change to standard error.

    Attributes:
        down_since: the time of the loss of the last broker, by `time.monotonic`; None while there is one.
        up_since: the time of the last connection.
    """

    def __init__(self) -> None:
        self.down_since: float | None = None
        self.up_since = time.monotonic()

    def interrupted(self, cause: Exception) -> None:
        """Report the loss of the broker."""
        self.down_since = time.monotonic()
        _report(f"the broker is lost, waiting for the next: {cause}")

    def resumed(self, address: str) -> None:
        """Report a new connection."""
        self.down_since, self.up_since = None, time.monotonic()
        _report(f"connected again, to {address}")


class CommandSession:
    """The connection of one command to the broker that serves. A context manager."""

    def __init__(self, access: Access) -> None:
        """Connect.

        Raises:
            ConfigError: the URL or a file cannot be used.
            CommandFailed: no broker answers, or it refuses the login.
        """
        logging.getLogger("pybroker.client").setLevel(logging.ERROR)  # the commands report the same themselves
        uri = _parsed(access.url)
        of_url = uri.failover.timeout_seconds if uri.failover is not None else None
        self.timeout = access.timeout or of_url or TIMEOUT_SECONDS
        self.availability = BrokerAvailability()
        for warning in uri.warnings:
            _report(warning)
        try:
            self.connection = connect(
                access.url,
                user=access.user,
                password=access.password,
                timeout=self.timeout,
                ssl_context=_tls(access, uri),
                on_interrupted=self.availability.interrupted,
                on_resumed=self.availability.resumed,
            )
        except (BrokerMissing, Timeout) as error:
            raise CommandFailed(f"no broker answers at {access.url}: is a master running there? ({error})") from error
        except LoginRefused as error:
            raise CommandFailed(f"{error} ({_login_hint(str(error))})") from error
        except UntrustedBroker as error:
            raise CommandFailed(f"{error}{_trust_hint(str(error))}") from error
        except ClientError as error:
            raise _failed(error) from error

    def __enter__(self) -> Connection:
        return self.connection

    def __exit__(self, *_: object) -> None:
        self.connection.close()


def _login_hint(refusal: str) -> str:
    """Return the options that matter; the words about certificates are ActiveMQ's."""
    if "certificate" in refusal:
        return "--cert and --key; or a user for that certificate, in the broker's certificate_users_file"
    return "--user, and PYBROKER_PASSWORD or --password-file"


def _trust_hint(error: str) -> str:
    if "does not trust this client" in error:
        return " (--cert and --key)"
    return " (--ca)" if re.search("self.signed|issuer", error) else ""


def _failed(error: ClientError) -> CommandFailed:
    if isinstance(error, SelectorRefused):
        sentence = str(error).partition("\n")[0]  # the lines below it show the place, which it names
        return CommandFailed(f"the broker refuses the selector: {sentence}")
    return CommandFailed(f"the broker refuses: {error}" if isinstance(error, Refused) else str(error))


def _parsed(url: str) -> BrokerURI:
    try:
        return parse(url)
    except UnusableURI as error:
        raise ConfigError(str(error), setting="--url") from error


def _tls(access: Access, uri: BrokerURI) -> ssl.SSLContext | None:
    """Return the TLS context; None for the default: the system's authorities, no client certificate."""
    if access.ca_file is None and access.certificate_file is None:
        return None
    try:
        context = client_context(None if access.ca_file is None else str(access.ca_file))
    except OSError as error:  # ssl.SSLError is one
        raise ConfigError(f"{access.ca_file}: {error.strerror or error}", setting="--ca", hint=_PEM) from error
    if access.certificate_file is not None:
        _load_certificate(context, access.certificate_file, access.key_file, access.key_password)
    context.check_hostname = all(address.options.verify_host_name for address in uri.addresses)
    return context


_PEM: Final = "it must hold PEM, text between BEGIN and END lines"


def _load_certificate(context: ssl.SSLContext, certificate: Path, key_file: Path | None, password: str | None) -> None:
    """Load the client's certificate and its key; OpenSSL's errors do not name the file."""
    key = key_file or certificate
    _pem(certificate, b"CERTIFICATE-----", "--cert", _PEM)
    hint = _PEM if key_file is not None else "name the file that has the certificate's key"
    is_encrypted = b"ENCRYPTED" in _pem(key, b"PRIVATE KEY-----", "--key", hint)
    try:
        context.load_cert_chain(certificate, key, password)
    except (ssl.SSLError, ValueError) as error:  # ValueError: a password that is too long
        if isinstance(error, ssl.SSLError) and error.reason == "KEY_VALUES_MISMATCH":
            raise ConfigError(f"the key in {key} does not belong to {certificate}", setting="--key") from error
        if is_encrypted:
            text, hint = (
                f"the password does not open the key in {key}",
                "correct PYBROKER_KEY_PASSWORD, or the password at the prompt",
            )
            raise ConfigError(text, setting="--key", hint=hint) from error
        raise ConfigError(f"{certificate} and the key in {key}: {error}", setting="--cert, --key", hint=_PEM) from error


def _pem(file: Path, mark: bytes, setting: str, hint: str) -> bytes:
    """Return a file's bytes, if they are of its kind."""
    try:
        content = file.read_bytes()
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}", setting=setting) from error
    if mark not in content:
        kind = "private key" if b"KEY" in mark else "certificate"
        raise ConfigError(f"there is no {kind} in {file}", setting=setting, hint=hint)
    return content


# ---------------------------------------------------------------- produce


@dataclass(slots=True)
class SendProgress:
    """The counts of `produce`: messages sent, or about to be, and those that the broker has confirmed."""

    sent: int = 0
    confirmed: int = 0
    failure: BrokerError | None = None


class Sender:
    """Sends messages in their order, several in flight."""

    def __init__(self, session: CommandSession, counts: SendProgress) -> None:
        self._session = session
        self._counts = counts
        self._in_flight: deque[tuple[Sending, int, bool]] = deque()
        self._bytes = 0
        self._progress = Progress(lambda: f"sent {counts.sent}, confirmed {counts.confirmed}")

    def send(self, destination: Destination, parcel: Parcel) -> None:
        """Send a message; waits only if many are in flight."""
        sending = self._session.connection.begin_send(destination, parcel.body, **parcel.headers)
        size = len(parcel.body) if isinstance(parcel.body, str | bytes) else len(repr(parcel.body))
        self._in_flight.append((sending, size, parcel.headers.get("persistent", True)))
        self._bytes += size
        self._counts.sent += 1
        while len(self._in_flight) >= WINDOW or self._bytes > WINDOW_BYTES or self._is_oldest_done():
            self._confirm_oldest(self._session.timeout)
        self._progress.show()

    def finish(self) -> None:
        """Wait until all is confirmed."""
        while self._in_flight:
            self._confirm_oldest(self._session.timeout)

    def collect_confirmed(self) -> None:
        """Count the confirmed ones among the other sends after a failure; waits one second at most."""
        deadline = time.monotonic() + 1
        while self._in_flight:
            with suppress(ClientError):
                self._confirm_oldest(max(0.0, deadline - time.monotonic()))

    def _is_oldest_done(self) -> bool:
        return bool(self._in_flight) and self._in_flight[0][0].is_done

    def _confirm_oldest(self, timeout: float) -> None:
        sending, size, is_confirmed = self._in_flight.popleft()
        self._bytes -= size
        try:
            sending.wait(timeout)
        except ClientError:
            self._counts.sent -= not sending.is_sent
            raise
        self._counts.confirmed += is_confirmed


def produce(access: Access, destination: Destination | None, parcels: Iterable[Parcel]) -> SendProgress:
    """Send messages, and return the counts; a failure is in the result.

    Args:
        access: the broker.
        destination: the destination; None to send each message to its own.
        parcels: the messages, read one by one. It may raise `InvalidInput`.

    Raises:
        ConfigError, CommandFailed: there is no connection.
        KeyboardInterrupt: raised again, after the counts were printed.
    """
    counts = SendProgress()
    session = CommandSession(access)
    with session:
        sender = Sender(session, counts)
        try:
            for number, parcel in enumerate(parcels, 1):
                where = destination or parcel.destination
                if where is None:
                    raise InvalidInput(f"message {number} has no JMSDestination: name the destination as an argument")
                sender.send(where, parcel)
            sender.finish()
        except (ClientError, InvalidInput) as error:
            sender.collect_confirmed()
            counts.failure = error if isinstance(error, InvalidInput) else _failed(error)
        except KeyboardInterrupt:
            sender.collect_confirmed()
            _report(f"interrupted: sent {counts.sent}, confirmed {counts.confirmed}")
            raise
    return counts


# ---------------------------------------------------------------- consume


@dataclass(slots=True)
class Received:
    """The counts of `consume`.

    Attributes:
        written: messages whose output was written.
        acknowledged: written messages that were acknowledged.
        left: the ids of messages that cannot be shown whole, with the reason; the broker keeps them.
        is_interrupted: True after SIGINT.
        failure: the reason of an early end.
    """

    written: int = 0
    acknowledged: int = 0
    is_interrupted: bool = False
    left: dict[str, str] = field(default_factory=dict[str, str])
    failure: BrokerError | None = None


def consume(
    access: Access,
    destination: Destination,
    output: BufferedOutput,
    render: Callable[[Message], bytes],
    *,
    selector: str | None,
    count: int | None,
    idle: float | None,
) -> Received:
    """Receive messages, and acknowledge each after it was written; a failure is in the result.

    SIGINT ends it once all written messages are acknowledged, a second one at once.

    Args:
        access: the broker.
        destination: the destination.
        output: the output.
        render: returns the output of a message; if it raises `UnreadableMessage`, the message stays with the broker.
        selector: the selector; None for all messages.
        count: the number after which to stop; None for no limit.
        idle: the seconds without a message after which to stop; None for no limit.

    Raises:
        ConfigError, CommandFailed: there is no connection.
        KeyboardInterrupt: a second SIGINT arrived before the broker's confirmation.
    """
    session = CommandSession(access)
    with session as connection:
        window = min(count or WINDOW, WINDOW)  # no more than `count`: the other messages are for other consumers
        try:
            consumer = connection.consumer(
                destination, ack="individual", prefetch=window, selector=selector, timeout=session.timeout
            )
        except ClientError as error:
            raise _failed(error) from error
        with Interrupts() as interrupts:
            run = Consumption(session, consumer, output, render, interrupts)
            try:
                while run.handled != count and (batch := run.next_batch(count, idle)):
                    run.write(batch)
            except (ClientError, OutputFailed, CommandFailed) as error:
                run.received.failure = error if isinstance(error, BrokerError) else _failed(error)
            except BrokenPipeError:
                run.received.failure = OutputFailed("the reader of the output is gone")
            except KeyboardInterrupt:
                run.received.is_interrupted = True
            run.finish()
    run.received.is_interrupted |= interrupts.came
    return run.received


class Consumption:
    """One run of `consume`.

    Attributes:
        received: the counts.
    """

    def __init__(
        self,
        session: CommandSession,
        consumer: Consumer,
        output: BufferedOutput,
        render: Callable[[Message], bytes],
        interrupts: Interrupts,
    ) -> None:
        self.received = Received()
        self._interrupts = interrupts
        self._session = session
        self._consumer = consumer
        self._output = output
        self._render = render
        self._progress = Progress(lambda: f"acknowledged {self.received.acknowledged}")

    @property
    def handled(self) -> int:
        """The number of messages received, written or left."""
        return self.received.written + len(self.received.left)

    def next_batch(self, count: int | None, idle: float | None) -> list[Message]:
        """Return the next message, with those that have arrived already; none after a time-out.

        Raises:
            ClientError, CommandFailed: the broker is lost.
            KeyboardInterrupt: after SIGINT, which is deferred from here on.
        """
        self._interrupts.check()
        space = min(WINDOW, WINDOW if count is None else count - self.handled)
        batch = self._arrived(space)
        if not batch and (first := self._wait(idle)) is not None:
            batch = [first, *self._arrived(space - 1)]
        return batch

    def _arrived(self, count: int) -> list[Message]:
        """Return messages that have arrived already, up to a count."""
        batch: list[Message] = []
        with suppress(Timeout):
            while len(batch) < count:
                batch.append(self._consumer.receive(timeout=0))
        return batch

    def _wait(self, idle: float | None) -> Message | None:
        """Wait for a message while a broker serves, and for a broker up to the time-out."""
        availability, timeout = self._session.availability, self._session.timeout
        begun = time.monotonic()
        while True:
            wait_seconds = _POLL_SECONDS if availability.down_since is not None else idle
            try:
                with self._interrupts.allowed():
                    return self._consumer.receive(timeout=wait_seconds)
            except Timeout:
                now, down_since = time.monotonic(), availability.down_since
            if down_since is not None and idle is not None and now - down_since >= timeout:
                raise CommandFailed(f"no broker for more than {timeout:g} s")
            if down_since is None and idle is not None and now - max(begun, availability.up_since) >= idle:
                return None

    def write(self, batch: list[Message]) -> None:
        """Write messages, then acknowledge them.

        Raises:
            BrokenPipeError, OutputFailed: they could not be written, and are not acknowledged.
        """
        written: list[Message] = []
        for message in batch:
            try:
                self._output.add(self._render(message))
            except UnreadableMessage as error:
                self.received.left[message.id] = str(error)
                continue
            written.append(message)
            if self._output.byte_count > WINDOW_BYTES:
                self._write_and_acknowledge(written)
        self._write_and_acknowledge(written)
        self._progress.show()

    def _write_and_acknowledge(self, written: list[Message]) -> None:
        self._output.flush()
        self.received.written += len(written)
        for message in written:
            message.ack()
            self.received.acknowledged += 1
        written.clear()

    def finish(self) -> None:
        """Wait until the broker has confirmed the acknowledgements."""
        try:
            is_confirmed = self._consumer.finish(self._session.timeout)
            reason = "the connection broke before the broker confirmed the last acknowledgements"
        except ClientError as error:
            is_confirmed, reason = False, str(error)
        if not is_confirmed and self.received.acknowledged and self.received.failure is None:
            self.received.failure = CommandFailed(f"{reason}: up to {WINDOW} messages may be redelivered")


# ---------------------------------------------------------------- browse


def browse(
    access: Access,
    destination: Destination,
    output: BufferedOutput,
    render: Callable[[Message], bytes],
    selector: str | None,
) -> None:
    """Write the messages of a queue, without consuming them.

    Raises:
        ConfigError, CommandFailed: the broker cannot be reached, or refuses.
        BrokenPipeError, OutputFailed: the output cannot be written.
    """
    session = CommandSession(access)
    with session as connection:
        try:
            for message in connection.browse(destination, selector=selector, timeout=session.timeout):
                output.add(render(message))
                if output.byte_count > WINDOW_BYTES:
                    output.flush()
        except ClientError as error:
            raise _failed(error) from error
        finally:
            output.flush()


# ---------------------------------------------------------------- output


def shown_whole(message: Message) -> Message:
    """Return the message, if its body is complete.

    Raises:
        UnreadableMessage: it may not be.
    """
    if message.kind is None:
        raise UnreadableMessage(
            f"message {message.id} came without a body: over STOMP that is an empty text, or a map, stream or object, "
            "which STOMP does not carry; use tcp:// or ssl://"
        )
    return message


def as_text(message: Message) -> bytes:
    """Return a message's body as a line: text and bytes unchanged, any other as JSON.

    Raises:
        UnreadableMessage: it is damaged.
    """
    match message.body:
        case None:
            return b""
        case str() as text:
            return text.encode("utf-8", "surrogatepass")
        case bytes() as data if message.kind is not Kind.OBJECT:
            return data
        case _:
            return message_json.dumps(message_json.body(message)["body"])


class Progress:
    """Prints counts to standard error once a second, if that is a terminal and the output is not."""

    def __init__(self, describe: Callable[[], str]) -> None:
        self._describe = describe
        self._is_shown = sys.stderr.isatty() and not sys.stdout.isatty()
        self._due_at = time.monotonic() + _PROGRESS_SECONDS

    def show(self) -> None:
        """Show the counts, if it is time."""
        if self._is_shown and time.monotonic() >= self._due_at:
            self._due_at = time.monotonic() + _PROGRESS_SECONDS
            _report(self._describe())


def _report(text: str) -> None:
    print(f"pybroker: {text}", file=sys.stderr, flush=True)  # noqa: T201 -- of a command line
