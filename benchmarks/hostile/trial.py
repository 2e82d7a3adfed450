"""One attack on one broker: starts the processes, samples the broker, and gathers what each of them measured."""

import re
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.hostile.attacks import Attack
from benchmarks.hostile.processes import BYSTANDER, Child, certificate, sampled
from benchmarks.hostile.verdict import Waits, judged, problems
from benchmarks.side_by_side.brokers import ACTIVEMQ, Broker, start_activemq, start_pybroker
from benchmarks.side_by_side.rows import Protocol

_ATTACKER: Final = "benchmarks.hostile.attacker"
_QUIET_SECONDS: Final = 0.3
"""The bystander alone, before."""
_AFTER_SECONDS: Final = 1.0
"""The bystander alone, after the attacker's end, which may be work for the broker too."""
_PREPARE_SECONDS: Final = 180.0
_ANSWER_SECONDS: Final = 20.0
_LOG_SECONDS: Final = 0.01
"""Between two looks at the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What one attack did to one broker.

    Attributes:
        broker: its name.
        outcome: what the attacker was answered.
        reached: the depths that it reached.
        seconds: how long the attack took.
        waits: of the bystander.
        peak_mb, after_mb: the broker's resident memory at most, and after the attack.
        log_kb: what it wrote into its log.
        problems: the promises that it broke, and depths that the attack did not reach.
    """

    broker: str
    outcome: str
    reached: Sequence[str]
    seconds: float
    waits: Waits
    peak_mb: float
    after_mb: float
    log_kb: float
    problems: Sequence[str]


def run_trial(
    attack: Attack,
    broker_name: str,
    directory: str,
    *,
    quick: bool,
    variables: Mapping[str, str],
    keep: Path | None = None,
) -> Trial:
    """Start a broker on an empty store, attack it, and return what was measured.

    Args:
        attack: what to run.
        broker_name: `pybroker` or `activemq`.
        directory: where the store goes.
        quick: the short form.
        variables: of the broker's environment, such as where the compiled package is.
        keep: a file that the broker's log is appended to.
    """
    with tempfile.TemporaryDirectory(dir=directory, prefix="hostile-") as name:
        folder = Path(name)
        with _start(attack, broker_name, folder, variables) as broker:
            broker.wait_until_listening()
            try:
                return _measured(attack, broker, folder / "log", quick=quick)
            finally:
                if keep is not None:
                    with keep.open("ab") as file:
                        file.write(f"--- {attack.name}\n".encode() + (folder / "log").read_bytes())


def _start(attack: Attack, broker_name: str, folder: Path, variables: Mapping[str, str]) -> Broker:
    if broker_name == ACTIVEMQ:
        return start_activemq(folder)
    extra = ["--memory-limit", f"{attack.memory_limit_mb}mb", *attack.extra]
    if attack.tls:
        extra += ["--stomp-ssl", "0", "--tls-certificate", str(certificate(folder))]
    if attack.mqtt:
        extra += ["--ws", "0"]
    if attack.amqp:
        extra += ["--amqp", "0"]
    protocols = (Protocol.MQTT,) if attack.mqtt else ()
    return start_pybroker(folder, Protocol.OPENWIRE, *protocols, extra=extra, variables=variables)


def _logged_port(log: Path, scheme: str) -> str:
    """Return the port of a listener that chose a free one, which the log names.

    Raises:
        RuntimeError: it is not named soon after the broker has begun to listen.
    """
    ends_at = time.monotonic() + _ANSWER_SECONDS
    while (found := re.search(rf"\b{re.escape(scheme)}://127\.0\.0\.1:(\d+)", log.read_text())) is None:
        if time.monotonic() > ends_at:
            raise RuntimeError(f"the broker names no listener {scheme}:\n{log.read_text()}")
        time.sleep(_LOG_SECONDS)
    return found[1]


def _measured(attack: Attack, broker: Broker, log: Path, *, quick: bool) -> Trial:
    ports = ["--openwire", str(broker.ports[Protocol.OPENWIRE]), "--stomp", str(broker.ports[Protocol.STOMP])]
    more = ["--tls", _logged_port(log, "stomp+ssl")] if attack.tls else []
    if attack.mqtt and broker.name != ACTIVEMQ:
        more += ["--mqtt", str(broker.ports[Protocol.MQTT]), "--ws", _logged_port(log, "ws")]
    if attack.amqp and broker.name != ACTIVEMQ:
        more += ["--amqp", _logged_port(log, "amqp")]
    arguments = [attack.name, *ports, *more, *(["--quick"] if quick else [])]
    with Child(_ATTACKER, arguments) as attacker, Child(BYSTANDER, ports) as bystander:
        attacker.answer(_PREPARE_SECONDS)
        bystander.answer(_PREPARE_SECONDS)
        time.sleep(_QUIET_SECONDS)
        log_bytes = log.stat().st_size
        with sampled(broker.pid) as samples:
            attacker.order()
            result = attacker.answer(attack.seconds_max)
            attacker.end()
            time.sleep(_AFTER_SECONDS)
            bystander.order()
            measured = bystander.answer(_ANSWER_SECONDS)
    if measured is None:
        raise RuntimeError("the bystander does not answer")
    if result is None:
        outcome = f"under way after {attack.seconds_max:g} s"
        result = {
            "outcome": outcome, "seconds": attack.seconds_max, "harm": [], "reached": [], "missed": [outcome],
        }  # fmt: skip
    waits = judged(measured["waits"], late=measured["late"], delays=samples.delays)
    log_kb = (log.stat().st_size - log_bytes) / 1024
    return Trial(
        broker=broker.name,
        outcome=result["outcome"],
        reached=result["reached"],
        seconds=result["seconds"],
        waits=waits,
        peak_mb=samples.peak_mb,
        after_mb=samples.last_mb,
        log_kb=log_kb,
        problems=problems(
            waits,
            peak_mb=samples.peak_mb,
            limit_mb=attack.memory_limit_mb,
            frame_mb=attack.frame_mb,
            index_mb=attack.index_mb,
            log_kb=log_kb,
            errors=measured["errors"] + _refusals(attack, measured["refused"]),
            harm=result["harm"],
            missed=result["missed"] if broker.name != ACTIVEMQ else (),  # whose limits and reasons are others
        ),
    )


def _refusals(attack: Attack, refused: int) -> list[str]:
    return [f"{refused} connections refused"] if refused and not attack.fills else []
