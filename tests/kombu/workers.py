"""Workers of Celery as processes of their own, and what they do."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "celery"


def environment(url: str, **more: str) -> dict[str, str]:
    """Return the environment of a program with the application on some brokers."""
    path = os.pathsep.join((str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])))
    return {**os.environ, "SHOP_BROKER": url, "PYTHONPATH": path, "C_FORCE_ROOT": "1", **more}


@contextlib.contextmanager
def program(
    application: str, directory: Path, url: str, log: Path, *arguments: str, **more: str
) -> Iterator["subprocess.Popen[Any]"]:
    """Run a program of Celery; it is killed at the end, with its processes. Its log is complete then."""
    command = [sys.executable, "-m", "celery", "--app", application, *arguments]
    with log.open("ab") as file:
        process = subprocess.Popen(
            command, cwd=directory, env=environment(url, **more), stdout=file, stderr=file, start_new_session=True
        )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.wait()


def worker(
    application: str, directory: Path, url: str, log: Path, *arguments: str, **more: str
) -> contextlib.AbstractContextManager["subprocess.Popen[Any]"]:
    """Run a worker, which logs what it does."""
    return program(application, directory, url, log, "worker", "--loglevel", "INFO", *arguments, **more)
