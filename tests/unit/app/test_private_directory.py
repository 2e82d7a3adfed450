"""Directories of a process, and what is left of those that were killed."""

import fcntl
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from pybroker.broker.app.private_directory import private_directory
from pybroker.broker.domain.errors import ConfigError

KILLED = """
import os, signal, sys
from pathlib import Path
from pybroker.broker.app.private_directory import private_directory
print(private_directory(Path(sys.argv[1])).path, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_directory_is_its_users_alone_and_removed(tmp_path: Path) -> None:
    made = private_directory(tmp_path)
    assert stat.S_IMODE(made.path.stat().st_mode) == 0o700
    made.close()
    made.close()
    assert not made.path.exists()


def test_a_directory_of_a_killed_process_is_removed(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], capture_output=True, text=True, check=False)
    left = Path(done.stdout.strip())
    assert left.is_dir()
    one = private_directory(tmp_path)
    assert not left.exists()
    other = private_directory(tmp_path)
    assert one.path.is_dir(), "its process lives"
    one.close()
    other.close()


def test_a_directory_is_removed_under_the_lock_of_its_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else another process makes the file `lock` again meanwhile, and neither can remove the directory."""
    made = private_directory(tmp_path)
    remove, locked = shutil.rmtree, list[bool]()

    def observed(path: Path) -> None:
        descriptor = os.open(path.parent / "lock", os.O_RDWR)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            locked.append(False)
        except BlockingIOError:
            locked.append(True)
        finally:
            os.close(descriptor)
        remove(path)

    monkeypatch.setattr(shutil, "rmtree", observed)
    made.close()
    assert (locked, made.path.exists()) == ([True], False)


@pytest.mark.parametrize("is_parent_there", [True, False])
def test_a_directory_that_a_cleaner_removed_is_closed(tmp_path: Path, is_parent_there: bool) -> None:
    made = private_directory(tmp_path)
    shutil.rmtree(made.path if is_parent_there else made.path.parent)
    made.close()
    private_directory(tmp_path).close()


@pytest.mark.parametrize("made", ["a link", "a file", "a directory that others may use"])
def test_a_name_that_is_there_is_passed_over(tmp_path: Path, made: str) -> None:
    plain = tmp_path / f"pybroker-{os.getuid()}"
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    if made == "a link":
        plain.symlink_to(tmp_path / "elsewhere")
    elif made == "a file":
        plain.touch()
    else:
        plain.mkdir()
        plain.chmod(0o755)
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], capture_output=True, text=True, check=False)
    left = Path(done.stdout.strip())
    assert left.is_dir()
    one = private_directory(tmp_path)
    assert stat.S_IMODE(one.path.parent.stat().st_mode) == 0o700
    assert one.path.parent.name.startswith(f"{plain.name}-")
    assert not left.exists()
    other = private_directory(tmp_path)
    assert other.path.parent == one.path.parent
    one.close()
    other.close()
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_name_that_another_user_made_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a directory such as /tmp any user can do that."""
    plain = tmp_path / f"pybroker-{os.getuid()}"
    plain.mkdir(mode=0o700)
    status = os.lstat

    def of_another(path: Path) -> os.stat_result:
        found = status(path)
        return os.stat_result((*found[:4], found.st_uid + (path == plain), *found[5:]))

    monkeypatch.setattr(Path, "lstat", of_another)
    made = private_directory(tmp_path)
    assert made.path.parent.name.startswith(f"{plain.name}-")
    made.close()
    assert list(plain.iterdir()) == []


def test_a_directory_of_the_service_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for variable, parent in ((f"{tmp_path}/run:/run/other", tmp_path / "run"), (f"{tmp_path}/missing", tmp_path)):
        monkeypatch.setenv("RUNTIME_DIRECTORY", variable)
        made = private_directory()
        assert made.path.parents[1] == parent
        made.close()


def test_a_directory_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="missing cannot be used: No such file or directory"):
        private_directory(tmp_path / "missing")
