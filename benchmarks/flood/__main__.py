"""Measures how long a client that is logged in waits while strangers flood the broker's ports.

Run from the root of the checkout: `python -m benchmarks.flood [--flood NAME] [--json FILE]`.

Each flood has a broker of its own, with users, 100 rules and listeners with TLS, and the limits of its defaults. The
client sends persistent messages and receives them, first alone, and then beside the flood; the figures are compared
within one broker. Then the strangers leave, and the broker's descriptors are counted again.
"""

import re
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks import report
from benchmarks.accounts import security_arguments
from benchmarks.compiled import environment, unpacked
from benchmarks.flood.strangers import FLOODS, USER
from benchmarks.hostile.processes import BYSTANDER, Child, certificate, sampled
from benchmarks.side_by_side.brokers import Broker, start_pybroker
from benchmarks.side_by_side.rows import Protocol

STRANGERS: Final = "benchmarks.flood.strangers"
PASSWORD: Final = "the client's own"
QUICK_SHARE: Final = 0.1

RATIO_MAX: Final = 10.0
"""The p99 beside a flood may be below this multiple of the idle one."""
MEMORY_MB_MAX: Final = 100.0
STEPS: Final = ("openwire send", "stomp send and receive")
"""What the client waits for: the answer to a persistent message; over STOMP with the message itself."""

_SETTLE_SECONDS: Final = 0.5
_READY_SECONDS: Final = 60.0
_CLOSE_SECONDS: Final = 20.0
"""In which the descriptors of strangers that have left are to be closed: connections linger for some seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The client's figures for one flood, and the broker's.

    Attributes:
        idle, flooded: the waits of each step in seconds, alone and beside the flood.
        late_ms: the longest time for which the machine had no processor for the client, in the flood.
        grown_mb: resident memory at most, above that of the idle broker.
        descriptors: how many were left of the flood.
        reached, missed: how much of the flood took place, and what of it did not.
        errors: what became of the client.
    """

    idle: Mapping[str, Sequence[float]]
    flooded: Mapping[str, Sequence[float]]
    late_ms: float
    grown_mb: float
    descriptors: int
    reached: Sequence[str]
    missed: Sequence[str]
    errors: Sequence[str]


def main() -> int:
    """Measure and print; return 1 if a flood broke a promise."""
    parser = report.parser(__doc__)
    parser.add_argument("--flood", action="append", choices=FLOODS, help="only this one; may be repeated")
    parser.add_argument("--idle", type=float, default=10.0, metavar="SECONDS", help="the client alone")
    parser.add_argument("--seconds", type=float, default=20.0, help="the client beside the flood")
    parser.add_argument("--pure", action="store_true", help="measure the checkout as it is, not compiled")
    options = parser.parse_args()
    if options.quick:
        options.idle, options.seconds, share = 0.5, 1.0, QUICK_SHARE
    else:
        share = 1.0
    variables = {} if options.pure or options.quick else environment(unpacked())
    made = report.Report(options)
    waits: list[report.Row] = []
    costs: list[report.Row] = []
    for flood in options.flood or FLOODS:
        with tempfile.TemporaryDirectory(dir=options.directory, prefix="flood-") as folder:
            measured = measure(
                flood, Path(folder), idle=options.idle, seconds=options.seconds, share=share, variables=variables
            )  # fmt: skip
        waits += [_waits(flood, step, measured) for step in STEPS]
        costs.append(_costs(flood, measured))
        print(f"{flood}: {waits[-2:]} {costs[-1]}", file=sys.stderr, flush=True)
    made.table("Waits of a client that is logged in, ms", waits)
    made.table("What the floods cost", costs)
    made.finish()
    return 0 if options.quick or all(row["verdict"] == "pass" for row in costs) else 1


def measure(
    flood: str, folder: Path, *, idle: float, seconds: float, share: float, variables: Mapping[str, str]
) -> Measured:
    """Start a broker, flood it, and return what was measured."""
    extra = security_arguments(folder, {USER: PASSWORD})
    extra += ["--stomp-ssl", "0", "--openwire-ssl", "0", "--tls-certificate", str(certificate(folder))]
    with start_pybroker(folder, Protocol.OPENWIRE, extra=extra, variables=variables) as broker:
        broker.wait_until_listening()
        ports = ["--openwire", str(broker.ports[Protocol.OPENWIRE]), "--stomp", str(broker.ports[Protocol.STOMP])]
        strangers_of = [flood, *ports[2:], "--tls", _tls_port(folder / "log"), "--share", str(share)]
        with (
            Child(STRANGERS, strangers_of) as strangers,
            Child(BYSTANDER, [*ports, "--user", USER, "--password", PASSWORD]) as client,
        ):
            return _measured(broker, strangers, client, idle=idle, seconds=seconds)


