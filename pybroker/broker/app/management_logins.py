"""The logins of management: verifies users as those of clients are, on master and standby.

Without users every program of this host has the role admin, as it may do everything as a client, too.
"""

import asyncio
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from pybroker.broker.app import wiring
from pybroker.broker.app.config import Config
from pybroker.broker.app.management_roles import ManagementRoles
from pybroker.broker.app.security_files import SecurityFiles
from pybroker.broker.domain import audit
from pybroker.broker.domain.node_requests import ManagementRole, RequestFailed
from pybroker.broker.domain.security import ANONYMOUS, Authenticator, Credentials, NotAuthenticated, User
from pybroker.security.accounts import Accounts
from pybroker.security.logins import FileThenDirectory, Logins

if TYPE_CHECKING:  # with ldap3, which is an extra
    from pybroker.security.ldap import Directory

_THREADS: Final = 1
"""Verifications at a time: the message path needs the processors more."""


class ManagementLogins:
    """Verifies who may use management."""

    def __init__(self, config: Config, security: SecurityFiles) -> None:
        """Prepare for logins.

        Raises:
            ConfigError: the LDAP directory's settings cannot be used.
        """
        self._config = config
        self._security = security
        self._users: Logins[Accounts] | None = None
        self._directory: Logins[Directory] | None = None
        loop = asyncio.get_running_loop()
        if security.users is not None:
            self._users = Logins(
                security.users.content,
                post=loop.call_soon_threadsafe,
                call_later=loop.call_later,
                monotonic=time.monotonic,
                threads=_THREADS,
            )
        if config.ldap is not None:
            self._directory = Logins(
                wiring.make_directory(config.ldap),
                post=loop.call_soon_threadsafe,
                call_later=loop.call_later,
                monotonic=time.monotonic,
                threads=_THREADS,
            )

    @property
    def version(self) -> int:
        """A number that differs once the users have changed; what was verified before is to be verified again."""
        return 0 if self._security.users is None else self._security.users.version

    async def verify(self, name: str | None, password: str | None, address: str) -> tuple[str, ManagementRole]:
        """Return name and role of a user.

        Args:
            name: the name that was given; None: no login was given.
            password: the password; None: none was given.
            address: the address of the client, which guesses are counted for.

        Raises:
            RequestFailed: the login is refused, or the user has no role.
        """
        if not self._config.has_users:
            return ANONYMOUS.name, ManagementRole.ADMIN
        decided: asyncio.Future[User | NotAuthenticated] = asyncio.get_running_loop().create_future()

        def decide(outcome: User | NotAuthenticated) -> None:
            if not decided.done():  # else the client has gone meanwhile
                decided.set_result(outcome)

        self._authenticator().authenticate(Credentials(name, password, address), decide)
        user = await decided
        if not isinstance(user, User):
            raise RequestFailed(HTTPStatus.UNAUTHORIZED, "user name or password is wrong")
        role = (self._config.management_roles or ManagementRoles()).role_of(user)
        if role is None:
            audit.denied(user.name, address, "use", "management")
            raise RequestFailed(
                HTTPStatus.FORBIDDEN, f"user {user.name} belongs to no group of management_roles: ask an admin"
            )
        return user.name, role

    def close(self) -> None:
        """Verify nothing more."""
        if self._users is not None:
            self._users.close()
        if self._directory is not None:
            self._directory.close()
            self._directory.source.close()

    def _authenticator(self) -> Authenticator:
        if self._users is not None and self._security.users is not None:
            self._users.replace(self._security.users.content)
        if self._users is not None and self._directory is not None:
            return FileThenDirectory(self._users, self._directory)
        authenticator = self._users or self._directory
        assert authenticator is not None, "the settings were checked"
        return authenticator
