"""Fixtures of the architecture tests: the project's own files, as a clone has them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

IGNORED_AT_ROOT = frozenset({".git", ".venv", ".hypothesis", "build", "data", "dist"})
IGNORED_EVERYWHERE = ("__pycache__", "_cache", ".egg-info", "node_modules")
"""Endings of directories that hold only what tools make."""


def _files(directory: Path) -> Iterator[Path]:
    for path in sorted(directory.iterdir()):
        at_root = directory == ROOT and path.name in IGNORED_AT_ROOT
        if path.is_symlink() or at_root or path.name.endswith(IGNORED_EVERYWHERE):
            continue
        if path.is_dir():
            yield from _files(path)
        else:
            yield path


@pytest.fixture(scope="session")
def root() -> Path:
    """The directory of the clone."""
    return ROOT


@pytest.fixture(scope="session")
def project_files() -> list[Path]:
    """Every file of the project, links not followed."""
    return list(_files(ROOT))


@pytest.fixture(scope="session")
def python_files(project_files: list[Path]) -> list[Path]:
    """Every Python source of the project, tests included."""
    return [path for path in project_files if path.suffix == ".py"]


@pytest.fixture(scope="session")
def documents(project_files: list[Path]) -> list[Path]:
    """Every Markdown page."""
    return [path for path in project_files if path.suffix == ".md"]
