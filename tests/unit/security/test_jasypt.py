"""`ENC(…)` values. Those of the first test were decrypted by a real ActiveMQ 5.17."""

import base64
import hashlib

import pytest

from pybroker.security import jasypt


@pytest.mark.parametrize(
    ("text", "plain"),
    [("mYRkg+4Q4hua1kvpCCI2hg==", "manager"), ("Cf3Jf3tM+UrSOoaKU50od5CuBa8rxjoL", "password")],
)
def test_values_of_activemq(text: str, plain: str) -> None:
    assert jasypt.decrypt(text, "activemq") == plain
    assert jasypt.decrypt(text, "activemq", "pbewithmd5anddes") == plain


def test_values_with_aes() -> None:
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.algorithms import AES
    from cryptography.hazmat.primitives.ciphers.modes import CBC

    salt, start = bytes(range(16)), bytes(range(16, 32))
    encryptor = Cipher(AES(hashlib.pbkdf2_hmac("sha256", b"master", salt, 1000, 32)), CBC(start)).encryptor()
    data = encryptor.update("passé".encode() + b"\x0a" * 10) + encryptor.finalize()
    text = base64.b64encode(salt + start + data).decode()
    assert jasypt.decrypt(text, "master", "PBEWITHHMACSHA256ANDAES_256") == "passé"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("mYRkg+4Q4hua1kvpCCI2hg==", "another master password"),
        ("mYRkg+4Q4hua1kvpCCI=", "cut off"),
        ("mYRkg+4Q4hs=", "cut off"),
        ("", "cut off"),
        ("!!", "no base64"),
    ],
)
def test_what_does_not_decrypt(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        jasypt.decrypt(text, "wrong")


def test_an_unknown_algorithm_is_named() -> None:
    with pytest.raises(ValueError, match="ROT13 is not supported"):
        jasypt.decrypt("AAAA", "x", "ROT13")
