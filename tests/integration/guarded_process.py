"""`python -m tests.integration.guarded_process`: a process with a guardian, which a test kills.

Standard input has a line of JSON with the arguments of `Guardian`, and the revision and the record that it is told, if
any. It prints the guardian's process id, and "ended" after it has ended the guardian, as it does at the next line.
"""

import json
import sys

from pybroker.locks.election.guardian import Guardian
from pybroker.locks.election.record import ElectionRecord
from pybroker.locks.election.register import RegisterState


def main() -> None:
    """Start the guardian, and end it when asked to."""
    setup = json.loads(sys.stdin.readline())
    guardian = Guardian(setup["access"], name="a", run=setup["run"], lease_seconds=setup["lease_seconds"])
    if setup["record"]:
        guardian.tell(RegisterState(setup["revision"], ElectionRecord.decode(setup["record"].encode())))
    print(guardian.pid, flush=True)
    sys.stdin.readline()
    guardian.end()
    print("ended", flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main()
