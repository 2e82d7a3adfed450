"""Clients without a login."""

import pytest

from pybroker.broker.domain.security import ANONYMOUS, Credentials, Decided, NotAuthenticated, User
from pybroker.security.anonymous import AnonymousPolicy, Reception


class Known:
    """Knows each client by its name, and none without."""

    def authenticate(self, credentials: Credentials, decided: Decided) -> None:
        decided(credentials.refusal if credentials.user is None else User(credentials.user))


def outcome(
    policy: AnonymousPolicy, user: str | None, address: str = "127.0.0.1", *, users: bool = True
) -> User | NotAuthenticated:
    outcomes: list[User | NotAuthenticated] = []
    password = None if user is None else "x"
    Reception(policy, Known() if users else None).authenticate(Credentials(user, password, address), outcomes.append)
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
                assert made == User(name or "anonymous", ANONYMOUS.groups, is_certain=False)
            else:
                assert "set users_file" in str(made)
