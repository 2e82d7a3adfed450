"""Hashes of passwords."""

import base64
import hashlib

import pytest

from pybroker.security import hashes


@pytest.fixture(scope="module")
def made() -> str:
    return hashes.hashed("sésame")


def scrypt(password: str, *, log_cost: int = 4) -> str:
    def encoded(data: bytes) -> str:
        return base64.b64encode(data).decode().rstrip("=")

    salt = b"0123456789abcdef"
    made = hashlib.scrypt(password.encode(), salt=salt, n=1 << log_cost, r=8, p=1, dklen=32)
    return f"$scrypt$ln={log_cost},r=8,p=1${encoded(salt)}${encoded(made)}"


def test_a_hash_has_the_parameters_that_the_handbook_names(made: str) -> None:
    assert made.startswith("$argon2id$v=19$m=19456,t=2,p=1$")
    hashes.require_valid(made)
    assert not hashes.is_weak(made)


def test_only_the_password_itself_is_right(made: str) -> None:
    assert hashes.verify(made, "sésame")
    for wrong in ("sesame", "sésame ", "", "sésame\0", "x" * 2000):
        assert not hashes.verify(made, wrong)


def test_no_password_fits_the_dummy() -> None:
    hashes.require_valid(hashes.DUMMY)
    assert not hashes.is_weak(hashes.DUMMY), "it takes as long as others"
    assert not hashes.verify(hashes.DUMMY, "x")


def test_scrypt_is_verified_and_weak() -> None:
    text = scrypt("pw")
    hashes.require_valid(text)
    assert hashes.verify(text, "pw")
    assert not hashes.verify(text, "pq")
    assert hashes.is_weak(text)


@pytest.mark.parametrize(
    ("parameters", "is_weak"),
    [
        ("$argon2id$v=19$m=65536,t=3,p=4", False),
        ("$argon2id$v=19$m=47104,t=1,p=1", False),
        ("$argon2id$v=19$m=7168,t=5,p=1", False),
        ("$argon2id$v=19$m=7168,t=4,p=1", True),
        ("$argon2id$v=19$m=4096,t=100,p=1", True),
        ("$argon2i$v=19$m=65536,t=3,p=4", True),
        ("$scrypt$ln=17,r=8,p=1", False),
        ("$scrypt$ln=16,r=8,p=1", True),
    ],
)
def test_parameters_below_those_of_owasp_are_weak(parameters: str, is_weak: bool) -> None:
    text = f"{parameters}$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
    hashes.require_valid(text)
    assert hashes.is_weak(text) is is_weak


@pytest.mark.parametrize("password", ["", "a\0b", "x" * 1025, "é" * 513])
def test_a_password_that_cannot_be_one_is_not_hashed(password: str) -> None:
    with pytest.raises(ValueError, match="a password has"):
        hashes.hashed(password)


@pytest.mark.parametrize(
    "text",
    [
        "secret",
        "",
        "$argon2id$nothing",
        "$argon2id$v=19$m=99999999,t=2,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        "$argon2id$v=19$m=19456,t=999,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        "$scrypt$ln=40,r=8,p=1$AAAA$AAAA",
        "$scrypt$ln=15,r=99,p=1$AAAA$AAAA",
        "$2b$12$bcrypt",
    ],
)
def test_what_cannot_be_verified_is_refused(text: str) -> None:
    with pytest.raises(hashes.InvalidHash):
        hashes.require_valid(text)


def test_a_generated_password_has_a_fast_hash() -> None:
    password = hashes.generated()
    text = hashes.hashed_generated(password)
    hashes.require_valid(text)
    assert not hashes.is_weak(text)
    assert hashes.verify(text, password)
    assert not hashes.verify(text, hashes.generated())
    assert not hashes.verify(hashes.dummy_like(text), password)
    hashes.require_valid(hashes.dummy_like(text))
    assert password not in text
    assert hashes.generated() != password


@pytest.mark.parametrize("password", ["secret", "x" * 42, "x" * 44, "é" + "x" * 42, "x" * 42 + "\n"])
def test_a_fast_hash_is_for_generated_passwords_only(password: str) -> None:
    with pytest.raises(ValueError, match="generated passwords only"):
        hashes.hashed_generated(password)
    digest = base64.b64encode(hashlib.sha256(password.encode()).digest()).decode().rstrip("=")
    assert not hashes.verify(f"$sha256${digest}", password), "such a hash made by hand protects no other password"
