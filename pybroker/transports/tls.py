"""TLS over a connection: the server's side, from 1.2 on. Certificates and keys in PEM, as OpenSSL reads them.

The record layer runs in memory between the transport and the session, the same under every event loop; so what
`Connection` promises of its transport holds here too, and a failed handshake is one line in the log that says who and
why. Output is encrypted when it leaves, a turn's worth at once, not frame by frame.

```text
transport --ciphertext--> TlsChannel --plaintext--> session
transport <--ciphertext-- TlsChannel <--plaintext-- output of a turn
```
"""

import logging
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from pybroker.broker.domain.errors import ConfigError
from pybroker.transports.connection import Connection, Life, MakeSession, Registry

_log = logging.getLogger(__name__)

_READ_BYTES = 16 << 10
"""The most a TLS record holds; more than one is never read at once."""


class TlsChannel:
    """The server's half of a TLS conversation, sans-I/O.

    Attributes:
        is_established: the handshake is over.
        is_ended: the peer has said that it will send nothing more.
    """

    def __init__(self, context: ssl.SSLContext) -> None:
        self.is_established = False
        self.is_ended = False
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)

    def decrypt(self, data: bytes) -> bytes:
        """Take bytes from the peer; return what they say. There may be an answer in `output`.

        Raises:
            ssl.SSLError: the handshake failed, or a record is broken; `output` may have the alert that says so.
        """
        self._incoming.write(data)
        pieces: list[bytes] = []
        try:
            if not self.is_established:
                self._tls.do_handshake()
                self.is_established = True
            while piece := self._tls.read(_READ_BYTES):
                pieces.append(piece)
            self.is_ended = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.is_ended = True
        return b"".join(pieces)

    def encrypt(self, data: bytes) -> bytes:
        """Return what to send, so that the peer reads these bytes."""
        rest = memoryview(data)
        while rest:
            rest = rest[self._tls.write(rest) :]
        return self._outgoing.read()

    def output(self) -> bytes:
        """Return what to send in answer to what was received; often nothing."""
        return self._outgoing.read()

    def end(self) -> bytes:
        """Return what tells the peer that nothing more will come; nothing when it cannot be told any more."""
        if self.is_established:
            try:
                self._tls.unwrap()
            except ssl.SSLError as error:  # nearly always: it would wait for the peer's own end
                _log.debug("the end of a TLS conversation: %s", error)
        return self._outgoing.read()


