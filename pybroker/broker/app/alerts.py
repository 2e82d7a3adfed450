"""Tells a command or a web server of events that an operator may want to act on.

The command of `on_ha_event` gets a line of JSON on its standard input; the server of `ha_webhook` gets the same by
POST. One thread does this, one event after another, each with a time limit, so that neither delays the member. Events
that come faster than they are taken are dropped beyond `WAITING_MAX`, with a line in the log.

```json
{"event": "degraded", "at_ms": 1700000000000, "member": "beta", "host": "b", "store": "/mnt/shared", "role": "STANDBY",
 "reasons": ["…"]}
```

`event` is `degraded`, `healthy`, `master` (with `epoch` and `total_ms`) or `stepped_back` (with `reason`).
"""

import contextlib
import json
import logging
import queue
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

WAITING_MAX: Final = 100
CLOSE_SECONDS: Final = 5.0
"""The time that a member that ends gives to what has not been sent yet, such as that it has stepped back."""

_log = logging.getLogger(__name__)

Alert = dict[str, Any]
"""An event, as JSON has it."""

Send = Callable[[bytes], None]
"""Sends one event. Blocks.

Raises:
    OSError: it could not be sent.
"""


class Alerts:
    """Sends events by a thread of its own."""

    def __init__(self, targets: Sequence[tuple[str, Send]]) -> None:
        """Create it; the thread starts with the first event.

        Args:
            targets: each with its name, for the log.
        """
        self._targets = targets
        self._waiting: queue.Queue[bytes | None] = queue.Queue(WAITING_MAX)
        self._thread: threading.Thread | None = None
        self._dropped = 0

    def send(self, alert: Alert) -> None:
        """Send an event soon, without blocking."""
        if not self._targets:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="alerts", daemon=True)
            self._thread.start()
        try:
            self._waiting.put_nowait(json.dumps(alert).encode() + b"\n")
        except queue.Full:
            self._dropped += 1
            _log.error("an event was dropped, as %d wait to be sent: %s", WAITING_MAX, alert.get("event"))

    def close(self) -> None:
        """Send what waits, for at most `CLOSE_SECONDS`. Blocks."""
        if self._thread is None:
            return
        with contextlib.suppress(queue.Full):  # the thread is a daemon, and ends with the process
            self._waiting.put_nowait(None)
        self._thread.join(CLOSE_SECONDS)

    def _run(self) -> None:
        while (line := self._waiting.get()) is not None:
            for name, send in self._targets:
                try:
                    send(line)
                except OSError as error:
                    _log.error("%s did not take the event %s: %s", name, line.decode().strip(), error)
                except Exception:  # a bug must not end the thread
                    _log.exception("%s did not take the event %s", name, line.decode().strip())


def targets_of(command: Path | None, webhook: str | None) -> list[tuple[str, Send]]:
    """Return where events go by the settings."""
    if command is None and webhook is None:
        return []
    from pybroker.broker.app import alert_targets  # a member without them does not load what they need

    found: list[tuple[str, Send]] = []
    if command is not None:
        found.append((f"on_ha_event {command}", alert_targets.ProgramTarget(command)))
    if webhook is not None:
        found.append((f"ha_webhook at {urlsplit(webhook).hostname}", alert_targets.WebTarget(webhook)))
    return found
