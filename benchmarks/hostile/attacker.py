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

from benchmarks.hostile.attacks import Attack, all_attacks
from benchmarks.hostile.target import Refused, Target
from benchmarks.hostile.verdict import unmeant

_NICENESS = 5
"""The attacker shares a core with the bystander, which must be scheduled when its answer has come."""


def main() -> None:
    """Run one attack."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("--openwire", type=int, required=True)
    parser.add_argument("--stomp", type=int, required=True)
    parser.add_argument("--tls", type=int, default=0, help="port of a STOMP listener with TLS")
    parser.add_argument("--mqtt", type=int, default=0, help="port of an MQTT listener")
    parser.add_argument("--ws", type=int, default=0, help="port of a WebSocket listener")
    parser.add_argument("--amqp", type=int, default=0, help="port of an AMQP listener")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    os.nice(_NICENESS)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    gc.disable()  # prepared frames are many and live until the end
    target = Target(
        openwire_port=options.openwire,
        stomp_port=options.stomp,
        tls_port=options.tls,
        mqtt_port=options.mqtt,
        ws_port=options.ws,
        amqp_port=options.amqp,
        quick=options.quick,
    )
    attack = all_attacks()[options.name]
    outcome = asyncio.run(_outcome(attack, target))
    result = {
        "outcome": outcome,
        "harm": target.harm,
        "seconds": time.monotonic() - target.began_at if target.began_at else 0.0,
        "reached": target.depth.reached(),
        "missed": target.depth.missed() + unmeant(target.depth.refusals, attack.refused, quick=options.quick),
    }
    print(json.dumps(result), flush=True)
    os._exit(0)  # clients that are still open close with the process, without a word


async def _outcome(attack: Attack, target: Target) -> str:
    """Run an attack and return its outcome. What ends it early counts as a depth that was not reached."""
    try:
        return await attack.run(target)
    except Refused as refused:
        return f"refused: {refused}"  # a refusal, judged with the others
    except TimeoutError as error:
        outcome = f"time-out: {error}"
    except (OSError, EOFError) as error:
        outcome = f"connection closed: {type(error).__name__}"
    if not target.depth.refusals:  # these are judged by their reasons
        target.depth.broken_off.append(outcome)
    return outcome


if __name__ == "__main__":
    main()
