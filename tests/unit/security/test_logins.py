"""Logins: what is verified, in which order, and what is remembered."""

import os
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Any

import pytest

from pybroker.broker.domain import audit
from pybroker.broker.domain.security import Credentials, NotAuthenticated, User
from pybroker.security import hashes, logins
from pybroker.security.accounts import Account, Accounts, Refusal
from pybroker.security.logins import (
    LAST_SECONDS,
    REMEMBERED_SECONDS,
    THREADS,
    THROTTLED_SECONDS,
    FileThenDirectory,
    Logins,
)
from pybroker.security.throttle import ADDRESS_FAILURES, USER_FAILURES

Outcome = User | NotAuthenticated


def accounts_of(*names: str, password: str = "right", groups: str = "g") -> Accounts:
    return Accounts({name: Account(User(name, frozenset(groups)), f"$hash of {name}${password}") for name in names})


class Desk:
    """Logins on an event loop that the test turns, with hashes that are verified when the gate is open."""

    def __init__(self, accounts: Accounts) -> None:
        self.now = 1000.0
        self.gate = threading.Event()
        self.gate.set()
        self.verified: list[tuple[str, str]] = []
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.outcomes: list[Outcome] = []
        self._posted: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.post = self._posted.put
        self.logins: Logins[Any] = Logins(
            accounts,
            post=self.post,
            call_later=lambda seconds, callback: self.timers.append((seconds, callback)),
            monotonic=lambda: self.now,
        )

    def verify(self, text: str, password: str) -> bool:
        assert self.gate.wait(10)
        self.verified.append((text, password))
        return text.endswith(f"${password}")

    def log_in(self, user: str | None, password: str | None, address: str = "10.0.0.1") -> None:
        self.logins.authenticate(Credentials(user, password, address), self.outcomes.append)

    def turn(self) -> None:
        self._posted.get(timeout=10)()

    def run_until(self, count: int) -> None:
        while len(self.outcomes) < count:
            self.turn()

    def passwords(self) -> list[str]:
        return sorted(password for _, password in self.verified)

    def outcome_of(self, user: str | None, password: str | None, address: str = "10.0.0.1") -> Outcome:
        self.log_in(user, password, address)
        self.run_until(1)
        return self.outcomes.pop()


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    desk = Desk(accounts_of("u", "v"))
    monkeypatch.setattr(hashes, "verify", desk.verify)
    yield desk
    desk.gate.set()
    desk.logins.close()


def test_the_right_password_makes_a_user(desk: Desk) -> None:
    assert desk.outcome_of("u", "right") == User("u", frozenset("g"))


@pytest.mark.parametrize(
    ("user", "password", "text"),
    [
        ("u", "wrong", "User name [u] or password is invalid."),
        ("missing", "right", "User name [missing] or password is invalid."),
        ("u", "", "User name [u] or password is invalid."),
        ("u", None, "User name [u] or password is invalid."),
        ("", "right", "User name [] or password is invalid."),
        (None, None, "User name [null] or password is invalid."),
        ("u", "right\0", "User name [u] or password is invalid."),
        ("u", "x" * 1025, "User name [u] or password is invalid."),
        ("x" * 257, "right", f"User name [{'x' * 257}] or password is invalid."),
    ],
)
def test_every_refusal_has_the_words_of_activemq(desk: Desk, user: str, password: str, text: str) -> None:
    assert str(desk.outcome_of(user, password)) == text


def test_an_unknown_user_takes_a_verification_like_that_of_a_user(desk: Desk) -> None:
    for _ in range(2):
        desk.outcome_of("missing", "right")
    [(first, _), (second, _)] = desk.verified
    assert first in ("$hash of u$AAAAA", "$hash of v$AAAAA")
    assert first == second, "always the same, as for a user"


def test_an_unknown_user_is_compared_as_fast_as_others_where_passwords_are_in_clear(desk: Desk) -> None:
    desk.logins.replace(Accounts({"u": Account(User("u"), "right", is_plain=True)}))
    assert isinstance(desk.outcome_of("missing", "right"), NotAuthenticated)
    assert desk.outcome_of("u", "right") == User("u")
    assert not desk.verified


def test_without_users_no_client_may_log_in(desk: Desk) -> None:
    desk.logins.replace(Accounts({}))
    assert isinstance(desk.outcome_of("u", "right"), NotAuthenticated)


