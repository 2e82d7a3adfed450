"""Shows a master on a database to `pybroker status`: a session whose last statement says where it serves.

A standby needs none, for its lock's session shows it. Nothing is written, nothing has to be tidied up: with the process
its sessions go. See `session_names` for what is shown how.
"""

import asyncio
import logging
import socket
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from pybroker.broker.app.config import Config
from pybroker.broker.app.session_names import SERVES, notice
from pybroker.broker.app.wiring import database_url
from pybroker.broker.core.mastership import Role
from pybroker.broker.domain.errors import BrokerError
from pybroker.locks.postgres.timing import Timing

if TYPE_CHECKING:  # the driver is an extra
    from pybroker.locks.postgres.session import Session

_RENEW_SECONDS = 2.0

_log = logging.getLogger(__name__)


class Presence:
    """One member's session, kept by a thread of its own because networks take their time."""

    def __init__(self, config: Config) -> None:
        """Prepare, without connecting."""
        self.name = config.name or socket.gethostname()
        self._config = config
        self._timing = Timing.of(config.lock_lease)
        self._session: Session | None = None
        self._addresses: list[str] = []
        self._thread = ThreadPoolExecutor(1, "presence")

    def publish(self, role: Role, listeners: list[str], epoch: int) -> None:
        """Show a member that serves, or no longer; soon, never blocks."""
        addresses = list(listeners) if role is Role.MASTER else []
        self._thread.submit(self._show, addresses).add_done_callback(_tell)

    async def renew(self) -> None:
        """See again and again that the session is there, for the database may have been restarted."""
        while True:
            await asyncio.sleep(_RENEW_SECONDS)
            self._thread.submit(self._renew).add_done_callback(_tell)

    def close(self) -> None:
        """End it."""
        self._thread.submit(self._end)
        self._thread.shutdown()

    # ------------------------------------------------------------ the thread

    def _show(self, addresses: list[str]) -> None:
        self._addresses = addresses
        self._end()
        self._renew()

    def _renew(self) -> None:
        if not self._addresses:
            return
        if self._session is None or self._session.is_closed:
            self._session = self._open()
        self._session.run(notice(self.name, self._addresses))

    def _open(self) -> "Session":
        from pybroker.locks.postgres.session import Session, Target

        url = database_url(self._config.store, self.name, SERVES)
        return Session(Target(url, "store"), self._timing)

    def _end(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None


def _tell(done: Future[None]) -> None:
    """Log why a member cannot be seen; clients are not concerned."""
    error = done.exception()
    if isinstance(error, BrokerError):
        _log.debug("cannot show others that this member serves: %s", error)
    elif error is not None:
        _log.error("cannot show others that this member serves: %r", error)
