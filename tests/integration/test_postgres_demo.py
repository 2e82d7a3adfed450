"""`make demo STORE=postgres`: the demo's story, with a database in place of the directory."""

import re
import subprocess
import sys
from pathlib import Path

from tests.postgres_cluster import require_postgres

DEMO = Path(__file__).parents[2] / "examples" / "demo.py"


def demo(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(DEMO), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, env=environment or None)


def test_postgres_demo_loses_nothing() -> None:
    require_postgres()
    done = demo("postgres")
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "two brokers on the store postgresql://" in done.stdout
    assert re.search(r"accepted +4000\n +lost +0\n", done.stdout)


def test_an_unknown_kind_of_store_names_the_kinds() -> None:
    done = demo("oracle")
    assert done.returncode == 1
    assert done.stderr == "'oracle' is not a kind of store: write one of journal, postgres, replicated\n"
