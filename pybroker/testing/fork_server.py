"""The fork server: a process that has loaded the broker, and forks one on request.

Python needs most of a second to import a broker, and a few milliseconds to fork a process that has done so. This module
is the program of that process; `pybroker.testing.launcher` starts it and sends the requests.

```text
 packet on the control socket                   descriptors in it
 → {"arguments": [...], "disk": [store, mark],  pipe for the log; pipe for the exit code
    "scratch": path}
 ← {"pid": number}                              the broker's pidfd
```

A broker is an ordinary `pybroker start`, with its own signals, descriptors and limits. No process or directory is left:

* The fork server ends when the control socket is closed, which any end of the owner does; and when it has another
  parent, because a forked child of the former one may still have the socket.
* The brokers get SIGKILL from the kernel when the fork server has ended (PR_SET_PDEATHSIG), frozen ones too. The signal
  is bound to the *thread* that forked, so a test process, whose threads end earlier, could not use it.
* The directories of the owner's brokers are removed, even if a signal has ended the owner.
"""

import array
import contextlib
import ctypes
import gc
import importlib
import importlib.util
import json
import os
import selectors
import shutil
import signal
import socket
import sys
import traceback
from pathlib import Path
from typing import Any, NoReturn

from pybroker.broker.app import cli
from pybroker.testing.disk import FullDisk

REQUEST_BYTES_MAX = 65_536

_PARENT_CHECK_SECONDS = 1.0

_DESCRIPTORS_MAX = 65_536
"""An upper limit to this process's descriptors: two for each broker, and those of modules."""

_PR_SET_PDEATHSIG = 1
_EXIT_ORPHANED = 1

_PRELOADED = ("pybroker.broker.app.serve", "uvloop")
"""Modules that `pybroker start` imports after its start."""

_libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Serve the control socket; its descriptor and its owner's process id are the arguments."""
    control, parent = socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])
    for module in _PRELOADED:
        if importlib.util.find_spec(module):  # uvloop may not be installed
            importlib.import_module(module)
    gc.collect()
    gc.freeze()  # otherwise the first collection in each broker would copy every page shared with this process
    scratch: set[str] = set()
    with control, selectors.DefaultSelector() as selector:
        selector.register(control, selectors.EVENT_READ)
        _serve(control, selector, parent, scratch)
        for key in [key for key in selector.get_map().values() if key.fileobj is not control]:
            signal.pidfd_send_signal(key.data[1], signal.SIGKILL)
            _reap(*key.data)
    for directory in scratch:  # no broker writes there any more
        shutil.rmtree(directory, ignore_errors=True)


def _serve(control: socket.socket, selector: selectors.BaseSelector, parent: int, scratch: set[str]) -> None:
    """Fork brokers until the owner has ended, and collect their directories."""
    while os.getppid() == parent:
        for key, _ in selector.select(_PARENT_CHECK_SECONDS):
            if key.fileobj is not control:
                selector.unregister(key.fileobj)
                _reap(*key.data)
            elif not _answer(control, selector, scratch):
                return


def _answer(control: socket.socket, selector: selectors.BaseSelector, scratch: set[str]) -> bool:
    """Fork a broker; False at the end of the control socket."""
    packet, descriptors, _, _ = socket.recv_fds(control, REQUEST_BYTES_MAX, 2)
    if not packet:
        return False
    log, status = descriptors
    request, fork_server = json.loads(packet), os.getpid()
    pid = os.fork()
    if pid == 0:
        _become_broker(request, log, fork_server)
    if request["scratch"]:
        scratch.add(request["scratch"])
    os.close(log)
    pidfd = os.pidfd_open(pid)
    selector.register(pidfd, selectors.EVENT_READ, (pid, pidfd, status))
    _send(control, {"pid": pid}, pidfd)
    return True


def _send(control: socket.socket, reply: dict[str, Any], descriptor: int) -> None:
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor]))]
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the end, which the next read finds
        control.sendmsg([json.dumps(reply).encode()], rights)


def _reap(pid: int, pidfd: int, status: int) -> None:
    """Report a broker's exit code, or the negative number of its signal."""
    _, wait_status = os.waitpid(pid, 0)
    with contextlib.suppress(BrokenPipeError):  # the owner has ended
        os.write(status, b"%d" % os.waitstatus_to_exitcode(wait_status))
    os.close(status)
    os.close(pidfd)


# ---------------------------------------------------------------- in the broker's process


def _become_broker(request: dict[str, Any], log: int, fork_server: int) -> NoReturn:
    code = 1
    try:
        _die_with(fork_server)
        null = os.open(os.devnull, os.O_RDONLY)
        for descriptor, source in enumerate((null, log, log)):
            os.dup2(source, descriptor)
        os.closerange(3, _DESCRIPTORS_MAX)
        if disk := request["disk"]:
            FullDisk(*map(Path, disk)).install()
        sys.argv = ["pybroker", *request["arguments"]]
        cli.main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # does not return to the fork server's loop


def _die_with(parent: int) -> None:
    """Let the kernel kill this process when its parent has ended; exit at once if it already has."""
    if _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
    if os.getppid() != parent:
        os._exit(_EXIT_ORPHANED)


if __name__ == "__main__":
    main()
