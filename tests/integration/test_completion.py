"""Completion in a shell, as bash asks for it: commands, options and files, from a program that imports little."""

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.pace import in_time

ROOT = Path(__file__).parents[2]

COMPLETE = """
source "$1"
shift
COMP_WORDS=("$@")
COMP_CWORD=$(( $# - 1 ))
compopt() { echo "compopt $1 $2"; }
_pybroker_completion "$1"
printf '%s\\n' "${COMPREPLY[@]}"
"""

CPU_SECONDS_MAX = 1.0
"""Some 0.2 s were measured, of which Python and click take 0.08 s."""

HEAVY = (
    "pybroker.broker.core",
    "pybroker.transports.openwire",
    "pybroker.store",
    "pybroker.client",
    "pybroker.management",
    "http.client",
    "pyspark",
    "uvloop",
    "rich",
)
"""Parts of pybroker, and packages, that no completion needs."""

LIGHT = ("pybroker.store", "pybroker.store.directories")
"""The names of directories, which settings need too, and their package: they import nothing but `pathlib`."""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment whose PATH has the command `pybroker`."""
    programs = tmp_path_factory.mktemp("bin")
    program = programs / "pybroker"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m pybroker.broker.app.cli "$@"\n')
    program.chmod(0o755)
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYBROKER_", "COMP_"))}
    return kept | {"PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}


@pytest.fixture(scope="module")
def script(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The script that the documents install."""
    made = subprocess.run(
        ["pybroker"],
        env=environment | {"_PYBROKER_COMPLETE": "bash_source"},
        capture_output=True,
        text=True,
        check=True,
    )
    path = tmp_path_factory.mktemp("completion") / "pybroker"
    path.write_text(made.stdout)
    return path


def command(script: Path, *words: str) -> list[str]:
    return ["bash", "--norc", "--noprofile", "-c", COMPLETE, "bash", str(script), *words]


def completed(script: Path, environment: dict[str, str], *words: str) -> Sequence[str]:
    done = subprocess.run(command(script, *words), env=environment, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.split("\n")[:-1]


def test_bash_completes_commands(script: Path, environment: dict[str, str]) -> None:
    assert completed(script, environment, "pybroker", "st") == ["start", "status", "stepdown"]
    # Its own processes alone: those of earlier tests may be collected at any moment.
    with subprocess.Popen(command(script, "pybroker", "st"), env=environment, stdout=subprocess.DEVNULL) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    spent = used.ru_utime + used.ru_stime
    print(f"one completion took {spent:.2f} s of processor time")
    assert process.returncode == 0
    assert in_time(spent, CPU_SECONDS_MAX)
    assert completed(script, environment, "pybroker", "journal", "ch") == ["check"]


def test_bash_completes_options(script: Path, environment: dict[str, str]) -> None:
    assert completed(script, environment, "pybroker", "start", "--log-f") == ["--log-format", "--log-file"]


def test_bash_completes_names_of_files(script: Path, environment: dict[str, str]) -> None:
    assert completed(script, environment, "pybroker", "start", "--log-file", "x")[0] == "compopt -o default"
    assert completed(script, environment, "pybroker", "start", "--config", "x")[0] == "compopt -o default"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_of_the_documents_gets_a_script(environment: dict[str, str], shell: str) -> None:
    page = (ROOT / "docs" / "install.md").read_text()
    assert f"_PYBROKER_COMPLETE={shell}_source pybroker >" in page
    made = subprocess.run(
        ["pybroker"],
        env=environment | {"_PYBROKER_COMPLETE": f"{shell}_source"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"_PYBROKER_COMPLETE={shell}_complete" in made.stdout


def test_completion_imports_little(environment: dict[str, str]) -> None:
    program = (
        "import sys\nsys.argv = ['pybroker']\nfrom pybroker.broker.app.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    print(*sys.modules, sep='\\n', file=sys.stderr)\n"
    )
    asked = {"_PYBROKER_COMPLETE": "bash_complete", "COMP_WORDS": "pybroker ", "COMP_CWORD": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment | asked, capture_output=True, text=True, check=True
    )
    assert "plain,start" in done.stdout.splitlines()
    loaded = done.stderr.splitlines()
    assert "pybroker.broker.app.config" in loaded
    assert [name for name in loaded if name.startswith(HEAVY) and name not in LIGHT] == []
