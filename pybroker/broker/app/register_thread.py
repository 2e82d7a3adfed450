"""The thread that reads and swaps the register of an election, so that nothing else waits for the election store."""

import logging
import time
from collections.abc import Callable
from typing import Final

from pybroker.broker.app.machine import MACHINE, Machine
from pybroker.broker.domain.errors import BrokerError
from pybroker.locks.election.election_state import (
    ElectionEvent,
    ReadFailed,
    ReadRegister,
    RegisterChanged,
    RegisterRead,
    SwapAnswered,
    SwapFailed,
    SwapRegister,
)
from pybroker.locks.election.register import Register, RegisterState

_log = logging.getLogger(__name__)

_END: Final = None

REASONS_LOGGED: Final = 5
"""Most reasons that are logged until the next answer: a wrong address may give some in turn, without end."""


class RegisterThread:
    """Performs `ReadRegister` and `SwapRegister`, one after the other, and tells what the watch sees."""

    def __init__(self, register: Register, tell: Callable[[ElectionEvent], None], machine: Machine = MACHINE) -> None:
        """Start the thread and the watch.

        Args:
            register: belongs to this object from now on.
            tell: takes the answers, in this thread and in the watch's.
            machine: makes the thread.
        """
        self._register = register
        self._tell = tell
        self._inbox = machine.inbox()
        self._logged: set[str] = set()
        """The reasons that were logged since the last answer."""
        self.problem = ""
        """The reason why the register cannot be reached now, for the status; empty if it can."""
        self.call_seconds: float | None = None
        """The time that the latest call which was answered took; None before the first."""
        self.answered_at: float | None = None
        """When that was, by `time.monotonic`."""
        self._watch = register.watch(self._changed)
        self._thread = machine.spawn("election register", self._run)

    def perform(self, action: ReadRegister | SwapRegister) -> None:
        """Read or swap soon, and tell the outcome."""
        self._inbox.put(action)

    def close(self) -> None:
        """End the thread and the watch. Blocks for one call's time-out at most; what waits is not performed."""
        self._inbox.put(_END)
        self._thread.join()
        self._watch.close()
        self._register.close()

    def _changed(self, content: RegisterState) -> None:
        self._tell(RegisterChanged(content))

    def _run(self) -> None:
        while (action := self._inbox.get()) is not _END:
            self._tell(self._outcome(action))

    def _outcome(self, action: ReadRegister | SwapRegister) -> ElectionEvent:
        began = time.monotonic()
        try:
            event = self._ask(action)
        except BrokerError as error:
            self._note(error)
        except Exception as error:  # an outcome must follow, else no other call is ever made
            _log.exception("a call to the election store failed unexpectedly")
            self._note(error)
        else:
            if self.problem:
                _log.info("%s answers again", self._register.name)
            self.problem = ""
            self._logged.clear()
            self.answered_at = time.monotonic()
            self.call_seconds = self.answered_at - began
            return event
        return ReadFailed() if isinstance(action, ReadRegister) else SwapFailed()

    def _ask(self, action: ReadRegister | SwapRegister) -> ElectionEvent:
        if isinstance(action, ReadRegister):
            return RegisterRead(self._register.read())
        return SwapAnswered(self._register.swap(action.revision, action.record))

    def _note(self, error: Exception) -> None:
        """Keep the reason for the status, and log each one once until the next answer."""
        self.problem = str(error) or repr(error)
        if self.problem in self._logged or len(self._logged) >= REASONS_LOGGED:
            return
        remedy = "" if self._logged or self.answered_at is not None else ". Does it run, and is `replicate` right?"
        self._logged.add(self.problem)
        _log.warning("the election store cannot be used, and is asked again: %s%s", self.problem, remedy)
