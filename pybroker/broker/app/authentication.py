"""What decides who clients are during a term of mastership, and what has changes of users take effect."""

from pybroker.broker.app import wiring
from pybroker.broker.app.config import Config
from pybroker.broker.app.machine import MACHINE, Machine
from pybroker.broker.app.security_files import SecurityFiles
from pybroker.broker.core.broker import BrokerCore
from pybroker.broker.domain.security import Authenticator
from pybroker.security.accounts import Accounts
from pybroker.security.anonymous import NO_USERS, Reception
from pybroker.security.certificate_users import NO_CERTIFICATE, CertificateLogins, CertificateUsers
from pybroker.security.logins import Logins
from pybroker.transports.turn import Turn


class Authentication:
    """Asks in this order: certificates of TLS clients, the file of users; and who may come without.

    Attributes:
        authenticator: decides who clients are.
    """

    def __init__(
        self, config: Config, security: SecurityFiles, broker: BrokerCore, turn: Turn, machine: Machine = MACHINE
    ) -> None:
        """Prepare for logins."""
        self._config = config
        self._broker = broker
        self._users: Logins[Accounts] | None = None
        if security.users is not None:
            self._users = wiring.make_logins(security.users.content, turn, machine)
            security.users.changed = self._users_changed
        self.authenticator = self._without_certificates()
        if security.certificates is not None:
            self._certificates = CertificateLogins(security.certificates.content, self.authenticator)
            self.authenticator = self._certificates
            security.certificates.changed = self._certificates_changed

    def close(self) -> None:
        """Verify nothing more."""
        if self._users is not None:
            self._users.close()

    def _without_certificates(self) -> Authenticator:
        config = self._config
        refusal = NO_USERS if config.certificate_users_file is None else NO_CERTIFICATE
        return Reception(
            config.anonymous_policy,
            self._users,
            refusal,
            guest=config.guest,
            takes_refused=config.anonymous_if_refused,
        )

    def _users_changed(self, accounts: Accounts) -> None:
        """Use other accounts, and disconnect the users who are not the same."""
        assert self._users is not None, "there is a file of users"
        self._broker.cut_off(self._users.replace(accounts).differing(accounts))

    def _certificates_changed(self, users: CertificateUsers) -> None:
        self._broker.cut_off(self._certificates.replace(users))