class TlsConnection(Connection):
    """A connection whose bytes are encrypted. Its session begins when the handshake is over.

    Nobody is refused in words: they would need a handshake, which costs a millisecond, when there are too many already.
    """

    def __init__(
        self,
        registry: Registry,
        peer: str,
        make_session: MakeSession,
        *,
        context: ssl.SSLContext,
        handshake_seconds: float,
    ) -> None:
        super().__init__(registry, peer, make_session, refusal=b"")
        self._channel = TlsChannel(context)
        self._handshake_seconds = handshake_seconds
        self._was_heard = False
        self._said_end = False

    def data_received(self, data: bytes) -> None:
        """Hand what the chunk says to the session, whole."""
        if self._life is not Life.OPEN:
            return
        self._was_heard = True
        channel = self._channel
        was_established = channel.is_established
        try:
            plaintext = channel.decrypt(data)
        except ssl.SSLError as error:
            self._fail(_reason(error))
            return
        if answer := channel.output():
            self._transport.write(answer)
        if channel.is_established and not was_established:
            self._cancel_timer()
            super()._begin()
        if plaintext:
            super().data_received(plaintext)
        if channel.is_ended:
            # As when the peer of a plain connection closes, which the loop sees a turn after its last bytes.
            self._loop.call_soon(self._transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        """Both sides are closed."""
        if self._was_heard and self._life is Life.OPEN and not self._channel.is_established:
            _log.info("%s: TLS handshake failed: the peer left in the middle of it", self.peer)
        super().connection_lost(exc)

    def _begin(self) -> None:
        """Give the peer its time for the handshake."""
        self._timer = self._loop.call_later(self._handshake_seconds, self._give_up)

    def _give_up(self) -> None:
        _log.info("%s: TLS handshake failed: not over within %g seconds", self.peer, self._handshake_seconds)
        self.abort()

    def _fail(self, reason: str) -> None:
        """Tell log and peer what is wrong, and close."""
        _log.info("%s: TLS %s failed: %s", self.peer, "record" if self._channel.is_established else "handshake", reason)
        if alert := self._channel.output():
            self._transport.write(alert)
        self._said_end = True
        self._output.clear()  # nothing can be encrypted any more
        self.close()

    def _put(self, data: bytes) -> None:
        self._transport.write(self._channel.encrypt(data))

    def _shut(self) -> None:
        if not self._said_end and not self._transport.is_closing():
            self._said_end = True
            if end := self._channel.end():
                self._transport.write(end)
        super()._shut()


# ---------------------------------------------------------------- certificates


def server_context(
    certificate: Path, *, key: Path | None = None, key_password_file: Path | None = None, client_ca: Path | None = None
) -> ssl.SSLContext:
    """Read certificates and keys.

    Args:
        certificate: the server's certificate, and behind it those between it and its authority.
        key: its private key; by default in the same file.
        key_password_file: holds the key's password, if it has one.
        client_ca: certificates of authorities. When given, every client must present a certificate of one of them.

    Raises:
        ConfigError: a file cannot be used; names the setting.
    """
    _look_for(certificate, "CERTIFICATE-----", "tls_certificate")
    _look_for(key or certificate, "PRIVATE KEY-----", "tls_key")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION  # what was agreed holds to the end; reading never waits for writing
    try:
        context.load_cert_chain(certificate, key, _password(key_password_file))
    except (ssl.SSLError, ValueError) as error:
        raise _unusable(error, certificate, key or certificate, has_password=key_password_file is not None) from error
    if client_ca is not None:
        _look_for(client_ca, "CERTIFICATE-----", "tls_client_ca")
        try:
            context.load_verify_locations(client_ca)
        except ssl.SSLError as error:
            raise ConfigError(
                f"{client_ca} cannot be used: {_reason(error)}", setting="tls_client_ca", hint=_PEM_HINT
            ) from error
        context.verify_mode = ssl.CERT_REQUIRED
    return context


_PEM_HINT = "it must hold PEM, text between BEGIN and END lines"


class _NoPassword(ValueError):
    """The key is encrypted, and no password was given."""


def _look_for(path: Path, mark: str, setting: str) -> None:
    """Make sure that a file can be read and is of its kind: OpenSSL's own errors do not say which file they mean."""
    if mark.encode() not in _read(path, setting):
        kind = "private key" if "KEY" in mark else "certificate"
        raise ConfigError(f"there is no {kind} in {path}", setting=setting, hint=_PEM_HINT)


def _read(path: Path, setting: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}", setting=setting) from error


def _password(file: Path | None) -> Callable[[], bytes]:
    """Return what OpenSSL asks when a key is encrypted; without it OpenSSL would ask on the terminal."""
    if file is None:
        return _refuse_password
    password = _read(file, "tls_key_password_file").rstrip(b"\r\n")
    return lambda: password


def _refuse_password() -> NoReturn:
    raise _NoPassword("the key is encrypted")


def _unusable(error: Exception, certificate: Path, key: Path, *, has_password: bool) -> ConfigError:
    """Say which of the settings is to blame."""
    reason = error.reason if isinstance(error, ssl.SSLError) else None
    if isinstance(error, _NoPassword):
        hint = "write its password into a file, and name that with tls_key_password_file"
        return ConfigError(f"the key in {key} is encrypted", setting="tls_key", hint=hint)
    if reason == "KEY_VALUES_MISMATCH":
        return ConfigError(f"the key in {key} does not belong to {certificate}", setting="tls_key")
    if has_password and (reason is None or "DECRYPT" in reason or "PASSWORD" in reason):
        return ConfigError(f"it does not open the key in {key}", setting="tls_key_password_file")
    return ConfigError(
        f"{certificate} and the key in {key} cannot be used: {_reason(error)}",
        setting="tls_certificate",
        hint=_PEM_HINT,
    )


def _reason(error: Exception) -> str:
    """Return OpenSSL's reason in words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate verify failed: {error.verify_message}"
    reason = error.reason if isinstance(error, ssl.SSLError) else None
    return reason.lower().replace("_", " ") if reason else str(error)
