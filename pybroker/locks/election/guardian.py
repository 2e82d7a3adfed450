"""A master's guardian: a small process that releases the cluster when the master's process has ended.

A member whose process is killed is then replaced at once, and not only after its lease. A machine, a network or a
frozen process that is lost still needs the lease.

Why it is safe. The kernel reports by the pidfd that all threads of the master have ended, so it confirms and delivers
nothing any more. What it has confirmed is on the disk of each store in sync by the register: that holds at any moment,
also where a swap of the master is under way, whose outcome counts both ways for it. The guardian changes nothing of
the record but the state. Its swap and the master's last one are based on one revision, so that only one of them takes
effect; if it was the master's, the guardian reads the record, and goes on only if it is still of the same run. A run's
id is never used again, so that it does not matter how late that is.

The process gets no descriptor but its socket, the pidfd and standard error: it holds no listener and no lock of the
master. What it needs to reach the register, with passwords, comes over the socket, and is in no command line. It is in
a session of its own, so that a terminal's Ctrl-C does not end it.

Source: specification of replication, 5.
"""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pybroker.broker.domain.errors import LockError
from pybroker.locks.election.register import RegisterState

PROGRAM: Final = Path(__file__).with_name("guardian_process.py").absolute()


class Guardian:
    """The process of one term of mastership. Used by one thread at a time; its calls block for milliseconds at most."""

    def __init__(self, access: Mapping[str, Any], *, name: str, run: str, lease_seconds: float) -> None:
        """Start the process.

        Args:
            access: to the register, of `Register.guardian_access`.
            name: of this member, for the log.
            run: of this member; it releases nothing else.
            lease_seconds: how long it tries; then the others need it no more.

        Raises:
            LockError: it cannot be started, or this machine has no pidfd.
        """
        if "kind" not in access:
            raise LockError(access["reason"])
        try:
            self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except OSError as error:
            raise LockError(f"it cannot be started ({error})") from error
        self._socket.setblocking(False)
        try:
            own = os.pidfd_open(os.getpid())
        except (AttributeError, OSError) as error:  # macOS, or a kernel older than Linux 5.3
            other.close()
            self._socket.close()
            raise LockError(f"this system does not tell of the end of a process ({error})") from error
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own program
                [sys.executable, "-I", "-S", str(PROGRAM), str(own)],
                stdin=other.fileno(),
                stdout=subprocess.DEVNULL,
                cwd="/",
                pass_fds=(own,),
                start_new_session=True,
            )
        except OSError as error:
            self._socket.close()
            raise LockError(f"it cannot be started ({error})") from error
        finally:
            other.close()
            os.close(own)
        self._send({**access, "name": name, "run": run, "lease_seconds": lease_seconds})

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def tell(self, content: RegisterState) -> None:
        """Tell what the register contains now. One that is not told, as the process is slow, will be read."""
        if content.record is not None:
            self._send({"revision": content.revision, "value": content.record.encode().decode()})

    def exit_code(self) -> int | None:
        """Return the exit code if the process has ended, which only an error or a signal can be the reason for."""
        return self._process.poll()

    def end(self) -> None:
        """End the process: this member is not the master any more, or stops. May be repeated."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._socket.close()

    def _send(self, packet: Mapping[str, Any]) -> None:
        try:
            self._socket.send(json.dumps(packet).encode())
        except OSError:  # it has ended, which its exit code tells, or its socket is full: it reads the register itself
            return
