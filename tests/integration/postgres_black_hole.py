# mypy: disable-error-code="method-assign"
"""A cut cable between a master and its database, in network namespaces of its own: run it by `unshare --net`.

    unshare --net python tests/integration/postgres_black_hole.py KIND with|without LEASE

The database and a standby are in one namespace, the master in another. Then the master's end of the link goes down: no
FIN, no RST, no acknowledgements. `without` switches the server's idle timeouts off, so that only TCP's own bounds are
left. Prints one line of JSON: after how many seconds the master gave up, and after how many the standby had the lock.
"""

import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from pybroker.locks.postgres.advisory import PostgresAdvisoryLock
from pybroker.locks.postgres.timing import Timing, now
from tests.integration import postgres_lock_holder
from tests.postgres_cluster import PostgresDatabase, the_cluster

ROOT = Path(__file__).parents[2]
LIMIT_SECONDS = 60
DATABASE_HOST, MASTER_HOST = "10.9.0.1", "10.9.0.2"


def shell(command: str) -> None:
    subprocess.run(["sh", "-ec", command], check=True)


@contextmanager
def link() -> Iterator[list[str]]:
    """A second namespace and a link to it; yields what a command in there begins with."""
    with subprocess.Popen(["unshare", "--net", "sh", "-c", "echo; read end"], stdin=-1, stdout=-1) as other:
        assert other.stdout is not None
        other.stdout.readline()  # it is in its namespace
        inside = ["nsenter", "--target", str(other.pid), "--net"]
        shell(
            f"ip link set lo up; ip link add near type veth peer name far netns {other.pid};"
            f"ip addr add {DATABASE_HOST}/24 dev near; ip link set near up;"
            f"{' '.join(inside)} sh -ec 'ip link set lo up; ip addr add {MASTER_HOST}/24 dev far; ip link set far up'"
        )
        try:
            yield inside
        finally:
            other.kill()


def reachable_database() -> PostgresDatabase:
    cluster = the_cluster(is_durable=False)
    data = cluster.directory / "data"
    for name, line in (
        ("postgresql.conf", "listen_addresses = '*'"),
        ("pg_hba.conf", f"host all all {MASTER_HOST}/32 scram-sha-256"),
    ):
        with (data / name).open("a") as file:
            file.write(f"{line}\n")
    cluster.stop(signal.SIGINT)
    cluster.start()
    return cluster.create_database()


def switch_idle_timeouts_off() -> None:
    """Have this process's sessions leave the server's idle timeouts off."""
    settings = Timing.server_settings
    Timing.server_settings = lambda self: settings(self) | {"idle_in_transaction_session_timeout": "0"}
    PostgresAdvisoryLock._prepare = lambda self, session: None


def main(kind: str, idle_timeouts: str, lease: str) -> None:
    with link() as inside, tempfile.TemporaryDirectory() as directory, ThreadPoolExecutor(1) as pool:
        database = reachable_database()
        there = database.url.replace("127.0.0.1", DATABASE_HOST)
        command = [*inside, sys.executable, __file__, "--member", idle_timeouts, kind, there, lease, "m"]
        with subprocess.Popen(command, cwd=ROOT, stdin=-1, stdout=-1, text=True) as master:
            assert master.stdin is not None
            assert master.stdout is not None
            assert [master.stdout.readline(), master.stdout.readline()] == ["waiting\n", "held\n"]
            lock = postgres_lock_holder.make(kind, database.url, float(lease), "m")
            won = pool.submit(lambda: lock.acquire() and now())
            trace = Path(directory, "checked")
            master.stdin.write(f"watch {trace}\n")
            master.stdin.flush()
            while not (trace.exists() and trace.read_text()):
                pass
            shell(f"{' '.join(inside)} ip link set far down")
            cut_at = now()
            lost_at = float(master.stdout.readline().split()[1])
            won_at = won.result(LIMIT_SECONDS)
            last_checked_at = float(trace.read_text())
            lock.release()
            master.kill()
    print(json.dumps({"gave_up": lost_at - cut_at, "won": won_at - cut_at, "last_good": last_checked_at - cut_at}))


if __name__ == "__main__":
    if sys.argv[1] == "--member":
        if sys.argv[2] == "without":
            switch_idle_timeouts_off()
        postgres_lock_holder.main(*sys.argv[3:])
    else:
        main(*sys.argv[1:])
