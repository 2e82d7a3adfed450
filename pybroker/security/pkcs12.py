"""Reads PKCS#12, the format of Java's key stores since Java 9.

```text
PFX          sequence: version | contents | MAC: digest, salt, iterations
contents     data: octets of a sequence of ContentInfo, each data or encryptedData: octets of safe bags
safe bag     type | [0] value | set of attributes, one of them friendlyName: the alias
```

`cryptography` checks the MAC and returns the certificates, but of several private keys the first one alone. The bags
of private keys are therefore found here: they are encrypted each for itself, in contents that are not. The same walk
counts the rounds that the file asks for, before any are done.

Java marks trusted certificates with an attribute of its own, which `cryptography` does not return. It writes those of a
key's chain under their subjects' names, and by that they are told apart: a certificate is not trusted if it belongs to
the chain of a key and has a subject for its alias, or none.

Source: RFC 7292; RFC 8018, appendix A; RFC 9579 for PBMAC1; `sun.security.pkcs12.PKCS12KeyStore`.
"""

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from pybroker.security import der
from pybroker.security.key_store_entries import (
    ITERATIONS_MAX,
    KeyEntry,
    KeyStoreEntries,
    TrustedEntry,
    UnusableKeyStore,
    parsed,
)

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12Certificate
    from cryptography.x509 import Certificate

PKCS12_TAG: Final = bytes((der.SEQUENCE,))

CHAIN_MAX: Final = 20
"""Certificates from a key's own to that of an authority."""

_DATA: Final = "1.2.840.113549.1.7.1"
_ENCRYPTED_DATA: Final = "1.2.840.113549.1.7.6"
_KEY_BAG: Final = "1.2.840.113549.1.12.10.1.1"
_SHROUDED_KEY_BAG: Final = "1.2.840.113549.1.12.10.1.2"
_SAFE_CONTENTS_BAG: Final = "1.2.840.113549.1.12.10.1.6"
_FRIENDLY_NAME: Final = "1.2.840.113549.1.9.20"
_PBES2: Final = "1.2.840.113549.1.5.13"
_PBMAC1: Final = "1.2.840.113549.1.5.14"
_PBKDF2: Final = "1.2.840.113549.1.5.12"
_PKCS12_PBE: Final = "1.2.840.113549.1.12.1."

_ANOTHER_STORE: Final = "make another store: keytool -importkeystore -deststoretype PKCS12 …"

_SUBJECT: Final = re.compile(r"(?:[A-Za-z]+|\d+(?:\.\d+)+)=")
"""The beginning of a distinguished name."""


class _KeyBag(NamedTuple):
    """A private key in the file.

    Attributes:
        alias: its name; empty: it has none.
        data: the key in DER.
        is_encrypted: it needs the password.
    """

    alias: str
    data: bytes
    is_encrypted: bool


def read_pkcs12(data: bytes, password: str) -> KeyStoreEntries:
    """Return the entries of a store; all its keys have its password.

    Raises:
        MalformedData: it does not parse.
        UnusableKeyStore: the password is another, or the store has what is not supported.
    """
    from cryptography.hazmat.primitives.serialization import pkcs12

    bags = _key_bags(data)
    try:
        secret = password.encode()
    except UnicodeEncodeError as error:
        raise UnusableKeyStore("the password is not text") from error
    if b"\0" in secret:  # cryptography 50 would end in a panic of Rust's
        raise UnusableKeyStore("the password has a NUL")
    try:
        loaded = pkcs12.load_pkcs12(data, secret)
    except Exception as error:  # cryptography documents ValueError, and raises others for what it does not support
        raise UnusableKeyStore(
            f"the password is another, or the file is damaged ({error})",
            "try it with keytool -list -keystore FILE; keys that have another password than the store are not read",
        ) from error
    if loaded.key is not None and not bags:
        raise UnusableKeyStore(
            "its private key is hidden among the certificates",
            _ANOTHER_STORE,
        )
    certificates = [*([loaded.cert] if loaded.cert is not None else []), *loaded.additional_certs]
    for each in certificates:
        parsed(each.certificate, _name(each))
    opened = [(bag, _private_key(bag, password)) for bag in bags]
    keys = [_key_entry(number, bag, key, certificates) for number, (bag, key) in enumerate(opened, 1)]
    return KeyStoreEntries(tuple(keys), tuple(_trusted(certificates, keys)))


