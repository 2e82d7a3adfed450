"""The accounts that a file of users holds, whatever its format."""

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from pybroker.broker.domain.security import User
from pybroker.security import hashes

NAME_MAX: Final = 256
"""The characters of the name of a user or of a group."""


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

    def verify(self, password: str) -> bool:
        """Return True if it is the account's password; takes tens of milliseconds unless that is plain."""
        if self.is_plain:
            return hmac.compare_digest(_encoded(self.secret), _encoded(password))
        return hashes.verify(self.secret, password)


@dataclass(frozen=True, slots=True)
class Accounts:
    """All accounts of one version of the files.

    Attributes:
        by_name: the accounts.
        warnings: what an operator should know about the files.
    """

    by_name: Mapping[str, Account]
    warnings: tuple[str, ...] = ()

    def __len__(self) -> int:
        """Return the number of users."""
        return len(self.by_name)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
