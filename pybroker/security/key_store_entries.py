"""The entries of a key store, whatever its format."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pybroker.broker.domain.errors import MalformedData

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

ITERATIONS_MAX: Final = 5_000_000
"""The limit to the rounds of all derivations of keys from the password in a file: Java's own for a single one."""

SHOWN_MAX: Final = 20
"""The aliases that an error names."""


class UnusableKeyStore(MalformedData):
    """A key store that cannot be used.

    Attributes:
        reason: why, without the remedy.
        hint: the remedy; may be empty.
    """

    def __init__(self, reason: str, hint: str = "") -> None:
        """Create the error; the reader of the text knows the file."""
        super().__init__(f"{reason}; {hint}" if hint else reason)
        self.reason = reason
        self.hint = hint


@dataclass(frozen=True, slots=True)
class KeyEntry:
    """A private key and its certificates.

    Attributes:
        alias: its name.
        chain: the key's own certificate, that of its issuer, and so on.
        opened: returns the key as PKCS#8 in DER, given its password, or raises UnusableKeyStore.
    """

    alias: str
    chain: "tuple[Certificate, ...]"
    opened: Callable[[str], bytes] = field(repr=False)


@dataclass(frozen=True, slots=True)
class TrustedEntry:
    """A certificate that the store's owner trusts.

    Attributes:
        alias: its name.
        certificate: the certificate.
    """

    alias: str
    certificate: "Certificate"


@dataclass(frozen=True, slots=True)
class KeyStoreEntries:
    """The entries of a file.

    Attributes:
        keys: the private keys, in the order of the file.
        trusted: the trusted certificates, in the order of the file.
    """

    keys: tuple[KeyEntry, ...]
    trusted: tuple[TrustedEntry, ...]


def certificate(data: bytes, alias: str) -> "Certificate":
    """Return a certificate that is given in DER.

    Raises:
        UnusableKeyStore: it does not parse.
    """
    from cryptography import x509

    try:
        given = x509.load_der_x509_certificate(data)
    except Exception as error:  # cryptography documents ValueError, and raises others too, such as TypeError
        raise UnusableKeyStore(f"a certificate of {alias!r} does not parse: {error}") from error
    return parsed(given, alias)


def parsed(given: "Certificate", alias: str) -> "Certificate":
    """Return a certificate whose names and dates parse: `cryptography` looks at them when they are asked for.

    Raises:
        UnusableKeyStore: one does not.
    """
    try:
        _ = given.subject.rfc4514_string(), given.issuer, given.not_valid_after_utc
    except Exception as error:  # as above
        raise UnusableKeyStore(f"a certificate of {alias!r} does not parse: {error}") from error
    return given


def listed(aliases: list[str]) -> str:
    """Return aliases for an error text."""
    return ", ".join(map(repr, aliases[:SHOWN_MAX])) + (", …" if len(aliases) > SHOWN_MAX else "")
