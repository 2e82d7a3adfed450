"""The work of a standby while it waits for the lock: a separate thread follows the journal that the master writes.

It polls, because there is no event for writes on another machine: every `BUSY_SECONDS` while it finds records, then at
growing intervals up to `QUIET_SECONDS`, at some 30 µs each. A promotion reads only the records since the last poll, at
some 5 µs each. Once a second the ids of long queues are listed, which a promotion would otherwise do for each message.

If the journal cannot be read, the thread logs each new reason, and tries again.
"""

import logging
from pathlib import Path

from pybroker.broker.app.machine import MACHINE, Machine
from pybroker.broker.domain.errors import BrokerError
from pybroker.store.journal.follower import Follower
from pybroker.store.journal.format import data_file_name
from pybroker.store.journal.store_snapshot import follower
from pybroker.store.members import Followed

BUSY_SECONDS = 0.005
QUIET_SECONDS = 0.1
SCAN_SECONDS = 1.0
"""The interval at which each file's length and time are checked, and long queues are listed."""
RETRY_SECONDS = 2.0
"""The pause after an error."""

_log = logging.getLogger(__name__)


class Standby:
    """Runs a follower until the lock is won or waiting ends."""

    def __init__(self, directory: Path, machine: Machine = MACHINE) -> None:
        """Start to follow a journal.

        Args:
            directory: the journal's directory.
            machine: the machine of this member.
        """
        self._directory = directory
        self._machine = machine
        self._follower: Follower | None = None
        self._is_warm = False
        self._last_error = ""
        self._problem = ""
        self._followed: Followed | None = None
        self.has_seen_journal = False
        """True after a data file was seen: the journal exists, even if it becomes unreachable."""
        self._ending = machine.event()
        self._thread = machine.spawn("standby", self._run)

    def followed(self) -> Followed | None:
        """Return the position in the journal, for `status`; None until it has reached the end for the first time."""
        return self._followed

    @property
    def problem(self) -> str:
        """The reason why the journal cannot be followed now; empty if it can."""
        return self._problem

    def end(self) -> Follower | None:
        """Stop following, and return the follower for the promotion; None if there is none. Blocks for a step."""
        self._ending.set()
        self._thread.join()
        return self._follower

    # ------------------------------------------------------------ in the thread

    def _run(self) -> None:
        delay = BUSY_SECONDS
        scanned_at = 0.0
        while not self._ending.wait(delay):
            now = self._machine.monotonic()
            scan = now - scanned_at >= SCAN_SECONDS
            if scan:
                scanned_at = now
            try:
                delay = self._step(delay, scan)
                self._problem = ""
            except BrokerError as error:
                self._log_error(error)
                self._problem = str(error)
                delay = RETRY_SECONDS
            except Exception as error:  # the follower starts again, and the promotion does not depend on this thread
                _log.exception("following the journal failed unexpectedly")
                self._problem = repr(error)
                delay = RETRY_SECONDS

    def _step(self, delay: float, scan: bool) -> float:
        """Read new records; return the delay before the next step."""
        if self._follower is None:
            self._follower = follower(self._directory)
        step = self._follower.advance(scan=scan)
        if not step.is_at_end:
            return 0
        if scan or not self._is_warm:
            self._follower.cache_ids()
        self._publish(self._follower)
        return BUSY_SECONDS if step.record_count else min(max(delay, BUSY_SECONDS) * 2, QUIET_SECONDS)

    def _publish(self, reader: Follower) -> None:
        """Publish the position, after the end of the journal was reached."""
        file_id, offset = reader.location
        self._last_error = ""
        self.has_seen_journal = self.has_seen_journal or file_id > 0
        self._followed = Followed(
            file_id=file_id, offset=offset, at_ms=self._machine.clock(), messages=reader.message_count
        )
        if not self._is_warm:
            self._is_warm = True
            _log.info(
                "standby: following %s at %s: %s messages",
                data_file_name(file_id) if file_id else "an empty journal",
                f"{offset:,}",
                f"{reader.message_count:,}",
            )

    def _log_error(self, error: BrokerError) -> None:
        if str(error) != self._last_error:
            self._last_error = str(error)
            _log.warning("standby: the journal cannot be followed for now: %s", error)
