"""Fuzzes brokers over sockets, and the decoders alone; says with which command a finding is there again.

Cases go on until each protocol has so many frames that the broker carried out, half of them with users and half
without. With `--state` a run that was interrupted goes on where it was.
"""

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks import report
from benchmarks.compiled import environment, unpacked
from benchmarks.fuzz import decoders
from benchmarks.fuzz.campaign import Campaign, Round, suspects
from benchmarks.fuzz.conversations import PROTOCOLS, Conversation, case, save
from benchmarks.fuzz.judgement import EXIT, LOG, WAIT, Finding
from benchmarks.fuzz.reduction import reduced
from benchmarks.fuzz.sender import play
from benchmarks.fuzz.victim import Victim

_DECODERS: Final = "decoders"
_ROUND_FRAMES: Final = 20_000
_ROUND_SECONDS: Final = 200.0
"""Logins that were verified are remembered for 300 s: those of the bystander and the sweep come before."""
_FIGURES: Final = ("seconds", "longest wait ms", "growth MB")
_REPRODUCIBLE: Final = (EXIT, LOG, WAIT)
"""Kinds of findings that a few conversations may show again; the others belong to a whole run."""


def main() -> int:
    """Run; return 1 if there are findings."""
    options = _options()
    variables = environment(unpacked()) if options.compiled else {}
    if options.replay is not None:
        return _replay(options.replay, options.directory, variables)
    run = _Run(options, variables)
    print(f"seed {run.seed}", flush=True)
    for logins in (False, True):
        if set(options.protocol) - {_DECODERS}:
            run.fuzz(logins=logins)
    if _DECODERS in options.protocol:
        run.decode()
    return run.finish()


def _options() -> argparse.Namespace:
    parser = report.parser(__doc__)
    parser.add_argument(
        "--protocol", action="append", default=[], choices=[*PROTOCOLS, _DECODERS], help="only this one; all by default"
    )
    parser.add_argument("--seed", type=int, help="of all choices; a random one by default")
    parser.add_argument("--from", type=int, dest="begin", default=0, metavar="CASE", help="number of the first case")
    parser.add_argument("--cases", type=int, default=1 << 60, help="the most cases for a protocol and kind of broker")
    parser.add_argument("--frames", type=int, default=1_000_000, help="frames that are carried out for a protocol")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="for all of it")
    parser.add_argument("--state", type=Path, metavar="FILE", help="go on where the file says, and write it")
    parser.add_argument(
        "--findings", type=Path, default=Path("build/fuzz"), metavar="DIRECTORY", help="for replay files"
    )
    parser.add_argument("--replay", type=Path, metavar="FILE", help="play a finding's conversations again")
    parser.add_argument("--compiled", action="store_true", help="fuzz the compiled message path")
    options = parser.parse_args()
    options.protocol = options.protocol or [*PROTOCOLS, _DECODERS]
    if options.quick:
        options.frames = min(options.frames, 500)
    return options


