"""Runs pybroker's command line interface with a profiler that is switched by signals.

`python -m benchmarks.side_by_side.profiled FILE start …`: SIGRTMIN begins to measure, SIGRTMAX ends it and writes FILE
for `pstats`. Only the thread of the event loop is seen, and each Python call costs more than without a profiler:
compare functions with one another, not with a clock.
"""

import cProfile
import signal
import sys
from pathlib import Path

from pybroker.broker.app.cli import main as run_broker


def main() -> None:
    """Take FILE away and run the rest."""
    file = Path(sys.argv.pop(1))
    profile = cProfile.Profile()

    def begin(*_: object) -> None:
        profile.enable()

    def end(*_: object) -> None:
        profile.disable()
        complete = file.with_suffix(".part")
        profile.dump_stats(complete)
        complete.rename(file)

    signal.signal(signal.SIGRTMIN, begin)
    signal.signal(signal.SIGRTMAX, end)
    run_broker()


if __name__ == "__main__":
    main()