@pytest.mark.skipif(sys.platform != "linux", reason="threads have priorities of their own on Linux alone")
def test_verifications_leave_the_processor_to_other_threads(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def verify(text: str, password: str) -> bool:
        seen.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
        return desk.verify(text, password)

    monkeypatch.setattr(hashes, "verify", verify)
    desk.outcome_of("u", "right")
    assert seen[0] > os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) or seen[0] == 19


def test_what_was_verified_is_remembered_for_a_while(desk: Desk) -> None:
    desk.outcome_of("u", "right")
    assert desk.outcome_of("u", "right", "10.0.0.2") == User("u", frozenset("g"))
    assert len(desk.verified) == 1
    assert isinstance(desk.outcome_of("u", "wrong"), NotAuthenticated)
    assert isinstance(desk.outcome_of("u", "wrong"), NotAuthenticated)
    assert len(desk.verified) == 3, "a refusal is not remembered"
    desk.now += REMEMBERED_SECONDS
    desk.outcome_of("u", "right")
    assert len(desk.verified) == 4


def test_what_is_remembered_is_bounded(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logins, "REMEMBERED_MAX", 1)
    for name in ("u", "v", "u"):
        desk.outcome_of(name, "right")
    assert len(desk.verified) == 3


def test_equal_logins_wait_for_one_verification(desk: Desk) -> None:
    desk.gate.clear()
    for number in range(1000):
        desk.log_in("u", "right", f"10.0.{number // 250}.{number % 250}")
    desk.gate.set()
    desk.run_until(1000)
    assert desk.outcomes == [User("u", frozenset("g"))] * 1000
    assert len(desk.verified) == 1


def test_a_failure_among_equal_logins_counts_for_each_address(desk: Desk) -> None:
    desk.gate.clear()
    for _ in range(USER_FAILURES):
        desk.log_in("u", "wrong", "10.0.0.1")
    desk.log_in("u", "wrong", "10.0.0.2")
    desk.gate.set()
    desk.run_until(USER_FAILURES + 1)
    desk.outcomes.clear()
    desk.log_in("u", "right", "10.0.0.1")
    assert len(desk.timers) == 1
    assert desk.outcome_of("v", "right", "10.0.0.1") == User("v", frozenset("g"))


def test_a_user_that_failed_often_at_an_address_is_refused_unverified_after_a_second(desk: Desk) -> None:
    for _ in range(USER_FAILURES):
        assert isinstance(desk.outcome_of("u", "wrong"), NotAuthenticated)
    desk.log_in("u", "right")
    assert not desk.outcomes
    [(seconds, callback)] = desk.timers
    assert seconds == THROTTLED_SECONDS
    callback()
    assert isinstance(desk.outcomes.pop(), NotAuthenticated)
    assert len(desk.verified) == USER_FAILURES
    assert desk.outcome_of("u", "right", "10.0.0.2") == User("u", frozenset("g")), "not locked out elsewhere"


def test_a_throttled_login_is_counted_apart_from_refused_ones(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "pybroker.audit")
    before = audit.COUNTS.copy()
    for _ in range(USER_FAILURES):
        desk.outcome_of("u", "wrong")
    desk.log_in("u", "right")
    desk.timers[0][1]()
    assert audit.COUNTS - before == {"login refused": USER_FAILURES, audit.THROTTLED: 1}
    fields = getattr(caplog.records[-1], audit.FIELDS)
    reason = "too many failed logins of this user at this address"
    assert (fields["event"], fields["reason"]) == ("login refused", reason)


def test_guesses_that_come_at_a_time_are_throttled_as_well(desk: Desk) -> None:
    desk.gate.clear()
    for number in range(100):
        desk.log_in("u", f"guess {number}")
    desk.gate.set()
    desk.run_until(USER_FAILURES)
    while len(desk.timers) < 100 - USER_FAILURES - THREADS + 1:
        desk.turn()
    assert len(desk.verified) <= USER_FAILURES + THREADS - 1


def test_a_remembered_login_tells_a_stranger_nothing(desk: Desk) -> None:
    desk.outcome_of("u", "right", "10.0.0.2")
    for _ in range(USER_FAILURES):
        desk.outcome_of("u", "wrong", "10.0.0.1")
    desk.log_in("u", "right", "10.0.0.1")
    assert not desk.outcomes
    assert len(desk.timers) == 1, "refused like a wrong one"
    assert desk.outcome_of("u", "right", "10.0.0.2") == User("u", frozenset("g"))


