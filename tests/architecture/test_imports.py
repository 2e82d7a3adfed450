"""Arrows point down, and no module reaches a package through the links at the root."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.sources import tree

PACKAGES = ("broker", "transports", "store", "locks", "spark_jobs")

IMPORT_DOMAIN = """
import importlib, pkgutil, sys
import pybroker.broker.domain as domain
for module in pkgutil.walk_packages(domain.__path__, domain.__name__ + "."):
    importlib.import_module(module.name)
print(*sorted(sys.modules))
"""

START = """
import sys
from pathlib import Path
from pybroker.broker.app import cli, config
settings = config.load(Path(sys.argv[1]) if sys.argv[1:] else None, {"store": "data"}, {})
from pybroker.broker.app import preflight, protocols, serve, wiring
from pybroker.store.memory import MemoryStore
wiring.make_lock(settings)
wiring.is_locked(wiring.lock_name(settings))
broker = wiring.make_broker(settings, MemoryStore())
protocols.make_protocols(settings, broker, settings.listeners)
print(*sorted(sys.modules))
"""
"""The first steps of `pybroker start`, and a little more."""


def imported(path: Path) -> set[str]:
    """Every module a source names in an import statement, wherever it stands."""
    names: set[str] = set()
    for node in ast.walk(tree(path.read_text())):
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
    """Modules of a fresh interpreter that has imported the whole domain."""
    done = subprocess.run([sys.executable, "-c", IMPORT_DOMAIN], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_domain_is_loaded_whole(modules_behind_domain: set[str]) -> None:
    assert {"pybroker.broker.domain.ports", "pybroker.broker.domain.message"} <= modules_behind_domain


@pytest.mark.parametrize("unwanted", ["asyncio", "socket", "pybroker.broker.core", "pybroker.broker.app"])
def test_domain_drags_nothing_in(modules_behind_domain: set[str], unwanted: str) -> None:
    assert unwanted not in modules_behind_domain


@pytest.fixture(scope="module")
def modules_of_a_start() -> set[str]:
    """Modules of a broker with the default settings that is about to read its store."""
    done = subprocess.run([sys.executable, "-c", START], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_a_start_loads_the_broker(modules_of_a_start: set[str]) -> None:
    assert {"pybroker.broker.core.broker", "pybroker.store.journal.store", "asyncio"} <= modules_of_a_start


@pytest.mark.parametrize(
    ("unwanted", "wanted_by"),
    [
        ("pybroker.broker.app.policies", "a configuration file with tables"),
        ("tomllib", "any configuration file"),
        ("filelock", "the lock `flock`"),
        ("importlib.metadata", "no one: it reads every package's description"),
        ("psycopg2", "a store or lock in a database"),
        ("pybroker.store.jdbc", "a store in a database"),
        ("pybroker.spark_jobs", "`pybroker analyze`"),
        ("pybroker.store.columns", "Spark"),
        ("websockets", "listeners for WebSocket"),
        ("pybroker.transports.websocket.session", "the same"),
        ("pybroker.client", "clients"),
        ("stomp", "clients of stomp.py"),
        ("kombu", "Celery"),
        ("rich", "progress bars"),
        ("numpy", "Spark"),
        ("pyarrow", "Spark"),
        ("pyspark", "Spark"),
    ],
)
def test_a_start_loads_nothing_that_only_others_want(
    modules_of_a_start: set[str], unwanted: str, wanted_by: str
) -> None:
    """A cold start is as long as its imports: what this finds is to be imported where it is used, by those who do."""
    assert unwanted not in modules_of_a_start, f"it is for {wanted_by}"


def test_tables_load_what_reads_them(tmp_path: Path) -> None:
    """The test above would find such an import."""
    file = tmp_path / "pybroker.toml"
    file.write_text('[[composite_queues]]\nname = "A"\nforward_to = [{ queue = "B", selector = "a = 1" }]\n')
    done = subprocess.run([sys.executable, "-c", START, file], capture_output=True, text=True, check=True)
    assert {"pybroker.broker.app.policies", "tomllib"} <= set(done.stdout.split())


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
        if name.split(".")[0] in PACKAGES
    ]
    assert not twins


@pytest.mark.parametrize("package", PACKAGES)
def test_each_package_is_linked_at_the_root(root: Path, package: str) -> None:
    link = root / package
    assert link.is_symlink()
    assert link.readlink() == Path("pybroker") / package, "relative, so that it survives a move of the clone"
    assert link.is_dir()
