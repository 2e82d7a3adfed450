"""TLS 1.2 and later, sans-I/O: both sides, and their certificates and keys in PEM."""

import logging
import re
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn, cast

from pybroker.broker.domain.errors import ConfigError
from pybroker.errors import PybrokerError
from pybroker.transports.distinguished_name import Name, written

_log = logging.getLogger(__name__)

_READ_BYTES = 16 << 10
"""The maximum size of a TLS record; at most one is read at once."""


class TlsChannel:
    """One side of a TLS connection, sans-I/O. The client's side begins: decrypt nothing, and send the `output`.

    Attributes:
        is_established: the handshake is over.
        is_ended: the peer has announced that it sends nothing more.
    """

    def __init__(self, context: ssl.SSLContext, *, server_host: str | None = None) -> None:
        """Wait for bytes.

        Args:
            context: certificates and rules.
            server_host: makes it the client's side: the host that it has dialled; None: it is the server's side.
        """
        self.is_established = False
        self.is_ended = False
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_host is None, server_hostname=server_host
        )

    def peer_subject(self) -> str:
        """Return the subject of the peer's certificate, which was verified; empty without one."""
        certificate = self._tls.getpeercert()
        return written(cast("Name", certificate["subject"])) if certificate else ""

    def decrypt(self, data: bytes) -> bytes:
        """Return the plaintext of received bytes. There may be an answer in `output`.

        Raises:
            ssl.SSLError: the handshake failed, or a record is broken; `output` may have the alert.
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

    def encrypt(self, data: bytes | memoryview) -> bytes:
        """Return the encrypted bytes."""
        rest = memoryview(data)
        while rest:
            taken = self._tls.write(rest)
            rest = rest[taken:]
        return self._outgoing.read()

    def output(self) -> bytes:
        """Return the answer to received bytes; often empty."""
        return self._outgoing.read()

    def end(self) -> bytes:
        """Return the alert that announces the end; empty if it cannot be sent any more."""
        if self.is_established:
            try:
                self._tls.unwrap()
            except ssl.SSLError as error:  # nearly always: it would wait for the peer's alert
                _log.debug("the end of a TLS conversation: %s", error)
        return self._outgoing.read()


# ---------------------------------------------------------------- certificates


TLS_VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
"""The versions that may be set as the lowest. Earlier ones are not safe (RFC 8996)."""

_PREFIXES: Final = ("!", "-", "+", "@")
"""Marks of what takes ciphers off OpenSSL's list, orders it or sets its security level; such a part selects none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsRules:
    """The versions and ciphers of TLS that clients may use.

    Attributes:
        version_min: the lowest version.
        ciphers: those of TLS 1.2, as OpenSSL writes them; None: Python's choice.
    """

    version_min: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2
    ciphers: str | None = None


def server_context(
    certificate: Path,
    *,
    rules: TlsRules = TlsRules(),
    key: Path | None = None,
    key_password_file: Path | None = None,
    client_ca: Path | None = None,
    needs_client: bool = True,
) -> ssl.SSLContext:
    """Read certificates and keys.

    Args:
        certificate: the server's certificate, followed by those between it and its authority.
        rules: versions and ciphers.
        key: its private key; by default in the same file.
        key_password_file: holds the key's password, if it has one.
        client_ca: certificates of authorities. When given, every client must present a certificate of one of them, or
            one that is in the file itself.
        needs_client: with `client_ca`; False: a client may also present none.

    Raises:
        ConfigError: a file or the ciphers cannot be used; names the setting.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = rules.version_min
    if rules.ciphers is not None:
        _set_ciphers(context, rules.ciphers)
    context.options |= ssl.OP_NO_RENEGOTIATION  # so that reading never waits for writing
    _load(context, certificate, key, key_password_file)
    if client_ca is not None:
        _trust(context, client_ca, "tls_client_ca")
        context.verify_mode = ssl.CERT_REQUIRED if needs_client else ssl.CERT_OPTIONAL
    return context


def client_context(
    *,
    authorities: Path | None = None,
    certificate: Path | None = None,
    key: Path | None = None,
    key_password_file: Path | None = None,
    verifies_host_name: bool = True,
) -> ssl.SSLContext:
    """Read what a client needs: the server's certificate is always verified.

    Args:
        authorities: certificates of the authorities that are trusted, or of servers themselves; None: the system's.
        certificate: the client's certificate, followed by those between it and its authority; None: it has none.
        key: its private key; by default in the same file.
        key_password_file: holds the key's password, if it has one.
        verifies_host_name: the server's certificate must be for the host that is dialled.

    Raises:
        ConfigError: a file cannot be used; names the setting.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = verifies_host_name
    context.options |= ssl.OP_NO_RENEGOTIATION
    if authorities is None:
        context.load_default_certs()
    else:
        _trust(context, authorities, "tls_ca")
    if certificate is not None:
        _load(context, certificate, key, key_password_file)
    return context