def test_who_has_logged_in_from_an_address_is_never_throttled_there(desk: Desk) -> None:
    desk.outcome_of("u", "right")
    for _ in range(USER_FAILURES):
        desk.outcome_of("u", "wrong")
    assert desk.outcome_of("u", "right") == User("u", frozenset("g"))
    desk.now += REMEMBERED_SECONDS
    assert desk.outcome_of("u", "right") == User("u", frozenset("g"))


def test_logins_of_an_address_that_guesses_are_verified_last_and_one_in_a_while(desk: Desk) -> None:
    for number in range(ADDRESS_FAILURES):
        desk.outcome_of(f"guess {number}", "x")
    desk.verified.clear()
    desk.gate.clear()
    for number in range(3):
        desk.log_in(f"other {number}", "y")
    desk.log_in("v", "right", "10.0.0.2")
    desk.log_in("v", "other", "10.0.0.3")
    desk.gate.set()
    desk.run_until(3)
    assert desk.passwords() == ["other", "right", "y"], "of those that come last one had begun"
    for count in (4, 5):
        assert desk.timers[-1][0] == LAST_SECONDS
        desk.now += LAST_SECONDS - 0.001  # the timers of an event loop may be early
        desk.timers.pop()[1]()
        desk.run_until(count)
    assert desk.passwords() == ["other", "right", "y", "y", "y"]


def test_as_many_logins_may_wait_and_no_more(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logins, "WAITING_MAX", 3)
    desk.gate.clear()
    for number in range(THREADS + 3):
        desk.log_in(f"n{number}", "x", f"10.0.0.{number}")
    assert not desk.timers
    desk.log_in("u", "right", "10.0.1.1")
    assert [seconds for seconds, _ in desk.timers] == [THROTTLED_SECONDS]
    desk.gate.set()
    desk.run_until(THREADS + 3)
    desk.outcomes.clear()
    assert desk.outcome_of("u", "right", "10.0.1.1") == User("u", frozenset("g"))


