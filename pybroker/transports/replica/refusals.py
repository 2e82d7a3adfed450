"""The log of the peers that a master refuses as followers: they connect again each second, and would fill it."""

import logging
import time
from collections.abc import Callable
from typing import Final

AGAIN_SECONDS: Final = 60.0
"""The time after which the same reason for the same address is logged again, with the number of refusals."""

KNOWN_MAX: Final = 100
"""Most pairs of an address and a reason that are remembered: a peer may give ever new names."""

_log = logging.getLogger(__name__)


class RefusalLog:
    """Logs each reason for each address at once, and then once in `AGAIN_SECONDS`."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Remember nothing yet."""
        self._clock = clock
        self._known: dict[tuple[str, str], tuple[float, int]] = {}
        """When each was logged, and how often it was not since then; the one that was logged last at the end."""

    def refused(self, peer: str, reason: str) -> None:
        """Note a refusal.

        Args:
            peer: the address, with the port that it connected from.
            reason: why, in words.
        """
        key = peer.rpartition(":")[0], reason
        now = self._clock()
        logged_at, count = self._known.get(key, (float("-inf"), 0))
        if now - logged_at < AGAIN_SECONDS:
            self._known[key] = logged_at, count + 1
            return
        self._known.pop(key, None)
        while len(self._known) >= KNOWN_MAX:
            del self._known[next(iter(self._known))]
        self._known[key] = now, 0
        again = f" ({count} more since the last such line)" if count else ""
        _log.warning("%s: refused as a follower: %s%s", peer, reason, again)
