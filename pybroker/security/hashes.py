"""Hashes of passwords, as text in the PHC string format, so that each carries its parameters.

```text
$argon2id$v=19$m=19456,t=2,p=1$<salt>$<hash>       written, and verified
$scrypt$ln=15,r=8,p=1$<salt>$<hash>                verified
$sha256$<hash>                                     written, and verified, for generated passwords alone
```

19 MiB and two passes are OWASP's floor for argon2id. A verification takes 15 to 110 ms, so it belongs in a thread; both
libraries release the interpreter lock.

A slow hash protects passwords that people choose, which can be guessed. One of 256 random bits cannot be, so a fast
hash without salt protects it as well, and is verified in microseconds. A password of another form is never right for
such a hash: none that can be guessed is protected by it alone.

Source: security.md, section 8; RFC 9106; the PHC string format; NIST SP 800-63B, Look-Up Secret Verifiers.
"""

import base64
import binascii
import functools
import hashlib
import hmac
import re
import secrets
from typing import TYPE_CHECKING, Final

from pybroker.broker.domain.errors import MalformedData

if TYPE_CHECKING:  # imported where a password is hashed: a broker without users needs none of it
    from argon2 import PasswordHasher

PASSWORD_BYTES_MAX: Final = 1024
"""The limit to a password in UTF-8."""

DUMMY: Final = "$argon2id$v=19$m=19456,t=2,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
"""The hash of no password that is known, which takes as long to verify as others."""

_SCRYPT: Final = re.compile(r"\$scrypt\$ln=(\d{1,2}),r=(\d{1,2}),p=(\d{1,2})\$([A-Za-z0-9+/]+)\$([A-Za-z0-9+/]+)")
_SHA256: Final = re.compile(r"\$sha256\$([A-Za-z0-9+/]{43})")
_GENERATED_BYTES: Final = 32
_GENERATED: Final = re.compile(r"[A-Za-z0-9_-]{43}")
_MEMORY_MAX: Final = 1 << 20
"""The limit to the memory of a verification, in KiB: 1 GiB."""
_PASSES_MAX: Final = 100
_MEMORY_FLOOR: Final = 7168
_WORK_FLOOR: Final = 7168 * 5
"""KiB, and passes over them: the least of the parameters that OWASP calls equal, from 46 MiB and one pass, 19 MiB and
two, to 7 MiB and five."""
_SCRYPT_FLOOR: Final = (1 << 13) * 8 * 10
"""The same for scrypt: N times r times p, from 2^17, 8 and 1 to 2^13, 8 and 10."""
_ARGON2: Final = "$argon2"


class InvalidHash(MalformedData):
    """A text that is no hash which can be verified."""


def hashed(password: str) -> str:
    """Return the hash of a password, with a random salt. Takes as long as a verification.

    Raises:
        ValueError: it is empty, too long, or has a NUL.
    """
    return _hasher().hash(checked(password))


def hashed_alike(password: str) -> str:
    """Return the hash of a password with a salt made of it: the same in each process, for members that compare theirs.

    For a file that is made of a password in clear, and goes with its process.

    Raises:
        ValueError: it is empty, too long, or has a NUL.
    """
    data = checked(password)
    return _hasher().hash(data, salt=hashlib.blake2b(data, digest_size=16, person=b"pybroker.salt").digest())


def generated() -> str:
    """Return a random password, which no one can guess."""
    return secrets.token_urlsafe(_GENERATED_BYTES)


def hashed_generated(password: str) -> str:
    """Return the fast hash of a password made by `generated`.

    Raises:
        ValueError: it was not made so.
    """
    if _GENERATED.fullmatch(password) is None:
        raise ValueError("a fast hash is for generated passwords only")
    return f"$sha256${base64.b64encode(_sha256(password)).decode().rstrip('=')}"


def checked(password: str) -> bytes:
    """Return a password in UTF-8.

    Raises:
        ValueError: it is empty, too long, or has a NUL.
    """
    data = password.encode("utf-8", "surrogatepass")
    if not data:
        raise ValueError("a password has at least one character")
    if len(data) > PASSWORD_BYTES_MAX:
        raise ValueError(f"a password has at most {PASSWORD_BYTES_MAX} bytes in UTF-8")
    if b"\0" in data:
        raise ValueError("a password has no NUL")
    return data


