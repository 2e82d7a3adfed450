"""Clients that do not log in: who of them is welcome, and as whom.

Source: `anonymousAccessAllowed` of ActiveMQ's `simpleAuthenticationPlugin`; security.md, sections 2 and 5.
"""

import enum
import ipaddress

from pybroker.broker.domain.security import ANONYMOUS, Authenticator, Credentials, Decided, NotAuthenticated, User


class AnonymousPolicy(enum.Enum):
    """Where clients without a login are welcome."""

    REFUSED = "refused"
    LOOPBACK = "loopback"
    EVERYWHERE = "everywhere"

    def welcomes(self, address: str) -> bool:
        """Return True if a client at this address is welcome."""
        return self is AnonymousPolicy.EVERYWHERE or (self is AnonymousPolicy.LOOPBACK and _is_loopback(address))


class Reception(Authenticator):
    """Takes in clients without a login, and passes the others on to those who know the users."""

    def __init__(self, policy: AnonymousPolicy, logins: Authenticator | None) -> None:
        """Receive clients; without `logins` there are no users, and no client has to prove a name."""
        self._policy = policy
        self._logins = logins

    def authenticate(self, credentials: Credentials, decided: Decided) -> None:
        """Call back with the user or the refusal; see `Authenticator`."""
        is_welcome = self._policy.welcomes(credentials.address)
        if self._logins is None:
            name = credentials.user or ANONYMOUS.name
            decided(User(name, ANONYMOUS.groups) if is_welcome else NotAuthenticated(_NO_USERS))
        elif credentials.is_anonymous and is_welcome:
            decided(ANONYMOUS)
        else:
            self._logins.authenticate(credentials, decided)


_NO_USERS = (
    "This broker has no users, and takes clients of its own host only. To let others in, set users_file, or "
    "anonymous = everywhere."
)


def _is_loopback(address: str) -> bool:
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return (mapped or parsed).is_loopback