# ---------------------------------------------------------------- the file


def _key_bags(data: bytes) -> list[_KeyBag]:
    """Return the private keys, after checking that the file does not ask for too many rounds."""
    _, contents, *mac = der.element(data).parts(der.SEQUENCE, at_least=2)
    rounds, bags = 1, list[_KeyBag]()
    if mac:
        rounds = _mac_rounds(mac[0])
    for kind, content in map(_content_info, _octets(contents).parts(der.SEQUENCE)):
        if kind == _DATA:
            for bag in der.element(content.expect(der.OCTET_STRING)).parts(der.SEQUENCE):
                kind, value, attributes = _safe_bag(bag)
                if kind == _SAFE_CONTENTS_BAG:  # `cryptography` would open it, whatever the rounds in it are
                    raise UnusableKeyStore("it has bags within bags", _ANOTHER_STORE)
                if kind == _SHROUDED_KEY_BAG:
                    rounds += _derivation_rounds(value.parts(der.SEQUENCE, at_least=2)[0])
                if kind in (_KEY_BAG, _SHROUDED_KEY_BAG):
                    bags.append(_KeyBag(_friendly_name(attributes), value.encoded, kind == _SHROUDED_KEY_BAG))
        elif kind == _ENCRYPTED_DATA:
            _, encrypted = content.parts(der.SEQUENCE, at_least=2)[:2]
            rounds += _derivation_rounds(encrypted.parts(der.SEQUENCE, at_least=3)[1])
        else:
            raise UnusableKeyStore(f"it has contents of the type {kind}, which are not known")
    if rounds > ITERATIONS_MAX:
        raise UnusableKeyStore(
            f"its passwords are to be hashed {rounds} times, of at most {ITERATIONS_MAX}",
            _ANOTHER_STORE,
        )
    return bags


def _octets(info: der.DerElement) -> der.DerElement:
    kind, content = _content_info(info)
    if kind != _DATA:
        raise UnusableKeyStore("it is guarded by a signature in place of a password, or is no PKCS#12")
    return der.element(content.expect(der.OCTET_STRING))


def _content_info(info: der.DerElement) -> tuple[str, der.DerElement]:
    kind, content = info.parts(der.SEQUENCE, at_least=2)[:2]
    return der.object_identifier(kind), der.element(content.expect(der.EXPLICIT_0))


def _safe_bag(bag: der.DerElement) -> tuple[str, der.DerElement, Sequence[der.DerElement]]:
    kind, value, *rest = bag.parts(der.SEQUENCE, at_least=2)
    attributes = rest[0].parts(der.SET) if rest else ()
    return der.object_identifier(kind), der.element(value.expect(der.EXPLICIT_0)), attributes


def _friendly_name(attributes: Sequence[der.DerElement]) -> str:
    for attribute in attributes:
        kind, values = attribute.parts(der.SEQUENCE, at_least=2)[:2]
        if der.object_identifier(kind) == _FRIENDLY_NAME:
            name = values.parts(der.SET, at_least=1)[0].expect(der.BMP_STRING)
            return name.decode("utf-16-be", "replace")
    return ""


def _mac_rounds(mac: der.DerElement) -> int:
    info, _, *iterations = mac.parts(der.SEQUENCE, at_least=2)
    algorithm = info.parts(der.SEQUENCE, at_least=1)[0]
    if der.object_identifier(algorithm.parts(der.SEQUENCE, at_least=1)[0]) == _PBMAC1:
        return _derivation_rounds(algorithm)  # the number beside it has no meaning
    return der.unsigned(iterations[0]) if iterations else 1