def _load(context: ssl.SSLContext, certificate: Path, key: Path | None, key_password_file: Path | None) -> None:
    """Load a certificate and its key."""
    _require(certificate, "CERTIFICATE-----", "tls_certificate")
    _require(key or certificate, "PRIVATE KEY-----", "tls_key")
    try:
        context.load_cert_chain(certificate, key, _password(key_password_file))
    except (ssl.SSLError, ValueError) as error:
        raise _unusable(error, certificate, key or certificate, has_password=key_password_file is not None) from error


def _trust(context: ssl.SSLContext, authorities: Path, setting: str) -> None:
    """Trust each certificate of a file by itself, as Java does: an intermediate one without its root too."""
    _require(authorities, "CERTIFICATE-----", setting)
    try:
        context.load_verify_locations(authorities)
    except ssl.SSLError as error:
        raise ConfigError(
            f"{authorities} cannot be used: {reason_of(error)}", setting=setting, hint=_PEM_HINT
        ) from error
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN


def _set_ciphers(context: ssl.SSLContext, ciphers: str) -> None:
    """Select the ciphers of TLS 1.2.

    OpenSSL ignores a part that it does not know, if another one selects a cipher: a misspelt list would be another one.
    """
    parts = [part for part in re.split("[:, ]+", ciphers) if part and not part.startswith(_PREFIXES)]
    unknown = [part for part in parts if not _selects(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), part)]
    if unknown or not _selects(context, ciphers):
        raise ConfigError(
            f"OpenSSL has no such ciphers of TLS 1.2: {', '.join(unknown) or repr(ciphers)}",
            setting="tls_ciphers",
            hint="write names that `openssl ciphers -s -tls1_2` lists, separated by colons",
        )
    opened = [each["name"] for each in context.get_ciphers() if _is_open(each)]
    if opened:
        raise ConfigError(
            f"ciphers without encryption or without the server's certificate: {', '.join(opened)}",
            setting="tls_ciphers",
            hint="append :!aNULL:!eNULL",
        )


def _is_open(cipher: Mapping[str, object]) -> bool:
    """Return True for a cipher that does not encrypt, or does not prove who the server is."""
    return cipher["auth"] == "auth-null" or cipher["strength_bits"] == 0


def _selects(context: ssl.SSLContext, ciphers: str) -> bool:
    """Return True if OpenSSL finds a cipher, which is selected in the context."""
    try:
        context.set_ciphers(ciphers)
    except (ssl.SSLError, ValueError):
        return False
    return True


_PEM_HINT = "it must hold PEM, text between BEGIN and END lines"


class _NoPassword(PybrokerError, ValueError):
    """The key is encrypted, and no password was given."""


def _require(path: Path, mark: str, setting: str) -> None:
    """Check that a file can be read and is of its kind: OpenSSL's errors do not name the file."""
    if mark.encode() not in _read(path, setting):
        kind = "private key" if "KEY" in mark else "certificate"
        raise ConfigError(f"there is no {kind} in {path}", setting=setting, hint=_PEM_HINT)


def _read(path: Path, setting: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}", setting=setting) from error


def _password(file: Path | None) -> Callable[[], bytes]:
    """Return OpenSSL's callback for an encrypted key; without one OpenSSL would ask on the terminal."""
    if file is None:
        return _refuse_password
    password = _read(file, "tls_key_password_file").rstrip(b"\r\n")
    return lambda: password


def _refuse_password() -> NoReturn:
    raise _NoPassword("the key is encrypted")


def _unusable(error: Exception, certificate: Path, key: Path, *, has_password: bool) -> ConfigError:
    """Return an error that names the wrong setting."""
    reason = error.reason if isinstance(error, ssl.SSLError) else None
    if isinstance(error, _NoPassword):
        hint = "write its password into a file, and name that with tls_key_password_file"
        return ConfigError(f"the key in {key} is encrypted", setting="tls_key", hint=hint)
    if reason == "KEY_VALUES_MISMATCH":
        return ConfigError(f"the key in {key} does not belong to {certificate}", setting="tls_key")
    if has_password and (reason is None or "DECRYPT" in reason or "PASSWORD" in reason):
        return ConfigError(f"it does not open the key in {key}", setting="tls_key_password_file")
    return ConfigError(
        f"{certificate} and the key in {key} cannot be used: {reason_of(error)}",
        setting="tls_certificate",
        hint=_PEM_HINT,
    )


def reason_of(error: Exception) -> str:
    """Return OpenSSL's reason in words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate verify failed: {error.verify_message}"
    reason = error.reason if isinstance(error, ssl.SSLError) else None
    return reason.lower().replace("_", " ") if reason else str(error)
