"""Verifies logins, without blocking the event loop, and quickly where very many come at a time.

```text
authenticate --> verified lately? --------------------------------> user
             --> same login being verified? wait for that ---------> user or refusal
             --> threads: hash of the password, or LDAP server ----> user or refusal
```

A verification takes milliseconds or more, and after a failover all clients log in at a time. So what was verified is
remembered for some minutes, by a keyed hash whose key is in this process alone; and equal logins wait for one
verification.

What the `throttle` holds back is verified after all others, a few in a second, or refused after a second. It is asked
when a verification begins, too: many guesses may come before the first has failed.

Source: security.md, section 8.
"""

import hashlib
import logging
import os
import secrets
import sys
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, Generic, NamedTuple, TypeVar

from pybroker.broker.domain import audit
from pybroker.broker.domain.security import Authenticator, Credentials, Decided, User, shown
from pybroker.security import hashes
from pybroker.security.accounts import NAME_MAX, Accounts, AccountSource, Refusal, Verifiable
from pybroker.security.throttle import LoginThrottle, Standing

THREADS: Final = max(2, min(8, (os.cpu_count() or 1) - 1))
"""Verifications of hashes at a time: each keeps a processor busy, and the event loop needs one too."""

_NICENESS: Final = 5
"""A third of the weight of other threads, where all processors are busy; all that they leave, where not."""

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


_NOT_VERIFIED: Final = Refusal("it cannot be verified")


class _Key(NamedTuple):
    """A login; equal ones have the same outcome.

    Attributes:
        name: the user.
        digest: a keyed hash of the password and of what it is compared with.
    """

    name: str
    digest: bytes


_Waiter = tuple[Credentials, Decided]

SourceT = TypeVar("SourceT", bound=AccountSource)


