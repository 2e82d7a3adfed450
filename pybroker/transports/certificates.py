"""Certificates that may be replaced while the broker runs, and warnings before they expire.

The files are polled, and read again after a change. New ones that cannot be used are an error in the log, and the
former ones stay in use. A connection keeps the certificate that it began with.
"""

import asyncio
import base64
import calendar
import logging
import re
import ssl
import time
from dataclasses import dataclass
from pathlib import Path

from pybroker.broker.domain.errors import ConfigError
from pybroker.transports.tls import TlsRules, server_context

_log = logging.getLogger(__name__)

_POLL_SECONDS = 10.0
"""The time between two polls of the files. They are read when two polls saw the same change, so that certificate and
key may be replaced one after the other."""

_WARN_DAYS = 30
"""The days before a certificate expires on which the log warns of it."""

_DAY_SECONDS = 86_400

_PEM = re.compile(rb"-----BEGIN (?:TRUSTED |X509 )?CERTIFICATE-----(.+?)-----END", re.DOTALL)
_UTC_TIME = 0x17
_CONTEXT_0 = 0xA0


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateFiles:
    """The PEM files behind a TLS listener.

    Attributes:
        certificate: the server's certificate, and those between it and its authority.
        key: its private key; by default in the same file.
        key_password_file: holds the key's password, if it has one.
        client_ca: authorities; when given, every client must present a certificate of one of them.
        needs_client: with `client_ca`; False: a client may also present none.
    """

    certificate: Path
    key: Path | None = None
    key_password_file: Path | None = None
    client_ca: Path | None = None
    needs_client: bool = True

    def paths(self) -> list[Path]:
        """Return the files that are set."""
        return [each for each in (self.certificate, self.key, self.key_password_file, self.client_ca) if each]


Stamp = tuple[tuple[int, int, int, int] | None, ...]
"""Modification time, change time, size and inode of each file; None for a file without a status."""


class Certificates:
    """The TLS context of the newest files that could be used."""

    def __init__(self, files: CertificateFiles, rules: TlsRules = TlsRules()) -> None:  # noqa: B008 - a frozen value
        """Read the files.

        Raises:
            ConfigError: one of them, or the ciphers, cannot be used; names the setting.
        """
        self._files = files
        self._rules = rules
        self._used = self._seen = self._stamp()
        self._context = self._read()
        self._warned_at = 0.0

    def context(self) -> ssl.SSLContext:
        """Return the context for a new connection."""
        return self._context

    def reload(self) -> None:
        """Read the files again; if they cannot be used, log an error and keep the present ones."""
        self._used = self._seen = self._stamp()
        try:
            self._context = self._read()
        except (ConfigError, OSError) as error:
            _log.error("the new certificate or key cannot be used, the former one stays in use: %s", error)
            return
        _log.info("certificates read again, for new connections: %s", self._files.certificate)
        self.warn(time.time())

    def poll(self) -> None:
        """Read the files again if they changed before the last poll, and have not changed since."""
        stamp = self._stamp()
        if stamp != self._used and stamp == self._seen:
            self.reload()
        self._seen = stamp

    def warn(self, now: float) -> None:
        """Warn of files with a certificate that expired or soon will; `now` in seconds since the epoch."""
        self._warned_at = now
        for path, setting in ((self._files.certificate, "tls_certificate"), (self._files.client_ca, "tls_client_ca")):
            if path is not None:
                _warn_of(path, setting, now)

    async def watch(self) -> None:
        """Poll the files until cancelled, in a thread: they may be on a share that hangs."""
        while True:
            await asyncio.sleep(_POLL_SECONDS)
            try:
                await asyncio.to_thread(self.poll)
                if time.time() - self._warned_at >= _DAY_SECONDS:
                    await asyncio.to_thread(self.warn, time.time())
            except Exception:  # the former certificates are still good to serve with
                _log.exception("polling the certificates failed unexpectedly")

    def _read(self) -> ssl.SSLContext:
        files = self._files
        return server_context(
            files.certificate,
            rules=self._rules,
            key=files.key,
            key_password_file=files.key_password_file,
            client_ca=files.client_ca,
            needs_client=files.needs_client,
        )

    def _stamp(self) -> Stamp:
        return tuple(map(_stamp_of, self._files.paths()))


def _stamp_of(path: Path) -> tuple[int, int, int, int] | None:
    try:
        found = path.stat()
    except OSError:  # reading the file reports the error, if it lasts
        return None
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino


def _warn_of(path: Path, setting: str, now: float) -> None:
    try:
        expires_at = min(expiries(path.read_bytes()))
    except (OSError, ValueError, IndexError) as error:
        _log.warning("cannot read when the certificates in %s (%s) expire: %s", path, setting, error)
        return
    date, days = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(expires_at)), (expires_at - now) / _DAY_SECONDS
    if days <= 0:
        _log.warning("a certificate in %s (%s) expired on %s: replace the file", path, setting, date)
    elif days <= _WARN_DAYS:
        _log.warning("a certificate in %s (%s) expires in %d days, on %s", path, setting, days, date)


# ---------------------------------------------------------------- dates


def expiries(pem: bytes) -> list[float]:
    """Return the expiry of each certificate of a PEM file, in seconds since the epoch.

    Raises:
        ValueError: there is none, or it is not in the form of RFC 5280.
        IndexError: a certificate is cut off.
    """
    found = [_expiry(base64.b64decode(block)) for block in _PEM.findall(pem)]
    if not found:
        raise ValueError("the file has no certificate")
    return found


def _expiry(der: bytes) -> float:
    """Return the end of a certificate's validity.

    ```text
    Certificate = SEQUENCE { TBSCertificate, … }
    TBSCertificate = SEQUENCE { [0] version OPTIONAL, serialNumber, signature, issuer, Validity, … }
    Validity = SEQUENCE { notBefore, notAfter }      each UTCTime YYMMDDhhmmssZ or GeneralizedTime YYYYMMDDhhmmssZ
    ```
    """
    _, certificate = _elements(der)[0]
    _, to_be_signed = _elements(certificate)[0]
    fields = [content for tag, content in _elements(to_be_signed) if tag != _CONTEXT_0]
    _, (tag, end) = _elements(fields[3])[:2]
    text = end.decode("ascii")
    if tag == _UTC_TIME:
        text = ("19" if text >= "50" else "20") + text
    return calendar.timegm(time.strptime(text, "%Y%m%d%H%M%SZ"))


def _elements(der: bytes) -> list[tuple[int, bytes]]:
    """Return tag and content of each DER element."""
    at, found = 0, list[tuple[int, bytes]]()
    while at < len(der):
        tag, length, at = der[at], der[at + 1], at + 2
        if length >= 0x80:
            size = length & 0x7F
            length, at = int.from_bytes(der[at : at + size], "big"), at + size
        found.append((tag, der[at : at + length]))
        at += length
    return found
