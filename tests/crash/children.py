"""Runs programs that kill themselves, without the time that Python needs to load their modules.

They are forked by a process that has loaded it, `python -m tests.crash.children`: one line of JSON on its standard
input names a module here, arguments of its `main`, and the files for output and errors; the answer is the exit code.
"""

import atexit
import contextlib
import gc
import importlib
import json
import os
import subprocess
import sys
import tempfile
import traceback
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAMS = ("tests.crash.child", "tests.crash.operations_child", "tests.crash.scheduler_child")


def run(program: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run a program to its end, or to where it kills itself."""
    server, folder = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    output, errors = folder / "output", folder / "errors"
    server.stdin.write(json.dumps([program, arguments, str(output), str(errors)]) + "\n")
    server.stdin.flush()
    code = int(server.stdout.readline())
    return subprocess.CompletedProcess([program, *arguments], code, output.read_text(), errors.read_text())


@cache
def _server() -> "tuple[subprocess.Popen[str], Path]":
    held = contextlib.ExitStack()
    atexit.register(held.close)
    folder = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="children-")))
    command = [sys.executable, "-m", "tests.crash.children"]
    pipe = subprocess.PIPE
    server = held.enter_context(subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True))
    held.callback(server.kill)  # should a program hang, it would wait for that one's end
    return server, folder


def _serve() -> None:
    programs = {name: importlib.import_module(name) for name in PROGRAMS}
    gc.freeze()
    for line in sys.stdin:
        name, arguments, *files = json.loads(line)
        if not (pid := os.fork()):
            for number, file in enumerate(files, 1):
                os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
            try:
                programs[name].main(*arguments)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


if __name__ == "__main__":
    _serve()
