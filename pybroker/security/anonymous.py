"""Anonymous access: from which addresses clients may connect without a login, and as which user.

Source: `anonymousAccessAllowed` of ActiveMQ's `simpleAuthenticationPlugin`, and its `GuestLoginModule`; security.md,
sections 2 and 5.
"""

import enum
from dataclasses import replace
from functools import partial
from typing import Final

from pybroker.broker.domain import audit
from pybroker.broker.domain.addresses import is_loopback
from pybroker.broker.domain.security import (
    ANONYMOUS,
    Authenticator,
    Credentials,
    Decided,
    NotAuthenticated,
    User,
)

NO_USERS: Final = (
    "This broker has no users, and takes clients at loopback addresses, such as 127.0.0.1, only. To let others in, set "
    "users_file, or anonymous = everywhere."
)


class AnonymousPolicy(enum.Enum):
    """The addresses from which clients may connect without a login."""

    REFUSED = "refused"
    LOOPBACK = "loopback"
    EVERYWHERE = "everywhere"

    def allows(self, address: str) -> bool:
        """Return True if a client at this address may connect without a login."""
        return self is AnonymousPolicy.EVERYWHERE or (self is AnonymousPolicy.LOOPBACK and is_loopback(address))


class Reception(Authenticator):
    """Takes in clients without a login as guests, and passes the others on to those who know the users."""

    def __init__(
        self,
        policy: AnonymousPolicy,
        logins: Authenticator | None,
        *,
        guest: User = ANONYMOUS,
        takes_refused: bool = False,
    ) -> None:
        """Receive clients.

        Args:
            policy: where clients may be without a login.
            logins: knows the users; None: there are none, and no client has to prove a name.
            guest: the user that clients without a login are.
            takes_refused: take clients whose login is refused as if they had given none.
        """
        self._policy = policy
        self._logins = logins
        self._guest = guest
        self._takes_refused = takes_refused

    def authenticate(self, credentials: Credentials, decided: Decided) -> None:
        """Call back with the user or the refusal; see `Authenticator`."""
        is_allowed = self._policy.allows(credentials.address)
        if self._logins is None and not is_allowed:
            audit.login_refused(credentials.user, credentials.address, "there are no users")
            decided(NotAuthenticated(NO_USERS))
        elif self._logins is None:
            decided(replace(self._guest, name=credentials.user or self._guest.name, is_certain=False))
        elif credentials.is_anonymous and is_allowed:
            self._take_in(credentials, decided)
        elif self._takes_refused and is_allowed:
            self._logins.authenticate(credentials, partial(self._decide, credentials, decided))
        else:
            self._logins.authenticate(credentials, decided)

    def _decide(self, credentials: Credentials, decided: Decided, outcome: User | NotAuthenticated) -> None:
        if isinstance(outcome, User):
            decided(outcome)
        else:
            self._take_in(credentials, decided)

    def _take_in(self, credentials: Credentials, decided: Decided) -> None:
        audit.let_in(self._guest.name, credentials.address)
        decided(self._guest)
