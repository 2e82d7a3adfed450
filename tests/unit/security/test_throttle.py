"""The limits to failed logins."""

import pytest

from pybroker.broker.domain.addresses import network
from pybroker.security import throttle
from pybroker.security.throttle import ADDRESS_FAILURES, USER_FAILURES, USER_SECONDS, LoginThrottle, Standing


def exhausted(address: str = "10.0.0.1", user: str = "u") -> LoginThrottle:
    """Return a throttle after as many failures as a user may have at an address."""
    it = LoginThrottle()
    for _ in range(USER_FAILURES):
        assert it.standing(address, user, b"", 0.0) is Standing.USUAL
        it.failed(address, user, 0.0)
    return it


def test_a_user_at_an_address_may_fail_so_often_and_then_once_in_a_while() -> None:
    it = exhausted()
    assert it.standing("10.0.0.1", "u", b"", 0.0) is Standing.REFUSED
    assert it.standing("10.0.0.1", "u", b"", USER_SECONDS * 0.9) is Standing.REFUSED
    assert it.standing("10.0.0.1", "u", b"", USER_SECONDS) is Standing.USUAL
    it.failed("10.0.0.1", "u", USER_SECONDS)
    assert it.standing("10.0.0.1", "u", b"", USER_SECONDS) is Standing.REFUSED


def test_no_other_is_locked_out() -> None:
    it = exhausted()
    assert it.standing("10.0.0.2", "u", b"", 0.0) is Standing.USUAL, "the owner of the name, at another address"
    assert it.standing("10.0.0.1", "v", b"", 0.0) is Standing.USUAL, "another user behind the same address"


def test_a_success_forgets_the_failures_of_the_user() -> None:
    it = exhausted()
    it.succeeded("10.0.0.1", "u", b"right")
    assert it.standing("10.0.0.1", "u", b"other", 0.0) is Standing.USUAL


def test_who_has_logged_in_from_an_address_is_never_locked_out_there() -> None:
    it = LoginThrottle()
    it.succeeded("10.0.0.1", "u", b"right")
    for _ in range(USER_FAILURES):
        it.failed("10.0.0.1", "u", 0.0)
    assert it.standing("10.0.0.1", "u", b"right", 0.0) is Standing.USUAL
    assert it.standing("10.0.0.1", "u", b"new", 0.0) is Standing.LAST
    assert it.standing("10.0.0.2", "u", b"right", 0.0) is Standing.USUAL


def test_logins_of_an_address_come_last_after_many_failures() -> None:
    it = LoginThrottle()
    for number in range(ADDRESS_FAILURES):
        assert it.standing("10.0.0.1", "v", b"", 0.0) is Standing.USUAL
        it.failed("10.0.0.1", f"u{number}", 0.0)
    assert it.standing("10.0.0.1", "v", b"", 0.0) is Standing.LAST
    assert it.standing("10.0.0.2", "v", b"", 0.0) is Standing.USUAL
    assert it.standing("10.0.0.1", "v", b"", 2.0) is Standing.USUAL


def test_the_oldest_entries_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttle, "ENTRIES_MAX", 2)
    it = exhausted()
    it.failed("10.0.0.2", "u", 0.0)
    assert it.standing("10.0.0.1", "u", b"", 0.0) is Standing.REFUSED
    it.failed("10.0.0.3", "u", 0.0)
    assert it.standing("10.0.0.1", "u", b"", 0.0) is Standing.USUAL


@pytest.mark.parametrize(
    ("address", "counted"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("fe80::1%eth0", "fe80::"),
        ("somewhere", "somewhere"),
    ],
)
def test_what_counts_as_one_address(address: str, counted: str) -> None:
    assert network(address) == counted