class Logins(Authenticator, Generic[SourceT]):
    """Authenticates users by name and password.

    Attributes:
        source: the users; see `replace`.
    """

    def __init__(
        self,
        source: SourceT,
        *,
        post: Callable[[Callable[[], None]], object],
        call_later: Callable[[float, Callable[[], None]], object],
        monotonic: Callable[[], float],
        threads: int = THREADS,
    ) -> None:
        """Start no thread yet.

        Args:
            source: the users.
            post: calls back on the event loop, from another thread.
            call_later: calls back after so many seconds.
            monotonic: seconds.
            threads: the verifications at a time.
        """
        self.source = source
        self._post = post
        self._call_later = call_later
        self._monotonic = monotonic
        self._throttle = LoginThrottle()
        self._secret = secrets.token_bytes(32)
        self._remembered: OrderedDict[_Key, tuple[float, Verifiable, User]] = OrderedDict()
        """Verified logins: until when they are remembered, what was verified, and the user; oldest first."""
        self._verifying: dict[_Key, list[_Waiter]] = {}
        self._waiting: deque[tuple[_Key, Verifiable]] = deque()
        self._last: deque[tuple[_Key, Verifiable]] = deque()
        """Those that wait until no other does."""
        self._running = 0
        self._last_is_held = False
        """True while one of those is being verified, and for `LAST_SECONDS` after it."""
        self._threads = threads
        self._executor: ThreadPoolExecutor | None = None
        self._is_closed = False

    def replace(self, source: SourceT) -> SourceT:
        """Use other users from now on, also for logins under way; return the former ones."""
        former, self.source = self.source, source
        return former

    def remembered(self) -> frozenset[User]:
        """Return the users whose logins are remembered."""
        now = self._monotonic()
        return frozenset(user for until, _, user in self._remembered.values() if until > now)

    def forget(self, names: Collection[str]) -> None:
        """Verify the next logins of these users again."""
        for key in [key for key in self._remembered if key.name in names]:
            del self._remembered[key]

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
        account = self.source.account(name)
        key = self._key(name, password, account)
        now = self._monotonic()
        standing = self._throttle.standing(credentials.address, self.source.throttled(name), key.digest, now)
        until, verified, user = self._remembered.get(key, (0.0, None, None))
        if standing is Standing.REFUSED:
            self._refuse_later((credentials, decided), "too many failed logins of this user at this address")
        elif user is not None and until > now and verified == account and standing is not Standing.LAST:
            self._throttle.succeeded(credentials.address, self.source.throttled(name), key.digest)
            audit.logged_in(name, credentials.address)
            decided(user)
        elif (others := self._verifying.get(key)) is not None:
            others.append((credentials, decided))
        elif self._enqueue(key, account, is_last=standing is Standing.LAST):
            self._verifying[key] = [(credentials, decided)]
            self._verify_next()
        else:
            self._refuse_later((credentials, decided), "too many logins wait for their verification")

    def _key(self, name: str, password: str, account: Verifiable) -> _Key:
        digest = hashlib.blake2b(hashes.checked(password), key=self._secret, digest_size=16)
        digest.update(b"\0" + account.secret.encode("utf-8", "surrogatepass"))
        return _Key(name, digest.digest())

    def _enqueue(self, key: _Key, account: Verifiable, *, is_last: bool) -> bool:
        queue, limit = (self._last, LAST_MAX) if is_last else (self._waiting, WAITING_MAX)
        if len(queue) >= limit:
            return False
        queue.append((key, account))
        return True

    # ------------------------------------------------------------ verifying

    def _verify_next(self) -> None:
        while self._running < self._threads:
            if self._waiting:
                key, account = self._waiting.popleft()
                if self._still_verified(key, account, may_come_last=True):
                    self._submit(key, account, is_last=False)
            elif self._last and not self._last_is_held:
                key, account = self._last.popleft()
                if self._still_verified(key, account, may_come_last=False):
                    self._last_is_held = True
                    self._submit(key, account, is_last=True)
            else:
                return

    def _still_verified(self, key: _Key, account: Verifiable, *, may_come_last: bool) -> bool:
        """Return True if a login that waited is to be verified now; refuse who has guessed too often meanwhile."""
        now = self._monotonic()
        waiters, comes_last = list[_Waiter](), True
        for waiter in self._verifying.pop(key, ()):
            standing = self._throttle.standing(waiter[0].address, self.source.throttled(key.name), key.digest, now)
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

    def _submit(self, key: _Key, account: Verifiable, *, is_last: bool) -> None:
        password = self._verifying[key][0][0].password or ""
        if self._executor is None:
            self._executor = ThreadPoolExecutor(
                self._threads, thread_name_prefix="pybroker-login", initializer=_lower_priority
            )
        self._running += 1
        try:
            self._executor.submit(self._verify, key, account, password, is_last)
        except RuntimeError:  # no further thread can be started
            _log.exception("the password of %s cannot be verified", shown(key.name))
            self._verified(key, account, _NOT_VERIFIED, is_last=is_last)

    def _verify(self, key: _Key, account: Verifiable, password: str, is_last: bool) -> None:
        """Verify a password, in a thread."""
        try:
            outcome = account.verify(password)
        except Exception:
            _log.exception("the password of %s cannot be verified", shown(key.name))
            outcome = _NOT_VERIFIED
        self._post(partial(self._verified, key, account, outcome, is_last=is_last))

    def _verified(self, key: _Key, account: Verifiable, outcome: User | Refusal, *, is_last: bool) -> None:
        if self._is_closed:
            return
        self._running -= 1
        now = self._monotonic()
        if is_last:
            # By the timer alone, not by its time: an event loop's timers may be early.
            self._call_later(LAST_SECONDS, self._release_last)
        is_current = self.source.account(key.name) == account
        if isinstance(outcome, User) and is_current:
            self._remember(key, account, outcome, now)
        for waiter in self._verifying.pop(key, ()):
            try:
                self._decide(waiter, key, outcome, is_current=is_current)
            except Exception:  # one client is not answered; the others are
                _log.exception("a login of %s failed", shown(key.name))
        self._verify_next()

    def _release_last(self) -> None:
        self._last_is_held = False
        self._verify_next()

    def _decide(self, waiter: _Waiter, key: _Key, outcome: User | Refusal, *, is_current: bool) -> None:
        credentials, decided = waiter
        if not is_current:  # the file was changed meanwhile
            self.authenticate(credentials, decided)
        elif isinstance(outcome, User):
            self._throttle.succeeded(credentials.address, self.source.throttled(key.name), key.digest)
            audit.logged_in(key.name, credentials.address)
            decided(outcome)
        else:
            if outcome.is_failure:
                self._throttle.failed(credentials.address, self.source.throttled(key.name), self._monotonic())
            _refuse(waiter, outcome.reason)

    def _remember(self, key: _Key, account: Verifiable, user: User, now: float) -> None:
        remembered = self._remembered
        remembered[key] = now + REMEMBERED_SECONDS, account, user
        remembered.move_to_end(key)
        while remembered and (len(remembered) > REMEMBERED_MAX or next(iter(remembered.values()))[0] <= now):
            remembered.popitem(last=False)

    def _refuse_later(self, waiter: _Waiter, reason: str) -> None:
        """Refuse a login that is not verified: not at once, which would invite the next."""
        self._call_later(THROTTLED_SECONDS, partial(_refuse, waiter, reason, is_throttled=True))


class FileThenDirectory(Authenticator):
    """Verifies users of the file by the file alone, and all others by a directory, as modules of a JAAS login do.

    So a name has one password, and those in the file can log in while no LDAP server answers.
    """

    def __init__(self, file: Logins[Accounts], directory: Authenticator) -> None:
        self._file = file
        self._directory = directory

    def authenticate(self, credentials: Credentials, decided: Decided) -> None:
        """Call back with the user or the refusal; see `Authenticator`."""
        is_in_file = credentials.user in self._file.source.by_name
        (self._file if is_in_file else self._directory).authenticate(credentials, decided)


def _lower_priority() -> None:
    """Have the scheduler of Linux prefer the other threads of this process to the present one.

    Of equals, a thread that computes for long keeps its processor until its time slice is over, which may be
    milliseconds each time that the event loop or the writer of the journal could go on.
    """
    if sys.platform == "linux":  # where a thread has a priority of its own
        thread = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + _NICENESS)


def _refuse(waiter: _Waiter, reason: str, *, is_throttled: bool = False) -> None:
    credentials, decided = waiter
    audit.login_refused(credentials.user, credentials.address, reason, is_throttled=is_throttled)
    decided(credentials.refusal)
