"""A wall clock for processes of a test, which is moved while they run; durations stay true.

It is a library of its own, since with libfaketime 0.9.10 short sleeps fail: `time.sleep(0)` raises `OSError`.
"""

import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_suffix(".c")


class MovedClock:
    """The clock of all processes that have its environment.

    Attributes:
        environment: the variables of such a process.
    """

    def __init__(self, path: Path) -> None:
        """Create the file that the clock reads, and the library beside it."""
        self._path, library = path, path.with_suffix(".so")
        self.move(0.0)
        subprocess.run(["gcc", "-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o", library, SOURCE], check=True)
        self.environment = {"LD_PRELOAD": str(library), "MOVED_CLOCK": str(path)}

    def move(self, seconds: float) -> None:
        """Set it so far before the true time."""
        mode = "r+b" if self._path.exists() else "wb"  # the same file, of which processes have a map
        with self._path.open(mode, buffering=0) as file:
            file.write(int(seconds * 1_000_000_000).to_bytes(8, "little", signed=True))
