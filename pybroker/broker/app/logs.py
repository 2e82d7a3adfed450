"""How the broker's log looks: one event per line, time first, so that two members' logs can be read side by side."""

import logging
import time


class _Formatter(logging.Formatter):
    """`2026-11-21 10:15:02.123 INFO  node: lock acquired: becoming master`."""

    default_msec_format = "%s.%03d"

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(area)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        record.area = record.name.rpartition(".")[2]
        return super().format(record)


def configure(level: str) -> None:
    """Send the log to standard error from a level on."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Formatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.getLogger("asyncio").setLevel(max(logging.WARNING, root.level))


def instant(milliseconds: int) -> str:
    """Return a time in milliseconds since the epoch as local time to the second."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(milliseconds / 1000))
