"""TLS 1.3 with certificates on both sides of the replication stream, which then needs no secret.

Each side presents a certificate of the same authority. The follower checks that the master's is for the host it dials.
With a list of members, a name in the certificate must also be in that: a certificate of the same authority may be
another service's.

The files are read again when they have changed, for the next connection, so that a certificate may be renewed while the
broker runs. New ones that cannot be used are an error in the log, and the former ones stay in use.

Source: specification of replication, section 7.
"""

import logging
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pybroker.broker.domain.errors import ConfigError
from pybroker.broker.domain.replica.manifest import MalformedFrame
from pybroker.transports.tls import TlsRules, reason_of, server_context

_SETTINGS: Final = {
    "tls_certificate": "replicate_tls_certificate",
    "tls_key": "replicate_tls_key",
    "tls_client_ca": "replicate_tls_ca",
}
_NAMES_SHOWN: Final = 5

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerFiles:
    """The files of a member, and whom it accepts.

    Attributes:
        certificate: its certificate in PEM, and those between it and its authority.
        key: the private key; None: it is in the same file.
        authority: certificates of the authority of all members, in PEM.
        key_password_file: holds the key's password; None: it has none.
        members: names of which one must be in the peer's certificate; empty: each certificate of the authority will do.
    """

    certificate: Path
    key: Path | None
    authority: Path
    key_password_file: Path | None = None
    members: frozenset[str] = frozenset()

    def paths(self) -> list[Path]:
        """Return the files that are set."""
        return [each for each in (self.certificate, self.key, self.authority, self.key_password_file) if each]


class PeerCertificates:
    """The TLS contexts of both sides, of the newest files that could be used. Used in any thread."""

    def __init__(self, files: PeerFiles) -> None:
        """Read the files.

        Raises:
            ConfigError: one of them cannot be used; names the setting.
        """
        self._files = files
        self._stamp = self._present()
        self._contexts = self._read()
        self._failure = ""

    def of_master(self) -> ssl.SSLContext:
        """Return the context for a connection that a follower has opened."""
        return self._newest()[0]

    def of_follower(self) -> ssl.SSLContext:
        """Return the context for a connection to a master."""
        return self._newest()[1]

    def wrap(self, connection: socket.socket, host: str) -> ssl.SSLSocket:
        """Return a connection to a master as one over TLS; `shake_hands` has to follow.

        Args:
            connection: it belongs to the answer, and is closed with it, or with an error.
            host: the host that was dialled.

        Raises:
            OSError: the connection has ended.
        """
        return self.of_follower().wrap_socket(connection, server_hostname=host, do_handshake_on_connect=False)

    def shake_hands(self, connection: ssl.SSLSocket) -> None:
        """Run a follower's handshake, and check who the master is. Blocks for the connection's time-out.

        Raises:
            MalformedFrame: one of the two refuses the other.
            OSError: the connection has ended, or the master does not answer.
        """
        try:
            connection.do_handshake()
        except (ConnectionError, ssl.SSLEOFError) as error:
            raise MalformedFrame(
                "the master closed the connection during the handshake of TLS: does it have replicate_tls_certificate?"
            ) from error
        except ssl.SSLError as error:
            raise MalformedFrame(f"TLS with the master failed: {described(error)}") from error
        self.check(connection.getpeercert())

    def check(self, certificate: Mapping[str, Any] | None) -> None:
        """Check that the other side is a member.

        Args:
            certificate: as `ssl` returns it, verified.

        Raises:
            MalformedFrame: it has no name of a member.
        """
        if not self._files.members:
            return
        names = _names(certificate or {})
        if not self._files.members.intersection(names):
            shown = ", ".join(names[:_NAMES_SHOWN]) or "no name"
            raise MalformedFrame(f"the other side's certificate is for {shown}, which is not in replicate_members")

    def _newest(self) -> tuple[ssl.SSLContext, ssl.SSLContext]:
        stamp = self._present()
        if stamp != self._stamp:
            try:
                self._contexts = self._read()
            except ConfigError as error:  # certificate and key may be replaced one after the other: tried again
                if str(error) != self._failure:
                    self._failure = str(error)
                    _log.error("the new certificate or key cannot be used, the former one stays in use: %s", error)
                return self._contexts
            self._stamp, self._failure = stamp, ""
            _log.info("certificates of replication read again, for new connections: %s", self._files.certificate)
        return self._contexts

    def _read(self) -> tuple[ssl.SSLContext, ssl.SSLContext]:
        files = self._files
        try:
            master = server_context(
                files.certificate,
                rules=TlsRules(version_min=ssl.TLSVersion.TLSv1_3),
                key=files.key,
                key_password_file=files.key_password_file,
                client_ca=files.authority,
            )
        except ConfigError as error:
            setting = _SETTINGS.get(error.setting or "", error.setting or "")
            raise ConfigError(error.reason, setting=setting, hint=error.hint) from error
        return master, self._follower_context()

    def _follower_context(self) -> ssl.SSLContext:
        """Return a context of the files that a master's context was made of."""
        files = self._files
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        password = None if files.key_password_file is None else files.key_password_file.read_bytes().rstrip(b"\r\n")
        context.load_cert_chain(files.certificate, files.key, password)
        context.load_verify_locations(files.authority)
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        return context

    def _present(self) -> tuple[tuple[int, int, int] | None, ...]:
        return tuple(map(_stamp_of, self._files.paths()))


def peer_certificates(
    certificate: Path, key: Path | None, authority: Path, members: frozenset[str] = frozenset()
) -> PeerCertificates:
    """Return the certificates of a member, see `PeerFiles`.

    Raises:
        ConfigError: a file cannot be used; names the setting.
    """
    return PeerCertificates(PeerFiles(certificate=certificate, key=key, authority=authority, members=members))


def described(error: OSError) -> str:
    """Return why a handshake of TLS failed, in words."""
    if not isinstance(error, ssl.SSLError):
        return str(error) or type(error).__name__
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the other side's certificate is refused: {error.verify_message or reason_of(error)}"
    reason = error.reason or ""
    if "ALERT" in reason:
        return f"the other side refuses this member's certificate, or its version of TLS: {reason_of(error)}"
    if reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL", "RECORD_LAYER_FAILURE"):
        return f"the other side does not speak TLS: {reason_of(error)}"
    if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return "the other side has no certificate"
    return reason_of(error)


def _names(certificate: Mapping[str, Any]) -> list[str]:
    """Return the host names and addresses that a certificate is for, and its common name."""
    names = [str(value) for kind, value in certificate.get("subjectAltName", ()) if kind in ("DNS", "IP Address")]
    parts = [each for part in certificate.get("subject", ()) for each in part]
    return [*names, *(str(value) for kind, value in parts if kind == "commonName")]


def _stamp_of(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:  # reading the file reports the error, if it lasts
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
