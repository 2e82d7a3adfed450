"""The attacker's process: `python -m benchmarks.hostile.attacker NAME --openwire PORT --stomp PORT`.

It prints a line of JSON once everything is prepared, waits for a line on its standard input, attacks, and prints what
came of it.
"""

import argparse
import asyncio
import gc
import json
import os
import resource
import time

from benchmarks.hostile.attacks import all_attacks
from benchmarks.hostile.target import Refused, Target

_NICENESS = 5
"""The attacker shares a core with the bystander, which must be scheduled when its answer has come."""


def main() -> None:
    """Run one attack."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("--openwire", type=int, required=True)
    parser.add_argument("--stomp", type=int, required=True)
    parser.add_argument("--tls", type=int, default=0, help="port of a STOMP listener with TLS")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    os.nice(_NICENESS)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    gc.disable()  # prepared frames are many and live until the end
    target = Target(openwire_port=options.openwire, stomp_port=options.stomp, tls_port=options.tls, quick=options.quick)
    attack = all_attacks()[options.name]
    outcome = asyncio.run(_outcome(attack.run(target)))
    seconds = time.monotonic() - target.began_at if target.began_at else 0.0
    print(json.dumps({"outcome": outcome, "harm": target.harm, "seconds": seconds}), flush=True)
    os._exit(0)  # clients that are still open close with the process, without a word


async def _outcome(attack: object) -> str:
    try:
        return str(await attack)  # type: ignore[misc]
    except Refused as refused:
        return f"refused: {refused}"
    except TimeoutError as error:
        return f"time-out: {error}"
    except (OSError, EOFError) as error:
        return f"connection closed: {type(error).__name__}"


if __name__ == "__main__":
    main()
