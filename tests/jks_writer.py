"""Writes Java key stores (JKS, version 2), so that tests can make those that Java never would."""

import hashlib
import itertools
import struct
from collections.abc import Sequence

from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509 import load_pem_x509_certificate

PASSWORD = "changeit"
SALT = bytes(range(20))
JKS_PROTECTION = bytes.fromhex("300e060a2b060104012a021101010500")
"""The algorithm that encrypts private keys in JKS, as an AlgorithmIdentifier."""


def jks(*entries: bytes, password: str = PASSWORD, count: int | None = None, version: int = 2) -> bytes:
    """Return a store; `count` is another number of entries than there are."""
    header = struct.pack(">III", 0xFEEDFEED, version, len(entries) if count is None else count)
    return sealed(header + b"".join(entries), password)


def sealed(body: bytes, password: str = PASSWORD) -> bytes:
    """Return a store of what precedes the digest."""
    return body + hashlib.sha1(password.encode("utf-16-be") + b"Mighty Aphrodite" + body).digest()


def trusted(alias: str, certificate: bytes) -> bytes:
    """Return the entry of a certificate, given in DER."""
    return struct.pack(">I", 2) + text(alias) + bytes(8) + typed(certificate)


def private_key(alias: str, key: bytes, chain: Sequence[bytes], password: str = PASSWORD) -> bytes:
    """Return the entry of a private key; key (PKCS#8) and certificates are given in DER."""
    certificates = b"".join(map(typed, chain))
    begin = struct.pack(">I", 1) + text(alias) + bytes(8)
    return begin + sized(protected(key, password)) + struct.pack(">I", len(chain)) + certificates


def protected(key: bytes, password: str, algorithm: bytes = JKS_PROTECTION) -> bytes:
    """Return a private key as JKS encrypts it."""
    secret = password.encode("utf-16-be")
    stream, block = b"", SALT
    while len(stream) < len(key):
        block = hashlib.sha1(secret + block).digest()
        stream += block
    encrypted = bytes(a ^ b for a, b in zip(key, itertools.islice(stream, len(key)), strict=True))
    return der(0x30, algorithm + der(0x04, SALT + encrypted + hashlib.sha1(secret + key).digest()))


def der(tag: int, content: bytes) -> bytes:
    """Return an element of DER."""
    return bytes((tag, 0x83)) + len(content).to_bytes(3, "big") + content


def typed(certificate: bytes) -> bytes:
    """Return a certificate as it stands in an entry."""
    return text("X.509") + sized(certificate)


def text(value: str) -> bytes:
    """Return a text without NUL and characters above U+FFFF, for which Java has an encoding of its own."""
    encoded = value.encode()
    return struct.pack(">H", len(encoded)) + encoded


def sized(data: bytes) -> bytes:
    """Return bytes behind their number."""
    return struct.pack(">I", len(data)) + data


def key_der(pem: bytes) -> bytes:
    """Return a private key as PKCS#8 in DER."""
    return load_pem_private_key(pem, None).private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())


def certificate_der(pem: bytes) -> bytes:
    """Return a certificate in DER."""
    return load_pem_x509_certificate(pem).public_bytes(Encoding.DER)
