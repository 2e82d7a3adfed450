"""`python -m tests.integration.clock_ahead start …`: pybroker on a machine whose clock is ten minutes ahead."""

import time

AHEAD_SECONDS = 600

_time, _time_ns = time.time, time.time_ns

if __name__ == "__main__":
    time.time = lambda: _time() + AHEAD_SECONDS
    time.time_ns = lambda: _time_ns() + AHEAD_SECONDS * 10**9
    from pybroker.broker.app.cli import main

    main()