def _derivation_rounds(algorithm: der.DerElement) -> int:
    """Return the rounds that make a key of the password.

    Raises:
        UnusableKeyStore: an unknown algorithm, whose cost is not known either.
    """
    identifier, parameters = algorithm.parts(der.SEQUENCE, at_least=2)[:2]
    kind = der.object_identifier(identifier)
    if kind in (_PBES2, _PBMAC1):
        identifier, parameters = parameters.parts(der.SEQUENCE, at_least=2)[0].parts(der.SEQUENCE, at_least=2)[:2]
        kind = der.object_identifier(identifier)
    if kind != _PBKDF2 and not kind.startswith(_PKCS12_PBE):
        raise UnusableKeyStore(f"its password is hashed by the algorithm {kind}, which is not known")
    return der.unsigned(parameters.parts(der.SEQUENCE, at_least=2)[1])


# ---------------------------------------------------------------- its entries


def _private_key(bag: _KeyBag, password: str) -> "PrivateKeyTypes":
    from cryptography.hazmat.primitives.serialization import load_der_private_key

    try:
        return load_der_private_key(bag.data, password.encode() if bag.is_encrypted else None)
    except Exception as error:  # cryptography documents ValueError, and raises others for what it does not support
        raise UnusableKeyStore(
            f"the key {bag.alias!r} cannot be read ({error})",
            "it may have another password than the store, which is not supported in PKCS#12",
        ) from error


def _key_entry(
    number: int, bag: _KeyBag, key: "PrivateKeyTypes", certificates: "Sequence[PKCS12Certificate]"
) -> KeyEntry:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    alias = bag.alias or str(number)  # as Java calls it
    own = [each for each in certificates if _is_for(each.certificate, key)]
    if not own:
        raise UnusableKeyStore(f"the key {alias!r} has no certificate")
    own.sort(key=lambda each: _name(each) != bag.alias)
    others = [each.certificate for each in certificates]
    plain = key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    return KeyEntry(alias, tuple(_chain(own[0].certificate, others)), lambda _: plain)


def _is_for(given: "Certificate", key: "PrivateKeyTypes") -> bool:
    from cryptography.exceptions import UnsupportedAlgorithm

    try:
        return given.public_key() == key.public_key()
    except (ValueError, UnsupportedAlgorithm):  # of an authority, whose key is not this one
        return False


def _chain(own: "Certificate", others: "Sequence[Certificate]") -> "Iterator[Certificate]":
    """Yield a certificate, its issuer's, and so on, as far as they are there."""
    current = own
    for _ in range(CHAIN_MAX):
        yield current
        if current.issuer == current.subject:
            return
        issuers = [each for each in others if each.subject == current.issuer and _is_issued_by(current, each)]
        if not issuers:
            return
        current = issuers[0]
    raise UnusableKeyStore(f"the chain of {own.subject.rfc4514_string()} has more than {CHAIN_MAX} certificates")


def _is_issued_by(given: "Certificate", issuer: "Certificate") -> bool:
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm

    try:
        given.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True


def _trusted(certificates: "Sequence[PKCS12Certificate]", keys: Sequence[KeyEntry]) -> Iterator[TrustedEntry]:
    aliases = {key.alias for key in keys}
    in_chains = {each for key in keys for each in key.chain}
    for number, each in enumerate(certificates, 1):
        alias = _name(each)
        if each.certificate in in_chains and (not alias or alias in aliases or _SUBJECT.match(alias)):
            continue
        if not alias and keys:
            continue  # Java trusts none without its mark, and openssl puts such next to a key
        yield TrustedEntry(alias or str(number), each.certificate)


def _name(given: "PKCS12Certificate") -> str:
    return (given.friendly_name or b"").decode("utf-8", "replace")
