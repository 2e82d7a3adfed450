"""Verifies logins, without blocking the event loop, and quickly where very many come at a time.

```text
authenticate --> verified lately? --------------------------------> user
             --> same login being verified? wait for that ---------> user or refusal
             --> two threads: hash of the password ----------------> user or refusal
```

A verification takes tens of milliseconds, and after a failover all clients log in at a time. So what was verified is
remembered for some minutes, by a keyed hash whose key is in this process alone; and equal logins wait for one
verification. An unknown user takes as long as a wrong password.

What the `throttle` holds back is verified after all others, a few in a second, or refused after a second. It is asked
when a verification begins, too: many guesses may come before the first has failed.

Source: security.md, section 8.
"""

import hashlib
import logging
import secrets
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, NamedTuple

from pybroker.broker.domain import audit
from pybroker.broker.domain.security import Credentials, Decided, User, shown
from pybroker.security import hashes
from pybroker.security.accounts import NAME_MAX, Account, Accounts
from pybroker.security.throttle import LoginThrottle, Standing

THREADS: Final = 2
"""Verifications at a time: each keeps a processor busy."""

WAITING_MAX: Final = 2000
"""The limit to logins that wait for a verification; further ones are refused."""

LAST_MAX: Final = 64
"""The limit to those of them that come last."""

LAST_SECONDS: Final = 0.2
"""The time from one verification that came last to the next."""

REMEMBERED_SECONDS: Final = 300.0
REMEMBERED_MAX: Final = 10_000

THROTTLED_SECONDS: Final = 1.0
"""The time after which a login is refused that is not verified."""

_log = logging.getLogger(__name__)

_NO_USER: Final = User("")


class _Key(NamedTuple):
    """A login; equal ones have the same outcome.

    Attributes:
        name: the user.
        digest: a keyed hash of the password and of what it is compared with.
    """

    name: str
    digest: bytes


_Waiter = tuple[Credentials, Decided]