def test_a_thread_that_cannot_be_started_refuses(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    class Exhausted:
        def submit(self, *arguments: object) -> None:
            raise RuntimeError("can't start new thread")

        def shutdown(self, **options: object) -> None: ...

    monkeypatch.setattr(desk.logins, "_executor", Exhausted())
    for _ in range(THREADS + 1):
        assert isinstance(desk.outcome_of("u", "right"), NotAuthenticated)
    monkeypatch.setattr(desk.logins, "_executor", None)
    assert desk.outcome_of("u", "right") == User("u", frozenset("g"))


def test_a_client_that_fails_costs_no_other_its_answer(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: Outcome) -> None:
        raise AssertionError("a bug")

    desk.gate.clear()
    desk.logins.authenticate(Credentials("u", "right", "10.0.0.1"), fail)
    desk.log_in("u", "right")
    desk.log_in("v", "right")
    desk.gate.set()
    desk.run_until(2)
    assert "a login of 'u' failed" in caplog.text


class TestChangedUsers:
    def test_the_names_of_those_who_are_not_the_same(self) -> None:
        accounts = accounts_of("u", "v")
        assert accounts.differing(accounts_of("u", "v")) == frozenset()
        assert accounts.differing(accounts_of("u", "w")) == {"v", "w"}, "w may be another's name till now"
        assert accounts.differing(accounts_of("u", "v", password="other")) == {"u", "v"}
        assert accounts.differing(accounts_of("u", "v", groups="h")) == {"u", "v"}

    def test_a_removed_user_is_refused_although_remembered(self, desk: Desk) -> None:
        desk.outcome_of("u", "right")
        desk.logins.replace(accounts_of("v"))
        assert isinstance(desk.outcome_of("u", "right"), NotAuthenticated)

    def test_another_password_counts_at_once(self, desk: Desk) -> None:
        desk.outcome_of("u", "right")
        desk.logins.replace(accounts_of("u", password="other"))
        assert isinstance(desk.outcome_of("u", "right"), NotAuthenticated)
        assert desk.outcome_of("u", "other") == User("u", frozenset("g"))

    def test_other_groups_count_at_once(self, desk: Desk) -> None:
        desk.outcome_of("u", "right")
        desk.logins.replace(accounts_of("u", groups="h"))
        assert desk.outcome_of("u", "right") == User("u", frozenset("h"))

    def test_a_login_under_way_is_decided_by_the_users_of_now(self, desk: Desk) -> None:
        desk.gate.clear()
        desk.log_in("u", "right")
        desk.log_in("u", "other", "10.0.0.2")
        desk.logins.replace(accounts_of("u", password="other"))
        desk.gate.set()
        desk.run_until(2)
        users = [each for each in desk.outcomes if isinstance(each, User)]
        assert users == [User("u", frozenset("g"))]


@dataclass(frozen=True)
class Remote:
    """An account whose outcome is known elsewhere."""

    name: str
    source: "RemoteSource"
    secret: str = ""

    def verify(self, password: str) -> User | Refusal:
        self.source.asked.append(self.name)
        return self.source.outcome


class RemoteSource:
    """Users of a directory that a test changes."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.outcome: User | Refusal = User("u", frozenset("g"))

    def account(self, name: str) -> Remote:
        return Remote(name, self)

    def throttled(self, name: str) -> str:
        return name.strip().lower()


class TestUsersFoundElsewhere:
    @pytest.fixture
    def source(self, desk: Desk) -> RemoteSource:
        source = RemoteSource()
        desk.logins.source = source
        return source

    def test_the_user_is_what_the_source_returns_and_is_remembered(self, desk: Desk, source: RemoteSource) -> None:
        assert desk.outcome_of("u", "right") == User("u", frozenset("g"))
        source.outcome = User("u", frozenset("h"))
        assert desk.outcome_of("u", "right") == User("u", frozenset("g"))
        assert source.asked == ["u"]
        assert desk.logins.remembered() == {User("u", frozenset("g"))}
        desk.now += REMEMBERED_SECONDS
        assert desk.logins.remembered() == frozenset()

    def test_a_user_that_was_forgotten_is_verified_again(self, desk: Desk, source: RemoteSource) -> None:
        desk.outcome_of("u", "right")
        source.outcome = User("u", frozenset("h"))
        desk.logins.forget({"other"})
        assert desk.outcome_of("u", "right") == User("u", frozenset("g"))
        desk.logins.forget({"u"})
        assert desk.outcome_of("u", "right") == User("u", frozenset("h"))

    def test_a_login_that_cannot_be_verified_is_no_failed_one(
        self, desk: Desk, source: RemoteSource, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level("INFO", "pybroker.audit")
        source.outcome = Refusal("no server", is_failure=False)
        for _ in range(USER_FAILURES + 1):
            assert isinstance(desk.outcome_of("u", "right"), NotAuthenticated)
        assert "login of 'u' from 10.0.0.1 refused: no server" in caplog.text
        source.outcome = User("u")
        assert desk.outcome_of("u", "right") == User("u"), "neither remembered nor throttled"

    def test_spellings_that_a_directory_takes_for_one_name_are_throttled_as_one(
        self, desk: Desk, source: RemoteSource
    ) -> None:
        source.outcome = Refusal("wrong password")
        for name in ("alice", "Alice", "ALICE", " alice", "alice "):
            desk.outcome_of(name, "x")
        desk.log_in("aLICE", "x")
        assert len(desk.timers) == 1
        assert len(source.asked) == USER_FAILURES
        assert isinstance(desk.outcome_of("bob", "x"), NotAuthenticated)

    def test_users_of_the_file_are_not_looked_for_elsewhere(self, desk: Desk, source: RemoteSource) -> None:
        file = Logins(accounts_of("u"), post=desk.post, call_later=lambda *_: None, monotonic=lambda: desk.now)
        both = FileThenDirectory(file, desk.logins)
        for credentials in (Credentials("u", "wrong"), Credentials("v", "any"), Credentials(None, None)):
            both.authenticate(credentials, desk.outcomes.append)
        desk.run_until(3)
        assert sum(isinstance(each, User) for each in desk.outcomes) == 1
        assert source.asked == ["v"]
        file.close()


def test_a_hash_that_cannot_be_verified_refuses_and_is_logged(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(text: str, password: str) -> bool:
        raise MemoryError("no memory")

    monkeypatch.setattr(hashes, "verify", fail)
    assert isinstance(desk.outcome_of("u", "right"), NotAuthenticated)
    assert "the password of 'u' cannot be verified" in caplog.text


def test_each_refusal_is_one_line_of_the_audit_log_without_the_password(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "pybroker.audit")
    desk.outcome_of("u", "sesame1")
    desk.outcome_of("n\n" + "x" * 100, "sesame2")
    assert [each.getMessage() for each in caplog.records] == [
        "login of 'u' from 10.0.0.1 refused: wrong password",
        f"login of 'n?{'x' * 62}…' from 10.0.0.1 refused: unknown user",
    ]


def test_credentials_show_no_password() -> None:
    assert "sesame" not in repr(Credentials("u", "sesame", "10.0.0.1"))
    assert "sesame" not in repr(partial(print, Credentials("u", "sesame")))
