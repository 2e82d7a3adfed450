"""Rounds of cases on one broker, each with its judgement; between rounds the broker is swept."""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from benchmarks.fuzz.judgement import (
    DESCRIPTORS,
    EXIT,
    GROWTH_MB,
    LOG,
    MEMORY,
    STORE,
    WAIT,
    Finding,
    LogReader,
    longest_wait,
    wait_bound_ms,
)
from benchmarks.fuzz.victim import Victim
from benchmarks.hostile.processes import BYSTANDER, Child, sampled
from tests.soundness import assert_sound

_SENDER: Final = "benchmarks.fuzz.sender"
_READY_SECONDS: Final = 60.0
_ANSWER_SECONDS: Final = 60.0
_IDLE_SOCKETS: Final = 14
"""Of a broker without clients: twelve listeners, and two of its event loop."""
_AFTER_SECONDS: Final = 0.3
"""The bystander alone, after the last case."""

Spans = Sequence[tuple[int, float, float]]
"""Case, beginning and end."""


@dataclass(kw_only=True)
class Round:
    """What a round did.

    Attributes:
        frames: those that the broker carried out.
        sent: those that were sent; connections are closed in the middle.
        next_case: the number after the last one.
        spans: when each case was played.
        wait_ms: the longest wait of an unrelated client, less the machine's share.
        growth_mb: the broker's resident memory after the sweep, above that at its start.
        findings: what must not happen.
    """

    frames: int
    sent: int
    next_case: int
    spans: Spans
    wait_ms: float
    growth_mb: float = 0.0
    findings: list[Finding] = field(default_factory=list)


class Campaign:
    """Rounds on one broker."""

    def __init__(self, victim: Victim, seed: int) -> None:
        self._victim = victim
        self._seed = seed
        self._log = LogReader(victim.log)
        self._sockets = victim.sockets(_IDLE_SOCKETS)
        self._start_mb = victim.resident_mb

    def play(self, protocol: str, begin: int, *, frames: int, seconds: float, cases: int = 1 << 60) -> Round:
        """Play cases until so many frames are carried out, so many cases played, or time is up; then judge.

        Args:
            protocol: one of `conversations.PROTOCOLS`.
            begin: the number of the first case.
            frames: the limit to frames that are carried out.
            seconds: the limit of time.
            cases: the limit to cases.
        """
        result_file = self._victim.store.with_name("played")
        arguments = [protocol, "--ports", json.dumps(self._victim.ports), "--seed", str(self._seed)]
        arguments += ["--result", str(result_file)]
        arguments += ["--from", str(begin), "--frames", str(frames), "--cases", str(cases), "--seconds", f"{seconds:g}"]
        if self._victim.logins:
            arguments.append("--logins")
        with Child(_SENDER, arguments) as sender:
            sender.answer(_READY_SECONDS)

            def play() -> dict[str, Any]:
                sender.order()
                if sender.answer(seconds + _ANSWER_SECONDS) is None:
                    raise RuntimeError("the sender does not answer")
                played: dict[str, Any] = json.loads(result_file.read_text())
                return played

            result, made = self.measured(play)
        made.frames, made.sent, made.next_case = result["frames"], result["sent"], result["next"]
        made.spans = result["spans"]
        return made

    def measured(self, play: Callable[[], dict[str, Any]]) -> tuple[dict[str, Any], Round]:
        """Return what `play` returns, and the judgement on what it did."""
        victim = self._victim
        with Child(BYSTANDER, victim.bystander()) as bystander:
            bystander.answer(_READY_SECONDS)
            with sampled(victim.pid) as samples:
                result = play()
                time.sleep(_AFTER_SECONDS)
                bystander.order()
                measured = bystander.answer(_ANSWER_SECONDS)
        if measured is None:
            raise RuntimeError("the bystander does not answer")
        wait_ms, began, step = longest_wait(measured, samples.delays)
        made = Round(frames=0, sent=0, next_case=0, spans=(), wait_ms=wait_ms)
        bound = wait_bound_ms(measured, samples.delays)
        at = began - time.monotonic() + time.time()
        if wait_ms > bound:
            made.findings.append(Finding(kind=WAIT, what=f"{step} took {wait_ms:.0f} ms of {bound:g}", at=at))
        made.findings += self.log_findings()
        if victim.process.poll() is None:
            made.findings += [Finding(kind=WAIT, what=error) for error in measured["errors"]]
        return result, made

    def log_findings(self) -> list[Finding]:
        """Return what the log has since the last call, and the end of the process."""
        found = self._log.findings()
        if (code := self._victim.process.poll()) is not None:
            found.append(Finding(kind=EXIT, what=f"the broker has ended with {code}"))
        return found

    def clean(self, made: Round) -> None:
        """Remove what a round has left, and judge what remains."""
        victim = self._victim
        victim.sweep()
        sockets = victim.sockets(self._sockets)
        if sockets > self._sockets:
            what = f"{sockets} sockets are open, {self._sockets} were at the start"
            made.findings.append(Finding(kind=DESCRIPTORS, what=what))
        made.growth_mb = victim.resident_mb - self._start_mb
        if made.growth_mb > GROWTH_MB:
            made.findings.append(Finding(kind=MEMORY, what=f"{made.growth_mb:.0f} MB more than at the start"))
        made.findings += self.log_findings()

    def end(self) -> list[Finding]:
        """Stop the broker, and return the findings about its end and its store."""
        code = self._victim.stop()
        found = [each for each in self.log_findings() if each.kind == LOG]
        if code != 0:
            found.append(Finding(kind=EXIT, what=f"asked to stop, the broker ended with {code}"))
        try:
            assert_sound(self._victim.store)
        except AssertionError as error:
            found.append(Finding(kind=STORE, what=str(error)))
        return found


def suspects(made: Round, finding: Finding) -> list[int]:
    """Return the cases that may have caused a finding: those at that time first, else all of the round."""
    at = finding.at
    near = [] if at is None else [number for number, began, ended in made.spans if began - 0.1 <= at <= ended + 0.5]
    return near or [number for number, _, _ in made.spans]
