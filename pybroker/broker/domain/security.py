"""Authentication: the credentials of a login, the user of a connection, and the port between the two.

Source: "Logins, rights and limits" (security.md), sections 1, 2 and 8.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from pybroker.broker.domain.errors import RequestError

NAME_SHOWN_MAX: Final = 64
"""The characters of a name that a client gave, as far as a log shows them."""


class NotAuthenticated(RequestError):
    """A login that is refused. The text says neither if the user exists nor what was wrong."""


class AccessDenied(RequestError):
    """An act for which the user has no right."""


@dataclass(frozen=True, slots=True)
class User:
    """A client that has logged in.

    Attributes:
        name: its name.
        groups: the groups it belongs to, which rights are given to.
        is_certain: False where there are no logins, and a client may give any name.
        is_guest: True of clients without a login. They are not one user: nothing belongs to their name.
        has_all_rights: no rules hold for it. Only the broker itself is such a user, never a client.
    """

    name: str
    groups: frozenset[str] = frozenset()
    is_certain: bool = True
    is_guest: bool = False
    has_all_rights: bool = False

    @property
    def is_verified(self) -> bool:
        """True if the client has proved its name."""
        return self.is_certain and not self.is_guest


ANONYMOUS: Final = User("anonymous", frozenset(("anonymous",)), is_guest=True)
"""A client that has not logged in, where it need not; ActiveMQ's `anonymousUser` and `anonymousGroup`."""


NETWORK_CONNECTOR: Final = User("network connector", is_certain=False, has_all_rights=True)
"""The broker's own bridges, at this broker, if they do not log in. What they create belongs to no user."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """The user name and password of a login; the `repr` has no password.

    Attributes:
        user: the name; None if the client gave none.
        password: the password; None if the client gave none.
        address: the client's address, without its port.
        certificate: the subject of the client's certificate, which was verified; empty without one, None without TLS.
    """

    user: str | None
    password: str | None = field(repr=False)
    address: str = ""
    certificate: str | None = None

    @property
    def is_anonymous(self) -> bool:
        """True if neither a name nor a password was given."""
        return self.user is None and self.password is None

    @property
    def refusal(self) -> NotAuthenticated:
        """The answer to a login that is refused, in ActiveMQ's words."""
        return NotAuthenticated(f"User name [{'null' if self.user is None else self.user}] or password is invalid.")


Decided = Callable[[User | NotAuthenticated], None]


class Authenticator(Protocol):
    """Authenticates clients."""

    def authenticate(self, credentials: Credentials, decided: Decided) -> None:
        """Call back with the user, or with the refusal, on the event loop: before this returns, or later.

        Verifying a password takes some tens of milliseconds, and never blocks the event loop.
        """
        ...


class WithoutLogins(Authenticator):
    """Accepts every login, without a look at its password."""

    def authenticate(self, credentials: Credentials, decided: Decided) -> None:
        """Call back with a user of that name."""
        decided(User(credentials.user or ANONYMOUS.name, ANONYMOUS.groups, is_certain=False))


WITHOUT_LOGINS: Final[Authenticator] = WithoutLogins()


def shown(name: str | None) -> str:
    """Return a name that a client gave, for a log: shortened, and without control characters."""
    if name is None:
        return "no user"
    cut = name[:NAME_SHOWN_MAX]
    text = "".join(each if each.isprintable() else "?" for each in cut)
    return repr(text + ("…" if len(name) > NAME_SHOWN_MAX else ""))
