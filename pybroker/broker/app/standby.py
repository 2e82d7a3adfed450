"""What a standby does while it waits for the lock: a thread of its own follows the journal that the master writes.

It asks often while there is news, and ever more seldom while there is none: every `BUSY_SECONDS`, and at last every
`QUIET_SECONDS`, at some thirty microseconds each. (No event tells of writes on another machine.) What is behind at the
promotion is what the master wrote since, and costs some five microseconds per record. What a promotion would have to
do for each message that waits is done here too, once a second: the ids of long queues are listed.

A journal that cannot be read is no reason to give up waiting: the thread says so, once per reason, and tries again.
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
LOOK_SECONDS = 1.0
"""How often each file's length and time are looked at, and long queues are listed."""
RETRY_SECONDS = 2.0
"""After an error."""

_log = logging.getLogger(__name__)


class Standby:
    """Keeps a follower going, until the lock is won or waiting ends."""

    def __init__(self, directory: Path, machine: Machine = MACHINE) -> None:
        """Begin to follow a journal.

        Args:
            directory: the journal's.
            machine: where it runs.
        """
        self._directory = directory
        self._machine = machine
        self._follower: Follower | None = None
        self._is_warm = False
        self._said = ""
        self._followed: Followed | None = None
        self.has_seen_journal = False
        """True once there was a data file: the journal is there, also where the way to it is lost later."""
        self._ending = machine.event()
        self._thread = machine.spawn("standby", self._run)

    def followed(self) -> Followed | None:
        """Return how far it has come, for others to see; None before the first time it has read all there is."""
        return self._followed

    def end(self) -> Follower | None:
        """Stop following, and return the follower to promote; None when there is none yet. Blocks for a step."""
        self._ending.set()
        self._thread.join()
        return self._follower

    # ------------------------------------------------------------ in the thread

    def _run(self) -> None:
        delay = BUSY_SECONDS
        looked_at = 0.0
        while not self._ending.wait(delay):
            now = self._machine.monotonic()
            look = now - looked_at >= LOOK_SECONDS
            if look:
                looked_at = now
            try:
                delay = self._step(delay, look)
            except BrokerError as error:
                self._say(error)
                delay = RETRY_SECONDS
            except Exception:  # the state is begun again, and the promotion does not depend on this thread
                _log.exception("following the journal failed unexpectedly")
                delay = RETRY_SECONDS

    def _step(self, delay: float, look: bool) -> float:
        """Read on; return how long to wait before the next time."""
        if self._follower is None:
            self._follower = follower(self._directory)
        step = self._follower.advance(scan=look)
        if not step.is_at_end:
            return 0
        if look or not self._is_warm:
            self._follower.cache_ids()
        self._note(self._follower)
        return BUSY_SECONDS if step.record_count else min(max(delay, BUSY_SECONDS) * 2, QUIET_SECONDS)

    def _note(self, reader: Follower) -> None:
        """Note that all there is was read."""
        file_id, offset = reader.location
        self._said = ""
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

    def _say(self, error: BrokerError) -> None:
        if str(error) != self._said:
            self._said = str(error)
            _log.warning("standby: the journal cannot be followed for now: %s", error)
