"""Defers SIGINT during steps that belong together, such as writing a message and acknowledging it.

By default Python raises `KeyboardInterrupt` between any two instructions of the main thread.
"""

import signal
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType
from typing import Self


class Interrupts:
    """Defers the first SIGINT until it is allowed; a second one raises at once. A context manager for the main thread.

    If SIGINT is ignored or handled otherwise, as in a shell's background job, nothing changes.

    Attributes:
        came: True after a SIGINT.
    """

    def __init__(self) -> None:
        self.came = False
        self._is_allowed = False
        self._is_ours = False

    def __enter__(self) -> Self:
        self._is_ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if self._is_ours:
            signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        is_second, self.came = self.came, True
        if is_second or self._is_allowed:
            raise KeyboardInterrupt

    def check(self) -> None:
        """Raise `KeyboardInterrupt` if one was deferred."""
        if self.came:
            raise KeyboardInterrupt

    @contextmanager
    def allowed(self) -> Generator[None]:
        """Allow SIGINT to raise at once inside a `with` statement; a deferred one raises here."""
        self._is_allowed = True  # before the check: a SIGINT between the two must not wait
        try:
            self.check()
            yield
        finally:
            self._is_allowed = False
