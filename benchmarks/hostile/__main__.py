"""Runs attacks on a broker, and measures how long an unrelated client waits, what memory and what log they cost."""

import argparse
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from benchmarks import report
from benchmarks.compiled import environment, unpacked
from benchmarks.hostile.attacks import Attack, all_attacks, chosen
from benchmarks.hostile.trial import Trial, run_trial
from benchmarks.side_by_side.brokers import ACTIVEMQ, PYBROKER

_OUTCOME_CHARS = 60

_ACTIVEMQ_SECONDS = 20.0
"""An attack on an ActiveMQ ends then, as many take minutes there, and hours in all."""

_UNMEASURED: dict[str, report.Cell] = {f"ActiveMQ: {name}": "" for name in ("max", "own", "peak MB", "log KB")}


def main() -> int:
    """Run the chosen attacks; return 1 if one of them broke a promise."""
    parser = report.parser(__doc__)
    parser.add_argument(
        "--attack", action="append", default=[], metavar="NAME", help="only this one, or a theme, or a beginning with *"
    )
    parser.add_argument("--list", action="store_true", help="list the attacks")
    parser.add_argument("--pure", action="store_true", help="measure the checkout as it is, not compiled")
    parser.add_argument("--activemq", action="store_true", help="run each attack against a stock ActiveMQ as well")
    parser.add_argument("--log", type=Path, metavar="FILE", help="append the brokers' logs to a file")
    options = parser.parse_args()
    if options.list:
        for each in all_attacks().values():
            quick = "quick" if each.quick else ""
            print(f"{each.theme:16} {each.name:28} {quick:6}{each.memory_limit_mb:4} MB  {each.what}")
        return 0
    try:
        attacks = chosen(options.attack, quick=options.quick)
    except ValueError as error:
        parser.error(str(error))
    variables = {} if options.pure else environment(unpacked())
    made = report.Report(options)
    rows = [_row(attack, options, variables) for attack in attacks]
    made.table("Attacks: waits of an unrelated client, in milliseconds", rows)
    failed = [row for row in rows if row["verdict"] != "pass"]
    print(f"\n{len(rows) - len(failed)} of {len(rows)} attacks pass")
    made.finish()
    return 1 if failed else 0


def _row(attack: Attack, options: argparse.Namespace, variables: Mapping[str, str]) -> dict[str, report.Cell]:
    def trial(attacked: Attack, broker_name: str) -> Trial:
        return run_trial(
            attacked, broker_name, options.directory, quick=options.quick, variables=variables, keep=options.log
        )  # fmt: skip

    row = _figures(attack, trial(attack, PYBROKER))
    if options.activemq:
        row |= _other_figures(replace(attack, seconds_max=min(attack.seconds_max, _ACTIVEMQ_SECONDS)), trial)
    print(f"{attack.name}: {row}", file=sys.stderr, flush=True)
    return row


def _figures(attack: Attack, trial: Trial) -> dict[str, report.Cell]:
    waits = trial.waits
    return {
        "attack": attack.name,
        "waits": waits.count,
        "p99": _rounded(waits.p99_ms),
        "max": _rounded(waits.max_ms),
        "own": _rounded(waits.own_ms),
        "machine late": _rounded(waits.late_ms),
        "longest": waits.step,
        "peak MB": round(trial.peak_mb),
        "above limit MB": round(trial.peak_mb - attack.memory_limit_mb),
        "after MB": round(trial.after_mb),
        "log KB": round(trial.log_kb),
        "seconds": _rounded(trial.seconds),
        "limit MB": attack.memory_limit_mb,
        "reached": "; ".join(trial.reached),
        "outcome": _cut(trial.outcome),
        "verdict": "; ".join(trial.problems) or "pass",
    }


def _other_figures(attack: Attack, trial: Callable[[Attack, str], Trial]) -> dict[str, report.Cell]:
    """Return what the attack does to an ActiveMQ; it may make the attacker fail, as each is made for pybroker."""
    if attack.tls or attack.mqtt or attack.amqp:
        return _UNMEASURED | {"ActiveMQ: outcome": "not attacked: it has no such listener"}
    try:
        other = trial(attack, ACTIVEMQ)
    except (RuntimeError, OSError) as error:
        return _UNMEASURED | {"ActiveMQ: outcome": _cut(f"not measured: {error!r}")}
    return {
        "ActiveMQ: max": _rounded(other.waits.max_ms),
        "ActiveMQ: own": _rounded(other.waits.own_ms),
        "ActiveMQ: peak MB": round(other.peak_mb),
        "ActiveMQ: log KB": round(other.log_kb),
        "ActiveMQ: outcome": _cut("; ".join(filter(None, [other.outcome.rstrip("; "), *other.problems[-1:]]))),
    }


def _rounded(value: float) -> float:
    return round(value, 1)


def _cut(text: str) -> str:
    return text if len(text) <= _OUTCOME_CHARS else text[: _OUTCOME_CHARS - 1] + "…"


if __name__ == "__main__":
    sys.exit(main())
