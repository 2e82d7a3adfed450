"""A missing component is never overlooked: skipped with advice where that is allowed, a failure where it is not."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

NEEDS = """
import pytest

@pytest.mark.component("{component}")
def test_something():
    pass
"""


@pytest.fixture
def suite(root: Path, tmp_path: Path) -> Path:
    """A directory with this project's conftest and markers, and no test as yet."""
    shutil.copy(root / "tests" / "conftest.py", tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = component(name): as in pyproject.toml\n")
    return tmp_path


def outcome(suite: Path, component: str, *, strict: bool) -> subprocess.CompletedProcess[str]:
    """Run one test that needs a component, where the PATH has no programs at all."""
    (suite / "test_it.py").write_text(NEEDS.format(component=component))
    environment = {**os.environ, "PATH": str(suite), "PYBROKER_TEST_STRICT": "1" if strict else ""}
    command = [sys.executable, "-m", "pytest", "-rs", "-p", "no:cacheprovider", "-p", "no:xdist"]
    return subprocess.run(command, cwd=suite, env=environment, capture_output=True, text=True, check=False)


def test_a_missing_component_skips_with_advice(suite: Path) -> None:
    done = outcome(suite, "java", strict=False)
    assert done.returncode == pytest.ExitCode.OK
    assert "1 skipped" in done.stdout
    assert "install default-jdk-headless" in done.stdout


def test_missing_database_driver_skips_with_advice(suite: Path) -> None:
    """Also where ActiveMQ itself is installed."""
    conftest = suite / "conftest.py"
    conftest.write_text(conftest.read_text().replace('"postgresql.jar"', '"absent.jar"'))
    done = outcome(suite, "activemq-jdbc", strict=False)
    assert done.returncode == pytest.ExitCode.OK
    assert "1 skipped" in done.stdout
    assert "install libpostgresql-jdbc-java" in done.stdout


def test_a_missing_component_fails_where_nothing_may_be_skipped(suite: Path) -> None:
    done = outcome(suite, "java", strict=True)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert "install default-jdk-headless" in done.stdout


def test_a_misspelt_component_is_refused(suite: Path) -> None:
    done = outcome(suite, "jawa", strict=False)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "component must be one of java, activemq" in done.stderr
