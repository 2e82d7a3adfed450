"""Reads JKS and JCEKS, the formats of Java's own key stores.

```text
+-------------------+-------------+-----------+---------+-----------------+
| magic u32 BE      | version u32 | count u32 | entries | digest 20 bytes |
| FEEDFEED JKS      | 1 or 2      |           |         | SHA-1           |
| CECECECE JCEKS    |             |           |         |                 |
+-------------------+-------------+-----------+---------+-----------------+

entry        tag u32: 1 private key, 2 trusted certificate, 3 secret key (JCEKS)
             alias: length u16, modified UTF-8 | created u64, ms since 1970
private key  length u32, EncryptedPrivateKeyInfo in DER | count u32 of certificates | certificates
trusted      certificate
certificate  version 2: type (length u16, `X.509`) | length u32, DER
digest       SHA-1 of password (UTF-16 BE), `Mighty Aphrodite`, and all that precedes
```

A private key in JKS is `salt (20 bytes) | key xor stream | SHA-1 of password and key`; a block of the stream is the
SHA-1 of the password and the block before it, the first one that of password and salt. JCEKS encrypts with triple DES
in CBC mode; key and initialisation vector are MD5, iterated over each half of the salt with the password.

A secret key is a serialized Java object without a length before it. What follows it cannot be read, so that such a
store is refused.

Source: the format that `sun.security.provider.JavaKeyStore` and `com.sun.crypto.provider.JceKeyStore` write.
"""

import hashlib
import hmac
from functools import partial
from typing import TYPE_CHECKING, Final

from pybroker.broker.domain.errors import MalformedData
from pybroker.security import der
from pybroker.security.key_store_entries import (
    ITERATIONS_MAX,
    KeyEntry,
    KeyStoreEntries,
    TrustedEntry,
    UnusableKeyStore,
    certificate,
)

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

JKS_MAGIC: Final = bytes.fromhex("feedfeed")
JCEKS_MAGIC: Final = bytes.fromhex("cececece")

ENTRIES_MAX: Final = 10_000
"""Certificates and keys of a store: Java's own store of authorities has some 150."""

ALIAS_BYTES_MAX: Final = 1024
KEY_BYTES_MAX: Final = 1 << 16
"""An encrypted private key: one of RSA with 16,384 bits has 10 KB."""

JCEKS_ITERATIONS_MAX: Final = ITERATIONS_MAX // 5
"""Rounds of MD5 for a key, in Python: about a second. Java writes 200,000."""

_PRIVATE_KEY, _TRUSTED, _SECRET_KEY = 1, 2, 3
_DIGEST_BYTES: Final = 20
_JKS_PROTECTION: Final = "1.3.6.1.4.1.42.2.17.1.1"
_JCEKS_PROTECTION: Final = "1.3.6.1.4.1.42.2.19.1"


def read_jks(data: bytes, password: str) -> KeyStoreEntries:
    """Return the entries of a store whose first bytes are one of the magic numbers.

    Raises:
        MalformedData: it does not parse.
        UnusableKeyStore: the password is another, or the store has what is not supported.
    """
    if len(data) < 12 + _DIGEST_BYTES:
        raise MalformedData("it is cut off")
    body, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    expected = hashlib.sha1(_utf16(password) + b"Mighty Aphrodite" + body, usedforsecurity=False).digest()
    if not hmac.compare_digest(digest, expected):
        raise UnusableKeyStore(
            "the password is another, or the file is damaged", "try it with keytool -list -keystore FILE"
        )
    return _entries(_JksCursor(body))


def decrypted_jceks_key(data: bytes, password: str, parameters: der.DerElement) -> bytes | None:
    """Return a private key of JCEKS as PKCS#8 in DER; `parameters` has salt and rounds. None: another password.

    Of 256 other passwords one leads to bytes that are no key.

    Raises:
        MalformedData: it is cut off.
        UnusableKeyStore: it has too many rounds.
    """
    from cryptography.hazmat.decrepit.ciphers.algorithms import TripleDES
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.modes import CBC
    from cryptography.hazmat.primitives.padding import PKCS7

    given, rounds, *_ = parameters.parts(der.SEQUENCE, at_least=2)
    salt, iterations = given.expect(der.OCTET_STRING), der.unsigned(rounds)
    if len(salt) != 8 or not data or len(data) % 8:
        raise MalformedData("a private key is cut off")
    if not 1 <= iterations <= JCEKS_ITERATIONS_MAX:
        raise UnusableKeyStore(
            f"a key's password is to be hashed {iterations} times, of at most {JCEKS_ITERATIONS_MAX}",
            "make another store: keytool -importkeystore -deststoretype PKCS12 …",
        )
    try:
        secret = password.encode("ascii")
    except UnicodeEncodeError:
        return None  # Java encrypts with nothing else
    first, second = salt[:4], salt[4:]
    if first == second:
        first = first[::-1]  # as Java 17 does
    derived = b"".join(_iterated_md5(half, secret, iterations) for half in (first, second))
    decryptor = Cipher(TripleDES(derived[:24]), CBC(derived[24:])).decryptor()
    unpadder = PKCS7(64).unpadder()
    try:
        return unpadder.update(decryptor.update(data) + decryptor.finalize()) + unpadder.finalize()
    except ValueError:
        return None


