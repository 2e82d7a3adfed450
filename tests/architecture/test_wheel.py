"""The wheel: the import package, the one that Spark finds it by, its type marker, its command, its licence."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path, PurePosixPath

import pytest


@pytest.fixture(scope="module")
def wheel(root: Path, tmp_path_factory: pytest.TempPathFactory) -> zipfile.Path:
    """The wheel, built from the working tree by the backend itself, without a network."""
    directory = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(directory)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = directory.glob("*.whl")
    return zipfile.Path(built)


def modules(root: Path) -> set[PurePosixPath]:
    """Every module, stub, template and file of the console of what is installed."""
    packages = (root / "pybroker", root / "pyspark_kahadb")
    patterns = ("*.py", "*.pyi", "*.j2", "*.html", "*.css", "*.js", "*.svg")
    found = (path for package in packages for pattern in patterns for path in package.rglob(pattern))
    return {PurePosixPath(path.relative_to(root)) for path in found}


def names(wheel: zipfile.Path) -> list[PurePosixPath]:
    """Every file in the wheel."""
    return [PurePosixPath(name) for name in wheel.root.namelist()]


def test_wheel_holds_the_import_package_and_its_description_only(wheel: zipfile.Path) -> None:
    tops = {name.parts[0] for name in names(wheel) if not name.parts[0].endswith(".data")}
    (description,) = tops - {"pybroker", "pyspark_kahadb"}
    assert tops >= {"pybroker", "pyspark_kahadb"}
    assert description.endswith(".dist-info")


def test_wheel_holds_every_module_and_the_type_marker(root: Path, wheel: zipfile.Path) -> None:
    assert modules(root) | {PurePosixPath("pybroker/py.typed")} <= set(names(wheel))


def test_source_distribution_holds_every_module_too(root: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--directory", str(tmp_path)]
    subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    (built,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(built) as archive:
        held = {PurePosixPath(*PurePosixPath(name).parts[1:]) for name in archive.getnames()}
    assert modules(root) <= held


def test_wheel_installs_the_manual_page(root: Path, wheel: zipfile.Path) -> None:
    (data,) = [name for name in names(wheel) if name.name == "pybroker.1"]
    assert data.parts[0].endswith(".data")
    assert data.parts[1:] == ("data", "share", "man", "man1", "pybroker.1")
    assert wheel.root.read(str(data)) == (root / "docs" / "man" / "pybroker.1").read_bytes()


def test_wheel_carries_licence_and_command(wheel: zipfile.Path) -> None:
    files = {name.name: name for name in names(wheel)}
    assert "LICENSE" in files
    with wheel.root.open(str(files["entry_points.txt"])) as entry_points:
        assert b"pybroker = pybroker.broker.app.cli:main" in entry_points.read()
