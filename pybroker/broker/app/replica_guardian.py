"""Keeps the guardian of a serving master: starts it, tells it each swap, and ends it with the term."""

import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from pybroker.broker.domain.errors import LockError
from pybroker.locks.election.guardian import Guardian
from pybroker.locks.election.register import RegisterState

_log = logging.getLogger(__name__)

_WITHOUT: Final = "if this process is killed, others wait for the end of its lease"


class GuardianKeeper:
    """At most one guardian. The methods may be called in any thread, do not block, and are carried out in order."""

    def __init__(self, access: Mapping[str, Any], name: str, run: str) -> None:
        """Start nothing yet.

        Args:
            access: to the register, of `Register.guardian_access`.
            name: of this member.
            run: of this member.
        """
        self._access = access
        self._name = name
        self._run = run
        self._guardian: Guardian | None = None
        self._thread = ThreadPoolExecutor(1, "guardian")

    def begin(self, content: RegisterState) -> None:
        """Start the guardian of a master that begins to serve."""
        self._thread.submit(self._begin, content)

    def tell(self, content: RegisterState) -> None:
        """Tell the guardian, if there is one, what the register contains now."""
        self._thread.submit(self._tell, content)

    def end(self) -> None:
        """End the guardian, if there is one: this member is not the master any more."""
        self._thread.submit(self._end)

    def close(self) -> None:
        """End the guardian, and the thread; blocks until then."""
        self.end()
        self._thread.shutdown()

    @property
    def pid(self) -> int | None:
        """The process id of the guardian; None without one."""
        guardian = self._guardian
        return None if guardian is None else guardian.pid

    def _begin(self, content: RegisterState) -> None:
        self._end()
        record = content.record
        if record is None:
            return
        seconds = record.settings.lease_ms / 1000
        try:
            self._guardian = Guardian(self._access, name=self._name, run=self._run, lease_seconds=seconds)
        except LockError as error:
            _log.warning("there is no guardian: %s; %s", error, _WITHOUT)
        except Exception:
            _log.exception("there is no guardian; %s", _WITHOUT)
        else:
            self._guardian.tell(content)

    def _tell(self, content: RegisterState) -> None:
        guardian = self._guardian
        if guardian is None:
            return
        guardian.tell(content)
        if (code := guardian.exit_code()) is not None:
            _log.warning("the guardian has ended (exit code %d); %s", code, _WITHOUT)
            self._end()

    def _end(self) -> None:
        guardian, self._guardian = self._guardian, None
        if guardian is not None:
            guardian.end()