def is_possible(password: str) -> bool:
    """Return True if a text may be a password."""
    try:
        checked(password)
    except ValueError:
        return False
    return True


def dummy_like(text: str) -> str:
    """Return a hash of no password that is known, which takes as long to verify as another."""
    head, _, tail = text.rpartition("$")
    return f"{head}${'A' * len(tail)}"


def require_valid(text: str) -> None:
    """Check that a hash can be verified.

    Raises:
        InvalidHash: it cannot.
    """
    if text.startswith(_ARGON2):
        from argon2 import extract_parameters
        from argon2.exceptions import InvalidHashError

        try:
            parameters = extract_parameters(text)
        except InvalidHashError as error:
            raise InvalidHash("it is no argon2 hash in the PHC format") from error
        if parameters.memory_cost > _MEMORY_MAX or parameters.time_cost > _PASSES_MAX or parameters.parallelism > 16:
            raise InvalidHash(
                f"its verification would take more than {_MEMORY_MAX} KiB, {_PASSES_MAX} passes, or 16 threads"
            )
        return
    if _SHA256.fullmatch(text) is not None:
        return
    match = _SCRYPT.fullmatch(text)
    if match is None:
        raise InvalidHash("a hash begins with $argon2id$ or $scrypt$: make one with `pybroker user add`")
    if not 1 <= int(match[1]) <= 20 or not 1 <= int(match[2]) <= 8 or not 1 <= int(match[3]) <= 16:
        raise InvalidHash("its parameters are out of range: ln 1 to 20, r 1 to 8, p 1 to 16")
    if not _decoded(match[4]) or not _decoded(match[5]):
        raise InvalidHash("it has no salt, or no hash")


def verify(text: str, password: str) -> bool:
    """Return True if a hash is that of a password. Blocks; for a thread.

    Raises:
        InvalidHash: the hash cannot be verified.
    """
    try:
        data = checked(password)
    except ValueError:
        return False
    if (fast := _SHA256.fullmatch(text)) is not None:
        return _GENERATED.fullmatch(password) is not None and hmac.compare_digest(_sha256(password), _decoded(fast[1]))
    if not text.startswith(_ARGON2):
        return _verify_scrypt(text, data)
    from argon2.exceptions import InvalidHashError, VerificationError

    try:
        return _hasher().verify(text, data)
    except InvalidHashError as error:
        raise InvalidHash("it is no argon2 hash in the PHC format") from error
    except VerificationError:
        return False


def is_weak(text: str) -> bool:
    """Return True if a valid hash takes less work than the least that OWASP asks for."""
    if _SHA256.fullmatch(text) is not None:
        return False
    if (match := _SCRYPT.fullmatch(text)) is not None:
        return (1 << int(match[1])) * int(match[2]) * int(match[3]) < _SCRYPT_FLOOR
    from argon2 import Type, extract_parameters

    parameters = extract_parameters(text)
    work = parameters.memory_cost * parameters.time_cost
    return parameters.type is not Type.ID or parameters.memory_cost < _MEMORY_FLOOR or work < _WORK_FLOOR


@functools.cache
def _hasher() -> "PasswordHasher":
    from argon2 import PasswordHasher, Type

    return PasswordHasher(time_cost=2, memory_cost=19456, parallelism=1, type=Type.ID)


def _sha256(password: str) -> bytes:
    return hashlib.sha256(password.encode()).digest()


def _verify_scrypt(text: str, password: bytes) -> bool:
    match = _SCRYPT.fullmatch(text)
    if match is None:
        raise InvalidHash("it is no scrypt hash in the PHC format")
    cost, block, lanes = 1 << int(match[1]), int(match[2]), int(match[3])
    salt, wanted = _decoded(match[4]), _decoded(match[5])
    memory = 128 * block * (cost + lanes + 2)
    made = hashlib.scrypt(password, salt=salt, n=cost, r=block, p=lanes, maxmem=memory, dklen=len(wanted))
    return hmac.compare_digest(made, wanted)


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except binascii.Error as error:
        raise InvalidHash("its salt or hash is no base64") from error
