"""Decrypts the `ENC(…)` values of ActiveMQ's files, which jasypt has encrypted with a master password.

```text
PBEWithMD5AndDES               base64: salt (8 bytes) | DES-CBC, PKCS5 padding
                               key | iv = the halves of MD5, applied 1,000 times to password | salt
PBEWITHHMACSHA256ANDAES_256    base64: salt (16) | iv (16) | AES-256-CBC, PKCS5 padding
                               key = PBKDF2 with HMAC-SHA-256, 1,000 times
```

The first is the default of ActiveMQ, and easily broken: it hides passwords from a glance. Nothing is written with it.

Source: security.md, section 5; jasypt's `StandardPBEStringEncryptor`.
"""

import base64
import binascii
import hashlib
from typing import TYPE_CHECKING, Final

from pybroker.broker.domain.errors import RequirementMissing

if TYPE_CHECKING:
    from cryptography.hazmat.primitives._cipheralgorithm import BlockCipherAlgorithm

ITERATIONS: Final = 1000
ALGORITHMS: Final = ("PBEWithMD5AndDES", "PBEWITHHMACSHA256ANDAES_256")


def encrypted_part(value: str) -> str | None:
    """Return what is within `ENC(…)`, with blanks around it or not; None for a value that is not encrypted."""
    stripped = value.strip()
    return stripped[4:-1] if stripped.startswith("ENC(") and stripped.endswith(")") else None


def decrypt(text: str, master: str, algorithm: str = ALGORITHMS[0]) -> str:
    """Return the text that was encrypted.

    Args:
        text: the base64 within `ENC(…)`.
        master: the master password.
        algorithm: one of `ALGORITHMS`, in upper or lower case.

    Raises:
        ValueError: it does not decrypt with this password, or the algorithm is unknown.
        RequirementMissing: the package `cryptography` is not installed.
    """
    ciphers = {"pbewithmd5anddes": _des, "pbewithhmacsha256andaes_256": _aes}
    cipher = ciphers.get(algorithm.lower())
    if cipher is None:
        raise ValueError(f"{algorithm} is not supported: {' and '.join(ALGORITHMS)} are")
    try:
        data = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError("it is no base64") from error
    try:
        plain = _without_padding(cipher(data, master.encode()))
    except ImportError as error:
        raise RequirementMissing(
            "ENC(…) needs cryptography: pip install cryptography, which is the extra `security` of pybroker"
        ) from error
    try:
        return plain.decode()
    except UnicodeDecodeError as error:
        raise ValueError("another master password was used") from error


def _des(data: bytes, master: bytes) -> bytes:
    from cryptography.hazmat.decrepit.ciphers.algorithms import TripleDES

    salt, encrypted = data[:8], data[8:]
    derived = master + salt
    for _ in range(ITERATIONS):
        derived = hashlib.md5(derived, usedforsecurity=False).digest()
    return _cbc(TripleDES(derived[:8] * 3), derived[8:], encrypted)  # thrice the same key is DES


def _aes(data: bytes, master: bytes) -> bytes:
    from cryptography.hazmat.primitives.ciphers.algorithms import AES

    salt, start, encrypted = data[:16], data[16:32], data[32:]
    return _cbc(AES(hashlib.pbkdf2_hmac("sha256", master, salt, ITERATIONS, 32)), start, encrypted)


def _cbc(algorithm: "BlockCipherAlgorithm", start: bytes, encrypted: bytes) -> bytes:
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.modes import CBC

    block_bytes = algorithm.block_size // 8
    if not encrypted or len(encrypted) % block_bytes or len(start) != block_bytes:
        raise ValueError("it is cut off")
    decryptor = Cipher(algorithm, CBC(start)).decryptor()
    return decryptor.update(encrypted) + decryptor.finalize()


def _without_padding(plain: bytes) -> bytes:
    count = plain[-1]
    if not 1 <= count <= 16 or plain[-count:] != bytes((count,)) * count:
        raise ValueError("another master password was used")
    return plain[:-count]
