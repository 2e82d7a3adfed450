"""Arrows point down, and nobody reaches a room through the links at the root."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOMS = ("broker", "transports", "store", "locks", "spark_jobs")

IMPORT_DOMAIN = """
import importlib, pkgutil, sys
import pybroker.broker.domain as domain
for module in pkgutil.walk_packages(domain.__path__, domain.__name__ + "."):
    importlib.import_module(module.name)
print(*sorted(sys.modules))
"""


def imported(path: Path) -> set[str]:
    """Every module a source names in an import statement, wherever it stands."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
    return names


def test_import_contracts_hold(root: Path) -> None:
    """The contracts of pyproject.toml, as `lint-imports` judges them."""
    linter = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([linter, "--no-cache"], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def modules_behind_domain() -> set[str]:
    """What a fresh interpreter has loaded once it knows the whole of the domain."""
    done = subprocess.run([sys.executable, "-c", IMPORT_DOMAIN], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_domain_is_loaded_whole(modules_behind_domain: set[str]) -> None:
    assert {"pybroker.broker.domain.ports", "pybroker.broker.domain.message"} <= modules_behind_domain


@pytest.mark.parametrize("unwanted", ["asyncio", "socket", "pybroker.broker.core", "pybroker.broker.app", "pydantic"])
def test_domain_drags_nothing_in(modules_behind_domain: set[str], unwanted: str) -> None:
    assert unwanted not in modules_behind_domain


def test_pyspark_is_known_to_the_spark_jobs_only(root: Path, python_files: list[Path]) -> None:
    users = {
        path.relative_to(root).parts[:2]
        for path in python_files
        if any(name.split(".")[0] == "pyspark" for name in imported(path)) and path.is_relative_to(root / "pybroker")
    }
    assert users <= {("pybroker", "spark_jobs")}


def test_nothing_imports_through_the_links_at_the_root(root: Path, python_files: list[Path]) -> None:
    """`import store` would load a twin of `pybroker.store`, with types of its own."""
    twins = [
        f"{path.relative_to(root)}: {name}"
        for path in python_files
        for name in imported(path)
        if name.split(".")[0] in ROOMS
    ]
    assert not twins


@pytest.mark.parametrize("room", ROOMS)
def test_each_room_is_linked_at_the_root(root: Path, room: str) -> None:
    link = root / room
    assert link.is_symlink()
    assert link.readlink() == Path("pybroker") / room, "relative, so that it survives a move of the clone"
    assert link.is_dir()
