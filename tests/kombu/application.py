"""The application `ledger` with workers of its own, and what its tasks have written down."""

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.kombu.workers import worker

HERE = Path(__file__).parent
PATIENCE = 90.0
"""Seconds in which a worker starts on a busy machine, and does what a test wants of it."""


class Run(NamedTuple):
    """One run of a task: its number, when it ended, whether it was redelivered, and the worker."""

    number: int
    at: float
    redelivered: bool
    worker: str


class Application:
    """The application `ledger` on some brokers, as a client and with workers."""

    def __init__(self, url: str, directory: Path, **more: str) -> None:
        self.url, self.directory, self.more = url, directory, more
        self.path = directory / "runs"
        self._imported: Any = None

    @contextlib.contextmanager
    def worker(self, name: str, *arguments: str) -> Iterator[Any]:
        """Run a worker."""
        log = self.directory / f"{name}.log"
        with worker("ledger", HERE, self.url, log, "--hostname", f"{name}@test", *arguments, **self.more) as process:
            yield process

    @property
    def app(self) -> Any:
        """The application in this process."""
        return self._module.app

    def record(self, number: int, *, seconds: float = 0.0, **options: Any) -> Any:
        """Call the task."""
        return self._module.record.apply_async((str(self.path), number, seconds), **options)

    def task(self, name: str) -> Any:
        """Return a task."""
        return self.app.tasks[f"ledger.{name}"]

    @property
    def _module(self) -> Any:
        if self._imported is None:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(sys, "path", [str(HERE), *sys.path])
                for name, value in {"SHOP_BROKER": self.url, **self.more}.items():
                    patch.setenv(name, value)
                sys.modules.pop("ledger", None)
                import ledger  # type: ignore[import-not-found]

                self._imported = ledger
        return self._imported

    def runs(self) -> list[Run]:
        """Return the runs that have ended; a last line without its end is still being written."""
        if not self.path.exists():
            return []
        rows = [line.split() for line in self.path.read_text().rpartition("\n")[0].splitlines()]
        return [Run(int(row[0]), float(row[1]), row[2] == "1", row[3]) for row in rows]

    def wait(self, count: int, *, seconds: float = PATIENCE) -> list[Run]:
        """Wait until so many different tasks have run; return all runs."""
        deadline = time.monotonic() + seconds
        while True:
            runs = self.runs()
            if len({run.number for run in runs}) >= count:
                return runs
            assert time.monotonic() < deadline, f"{len(runs)} runs\n{self.logs()}"
            threading.Event().wait(0.05)

    def wait_logged(self, name: str, text: str, count: int) -> None:
        """Wait until a worker's log has a text so many times."""
        log, deadline = self.directory / f"{name}.log", time.monotonic() + PATIENCE
        while not log.exists() or log.read_text().count(text) < count:
            assert time.monotonic() < deadline, self.logs()
            threading.Event().wait(0.05)

    def logs(self) -> str:
        """Return the workers' logs."""
        return "\n".join(path.read_text() for path in sorted(self.directory.glob("*.log")))

    def close(self) -> None:
        """Close the connections of this process."""
        if self._imported is not None:
            self.app.producer_pool.force_close_all()
            self.app.pool.force_close_all()
            self.app.close()
