"""A missing component is never overlooked: skipped with advice where that is allowed, a failure where it is not."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tests import cost, in_memory, pace

NEEDS = """
import pytest

@pytest.mark.component("{component}")
def test_something():
    pass
"""


@pytest.fixture
def suite(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with this project's conftest and markers, and no test as yet."""
    monkeypatch.setenv("PYTHONPATH", str(root))
    shutil.copy(root / "tests" / "conftest.py", tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = component(name): as in pyproject.toml\n")
    return tmp_path


def outcome(suite: Path, component: str, *, strict: bool) -> subprocess.CompletedProcess[str]:
    """Run one test that needs a component, where the PATH has no programs."""
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
    """The advice is the same where ActiveMQ itself is installed."""
    conftest = suite / "conftest.py"
    conftest.write_text(conftest.read_text().replace('"postgresql.jar"', '"absent.jar"'))
    done = outcome(suite, "activemq-jdbc", strict=False)
    assert done.returncode == pytest.ExitCode.OK
    assert "1 skipped" in done.stdout
    assert "install libpostgresql-jdbc-java" in done.stdout


@pytest.mark.parametrize("strict", [False, True])
def test_absent_cluster_of_others_is_counted_as_not_run(
    suite: Path, monkeypatch: pytest.MonkeyPatch, strict: bool
) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    done = outcome(suite, "kubernetes", strict=strict)
    assert done.returncode == pytest.ExitCode.OK
    assert "1 skipped" in done.stdout
    assert "= NOT RUN =" in done.stdout
    assert "1 tests were not run without the API server of a Kubernetes cluster" in done.stdout


def test_a_missing_component_fails_where_nothing_may_be_skipped(suite: Path) -> None:
    done = outcome(suite, "java", strict=True)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert "install default-jdk-headless" in done.stdout


def test_a_misspelt_component_is_refused(suite: Path) -> None:
    done = outcome(suite, "jawa", strict=False)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "component must be one of java, activemq" in done.stderr


def test_a_skip_fails_where_nothing_may_be_skipped(suite: Path) -> None:
    (suite / "test_other.py").write_text('import pytest\n\ndef test_it():\n    pytest.skip("not today")\n')
    assert outcome(suite, "java", strict=False).stdout.count("not today") == 1
    assert "PYBROKER_TEST_STRICT=1 and not today" in outcome(suite, "java", strict=True).stdout


def test_a_skipped_module_fails_where_nothing_may_be_skipped(suite: Path) -> None:
    (suite / "test_other.py").write_text('import pytest\n\npytest.importorskip("absent", reason="install absent")\n')
    done = outcome(suite, "java", strict=True)
    assert done.returncode == pytest.ExitCode.INTERRUPTED
    assert "PYBROKER_TEST_STRICT=1 and install absent" in done.stdout


def test_what_a_machine_lacks_is_skipped_also_there(suite: Path) -> None:
    (suite / "test_other.py").write_text('import pytest\n\ndef test_it():\n    pytest.skip("this kernel is old")\n')
    assert "SKIPPED [1] test_other.py:4: this kernel is old" in outcome(suite, "java", strict=True).stdout


# ---------------------------------------------------------------- what tests may take


def test_no_test_may_take_long_unless_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "slowness", lambda _: 1.0)
    monkeypatch.setattr(cost, "LONG", {"tests/a.py::test_long": (100.0, "a reason"), "tests/b.py": (50.0, "another")})
    assert cost.overrun("tests/a.py::test_other", cost.LIMIT_SECONDS + 1) != ""
    assert cost.overrun("tests/a.py::test_other", cost.LIMIT_SECONDS - 1) == ""
    assert cost.overrun("tests/a.py::test_long[x]", 99) == ""
    assert cost.overrun("tests/a.py::test_long", 101) != ""
    assert cost.overrun("tests/b.py::test_any", 49) == ""
    monkeypatch.setattr(cost, "slowness", lambda _: 2.0)
    assert cost.overrun("tests/b.py::test_any", 99) == ""
    assert cost.overrun("tests/b.py::test_any", 101) != ""


