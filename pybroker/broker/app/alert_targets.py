"""The command and the web server that `alerts` sends events to."""

import contextlib
import os
import signal
import subprocess
import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import Final

COMMAND_SECONDS: Final = 30.0
REQUEST_SECONDS: Final = 10.0
TRY_SECONDS: Final = (0.0, 1.0, 5.0)
"""The pauses before each try to reach the web server."""

_PASSED_ON: Final = ("PATH", "HOME", "LANG", "LC_", "TZ")
"""How the environment variables begin that the command gets: others may have passwords."""


class ProgramTarget:
    """Runs a program, without a shell, and in a process group of its own that ends with the time limit."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self, line: bytes) -> None:
        """Run it with a line on its standard input.

        Raises:
            OSError: it could not be run, did not end in time, or failed.
        """
        environment = {name: value for name, value in os.environ.items() if name.startswith(_PASSED_ON)}
        with subprocess.Popen(  # noqa: S603 (the operator's program)
            [os.fspath(self._path.absolute())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        ) as process:
            try:
                process.communicate(line, COMMAND_SECONDS)
            except subprocess.TimeoutExpired as error:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                raise OSError(f"it did not end within {COMMAND_SECONDS:.0f} s") from error
        if process.returncode:
            raise OSError(f"it ended with exit code {process.returncode}")


class WebTarget:
    """Posts to a web server, with a few tries."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._pause = threading.Event()

    def __call__(self, line: bytes) -> None:
        """Post a line.

        Raises:
            OSError: the server did not take it at any try.
        """
        failure = ""
        for seconds in TRY_SECONDS:
            self._pause.wait(seconds)
            request = urllib.request.Request(  # noqa: S310 (the setting allows http and https alone)
                self._url, data=line, headers={"Content-Type": "application/json"}
            )
            try:
                with urllib.request.urlopen(request, timeout=REQUEST_SECONDS):  # noqa: S310
                    return
            except urllib.error.HTTPError as error:
                error.close()
                failure = f"HTTP status {error.code}"
            except OSError as error:
                failure = str(getattr(error, "reason", error))
        raise OSError(failure)
