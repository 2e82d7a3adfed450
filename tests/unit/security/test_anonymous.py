"""Clients without a login."""

from dataclasses import replace
from typing import Any

import pytest

from pybroker.broker.domain.security import ANONYMOUS, Credentials, Decided, NotAuthenticated, User
from pybroker.security.anonymous import AnonymousPolicy, Reception


class Known:
    """Knows each client by its name, and none without, nor "wrong"."""

    def authenticate(self, credentials: Credentials, decided: Decided) -> None:
        decided(credentials.refusal if credentials.user in (None, "wrong") else User(str(credentials.user)))


def outcome(
    policy: AnonymousPolicy, user: str | None, address: str = "127.0.0.1", *, users: bool = True, **options: Any
) -> User | NotAuthenticated:
    outcomes: list[User | NotAuthenticated] = []
    password = None if user is None else "x"
    reception = Reception(policy, Known() if users else None, **options)
    reception.authenticate(Credentials(user, password, address), outcomes.append)
    return outcomes[0]


@pytest.mark.parametrize(
    ("policy", "address", "is_welcome"),
    [
        (AnonymousPolicy.REFUSED, "127.0.0.1", False),
        (AnonymousPolicy.LOOPBACK, "127.0.0.1", True),
        (AnonymousPolicy.LOOPBACK, "127.9.9.9", True),
        (AnonymousPolicy.LOOPBACK, "::1", True),
        (AnonymousPolicy.LOOPBACK, "::ffff:127.0.0.1", True),
        (AnonymousPolicy.LOOPBACK, "10.0.0.1", False),
        (AnonymousPolicy.LOOPBACK, "fe80::1%lo", False),
        (AnonymousPolicy.LOOPBACK, "unknown", False),
        (AnonymousPolicy.EVERYWHERE, "10.0.0.1", True),
    ],
)
class TestWelcome:
    def test_with_users(self, policy: AnonymousPolicy, address: str, is_welcome: bool) -> None:
        made = outcome(policy, None, address)
        assert made == ANONYMOUS if is_welcome else str(made) == "User name [null] or password is invalid."
        assert outcome(policy, "u", address) == User("u"), "who logs in is welcome from everywhere"

    def test_without_users(self, policy: AnonymousPolicy, address: str, is_welcome: bool) -> None:
        for name in (None, "u"):
            made = outcome(policy, name, address, users=False)
            if is_welcome:
                assert made == replace(ANONYMOUS, name=name or "anonymous", is_certain=False)
            else:
                assert "set users_file" in str(made)


GUEST = User("guest", frozenset(("guests", "readers")))


def test_clients_without_a_login_are_the_guest() -> None:
    assert outcome(AnonymousPolicy.LOOPBACK, None, guest=GUEST) == GUEST
    assert outcome(AnonymousPolicy.LOOPBACK, None, guest=GUEST, users=False) == replace(GUEST, is_certain=False)
    assert outcome(AnonymousPolicy.LOOPBACK, "u", guest=GUEST, users=False) == User("u", GUEST.groups, is_certain=False)
    assert outcome(AnonymousPolicy.LOOPBACK, "u", guest=GUEST) == User("u")


def test_a_refused_client_is_the_guest_only_on_request_and_where_guests_may_be() -> None:
    assert isinstance(outcome(AnonymousPolicy.EVERYWHERE, "wrong", guest=GUEST), NotAuthenticated)
    assert outcome(AnonymousPolicy.EVERYWHERE, "wrong", guest=GUEST, takes_refused=True) == GUEST
    assert outcome(AnonymousPolicy.EVERYWHERE, "u", guest=GUEST, takes_refused=True) == User("u")
    refused = outcome(AnonymousPolicy.LOOPBACK, "wrong", "10.0.0.1", guest=GUEST, takes_refused=True)
    assert str(refused) == "User name [wrong] or password is invalid."