def test_pace_is_that_of_the_time_in_which_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "pace"
    file.write_text(f"{time.monotonic() - 10} {10 * pace.IDLE_SECONDS}\n")
    monkeypatch.setenv("TESTS_PACE", str(file))
    monkeypatch.setattr(pace, "_seconds", lambda: pace.IDLE_SECONDS)
    assert pace.slowness(5.0) == 1.0
    assert pace.slowness(15.0) == 10.0


def test_a_test_that_takes_too_long_fails_where_ci_runs_it(suite: Path) -> None:
    conftest = suite / "conftest.py"
    conftest.write_text(conftest.read_text() + "\n\noverrun = lambda node, seconds: f'{node} took long'\n")
    (suite / "test_other.py").write_text("def test_it():\n    pass\n")
    assert "test_other.py::test_it took long" in outcome(suite, "java", strict=True).stdout
    assert outcome(suite, "java", strict=False).returncode == pytest.ExitCode.OK


def test_the_list_of_long_tests_names_tests_that_exist(root: Path) -> None:
    for name, (seconds, reason) in cost.LONG.items():
        path, _, test = name.partition("::")
        source = (root / path).read_text()
        assert not test or f"def {test.rpartition('::')[2]}(" in source, name
        assert seconds > cost.LIMIT_SECONDS
        assert reason


def test_what_is_costly_for_a_session_stays_in_one_process() -> None:
    assert cost.group("tests/spark/test_jobs.py::test_a") == cost.group("tests/spark/test_scan.py::test_b[x]")
    assert cost.group("tests/client/test_sync.py::test_a[pybroker]") == cost.group(
        "tests/client/x.py::test_b[pybroker-1]"
    )
    assert cost.group("tests/client/test_sync.py::test_a[pybroker]") != cost.group(
        "tests/client/x.py::test_b[activemq]"
    )
    assert cost.group("tests/unit/core/test_queue.py::test_a[x]") == "tests/unit/core/test_queue.py"
    assert cost.group("tests/property/test_stomp.py::test_a") != cost.group("tests/property/test_stomp.py::test_b")


def test_a_parallel_run_gives_a_group_to_one_process(suite: Path) -> None:
    suite = suite / "spark"
    suite.mkdir()
    for name in ("one", "other"):
        (suite / f"test_{name}.py").write_text(
            "import os\n\nimport pytest\n\n"
            "@pytest.mark.parametrize('number', range(10))\n"
            "def test_it(number):\n    print('by', os.environ['PYTEST_XDIST_WORKER'])\n"
        )
    command = [sys.executable, "-m", "pytest", "-n", "2", "--dist", "loadgroup", "-rP", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=suite.parent, capture_output=True, text=True, check=False)
    by = [line for line in done.stdout.splitlines() if line.startswith("by ")]
    assert len(by) == 20
    assert len(set(by)) == 1


# ---------------------------------------------------------------- where their files are


def test_temporary_files_are_in_memory_on_request(suite: Path) -> None:
    """Temporary files of fixtures and of the tests themselves; afterwards they are gone."""
    (suite / "test_other.py").write_text(
        "import tempfile\n\ndef test_it(tmp_path):\n"
        "    open(tempfile.mkstemp()[1], 'w').close()\n    print('at', tmp_path, tempfile.gettempdir())\n"
    )
    command = [sys.executable, "-m", "pytest", "-rP", "-p", "no:cacheprovider", "-p", "no:xdist", "--in-memory"]
    done = subprocess.run(command, cwd=suite, capture_output=True, text=True, check=True)
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("at ")]
    own, usual = map(Path, line.removeprefix("at ").split())
    assert own.is_relative_to(usual)
    assert usual.parent == in_memory.place()
    assert not usual.exists()


def test_files_are_on_the_disk_where_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_memory, "_FREE_BYTES_MIN", 1 << 60)
    assert in_memory.place() == Path(tempfile.gettempdir())
    monkeypatch.setattr(in_memory, "_PLACE", Path("/absent"))
    assert in_memory.place() == Path(tempfile.gettempdir())
