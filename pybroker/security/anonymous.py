"""Anonymous access: from which addresses clients may connect without a login, and as which user.

Source: `anonymousAccessAllowed` of ActiveMQ's `simpleAuthenticationPlugin`; security.md, sections 2 and 5.
"""

import enum
from typing import Final

from pybroker.broker.domain import audit
from pybroker.broker.domain.addresses import is_loopback
from pybroker.broker.domain.security import (
    ANONYMOUS,
    WITHOUT_LOGINS,
    Authenticator,
    Credentials,
    Decided,
    NotAuthenticated,
)

NO_USERS: Final = (
    "This broker has no users, and takes clients of its own host only. To let others in, set users_file, or "
    "anonymous = everywhere."
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
    """Takes in clients without a login, and passes the others on to those who know the users."""

    def __init__(self, policy: AnonymousPolicy, logins: Authenticator | None, refusal: str = NO_USERS) -> None:
        """Receive clients.

        Args:
            policy: where clients may be without a login.
            logins: knows the users; None: there are none, and no client has to prove a name.
            refusal: the answer to other clients if there are no users.
        """
        self._refusal = refusal
        self._policy = policy
        self._logins = logins

    def authenticate(self, credentials: Credentials, decided: Decided) -> None:
        """Call back with the user or the refusal; see `Authenticator`."""
        is_allowed = self._policy.allows(credentials.address)
        if self._logins is None and not is_allowed:
            audit.login_refused(credentials.user, credentials.address, "there are no users")
            decided(NotAuthenticated(self._refusal))
        elif self._logins is None:
            WITHOUT_LOGINS.authenticate(credentials, decided)
        elif credentials.is_anonymous and is_allowed:
            audit.logged_in(ANONYMOUS.name, credentials.address)
            decided(ANONYMOUS)
        else:
            self._logins.authenticate(credentials, decided)
