"""The first bytes of a replication connection: each side shows that it knows the secret, if there is one.

```text
follower  ->  "pybrepl1"  mode u8  nonce (32 bytes)         mode 0: none, 1: a secret
master    ->  "pybrepl1"  mode u8  nonce (32 bytes)
with a secret:
follower  ->  proof (32 bytes): HMAC-SHA256 of its name, and of both nonces
master    ->  proof (32 bytes)
```

A master whose secret differs closes the connection without another word. Behind this each frame has an HMAC, with keys
that are the secret's HMAC of direction and nonces: so no frame of another connection, or direction, is taken.

Without a secret the stream is open to every peer that can connect, so it is for loopback, or for TLS with certificates
on both sides.

Source: specification of replication, section 7.
"""

import hmac
import ipaddress
from typing import Final, NamedTuple

from pybroker.broker.domain.errors import ConfigError
from pybroker.broker.domain.replica.manifest import MalformedFrame
from pybroker.broker.domain.replica.seals import CrcSeal, FrameSeal, HmacSeal, is_equal

MAGIC: Final = b"pybrepl1"
NONCE_BYTES: Final = 32
PROOF_BYTES: Final = 32
GREETING_BYTES: Final = len(MAGIC) + 1 + NONCE_BYTES

TLS_BEGINNINGS: Final = (b"\x15\x03", b"\x16\x03")
"""The first bytes of TLS: of an alert, and of a handshake (RFC 8446, 5.1)."""

_FOLLOWER: Final = b"follower "
_MASTER: Final = b"master "
_KEY: Final = b"key of the "


class ConnectionSeals(NamedTuple):
    """The seals of a connection.

    Attributes:
        send: of the frames that are sent.
        receive: of the frames that come.
    """

    send: FrameSeal
    receive: FrameSeal


class Handshake:
    """One side of the handshake. Used once.

    Args:
        secret: the cluster's; empty for none.
        nonce: random bytes, which are used once.
        is_master: the side.
    """

    def __init__(self, secret: bytes, nonce: bytes, *, is_master: bool) -> None:
        assert len(nonce) == NONCE_BYTES, "a nonce has a fixed length"
        self._secret = secret
        self._own_nonce = nonce
        self._is_master = is_master
        self._nonces = b""

    @property
    def greeting(self) -> bytes:
        """The first bytes to be sent; by a master, after it has got the follower's."""
        return MAGIC + bytes([bool(self._secret)]) + self._own_nonce

    @property
    def proof_bytes(self) -> int:
        """The length of a proof; 0: there is none."""
        return PROOF_BYTES if self._secret else 0

    def receive_greeting(self, data: bytes) -> None:
        """Take the other side's greeting.

        Raises:
            MalformedFrame: it is none, or the sides differ about the secret.
        """
        if data.startswith(TLS_BEGINNINGS):
            raise MalformedFrame("the other side speaks TLS, and this member has no replicate_tls_certificate")
        if len(data) != GREETING_BYTES or not data.startswith(MAGIC):
            raise MalformedFrame("the other side does not speak the replication protocol")
        if data[len(MAGIC)] != bool(self._secret):
            sides = ("this member", "the other one") if self._secret else ("the other member", "this one")
            raise MalformedFrame("{} has a replicate_secret_file, and {} has none".format(*sides))
        theirs = data[len(MAGIC) + 1 :]
        self._nonces = theirs + self._own_nonce if self._is_master else self._own_nonce + theirs

    def proof(self) -> bytes:
        """Return the own proof. A master sends it after it has checked the follower's."""
        return self._hmac(_MASTER if self._is_master else _FOLLOWER) if self._secret else b""

    def check_proof(self, data: bytes) -> None:
        """Check the other side's proof.

        Raises:
            MalformedFrame: it does not know the secret.
        """
        if self._secret and not is_equal(self._hmac(_FOLLOWER if self._is_master else _MASTER), data):
            raise MalformedFrame("the other side has another secret in its replicate_secret_file")

    def seals(self) -> ConnectionSeals:
        """Return the seals of the frames."""
        if not self._secret:
            return ConnectionSeals(CrcSeal(), CrcSeal())
        of_master = HmacSeal(self._hmac(_KEY + _MASTER))
        of_follower = HmacSeal(self._hmac(_KEY + _FOLLOWER))
        return ConnectionSeals(of_master, of_follower) if self._is_master else ConnectionSeals(of_follower, of_master)

    def _hmac(self, purpose: bytes) -> bytes:
        assert self._nonces, "the greetings were exchanged"
        return hmac.digest(self._secret, purpose + self._nonces, "sha256")


def require_protection(host: str, *, is_protected: bool) -> None:
    """Check that the stream is not open to a network.

    Raises:
        ConfigError: it would be: the address is not loopback, and there is neither a secret nor TLS.
    """
    if not is_protected and not is_loopback(host):
        raise ConfigError(
            f"{host} can be reached by other machines, and the stream is the whole store",
            setting="replicate_secret_file",
            hint="set it to the same secret on each member, or set replicate_tls_certificate and replicate_tls_ca",
        )


def is_loopback(host: str) -> bool:
    """Return True for an address, or a name, of this machine alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
