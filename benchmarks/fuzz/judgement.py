"""What a finding is.

```text
exit          the broker's process has ended, or does not end in order when asked to
log           it has logged an exception that is none of pybroker's own, or something that is no line of its log
wait          an unrelated client has waited longer than `benchmarks.hostile.verdict` allows
memory        its resident memory has grown by more than `GROWTH_MB` after what was stored is removed
descriptors   it has more sockets open than before
store         `pybroker journal check` finds damage
```

An exception is documented if its class derives from `BrokerError`: `docs/architecture.md`, Errors. Each of these is
an answer to a client, and has a text for it. All others are bugs, wherever they were caught: the broker logs them with
a traceback. So does every handler of asyncio, for what reaches the event loop.
"""

import datetime
import importlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.hostile.verdict import BUSY_LATE_MS, BUSY_MS, QUIET_MS, Spans, lateness
from pybroker.broker.domain.errors import BrokerError

GROWTH_MB: Final = 50.0

EXIT: Final = "exit"
LOG: Final = "log"
WAIT: Final = "wait"
MEMORY: Final = "memory"
DESCRIPTORS: Final = "descriptors"
STORE: Final = "store"

_CLASS = re.compile(r"  \| ([A-Za-z_][\w.]*)(?::|$)")
"""The line of a traceback that names the exception: behind the margin without a blank."""
_TEXT_MAX: Final = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that must not happen.

    Attributes:
        kind: one of the above.
        what: a description.
        at: when, in seconds since the epoch; None if that is not known.
    """

    kind: str
    what: str
    at: float | None = None


class LogReader:
    """Reads a log, JSON objects a line, as it grows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def findings(self) -> list[Finding]:
        """Return the findings in the lines since the last call."""
        with self._path.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        complete = data[: data.rfind(b"\n") + 1]
        self._offset += len(complete)
        return list(_findings(complete.decode(errors="replace").splitlines()))


def _findings(lines: list[str]) -> Iterator[Finding]:
    foreign: list[str] = []
    for line in lines:
        try:
            fields: dict[str, Any] = json.loads(line)
        except ValueError:
            foreign.append(line)
            continue
        if is_undocumented(fields):
            trace = "\n".join(fields.get("exception", ()))
            at = datetime.datetime.fromisoformat(fields["time"]).timestamp()
            yield Finding(kind=LOG, what=f"{fields['logger']}: {fields['message']}\n{trace}"[-_TEXT_MAX:], at=at)
    if foreign:
        yield Finding(kind=LOG, what="no line of the log: " + "\n".join(foreign)[:_TEXT_MAX])


def is_undocumented(fields: dict[str, Any]) -> bool:
    """Return True for a log line about something that pybroker does not raise on purpose."""
    if fields["logger"].partition(".")[0] != "pybroker":  # asyncio, concurrent.futures, py.warnings
        return fields["level"] not in ("DEBUG", "INFO")
    trace: list[str] = fields.get("exception", [])
    if not trace:
        return bool(fields["level"] == "CRITICAL")
    names = [match[1] for line in trace if (match := _CLASS.match(line)) and match[1] != "Traceback"]
    return not names or not _is_own(names[-1])


def _is_own(name: str) -> bool:
    module, _, kind = name.rpartition(".")
    if not module.startswith("pybroker."):
        return False
    try:
        found = getattr(importlib.import_module(module), kind, None)
    except ImportError:
        return False
    return isinstance(found, type) and issubclass(found, BrokerError)


def longest_wait(measured: dict[str, Any], delays: Spans) -> tuple[float, float, str]:
    """Return the longest wait of a bystander, less the machine's share: milliseconds, its beginning, its step."""
    rows = [(seconds, began, step) for step, spans in measured["waits"].items() for began, seconds in spans]
    longest = sorted(rows)[-200:]
    own = [
        (1000 * (s - lateness(began, s, late=measured["late"], delays=delays)), began, step)
        for s, began, step in longest
    ]
    return max(own, default=(0.0, 0.0, "none"))


def wait_bound_ms(measured: dict[str, Any], delays: Spans) -> float:
    """Return the longest wait that is allowed on a machine that was as late as this one."""
    late_ms = 1000 * max((span for _, span in (*measured["late"], *delays)), default=0.0)
    return BUSY_MS if late_ms > BUSY_LATE_MS else QUIET_MS
