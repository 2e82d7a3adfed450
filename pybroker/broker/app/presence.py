"""Shows a member on a database to `pybroker status`, by a session whose last statement has its state.

The state is the addresses of a master, with that of its management, or the reason why a standby could not serve. Other
standbys need no such session, because their lock's session shows them. Nothing is written to tables, and the session
ends with the process. See `session_names` for the form.
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from pybroker.broker.app.config import Config
from pybroker.broker.app.machine import clock
from pybroker.broker.app.session_names import SERVES, UNABLE, notice, obstacle_notice
from pybroker.broker.app.wiring import database_url
from pybroker.broker.domain.errors import BrokerError
from pybroker.broker.domain.role import Role
from pybroker.locks.postgres.timing import Timing

if TYPE_CHECKING:  # the driver is an extra
    from pybroker.locks.postgres.session import DatabaseSession

_RENEW_SECONDS = 2.0

_log = logging.getLogger(__name__)


class Presence:
    """The session of one member, used by a separate thread because networks may be slow."""

    def __init__(self, config: Config) -> None:
        """Create it, without connecting."""
        self.name = config.name or socket.gethostname()
        self.obstacle: Callable[[], str] = str
        """Called at each renewal; returns the reason why this member could not serve."""
        self.management = ""
        """The address of its management; empty: it has none."""
        self._config = config
        self._timing = Timing.of(config.lock_lease)
        self._session: DatabaseSession | None = None
        self._purpose = ""
        self._addresses: list[str] = []
        self._since_ms = 0
        self._thread = ThreadPoolExecutor(1, "presence")

    def publish(self, role: Role, listeners: list[str], epoch: int) -> None:
        """Show the addresses of a master, or none; soon, without blocking."""
        addresses = list(listeners) if role is Role.MASTER else []
        self._thread.submit(self._show, addresses, clock(), self.obstacle()).add_done_callback(_log_failure)

    async def renew(self) -> None:
        """Check the session periodically, because the database may have been restarted."""
        while True:
            await asyncio.sleep(_RENEW_SECONDS)
            self._thread.submit(self._renew, self.obstacle()).add_done_callback(_log_failure)

    def close(self) -> None:
        """Close the session."""
        self._thread.submit(self._end)
        self._thread.shutdown()

    # ------------------------------------------------------------ the thread

    def _show(self, addresses: list[str], since_ms: int, obstacle: str) -> None:
        self._addresses, self._since_ms = addresses, since_ms
        self._end()
        self._renew(obstacle)

    def _renew(self, obstacle: str) -> None:
        purpose = SERVES if self._addresses else UNABLE if obstacle else ""
        if purpose != self._purpose:
            self._end()
            self._purpose = purpose
        if not purpose:
            return
        if self._session is None or self._session.is_closed:
            self._session = self._open(purpose)
        statement = (
            notice(self.name, self._since_ms, self._addresses, self.management)
            if self._addresses
            else obstacle_notice(self.name, obstacle)
        )
        self._session.run(statement)

    def _open(self, purpose: str) -> "DatabaseSession":
        from pybroker.locks.postgres.session import DatabaseSession, DatabaseTarget

        url = database_url(self._config.store, self.name, purpose)
        return DatabaseSession(DatabaseTarget(url, "store"), self._timing)

    def _end(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None


def _log_failure(done: Future[None]) -> None:
    """Log a failure to show this member; clients are not affected."""
    error = done.exception()
    if isinstance(error, BrokerError):
        _log.debug("this member's state is not shown to others: %s", error)
    elif error is not None:
        _log.error("this member's state is not shown to others: %r", error)