class Logins:
    """Implements `Authenticator` for accounts."""

    def __init__(
        self,
        accounts: Accounts,
        *,
        post: Callable[[Callable[[], None]], object],
        call_later: Callable[[float, Callable[[], None]], object],
        monotonic: Callable[[], float],
    ) -> None:
        """Start no thread yet.

        Args:
            accounts: the users.
            post: calls back on the event loop, from another thread.
            call_later: calls back after so many seconds.
            monotonic: seconds.
        """
        self._post = post
        self._call_later = call_later
        self._monotonic = monotonic
        self._throttle = LoginThrottle()
        self._secret = secrets.token_bytes(32)
        self._remembered: OrderedDict[_Key, float] = OrderedDict()
        """Verified logins, and until when they are remembered, oldest first."""
        self._verifying: dict[_Key, list[_Waiter]] = {}
        self._waiting: deque[tuple[_Key, Account]] = deque()
        self._last: deque[tuple[_Key, Account]] = deque()
        """Those that wait until no other does."""
        self._running = 0
        self._last_at = 0.0
        """The time at which the next of those may begin; infinite while one is being verified."""
        self._executor: ThreadPoolExecutor | None = None
        self._is_closed = False
        self._accounts = accounts
        self._unknown = _unknown_accounts(accounts)

    def replace(self, accounts: Accounts) -> frozenset[str]:
        """Use other accounts from now on, also for logins under way; return the names of users who are not the same."""
        before, self._accounts = self._accounts.by_name, accounts
        self._unknown = _unknown_accounts(accounts)
        return frozenset(name for name, account in before.items() if accounts.by_name.get(name) != account)

    def close(self) -> None:
        """Verify nothing more; those who wait are not called back."""
        self._is_closed = True
        self._waiting.clear()
        self._last.clear()
        self._verifying.clear()
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)

    # ------------------------------------------------------------ one login

    def authenticate(self, credentials: Credentials, decided: Decided) -> None:
        """Call back with the user or the refusal; see `Authenticator`."""
        name, password = credentials.user, credentials.password
        if name is None or password is None:
            _refuse((credentials, decided), "it has no user name, or no password")
            return
        if len(name) > NAME_MAX or not hashes.is_possible(password):
            _refuse((credentials, decided), "no user name or password is like that")
            return
        account = self._account(name)
        key = self._key(name, password, account)
        now = self._monotonic()
        standing = self._throttle.standing(credentials.address, name, key.digest, now)
        if standing is Standing.REFUSED:
            self._refuse_later((credentials, decided), "too many failed logins of this user at this address")
        elif self._remembered.get(key, 0.0) > now and standing is not Standing.LAST:
            self._throttle.succeeded(credentials.address, name, key.digest)
            audit.logged_in(name, credentials.address)
            decided(account.user)
        elif (others := self._verifying.get(key)) is not None:
            others.append((credentials, decided))
        elif self._enqueue(key, account, is_last=standing is Standing.LAST):
            self._verifying[key] = [(credentials, decided)]
            self._verify_next()
        else:
            self._refuse_later((credentials, decided), "too many logins wait for their verification")

    def _account(self, name: str) -> Account:
        """Return a user's account; for an unknown user one that takes as long, always the same for a name."""
        account = self._accounts.by_name.get(name)
        if account is not None:
            return account
        digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), key=self._secret, digest_size=8).digest()
        return self._unknown[int.from_bytes(digest) % len(self._unknown)]

    def _key(self, name: str, password: str, account: Account) -> _Key:
        digest = hashlib.blake2b(hashes.checked(password), key=self._secret, digest_size=16)
        digest.update(b"\0" + account.secret.encode("utf-8", "surrogatepass"))
        return _Key(name, digest.digest())

    def _enqueue(self, key: _Key, account: Account, *, is_last: bool) -> bool:
        queue, limit = (self._last, LAST_MAX) if is_last else (self._waiting, WAITING_MAX)
        if len(queue) >= limit:
            return False
        queue.append((key, account))
        return True

    # ------------------------------------------------------------ verifying

    def _verify_next(self) -> None:
        while self._running < THREADS:
            if self._waiting:
                key, account = self._waiting.popleft()
                if self._still_verified(key, account, may_come_last=True):
                    self._submit(key, account, is_last=False)
            elif self._last and self._monotonic() >= self._last_at:
                key, account = self._last.popleft()
                if self._still_verified(key, account, may_come_last=False):
                    self._last_at = float("inf")
                    self._submit(key, account, is_last=True)
            else:
                return

    def _still_verified(self, key: _Key, account: Account, *, may_come_last: bool) -> bool:
        """Return True if a login that waited is to be verified now; refuse who has guessed too often meanwhile."""
        now = self._monotonic()
        waiters, comes_last = list[_Waiter](), True
        for waiter in self._verifying.pop(key, ()):
            standing = self._throttle.standing(waiter[0].address, key.name, key.digest, now)
            if standing is Standing.REFUSED:
                self._refuse_later(waiter, "too many failed logins of this user at this address")
            else:
                waiters.append(waiter)
                comes_last &= standing is Standing.LAST
        if not waiters:
            return False
        if may_come_last and comes_last and not self._enqueue(key, account, is_last=True):
            for waiter in waiters:
                self._refuse_later(waiter, "too many logins wait for their verification")
            return False
        self._verifying[key] = waiters
        return not (may_come_last and comes_last)

    def _submit(self, key: _Key, account: Account, *, is_last: bool) -> None:
        password = self._verifying[key][0][0].password or ""
        if self._executor is None:
            self._executor = ThreadPoolExecutor(THREADS, thread_name_prefix="pybroker-login")
        self._running += 1
        try:
            self._executor.submit(self._verify, key, account, password, is_last)
        except RuntimeError:  # no further thread can be started
            _log.exception("the password of %s cannot be verified", shown(key.name))
            self._verified(key, account, is_right=False, is_last=is_last)

    def _verify(self, key: _Key, account: Account, password: str, is_last: bool) -> None:
        """Verify a password, in a thread."""
        try:
            is_right = account.verify(password)
        except Exception:
            _log.exception("the password of %s cannot be verified", shown(key.name))
            is_right = False
        self._post(partial(self._verified, key, account, is_right=is_right, is_last=is_last))

    def _verified(self, key: _Key, account: Account, *, is_right: bool, is_last: bool) -> None:
        if self._is_closed:
            return
        self._running -= 1
        now = self._monotonic()
        if is_last:
            self._last_at = now + LAST_SECONDS
            self._call_later(LAST_SECONDS, self._verify_next)
        is_current = self._account(key.name) == account
        if is_right and is_current and account.user is not _NO_USER:
            self._remember(key, now)
        for waiter in self._verifying.pop(key, ()):
            try:
                self._decide(waiter, key, account, is_right=is_right, is_current=is_current)
            except Exception:  # one client is not answered; the others are
                _log.exception("a login of %s failed", shown(key.name))
        self._verify_next()

    def _decide(self, waiter: _Waiter, key: _Key, account: Account, *, is_right: bool, is_current: bool) -> None:
        credentials, decided = waiter
        if not is_current:  # the file was changed meanwhile
            self.authenticate(credentials, decided)
        elif is_right and account.user is not _NO_USER:
            self._throttle.succeeded(credentials.address, key.name, key.digest)
            audit.logged_in(key.name, credentials.address)
            decided(account.user)
        else:
            self._throttle.failed(credentials.address, key.name, self._monotonic())
            _refuse(waiter, "unknown user" if account.user is _NO_USER else "wrong password")

    def _remember(self, key: _Key, now: float) -> None:
        remembered = self._remembered
        remembered[key] = now + REMEMBERED_SECONDS
        remembered.move_to_end(key)
        while remembered and (len(remembered) > REMEMBERED_MAX or next(iter(remembered.values())) <= now):
            remembered.popitem(last=False)

    def _refuse_later(self, waiter: _Waiter, reason: str) -> None:
        """Refuse a login that is not verified: not at once, which would invite the next."""
        self._call_later(THROTTLED_SECONDS, partial(_refuse, waiter, reason))


def _refuse(waiter: _Waiter, reason: str) -> None:
    credentials, decided = waiter
    audit.login_refused(credentials.user, credentials.address, reason)
    decided(credentials.refusal)


def _unknown_accounts(accounts: Accounts) -> list[Account]:
    """Return accounts of no user, which take as long to verify as these."""
    if not accounts.by_name:
        return [Account(_NO_USER, hashes.DUMMY)]
    return [
        Account(_NO_USER, secrets.token_hex(), is_plain=True)
        if account.is_plain
        else Account(_NO_USER, hashes.dummy_like(account.secret))
        for account in accounts.by_name.values()
    ]
