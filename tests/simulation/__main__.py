"""Command line of the simulation: `python -m tests.simulation --help`."""

import argparse
import sys
import time

from tests.simulation.run import SCENARIOS, catch, run, run_many
from tests.simulation.variants import VARIANTS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=sys.modules[__name__].__doc__)
    parser.add_argument("--scenario", choices=SCENARIOS, help="by default all of them")
    parser.add_argument("--histories", type=int, default=1000, help="of each scenario, or at most of each variant")
    parser.add_argument("--first", type=int, default=0, help="seed of the first history")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--seed", type=int, help="run this one history")
    parser.add_argument("--trace", action="store_true", help="and print what happens in it")
    parser.add_argument("--variant", choices=VARIANTS, help="break the broker in this way")
    parser.add_argument("--broken", action="store_true", help="see that each broken variant is caught")
    given = parser.parse_args()
    if given.broken:
        return catch_all(given.histories)
    scenarios = [given.scenario] if given.scenario else list(SCENARIOS)
    if given.variant:
        scenarios = [VARIANTS[given.variant].scenario]
    if given.seed is not None:
        return max(run_one(each, given.seed, given.variant, is_traced=given.trace) for each in scenarios)
    seeds = range(given.first, given.first + given.histories)
    return max(run_all(each, seeds, given.variant, given.jobs) for each in scenarios)


def run_one(scenario: str, seed: int, variant: str | None, *, is_traced: bool) -> int:
    history = run(scenario, seed, variant=variant, is_traced=is_traced)
    print("\n".join([*history.trace, f"{scenario} {seed}: {history.found or 'no violation'}"]))
    return bool(history.found)


def run_all(scenario: str, seeds: range, variant: str | None, jobs: int) -> int:
    begun = time.monotonic()
    count = 0
    for history in run_many(scenario, seeds, jobs=jobs, variant=variant):
        if history.found:
            count += 1
            print(f"{scenario} {history.seed}: {history.found}", flush=True)
    seconds = time.monotonic() - begun
    pace = f"{seconds:.0f} s, {len(seeds) / seconds:.0f} a second"
    print(f"{scenario}: {len(seeds)} histories, {count} with a violation, {pace}", flush=True)
    return bool(count)


def catch_all(histories: int) -> int:
    escaped = 0
    for name, variant in VARIANTS.items():
        history = catch(name, range(histories))
        escaped += history is None
        found = "NOT CAUGHT" if history is None else f"seed {history.seed}: {history.found.strip().splitlines()[-1]}"
        print(f"{variant.scenario} {name:24} {found:.160}", flush=True)
    print(f"{len(VARIANTS)} variants, {escaped} escaped")
    return bool(escaped)


if __name__ == "__main__":
    sys.exit(main())
