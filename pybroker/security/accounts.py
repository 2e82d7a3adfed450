"""The accounts that logins are compared with: those of a file of users, and the ports for others."""

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from pybroker.broker.domain.security import User
from pybroker.security import hashes

NAME_MAX: Final = 256
"""The characters of the name of a user or of a group."""

_NO_USER: Final = User("")


class Refusal(NamedTuple):
    """The outcome of a login that is refused.

    Attributes:
        reason: the reason for the audit log; the client does not get it.
        is_failure: the client is wrong, so that it counts as a failed login; False if nothing could be verified.
    """

    reason: str
    is_failure: bool = True


class Verifiable(Protocol):
    """An account, or a stand-in for an unknown user, that verifies a password. Equal ones return the same result."""

    @property
    def secret(self) -> str:
        """A text that differs for another password; empty if it is not known here."""
        ...

    def verify(self, password: str) -> User | Refusal:
        """Return the user, or the refusal. Blocks; for a thread."""
        ...


class AccountSource(Protocol):
    """Users that are found by name."""

    def account(self, name: str) -> Verifiable:
        """Return the account of a name. It does not tell if there is such a user, and neither does its duration."""
        ...

    def throttled(self, name: str) -> str:
        """Return the name under which failed logins are counted: the same for spellings of one user's name."""
        ...


@dataclass(frozen=True, slots=True)
class Account:
    """A user, and what its password is compared with.

    Attributes:
        user: the name and the groups.
        secret: a hash, or the password itself.
        is_plain: True if it is the password itself.
    """

    user: User
    secret: str = field(repr=False)
    is_plain: bool = False

    def verify(self, password: str) -> User | Refusal:
        """Return the user for its password; takes tens of milliseconds unless that is plain."""
        if self.is_plain:
            is_right = hmac.compare_digest(_encoded(self.secret), _encoded(password))
        else:
            is_right = hashes.verify(self.secret, password)
        if self.user is _NO_USER:
            return Refusal("unknown user")
        return self.user if is_right else Refusal("wrong password")


@dataclass(frozen=True, slots=True)
class Accounts(AccountSource):
    """All accounts of one version of the files.

    Attributes:
        by_name: the accounts.
        warnings: what an operator should know about the files.
    """

    by_name: Mapping[str, Account]
    warnings: tuple[str, ...] = ()
    _unknown: tuple[Account, ...] = field(init=False, repr=False, compare=False)
    """Accounts of no user, which take as long to verify as these."""
    _key: bytes = field(init=False, repr=False, compare=False, default_factory=lambda: secrets.token_bytes(32))

    def __post_init__(self) -> None:
        unknown = tuple(_unknown_like(account) for account in self.by_name.values())
        object.__setattr__(self, "_unknown", unknown or (Account(_NO_USER, hashes.DUMMY),))

    def __len__(self) -> int:
        """Return the number of users."""
        return len(self.by_name)

    def account(self, name: str) -> Account:
        """Return a user's account; for an unknown user one that takes as long, always the same for a name."""
        account = self.by_name.get(name)
        if account is not None:
            return account
        digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), key=self._key, digest_size=8).digest()
        return self._unknown[int.from_bytes(digest) % len(self._unknown)]

    def throttled(self, name: str) -> str:
        """Return the name: others are other users."""
        return name

    def differing(self, later: "Accounts") -> frozenset[str]:
        """Return the names of users who are not the same in a later version, or new: another user may have the name."""
        before, now = self.by_name, later.by_name
        return frozenset(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))


def _unknown_like(account: Account) -> Account:
    if account.is_plain:
        return Account(_NO_USER, secrets.token_hex(), is_plain=True)
    return Account(_NO_USER, hashes.dummy_like(account.secret))


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
