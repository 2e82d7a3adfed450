"""`make demo STORE=replicated`: the demo's story, with a directory for each broker, and the killed one's return."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

DEMO = Path(__file__).parents[2] / "examples" / "demo.py"

pytestmark = pytest.mark.component("etcd")


@pytest.mark.timeout(150)
def test_replicated_demo_loses_nothing_and_its_stores_become_equal() -> None:
    command = [sys.executable, str(DEMO), "replicated"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    print(done.stdout, done.stderr)
    assert done.returncode == 0
    assert re.search(r"[0-9,]+ bytes in \d+ data files: equal in both stores", done.stdout)
    assert re.search(r"accepted +4000\n +lost +0\n", done.stdout)
