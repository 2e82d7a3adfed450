"""Counts the instructions that pybroker's process executes for a message, with Debian's `valgrind`.

Instructions say nothing about waiting, caches or the kernel. But where the clock of a shared machine drifts by a third,
they repeat to 2 %, also beside other work, so that two versions of the message path can be compared.
"""

import re
import subprocess
from pathlib import Path
from typing import Final

SCALE: Final = 0.1
"""The part of a row's messages that is counted: under callgrind each takes 50 times as long."""

_TOTAL: Final = re.compile(rb"^totals: (\d+)", re.MULTILINE)


class Callgrind:
    """The callgrind under which one broker runs."""

    def __init__(self, file: Path) -> None:
        """Choose where its figures go, in files whose names begin so; `prefix` begins the broker's command line."""
        self._file = file
        self.prefix = (
            "valgrind",
            "--quiet",
            "--tool=callgrind",
            "--instr-atstart=no",
            f"--callgrind-out-file={self._file}",
        )

    def begin(self, pid: int) -> None:
        """Begin to count the instructions of all threads."""
        _control(pid, "--instr=on")

    def end(self, pid: int) -> int:
        """Return the number of instructions since `begin`.

        Raises:
            RuntimeError: callgrind has written none.
        """
        _control(pid, "--instr=off")
        _control(pid, "--dump")
        dumps = sorted(self._file.parent.glob(f"{self._file.name}.*"))
        if not dumps or (total := _TOTAL.search(dumps[-1].read_bytes())) is None:
            raise RuntimeError(f"callgrind has written no figures beside {self._file}")
        return int(total[1])


def _control(pid: int, order: str) -> None:
    subprocess.run(["callgrind_control", order, str(pid)], check=True, capture_output=True)
