"""Java's key stores, in which ActiveMQ keeps its private keys and the authorities that it trusts, as PEM.

The format is recognised by the first bytes, as Java does: the name of the file says nothing about it.

No maintained library reads JKS: the last release of pyjks is of 2020. The format is small, and read here.

Nothing in a file is trusted: sizes, counts and rounds have limits, and each error says which one was met.

Source: `jks` and `pkcs12` describe the formats.
"""

import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pybroker import regular
from pybroker.broker.domain.errors import MalformedData, RequirementMissing
from pybroker.security.jks import JCEKS_MAGIC, JKS_MAGIC, read_jks
from pybroker.security.key_store_entries import KeyEntry, KeyStoreEntries, TrustedEntry, UnusableKeyStore, listed
from pybroker.security.pkcs12 import PKCS12_TAG, read_pkcs12

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

FILE_BYTES_MAX: Final = 4 << 20
"""The limit to a file: Java's own store of authorities has 0.2 MB."""


class KeyStoreFormat(enum.Enum):
    """The formats, by the names that Java has for them."""

    JKS = "JKS"
    JCEKS = "JCEKS"
    PKCS12 = "PKCS12"


@dataclass(frozen=True, slots=True, kw_only=True)
class PemIdentity:
    """A private key and its certificates.

    Attributes:
        alias: its name in the store.
        private_key: the key as PKCS#8, not encrypted, in PEM.
        certificates: the key's own certificate, that of its issuer, and so on, in PEM.
    """

    alias: str
    private_key: str = field(repr=False)
    certificates: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiredCertificate:
    """A certificate whose time is over.

    Attributes:
        alias: the entry that it belongs to.
        subject: its subject.
        end: the last moment of its validity, in UTC.
    """

    alias: str
    subject: str
    end: datetime

    def __str__(self) -> str:
        """Return a sentence for a warning."""
        return f"the certificate {self.subject} of {self.alias!r} has expired on {self.end:%Y-%m-%d}"


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaKeyStore:
    """The contents of a key store.

    Attributes:
        format: its format.
        keys: its private keys.
        trusted: the entries of certificates that are trusted.
    """

    format: KeyStoreFormat
    keys: tuple[KeyEntry, ...]
    trusted: tuple[TrustedEntry, ...]
    _key_password: str = field(repr=False)

    def identity(self, alias: str | None = None) -> PemIdentity:
        """Return a private key and its certificates.

        Args:
            alias: its name, in upper or lower case; None: the store has one key.

        Raises:
            UnusableKeyStore: there is no such key, more than one without an alias, or it has another password.
        """
        entry = self._key(alias)
        if not entry.chain:
            raise UnusableKeyStore(f"the key {entry.alias!r} has no certificate")
        try:
            plain = entry.opened(self._key_password)
        except UnusableKeyStore:
            raise
        except MalformedData as error:
            raise UnusableKeyStore(f"the key {entry.alias!r} does not parse: {error}") from error
        return PemIdentity(
            alias=entry.alias, private_key=_key_pem(plain, entry.alias), certificates=_certificates_pem(entry.chain)
        )

    def authorities(self) -> str:
        """Return the certificates that Java trusts if this is its trust store, in PEM; empty if there are none.

        The own certificates of private keys are among them, but not those of their issuers: Java 17, tried.
        """
        of_keys = [each.chain[0] for each in self.keys if each.chain]
        return _certificates_pem(list(dict.fromkeys([*(each.certificate for each in self.trusted), *of_keys])))

    def expired(self, now: datetime) -> list[ExpiredCertificate]:
        """Return the certificates whose time is over; `now` has a time zone."""
        return [
            ExpiredCertificate(alias=alias, subject=each.subject.rfc4514_string(), end=each.not_valid_after_utc)
            for alias, each in self._certificates()
            if each.not_valid_after_utc < now
        ]

    def _key(self, alias: str | None) -> KeyEntry:
        aliases = [each.alias for each in self.keys]
        if not aliases:
            raise UnusableKeyStore("it has no private key", "it may be the trust store: exchange the two")
        if alias is None:
            if len(aliases) > 1:
                raise UnusableKeyStore(f"it has {len(aliases)} private keys", f"name one of {listed(aliases)}")
            return self.keys[0]
        equal = [each for each in self.keys if each.alias == alias]
        similar = equal or [each for each in self.keys if each.alias.lower() == alias.lower()]
        if len(similar) != 1:
            raise UnusableKeyStore(f"it has no private key {alias!r}", f"name one of {listed(aliases)}")
        return similar[0]

    def _certificates(self) -> "Iterator[tuple[str, Certificate]]":
        for key in self.keys:
            yield from ((key.alias, each) for each in key.chain)
        yield from ((each.alias, each.certificate) for each in self.trusted)


def read_file(path: Path, password: str, *, key_password: str | None = None) -> JavaKeyStore:
    """Read a store of a file.

    Args:
        path: the file.
        password: the password of the store.
        key_password: that of its private keys; None: the same.

    Raises:
        UnusableKeyStore: it cannot be read or used; the error does not name the file.
        RequirementMissing: the package `cryptography` is not installed.
    """
    try:
        with open(path, "rb", opener=regular.opener) as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError as error:
        raise UnusableKeyStore("there is no such file") from error
    except OSError as error:
        raise UnusableKeyStore(f"it cannot be read: {error.strerror}") from error
    return read(data, password, key_password=key_password)


def read(data: bytes, password: str, *, key_password: str | None = None) -> JavaKeyStore:
    """Read a store; arguments and errors are those of `read_file`."""
    if len(data) > FILE_BYTES_MAX:
        raise UnusableKeyStore(f"it has more than {FILE_BYTES_MAX >> 20} MB")
    kind = _format_of(data)
    try:
        entries = _READERS[kind](data, password)
    except ImportError as error:
        raise RequirementMissing(
            "Java key stores need cryptography: pip install cryptography, which is the extra `security` of pybroker"
        ) from error
    except UnusableKeyStore:
        raise
    except MalformedData as error:
        raise UnusableKeyStore(f"it does not parse as {kind.value}: {error}") from error
    return JavaKeyStore(
        format=kind,
        keys=entries.keys,
        trusted=entries.trusted,
        _key_password=password if key_password is None else key_password,
    )


_READERS: Final[Mapping[KeyStoreFormat, Callable[[bytes, str], KeyStoreEntries]]] = {
    KeyStoreFormat.JKS: read_jks,
    KeyStoreFormat.JCEKS: read_jks,
    KeyStoreFormat.PKCS12: read_pkcs12,
}


def _format_of(data: bytes) -> KeyStoreFormat:
    if data.startswith(JKS_MAGIC):
        return KeyStoreFormat.JKS
    if data.startswith(JCEKS_MAGIC):
        return KeyStoreFormat.JCEKS
    if data.startswith(PKCS12_TAG):
        return KeyStoreFormat.PKCS12
    if data.lstrip().startswith(b"-----BEGIN"):
        raise UnusableKeyStore("it is PEM, and no key store")
    raise UnusableKeyStore("it is neither JKS, JCEKS nor PKCS#12")


def _key_pem(plain: bytes, alias: str) -> str:
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        load_der_private_key,
    )

    try:
        key = load_der_private_key(plain, None)
    except Exception as error:  # cryptography documents ValueError, and raises others for what it does not support
        raise UnusableKeyStore(f"the key {alias!r} has another password, or is not supported ({error})") from error
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def _certificates_pem(certificates: "Sequence[Certificate]") -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    return "".join(each.public_bytes(Encoding.PEM).decode() for each in certificates)
