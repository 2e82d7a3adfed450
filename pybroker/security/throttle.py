"""Limits the guessing of passwords, without locking a client out that knows one.

Failed logins empty two buckets: one of the user at this address, and one of the address. When the first is empty, a
login is refused without a look at its password. When only the second is, as behind a NAT where some clients have an old
password, a login is verified after all others. So is one of a user who has logged in from this address before, with an
empty first bucket: another client there may have an old password of the same user.

An address is an IPv4 address, or the first half of an IPv6 address, which one host has for itself. No bucket is that of
a user alone: then a client that knows a name could lock its owner out.

Source: security.md, section 8.
"""

import enum
from collections import OrderedDict
from typing import Final, Generic, TypeVar

from pybroker.broker.domain.addresses import network

USER_FAILURES: Final = 5
"""The failed logins of a user at an address before it has to wait."""

USER_SECONDS: Final = 10.0
"""The time after which it has one more."""

ADDRESS_FAILURES: Final = 50
"""The failed logins of an address before its logins come last."""

ADDRESS_SECONDS: Final = 1.0
"""The time after which it has one more."""

ENTRIES_MAX: Final = 10_000
"""The limit to buckets of each kind, and to successes; the one that was changed longest ago goes first."""

KeyT = TypeVar("KeyT")


class Standing(enum.Enum):
    """How a login is treated."""

    USUAL = "verified in its turn"
    LAST = "verified after all others"
    REFUSED = "refused without a look at the password"


class _Buckets(Generic[KeyT]):
    """Token buckets, of which only those are kept that are not full."""

    def __init__(self, size: int, seconds: float) -> None:
        self._size = size
        self._seconds = seconds
        self._buckets: OrderedDict[KeyT, tuple[float, float]] = OrderedDict()
        """Tokens left, and the time at which that was so; the one changed last is the last."""

    def _left(self, key: KeyT, now: float) -> float:
        left, since = self._buckets.get(key, (float(self._size), now))
        return min(left + (now - since) / self._seconds, float(self._size))

    def is_empty(self, key: KeyT, now: float) -> bool:
        return key in self._buckets and self._left(key, now) < 1.0

    def take(self, key: KeyT, now: float) -> None:
        self._buckets[key] = max(self._left(key, now) - 1.0, 0.0), now
        self._buckets.move_to_end(key)
        if len(self._buckets) > ENTRIES_MAX:
            self._buckets.popitem(last=False)

    def fill(self, key: KeyT) -> None:
        self._buckets.pop(key, None)


class LoginThrottle:
    """The logins of the last minutes. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._users = _Buckets[tuple[str, str]](USER_FAILURES, USER_SECONDS)
        self._addresses = _Buckets[str](ADDRESS_FAILURES, ADDRESS_SECONDS)
        self._successes: OrderedDict[tuple[str, str], bytes] = OrderedDict()
        """The login with which a user came from an address last; the newest one is the last."""

    def standing(self, address: str, user: str, login: bytes, now: float) -> Standing:
        """Return how a login is treated.

        Args:
            address: the client's.
            user: its name.
            login: differs for each password.
            now: the time.
        """
        where = network(address)
        success = self._successes.get((where, user))
        if success == login:
            return Standing.USUAL
        if self._users.is_empty((where, user), now):
            return Standing.REFUSED if success is None else Standing.LAST
        return Standing.LAST if self._addresses.is_empty(where, now) else Standing.USUAL

    def failed(self, address: str, user: str, now: float) -> None:
        """Record a failed login."""
        where = network(address)
        self._users.take((where, user), now)
        self._addresses.take(where, now)

    def succeeded(self, address: str, user: str, login: bytes) -> None:
        """Record a login, and forget the failed ones of this user at this address."""
        where = network(address)
        self._users.fill((where, user))
        self._successes[where, user] = login
        self._successes.move_to_end((where, user))
        if len(self._successes) > ENTRIES_MAX:
            self._successes.popitem(last=False)
