"""The short form of `make fuzz`: 20,000 frames of each protocol, half of them to a broker with users.

What is a finding, and how to play one again, is in `docs/fuzzing.md`. The seed is a new one each time, and a failure
names it: `PYBROKER_SEED` repeats a run.
"""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.fuzz.campaign import Campaign
from benchmarks.fuzz.conversations import PROTOCOLS, case, save
from benchmarks.fuzz.judgement import WAIT, Finding
from benchmarks.fuzz.victim import Victim
from benchmarks.hostile.processes import ROOT
from tests.pace import in_time

FRAMES = 20_000
SEED = int(os.environ.get("PYBROKER_SEED") or random.SystemRandom().randrange(1 << 32))
WAIT_SECONDS = 0.5
"""The longest wait of an unrelated client; wide, as in `test_hostile`, so that it means the broker, not the machine."""


@pytest.mark.alone
@pytest.mark.parametrize("logins", [False, True], ids=["without users", "with users"])
def test_broker_withstands_mutated_conversations(tmp_path: Path, logins: bool) -> None:
    found: list[Finding] = []
    with Victim(tmp_path, logins=logins, variables={}) as victim:
        campaign = Campaign(victim, SEED)
        for protocol in PROTOCOLS:
            made = campaign.play(protocol, 0, frames=FRAMES // 2, seconds=60)
            assert made.frames >= FRAMES // 2 or not in_time(60, 60), (protocol, made.frames)
            assert in_time(made.wait_ms / 1000, WAIT_SECONDS), (SEED, protocol, made.findings)
            campaign.clean(made)
            found += [each for each in made.findings if each.kind != WAIT]
        found += campaign.end()
    again = f"make fuzz ARGS='--seed {SEED}' looks for the shortest conversation"
    assert not found, "\n".join([*(f"{each.kind}: {each.what}" for each in found), again])


def test_command_line_goes_on_where_it_was_and_plays_a_file(tmp_path: Path) -> None:
    state, figures, finding = tmp_path / "state.json", tmp_path / "figures.json", tmp_path / "log-7.json"
    common = ["--directory", str(tmp_path), "--findings", str(tmp_path)]
    state.write_text(json.dumps({"seed": 7, "stomp without users": {"frames": 100, "next": 50}}))
    run = [*common, "--protocol", "stomp", "--quick", "--frames", "200", "--state", str(state), "--json", str(figures)]
    done = fuzz(*run)
    assert "seed 7\n" in done.stdout
    (row,) = next(iter(json.loads(figures.read_text())["tables"].values()))
    assert row["what"] == "stomp with users"
    assert row["carried out"] >= 100
    assert not state.exists(), "the run is complete"
    save(finding, [case("stomp", 7, number, logins=True) for number in range(3)], logins=True)
    done = fuzz(*common, "--replay", str(finding))
    assert (done.returncode, done.stdout) == (0, "no finding\n") or "wait" in done.stdout


def fuzz(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "benchmarks.fuzz", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=100, cwd=ROOT)
