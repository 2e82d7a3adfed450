"""The README's five minutes, run as they are written; only ports and the environment's place are the test's own."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.cluster import free_port

ROOT = Path(__file__).resolve().parents[2]


def five_minutes() -> tuple[list[str], str]:
    """Return the section's shell blocks and its Python program."""
    section = (ROOT / "README.md").read_text(encoding="utf-8").split("\n## Five minutes\n")[1].split("\n## ")[0]
    return re.findall(r"```sh\n(.*?)```", section, re.DOTALL), re.findall(r"```python\n(.*?)```", section, re.DOTALL)[0]


def run(script: str, place: Path) -> "subprocess.CompletedProcess[str]":
    """Run a script of the section, with job control as in a terminal."""
    (place / ".venv").symlink_to(sys.prefix)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYBROKER_")}
    environment["PYBROKER_OPENWIRE"] = str(free_port())  # the default may be taken on this machine
    return subprocess.run(
        ["bash", "-c", "set -m\ntrap 'kill -9 %1 %2 2>/dev/null' EXIT\n" + script],
        cwd=place,
        env=environment,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )


def test_five_minutes(tmp_path):
    (start, kill, _java), program = five_minutes()
    assert start.startswith("make setup\n"), "the environment this test runs in is what it makes"
    script = start.removeprefix("make setup\n") + ".venv/bin/python send.py\n" + kill + "wait\n"
    for port in ("61613", "61623", "61626"):
        own = str(free_port())
        script, program = script.replace(port, own), program.replace(port, own)
    (tmp_path / "send.py").write_text(program, encoding="utf-8")
    found = run(script, tmp_path)
    received = [line for line in found.stdout.splitlines() if line.startswith("order ")]
    assert received == ["order 1", "order 2", "order 3"], found.stdout + found.stderr
    assert "master: a at" in found.stdout
    assert "master: b at" in found.stdout


@pytest.mark.parametrize("number", [0, 1], ids=["first start", "after the kill"])
def test_wait_for_a_broker_that_cannot_start_ends(tmp_path, number):
    loop = [line for script in five_minutes()[0] for line in script.splitlines() if line.startswith("until ")][number]
    start = ".venv/bin/pybroker start --store ./data --stomp none --openwire none &\n"
    found = run(start + start + loop + "\necho ended\n", tmp_path)
    assert found.stdout == "ended\n", found.stdout + found.stderr
    assert "is neither a port number nor `off`" in found.stderr


def test_the_demo_loses_nothing():
    demo = [sys.executable, str(ROOT / "examples" / "demo.py")]
    found = subprocess.run(demo, capture_output=True, text=True, timeout=100, check=False)
    print(found.stdout)
    assert found.returncode == 0, found.stdout + found.stderr
    assert re.search(r"accepted +4000\n +lost +0\n", found.stdout)
