"""The wheel with its message path compiled, built from the working tree and unpacked into `build/compiled`.

`python -m benchmarks.compiled` prints the directory. What stands on PYTHONPATH comes before what is installed, so that

    PYTHONSAFEPATH=1 PYTHONPATH=$(python -m benchmarks.compiled) python -m pytest tests/conformance

tests the compiled package from a checkout; PYTHONSAFEPATH keeps the current directory from coming before both.
The build takes a minute or two, and is made again only when a source has changed.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
BUILDS = ROOT / "build" / "compiled"


def unpacked() -> Path:
    """Return the directory with the compiled package, after building it if need be.

    Raises:
        RuntimeError: the build failed; with its output.
    """
    place = BUILDS / _digest()
    if not place.is_dir():
        print(f"compiling pybroker into {place.relative_to(ROOT)}, about two minutes", file=sys.stderr, flush=True)
        shutil.rmtree(BUILDS, ignore_errors=True)
        BUILDS.mkdir(parents=True)
        with tempfile.TemporaryDirectory(dir=BUILDS) as folder:
            with zipfile.ZipFile(_built(Path(folder))) as wheel:
                wheel.extractall(Path(folder) / "package")
            (Path(folder) / "package").rename(place)
    return place


def environment(place: Path) -> dict[str, str]:
    """Return the variables that have a Python process use such a directory."""
    return {"PYTHONPATH": str(place), "PYTHONSAFEPATH": "1"}


def _digest() -> str:
    """Return a name for what would be built."""
    digest = hashlib.sha256(sysconfig.get_config_var("EXT_SUFFIX").encode())
    for source in (ROOT / "pyproject.toml", *sorted((ROOT / "pybroker").rglob("*.py"))):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def _built(directory: Path) -> Path:
    # By way of a source distribution: the compiler never works in the checkout itself.
    command = [_uv(), "build", "--no-build-isolation", "--out-dir", str(directory), str(ROOT)]
    done = subprocess.run(
        command,
        env=os.environ | {"HATCH_BUILD_HOOKS_ENABLE": "1", "VIRTUAL_ENV": sys.prefix},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    (wheel,) = directory.glob("*.whl")
    return wheel


def _uv() -> str:
    beside = Path(sys.executable).with_name("uv")
    return str(beside) if beside.is_file() else "uv"


if __name__ == "__main__":
    print(unpacked())
