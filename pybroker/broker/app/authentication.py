"""Authentication while the broker is master: verifies logins, and applies changes of users and groups."""

import asyncio
import logging
from typing import TYPE_CHECKING

from pybroker.broker.app import wiring
from pybroker.broker.app.config import Config
from pybroker.broker.app.machine import MACHINE, Machine
from pybroker.broker.app.security_files import SecurityFiles
from pybroker.broker.core.broker import BrokerCore
from pybroker.broker.domain.security import Authenticator
from pybroker.security.accounts import Accounts
from pybroker.security.anonymous import Reception
from pybroker.security.certificate_users import CertificateLogins, CertificateUsers, NoPasswords
from pybroker.security.logins import FileThenDirectory, Logins
from pybroker.transports.turn import Turn

if TYPE_CHECKING:  # with ldap3, which is an extra
    from pybroker.security.ldap import Directory

_log = logging.getLogger(__name__)


class Authentication:
    """Verifies a login by, in this order, the client certificate, the users file, and the LDAP directory.

    Where `anonymous` allows it, clients without a login are admitted.

    Attributes:
        authenticator: decides who clients are.
    """

    def __init__(
        self, config: Config, security: SecurityFiles, broker: BrokerCore, turn: Turn, machine: Machine = MACHINE
    ) -> None:
        """Prepare for logins.

        Raises:
            ConfigError: the directory's settings cannot be used.
        """
        self._config = config
        self._broker = broker
        self._users: Logins[Accounts] | None = None
        self._directory: Logins[Directory] | None = None
        if security.users is not None:
            self._users = wiring.make_logins(security.users.content, turn, machine)
            security.users.changed = self._users_changed
        if config.ldap is not None:
            directory = wiring.make_directory(config.ldap, machine)
            from pybroker.security.ldap import THREADS  # which is there now

            _log.info("logins: the LDAP directory at %s", ", ".join(map(str, config.ldap.connection_url)))
            self._directory = wiring.make_logins(directory, turn, machine, THREADS)
        self.authenticator = self._without_certificates()
        if security.certificates is not None:
            self._certificates = CertificateLogins(security.certificates.content, self.authenticator)
            self.authenticator = self._certificates
            security.certificates.changed = self._certificates_changed

    def close(self) -> None:
        """Verify nothing more."""
        if self._users is not None:
            self._users.close()
        if self._directory is not None:
            self._directory.close()
            self._directory.source.close()

    async def refresh(self) -> None:
        """Look for changes of the directory's users who are connected, until cancelled, and disconnect those.

        The first look is at once: that a server cannot be used is to be in the log before clients meet it.
        """
        if self._config.ldap is None or self._directory is None:
            return
        from pybroker.security.ldap import LdapUser
        from pybroker.security.ldap_connection import LdapUnavailable

        while True:
            users = {each for each in self._broker.users() | self._directory.remembered() if isinstance(each, LdapUser)}
            try:
                changed = {each.name for each in await asyncio.to_thread(self._directory.source.changed, users)}
                self._directory.forget(changed)
                self._broker.cut_off(changed)
            except LdapUnavailable as error:
                _log.warning("changes in the LDAP directory are not seen: %s", error)
            except Exception:  # the next change is to be seen all the same
                _log.exception("changes in the LDAP directory are not seen")
            await asyncio.sleep(self._config.ldap.refresh)

    def _without_certificates(self) -> Authenticator:
        config = self._config
        logins: Authenticator | None = self._users or self._directory
        if self._users is not None and self._directory is not None:
            logins = FileThenDirectory(self._users, self._directory)
        if logins is None and config.has_users:
            logins = NoPasswords()
        return Reception(
            config.anonymous_policy,
            logins,
            guest=config.guest,
            takes_refused=config.anonymous_if_refused,
        )

    def _users_changed(self, accounts: Accounts) -> None:
        """Use other accounts, and disconnect the users who are not the same."""
        assert self._users is not None, "there is a file of users"
        self._broker.cut_off(self._users.replace(accounts).differing(accounts))

    def _certificates_changed(self, users: CertificateUsers) -> None:
        self._broker.cut_off(self._certificates.replace(users))