def _entries(cursor: "_JksCursor") -> KeyStoreEntries:
    cursor.take(4)
    version, count = cursor.u32(), cursor.u32()
    if version not in (1, 2):
        raise MalformedData(f"it has version {version}, which is not known")
    if count > ENTRIES_MAX:
        raise MalformedData(f"it claims {count} entries, of at most {ENTRIES_MAX}")
    keys, trusted = list[KeyEntry](), list[TrustedEntry]()
    for _ in range(count):
        tag, alias = cursor.u32(), cursor.text()
        cursor.take(8)
        if tag == _PRIVATE_KEY:
            protected = cursor.sized(KEY_BYTES_MAX)
            chain_count = cursor.u32()
            if chain_count > ENTRIES_MAX:
                raise MalformedData(f"{alias!r} claims {chain_count} certificates, of at most {ENTRIES_MAX}")
            chain = tuple(cursor.certificate(version, alias) for _ in range(chain_count))
            keys.append(KeyEntry(alias, chain, partial(_opened, alias, protected)))
        elif tag == _TRUSTED:
            trusted.append(TrustedEntry(alias, cursor.certificate(version, alias)))
        elif tag == _SECRET_KEY:
            raise UnusableKeyStore(
                f"it has a secret key, {alias!r}, and what follows cannot be read",
                f"remove it: keytool -delete -alias {alias!r} -storetype JCEKS -keystore FILE",
            )
        else:
            raise MalformedData(f"an entry has the type {tag}, which is not known")
    if cursor.rest:
        raise MalformedData(f"{cursor.rest} bytes follow the last entry")
    return KeyStoreEntries(tuple(keys), tuple(trusted))


class _JksCursor:
    """Reads what the entries consist of; each read fails at the end of the data, so that no claimed length counts."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._place = 0

    @property
    def rest(self) -> int:
        return len(self._data) - self._place

    def take(self, count: int) -> bytes:
        if count > self.rest:
            raise MalformedData("it is cut off")
        self._place += count
        return self._data[self._place - count : self._place]

    def u32(self) -> int:
        return int.from_bytes(self.take(4), "big")

    def sized(self, bytes_max: int) -> bytes:
        count = self.u32()
        if count > bytes_max:
            raise MalformedData(f"it claims {count} bytes where {bytes_max} are the limit")
        return self.take(count)

    def text(self) -> str:
        count = int.from_bytes(self.take(2), "big")
        if count > ALIAS_BYTES_MAX:
            raise MalformedData(f"an alias has {count} bytes, of at most {ALIAS_BYTES_MAX}")
        raw = self.take(count).replace(b"\xc0\x80", b"\0")
        try:
            text = raw.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise MalformedData("an alias is not UTF-8") from error
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # two escapes may be one character

    def certificate(self, version: int, alias: str) -> "Certificate":
        if version == 2 and (kind := self.text()) != "X.509":
            raise MalformedData(f"a certificate of {alias!r} is of the type {kind!r}, not X.509")
        return certificate(self.sized(self.rest), alias)


def _opened(alias: str, protected: bytes, password: str) -> bytes:
    """Return a private key as PKCS#8 in DER."""
    algorithm, encrypted, *_ = der.element(protected).parts(der.SEQUENCE, at_least=2)
    identifier, *parameters = algorithm.parts(der.SEQUENCE, at_least=1)
    kind = der.object_identifier(identifier)
    data = encrypted.expect(der.OCTET_STRING)
    if kind == _JKS_PROTECTION:
        plain = _jks_plain(data, password)
    elif kind == _JCEKS_PROTECTION and parameters:
        plain = decrypted_jceks_key(data, password, parameters[0])
    else:
        raise UnusableKeyStore(f"the key {alias!r} is encrypted by the algorithm {kind}, which is not known")
    if plain is None:
        raise UnusableKeyStore(
            f"the key {alias!r} has another password", "give the key's own, which may differ from that of the store"
        )
    return plain


def _jks_plain(data: bytes, password: str) -> bytes | None:
    if len(data) < 2 * _DIGEST_BYTES:
        raise MalformedData("a private key is cut off")
    secret = _utf16(password)
    block, encrypted, digest = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    stream = bytearray()
    while len(stream) < len(encrypted):
        block = hashlib.sha1(secret + block, usedforsecurity=False).digest()
        stream += block
    plain = bytes(map(int.__xor__, encrypted, stream))
    expected = hashlib.sha1(secret + plain, usedforsecurity=False).digest()
    return plain if hmac.compare_digest(digest, expected) else None


def _iterated_md5(salt: bytes, secret: bytes, iterations: int) -> bytes:
    value = salt
    for _ in range(iterations):
        value = hashlib.md5(value + secret, usedforsecurity=False).digest()
    return value


def _utf16(password: str) -> bytes:
    return password.encode("utf-16-be", "surrogatepass")
