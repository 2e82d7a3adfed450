"""A PostgreSQL of one's own for a while: in a temporary directory, on a free port of this machine, with one database.

Takes the newest of Debian's servers in /usr/lib/postgresql, or the one on the PATH. The server refuses to run as root,
so root runs it as the user `postgres`, whom Debian's package makes.
"""

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

ADVICE = (
    "this needs a PostgreSQL server: sudo apt-get install postgresql (Debian, Ubuntu); or run the pair with the one\n"
    "of docker-compose.yml, whose first lines say how"
)


@contextlib.contextmanager
def private_postgres(port: int) -> Iterator[str]:
    """Run a server on that port of the loopback, and yield its database's URL."""
    binaries = find_binaries()
    directory = Path(tempfile.mkdtemp(prefix="pybroker-demo-"))
    as_user: list[str] = []
    if os.geteuid() == 0:
        as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
        shutil.chown(directory, "postgres", "postgres")
    data = str(directory / "data")
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    # Only this machine's users reach it, and it is gone in a minute: it trusts them.
    subprocess.run([*as_user, binaries / "initdb", "-D", data, "-U", "pybroker", "-A", "trust"], check=True, **quiet)
    options = ["-p", str(port), "-k", str(directory), "-c", "listen_addresses=127.0.0.1"]
    server = subprocess.Popen([*as_user, binaries / "postgres", "-D", data, *options], **quiet)
    try:
        ready = [binaries / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(port)]
        while subprocess.run(ready, check=False).returncode != 0:
            if server.poll() is not None:
                raise SystemExit(f"PostgreSQL did not start: run it by hand with {' '.join(map(str, server.args))}")
        yield f"postgresql://pybroker@127.0.0.1:{port}/postgres"
    finally:
        server.terminate()
        server.wait()
        shutil.rmtree(directory)


def find_binaries() -> Path:
    """Return the directory of the server's programs."""

    def version(path: Path) -> float:
        return float(path.parent.name) if path.parent.name.replace(".", "", 1).isdecimal() else 0.0

    found = [path for path in Path("/usr/lib/postgresql").glob("*/bin") if (path / "initdb").is_file()]
    if found:
        return max(found, key=version)
    on_path = shutil.which("initdb")
    if on_path is None:
        raise SystemExit(ADVICE)
    return Path(on_path).resolve().parent