def _measured(broker: Broker, strangers: Child, client: Child, *, idle: float, seconds: float) -> Measured:
    _answer(client)
    _answer(strangers)
    time.sleep(_SETTLE_SECONDS)
    with sampled(broker.pid) as before:
        alone = _slept(idle)
    descriptors = _descriptors(broker.pid)
    with sampled(broker.pid) as during:
        strangers.order()
        time.sleep(_SETTLE_SECONDS)
        beside = _slept(seconds)
        strangers.order()
        flooded = _answer(strangers)
        strangers.end()
    left = _descriptors_left(broker.pid, descriptors)
    client.order()
    result = _answer(client)
    late = [span for at, span in (*result["late"], *during.delays) if beside[0] <= at <= beside[1]]
    return Measured(
        idle=_within(result["waits"], *alone),
        flooded=_within(result["waits"], *beside),
        late_ms=1000 * max(late, default=0.0),
        grown_mb=during.peak_mb - before.last_mb,
        descriptors=left,
        reached=flooded["reached"],
        missed=flooded["missed"],
        errors=result["errors"] + ([f"{result['refused']} connections refused"] if result["refused"] else []),
    )


def _slept(seconds: float) -> tuple[float, float]:
    """Sleep; return when that began and ended, by the clock of the client."""
    began = time.monotonic()
    time.sleep(seconds)
    return began, time.monotonic()


def _answer(child: Child) -> dict[str, Any]:
    answer = child.answer(_READY_SECONDS)
    if answer is None:
        raise RuntimeError("a process does not answer")
    return answer


def _tls_port(log: Path) -> str:
    """Return the port of the STOMP listener with TLS, once the log names it."""
    deadline = time.monotonic() + _READY_SECONDS
    while (found := re.search(r"stomp\+ssl://127\.0\.0\.1:(\d+)", log.read_text())) is None:
        if time.monotonic() > deadline:
            raise RuntimeError("the broker has no listener with TLS")
        time.sleep(0.05)
    return found[1]


def _descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def _descriptors_left(pid: int, before: int) -> int:
    """Return how many more descriptors there are once connections that linger are closed. The client has one or two."""
    deadline = time.monotonic() + _CLOSE_SECONDS
    while (left := _descriptors(pid) - before) > 0 and time.monotonic() < deadline:
        time.sleep(0.1)
    return max(left, 0)


def _within(waits: Mapping[str, Sequence[tuple[float, float]]], began: float, ended: float) -> dict[str, list[float]]:
    """Return the lengths of the waits of each step that ended in a span."""
    return {step: [took for at, took in waits.get(step, ()) if began <= at + took <= ended] for step in STEPS}


def _waits(flood: str, step: str, measured: Measured) -> report.Row:
    idle, flooded = measured.idle[step], measured.flooded[step]
    columns = {"idle": idle, "flood": flooded}
    figures: dict[str, report.Cell] = {}
    for name, waits in columns.items():
        figures |= {f"{name}: count": len(waits)}
        for label, share in (("p50", 0.5), ("p99", 0.99), ("max", 1.0)):
            figures[f"{name}: {label}"] = 1000 * report.quantile(waits, share)
    return {"flood": flood, "step": step, **figures, "p99 ratio": _ratio(idle, flooded)}


def _ratio(idle: Sequence[float], flooded: Sequence[float]) -> float:
    return report.quantile(flooded, 0.99) / report.quantile(idle, 0.99)


def _costs(flood: str, measured: Measured) -> report.Row:
    ratios = [_ratio(measured.idle[step], measured.flooded[step]) for step in STEPS]
    return {
        "flood": flood,
        "p99 ratio": max(ratios),
        "machine late ms": measured.late_ms,
        "grown MB": max(0.0, measured.grown_mb),
        "descriptors left": measured.descriptors,
        "reached": "; ".join(measured.reached),
        "verdict": "; ".join(problems(measured, max(ratios))) or "pass",
    }


def problems(measured: Measured, ratio: float) -> list[str]:
    """Return the promises that were broken, and what of the flood did not take place."""
    found = []
    if ratio >= RATIO_MAX:
        found.append(f"p99 is {ratio:.1f} times the idle one")
    if measured.grown_mb >= MEMORY_MB_MAX:
        found.append(f"memory grew by {measured.grown_mb:.0f} MB")
    if measured.descriptors:
        found.append(f"{measured.descriptors} descriptors left")
    return [
        *found,
        *(f"client: {error}" for error in measured.errors),
        *(f"did not reach: {each}" for each in measured.missed),
    ]


if __name__ == "__main__":
    sys.exit(main())
