"""`pybroker`, whose disk fails once a file exists: `python -m tests.crash.broker_child start …`.

From the environment: `FAILPOINT` (`NAME:1:ERRNO`), `FAILPOINT_ROOT`, of the files it is about, and `FAILPOINT_TRIGGER`,
the file whose existence makes it fail.
"""

import os
import sys
from pathlib import Path

from tests.crash.failpoints import Failpoints, from_words


class Triggered(Failpoints):
    """Failpoints that nothing happens at before the trigger is there."""

    trigger: Path

    def come_to(self, name: str) -> None:
        """Be at a failpoint."""
        if self.trigger.exists():
            super().come_to(name)


if __name__ == "__main__":
    given = from_words(Path(os.environ["FAILPOINT_ROOT"]), os.environ["FAILPOINT"])
    points = Triggered(given.root, given.name, given.ordinal, given.number)
    points.trigger = Path(os.environ["FAILPOINT_TRIGGER"])
    points.install()
    from pybroker.broker.app.cli import main

    sys.exit(main())
