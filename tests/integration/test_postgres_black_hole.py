"""A cut cable between the master and its database, as the kernels see it: network namespaces, so for root only.

Where this cannot run, `test_postgres_locks.py` has a stalling proxy; what that one cannot show are TCP's own bounds.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pace import in_time
from tests.postgres_cluster import require_postgres

ROOT = Path(__file__).parents[2]
LEASE_SECONDS = 3.0


@pytest.fixture(autouse=True, scope="module")
def namespaces() -> None:
    require_postgres()
    tools = all(shutil.which(tool) for tool in ("unshare", "nsenter", "ip"))
    probe = "ip link add near type veth peer name far"
    if (
        not tools
        or os.geteuid() != 0
        or subprocess.run(["unshare", "--net", "sh", "-c", probe], check=False).returncode
    ):
        pytest.skip("this machine has no network namespaces for this user; run as root, with iproute2 and util-linux")


@pytest.mark.parametrize(
    ("kind", "idle_timeouts"),
    [("row", "with"), ("row", "without"), ("advisory", "with"), ("advisory", "without"), ("lease", "with")],
)
def test_old_master_gives_up_before_the_server_frees_its_lock(kind: str, idle_timeouts: str) -> None:
    """Keepalives and tcp_user_timeout suffice without the idle timeouts, at most one probe later."""
    command = ["unshare", "--net", sys.executable, str(ROOT / "tests" / "integration" / "postgres_black_hole.py")]
    done = subprocess.run(
        [*command, kind, idle_timeouts, str(LEASE_SECONDS)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
    )
    assert done.returncode == 0, done.stderr
    times = json.loads(done.stdout)
    print(f"\ncut cable, {kind}, {idle_timeouts} idle timeouts: {times}")
    assert times["last_good"] < times["gave_up"] < times["won"]
    assert in_time(times["won"], LEASE_SECONDS + 2)