class _Run:
    """A run over protocols and kinds of brokers.

    Attributes:
        seed: of all choices.
    """

    def __init__(self, options: argparse.Namespace, variables: Mapping[str, str]) -> None:
        self._options = options
        self._variables = variables
        self._report = report.Report(options)
        self._rows: dict[str, dict[str, Any]] = {}
        self._findings = 0
        self._ends_at = time.monotonic() + options.seconds
        state = options.state
        self._state: dict[str, Any] = json.loads(state.read_text()) if state is not None and state.exists() else {}
        chosen = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 32)
        self.seed: int = self._state.setdefault("seed", chosen)
        if options.seed not in (None, self.seed):
            raise SystemExit(f"{state} is of a run with seed {self.seed}: go on with that one, or remove the file")

    # ------------------------------------------------------------ brokers

    def fuzz(self, *, logins: bool) -> None:
        """Fuzz one kind of broker, until every protocol has its frames."""
        legs = [protocol for protocol in PROTOCOLS if protocol in self._options.protocol]
        if not any(map(self._goes_on, self._keys(legs, logins=logins))):
            return
        with (
            tempfile.TemporaryDirectory(dir=self._options.directory, prefix="fuzz-") as directory,
            Victim(Path(directory), logins=logins, variables=self._variables) as victim,
        ):
            campaign = Campaign(victim, self.seed)
            while any(map(self._goes_on, self._keys(legs, logins=logins))):
                for protocol in legs:
                    if self._goes_on(_key(protocol, logins=logins)) and not self._round(campaign, protocol, logins):
                        return
            for finding in campaign.end():
                self._report_finding(finding, f"the end of the broker {_about(logins=logins)}", "")

    @staticmethod
    def _keys(protocols: Sequence[str], *, logins: bool) -> list[str]:
        return [_key(protocol, logins=logins) for protocol in protocols]

    def _goes_on(self, key: str) -> bool:
        done = self._state.get(key, {"frames": 0, "next": self._options.begin})
        return (
            done["frames"] < self._options.frames // 2
            and done["next"] < self._options.begin + self._options.cases
            and time.monotonic() < self._ends_at
        )

    def _round(self, campaign: Campaign, protocol: str, logins: bool) -> bool:
        """Play a round; return False if the broker cannot be used any more."""
        options, key = self._options, _key(protocol, logins=logins)
        done = self._state.setdefault(key, {"frames": 0, "next": options.begin})
        began, first = time.monotonic(), done["next"]
        made = campaign.play(
            protocol,
            first,
            frames=min(_ROUND_FRAMES, options.frames // 2 - done["frames"]),
            seconds=min(_ROUND_SECONDS, self._ends_at - began),
            cases=options.begin + options.cases - first,
        )
        is_alive = all(each.kind != EXIT for each in made.findings)
        if is_alive:
            campaign.clean(made)
        done["frames"] += made.frames
        done["next"] = made.next_case
        self._count(key, made, time.monotonic() - began)
        for finding in made.findings:
            self._investigate(finding, made, protocol, first, logins)
        self._save_state()
        return is_alive

    def _count(self, key: str, made: Round, seconds: float) -> None:
        row = self._rows.setdefault(
            key,
            {
                "what": key,
                "cases": 0,
                "sent": 0,
                "carried out": 0,
                "seconds": 0.0,
                "longest wait ms": 0.0,
                "growth MB": 0.0,
            },
        )
        row["cases"] += len(made.spans)
        row["sent"] += made.sent
        row["carried out"] += made.frames
        row["seconds"] += seconds
        row["longest wait ms"] = max(row["longest wait ms"], made.wait_ms)
        row["growth MB"] = made.growth_mb
        done = self._state[key]["frames"]
        print(
            f"{key}: {done:,} frames, {made.frames / seconds:,.0f}/s, longest wait {made.wait_ms:.0f} ms, "
            f"growth {made.growth_mb:.0f} MB",
            file=sys.stderr,
            flush=True,
        )  # fmt: skip

    def _investigate(self, finding: Finding, made: Round, protocol: str, first: int, logins: bool) -> None:
        """Look for the shortest conversations with this finding, save them, and print how to play them."""
        command = f"--protocol {protocol} --seed {self.seed} --from {first} --cases {made.next_case - first}"
        numbers = suspects(made, finding)
        conversations = [case(protocol, self.seed, number, logins=logins) for number in numbers]

        def fails(some: list[Conversation]) -> bool:
            found = _played(some, self._options.directory, self._variables, logins=logins)
            return any(each.kind == finding.kind for each in found)

        if finding.kind in _REPRODUCIBLE and fails(conversations):
            conversations = reduced(conversations, fails)
            path = self._options.findings / f"{finding.kind}-{self.seed}-{protocol}-{numbers[0]}.json"
            save(path, conversations, kind=finding.kind, what=finding.what, logins=logins)
            command = f"--replay {path}"
        self._report_finding(finding, f"{protocol} {_about(logins=logins)}, cases from {first}", command)

    # ------------------------------------------------------------ decoders

    def decode(self) -> None:
        """Fuzz the decoders."""
        done = self._state.setdefault(_DECODERS, {"frames": 0, "next": self._options.begin})
        began, count = time.monotonic(), self._options.frames - done["frames"]
        for found in decoders.grown():
            self._report_decoder(found)
        first = done["next"]
        for each in decoders.run(self.seed, first, min(count, self._options.cases), self._ends_at):
            if isinstance(each, int):
                done["frames"] += each - first
                done["next"] = each
                row = {"what": _DECODERS, "cases": each - first, "sent": each - first, "carried out": each - first}
                self._rows[_DECODERS] = row | dict.fromkeys(_FIGURES, 0.0) | {"seconds": time.monotonic() - began}
            else:
                self._report_decoder(each)
        self._save_state()

    def _report_decoder(self, found: decoders.DecoderFinding) -> None:
        path = self._options.findings / f"decoder-{found.decoder}-{self._findings}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        fields = {"decoder": found.decoder, "what": found.what, "data": found.data.hex()}
        path.write_text(json.dumps(fields, indent=1) + "\n")
        self._report_finding(Finding(kind=found.decoder, what=found.what), "the decoder", f"--replay {path}")

    # ------------------------------------------------------------ report

    def _report_finding(self, finding: Finding, where: str, command: str) -> None:
        self._findings += 1
        again = f"\n  again: python -m benchmarks.fuzz {command}" if command else ""
        print(f"FINDING {finding.kind} in {where}: {finding.what}{again}", flush=True)

    def _save_state(self) -> None:
        state = self._options.state
        if state is not None:
            state.parent.mkdir(parents=True, exist_ok=True)
            copy = state.with_suffix(".copy")
            copy.write_text(json.dumps(self._state))
            copy.replace(state)

    def finish(self) -> int:
        """Print the table, and return the exit code."""
        if self._rows:
            self._report.table(f"Fuzzing with seed {self.seed}", list(self._rows.values()))
        print(f"\n{self._findings} findings")
        if self._options.state is not None and time.monotonic() < self._ends_at:
            self._options.state.unlink(missing_ok=True)  # this run is complete: the next one has another seed
        self._report.finish()
        return 1 if self._findings else 0


def _key(protocol: str, *, logins: bool) -> str:
    return f"{protocol} {_about(logins=logins)}"


def _about(*, logins: bool) -> str:
    return "with users" if logins else "without users"


def _played(
    conversations: Sequence[Conversation], directory: str, variables: Mapping[str, str], *, logins: bool
) -> list[Finding]:
    """Play conversations one after the other against a new broker; return the findings."""

    def run(ports: Mapping[str, int]) -> dict[str, Any]:
        for each in conversations:
            asyncio.run(play(each, ports))
        return {}

    with (
        tempfile.TemporaryDirectory(dir=directory, prefix="fuzz-") as name,
        Victim(Path(name), logins=logins, variables=variables) as victim,
    ):
        campaign = Campaign(victim, 0)
        _, made = campaign.measured(lambda: run(victim.ports))
        ended = any(each.kind == EXIT for each in made.findings)
        return made.findings if ended else [*made.findings, *campaign.end()]


def _replay(path: Path, directory: str, variables: Mapping[str, str]) -> int:
    fields = json.loads(path.read_text())
    if "decoder" in fields:
        problems = decoders.replay(fields["decoder"], bytes.fromhex(fields["data"]))
    else:
        conversations = [Conversation.from_json(each) for each in fields["conversations"]]
        found = _played(conversations, directory, variables, logins=fields["logins"])
        problems = [f"{each.kind}: {each.what}" for each in found]
    print("\n".join(problems) or "no finding")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
