"""The process of a guardian, over real registers: a parent that is killed, one that ends it, and records of others."""

import json
import os
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from pybroker.broker.app.replica_guardian import GuardianKeeper
from pybroker.locks.election import guardian, guardian_process
from pybroker.locks.election.etcd import EtcdRegister
from pybroker.locks.election.etcd_gateway import EtcdUser
from pybroker.locks.election.record import MasterEntry, RecordedState
from pybroker.locks.election.register import Register, RegisterState
from tests.etcd_cluster import EtcdCluster, etcd_cluster
from tests.integration.register_engines import PATIENT_SECONDS, RECORD, RegisterEngine, engine_of, engines, record
from tests.integration.test_etcd_register import guarded_etcd
from tests.integration.test_registers import Seen, created
from tests.postgres_cluster import PASSWORD, postgres_cluster, postgres_database

__all__ = ["etcd_cluster", "guarded_etcd", "postgres_cluster", "postgres_database"]

RESIDENT_BYTES_MAX = 32 << 20
"""The driver of PostgreSQL is half of it."""


@pytest.fixture(params=engines("etcd", "postgres"))
def engine(request: pytest.FixtureRequest) -> Iterator[RegisterEngine]:
    yield from engine_of(request)


class Guarded:
    """A process with a guardian.

    Attributes:
        guardian: the guardian's process id.
    """

    def __init__(self, register: Register, told: RegisterState | None, run: str = RECORD.master.run) -> None:
        """Start it, for a master that was told of a content."""
        command = [sys.executable, "-m", "tests.integration.guarded_process"]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        found = None if told is None else told.record
        setup = {
            "access": register.guardian_access(),
            "run": run,
            "lease_seconds": PATIENT_SECONDS,
            "revision": 0 if told is None else told.revision,
            "record": "" if found is None else found.encode().decode(),
        }
        self._say(json.dumps(setup))
        assert self.process.stdout is not None
        self.guardian = int(self.process.stdout.readline())
        while b"guardian_process.py" not in self.read("cmdline"):  # it is being started
            assert self.process.poll() is None
        while signal.SIGTERM not in self.ignored():
            assert self.is_guarded()

    def end(self) -> None:
        """Have the guardian ended."""
        self._say("end it")
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ended\n"

    def kill(self) -> str:
        """Kill the process, wait for the end of its guardian, and return what it said."""
        self.process.kill()
        _, said = self.process.communicate(timeout=PATIENT_SECONDS)  # the guardian has the same standard error
        return said

    def is_guarded(self) -> bool:
        """Return True if the guardian runs."""
        with suppress(ProcessLookupError):
            os.kill(self.guardian, 0)
            return True
        return False

    def read(self, name: str) -> bytes:
        """Return a file of the guardian's in /proc."""
        return Path(f"/proc/{self.guardian}/{name}").read_bytes()

    def ignored(self) -> set[int]:
        """Return the signals that the guardian ignores."""
        (line,) = [each for each in self.read("status").decode().splitlines() if each.startswith("SigIgn")]
        return {number for number in range(1, 32) if int(line.split()[1], 16) >> (number - 1) & 1}

    def _say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()


NewGuarded = Callable[..., Guarded]


@pytest.fixture
def guarded() -> Iterator[NewGuarded]:
    made: list[Guarded] = []

    def new(*arguments: object, **options: object) -> Guarded:
        made.append(Guarded(*arguments, **options))  # type: ignore[arg-type]
        return made[-1]

    yield new
    for each in made:
        each.process.kill()
        each.process.communicate()


def test_killed_parents_cluster_is_released_and_nothing_else_changes(
    engine: RegisterEngine, guarded: NewGuarded
) -> None:
    register = engine.new()
    process = guarded(register, created(register))
    watched = Seen()
    watching = register.watch(watched.states.put)
    assert "is released" in process.kill()
    found = watched.wait_for(lambda state: state.record is not None and state.record.state is RecordedState.RELEASED)
    watching.close()
    assert found.record == replace(RECORD, state=RecordedState.RELEASED, nonce="r-a-0")
    assert register.read() == found


def test_record_that_the_parent_swapped_last_is_released_though_nobody_told(
    engine: RegisterEngine, guarded: NewGuarded
) -> None:
    """A swap of the parent that is under way when it dies takes effect before the guardian's."""
    register = engine.new()
    told = created(register)
    later = record("r-a-2", in_sync=frozenset({"s-a"}))
    for each in (told, None):
        process = guarded(register, each)
        assert register.swap(register.read().revision, later).is_swapped
        assert "is released" in process.kill()
        found = register.read().record
        assert found == replace(later, state=RecordedState.RELEASED, nonce="r-a-0")


def test_record_of_another_run_stays(engine: RegisterEngine, guarded: NewGuarded) -> None:
    register = engine.new()
    process = guarded(register, created(register))
    other = record("r-b-1", epoch=52, master=MasterEntry(name="b", store="s-b", run="r-b"))
    present = register.swap(register.read().revision, other).present
    assert "another master" in process.kill()
    assert register.read() == present


def test_ended_guardian_writes_nothing(engine: RegisterEngine, guarded: NewGuarded) -> None:
    register = engine.new()
    present = created(register)
    process = guarded(register, present)
    process.end()
    assert not process.is_guarded()
    assert process.kill() == ""
    assert register.read() == present


def test_guardian_is_small_has_no_descriptors_and_its_command_no_secret(
    engine: RegisterEngine, guarded: NewGuarded
) -> None:
    register = engine.new()
    process = guarded(register, created(register))
    command = process.read("cmdline")
    assert str(engine.port).encode() not in command
    assert PASSWORD.encode() not in command
    deadline = time.monotonic() + PATIENT_SECONDS
    while len(found := list(Path(f"/proc/{process.guardian}/fd").iterdir())) > 4:  # files of the driver, being loaded
        assert time.monotonic() < deadline, found
    assert len(found) == 4, "its socket, the output that is none, the error output, and the pidfd"
    pages = int(process.read("statm").split()[1])
    size = pages * os.sysconf("SC_PAGE_SIZE")
    print(f"{type(register).__name__}: {size / 2**20:.1f} MB")
    assert size < RESIDENT_BYTES_MAX


def test_signals_for_the_parents_group_do_not_end_it(engine: RegisterEngine, guarded: NewGuarded) -> None:
    register = engine.new()
    process = guarded(register, created(register))
    assert os.getpgid(process.guardian) != os.getpgid(process.process.pid)
    assert os.getsid(process.guardian) != os.getsid(process.process.pid)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(process.guardian, number)
    assert "is released" in process.kill()
    found = register.read().record
    assert found is not None
    assert found.state is RecordedState.RELEASED


# ---------------------------------------------------------------- the one who keeps it


def test_guardian_that_cannot_be_started_is_warned_of_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "absent"))
    access = EtcdRegister("etcd://127.0.0.1:1/orders", timeout_seconds=1.0).guardian_access()
    keeper = GuardianKeeper(access, "a", "r-a")
    keeper.begin(RegisterState(1, RECORD))
    keeper.tell(RegisterState(2, RECORD))
    keeper.close()
    (line,) = [each.getMessage() for each in caplog.records]
    assert "there is no guardian: it cannot be started" in line
    assert "absent" in line
    assert "wait for the end of its lease" in line


def test_guardian_that_ends_by_itself_is_warned_of_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    program = tmp_path / "program.py"
    program.write_text("raise SystemExit(7)\n")
    monkeypatch.setattr(guardian, "PROGRAM", program)
    access = EtcdRegister("etcd://127.0.0.1:1/orders", timeout_seconds=1.0).guardian_access()
    keeper = GuardianKeeper(access, "a", "r-a")
    keeper.begin(RegisterState(1, RECORD))
    deadline = time.monotonic() + PATIENT_SECONDS
    while not caplog.records:
        assert time.monotonic() < deadline
        keeper.tell(RegisterState(2, RECORD))
    keeper.close()
    (line,) = [each.getMessage() for each in caplog.records]
    assert "the guardian has ended (exit code 7)" in line


def test_guardian_shows_no_certificate(caplog: pytest.LogCaptureFixture) -> None:
    tls = ssl.create_default_context()
    access = EtcdRegister("etcd+https://127.0.0.1:1/orders", timeout_seconds=1.0, tls=tls).guardian_access()
    keeper = GuardianKeeper(access, "a", "r-a")
    keeper.begin(RegisterState(1, RECORD))
    keeper.close()
    assert "there is no guardian: it cannot show a certificate" in caplog.text


# ---------------------------------------------------------------- an etcd that demands a user

USER = EtcdUser(name="member", password="a s3cret")


@pytest.fixture
def user_register(guarded_etcd: EtcdCluster) -> Iterator[EtcdRegister]:
    """A register in an etcd that demands a user."""
    register = EtcdRegister(guarded_etcd.url(), timeout_seconds=PATIENT_SECONDS, user=USER)
    yield register
    register.close()


@pytest.mark.component("etcd")
def test_guardian_logs_in_when_its_parent_has_ended(user_register: EtcdRegister, guarded: NewGuarded) -> None:
    process = guarded(user_register, created(user_register))
    assert b"s3cret" not in process.read("cmdline") + process.read("environ")
    said = process.kill()
    assert "is released" in said
    assert "s3cret" not in said
    assert user_register.read().record == replace(RECORD, state=RecordedState.RELEASED, nonce="r-a-0")


@pytest.mark.component("etcd")
def test_guardian_logs_in_again_when_its_token_has_ended(
    user_register: EtcdRegister, guarded_etcd: EtcdCluster
) -> None:
    """Simple tokens end with their node, and after some minutes."""
    access = guardian_process.EtcdAccess(user_register.guardian_access())
    revision = created(user_register).revision
    assert access.read().revision == revision
    (node,) = guarded_etcd.nodes
    node.kill()
    guarded_etcd.start(node)
    done = guardian_process.release(access, None, "r-a", time.monotonic() + PATIENT_SECONDS)
    assert "the cluster is released" in done


@pytest.mark.component("etcd")
@pytest.mark.parametrize(
    ("login", "reason"),
    [
        (None, "accepts no token of this user"),
        ({"name": "member", "password": "wrong s3cret"}, "authentication failed"),
        ({"name": "guest", "password": "s3cret too"}, "permission denied"),
    ],
)
def test_guardian_without_rights_releases_nothing_and_says_why(
    user_register: EtcdRegister, login: dict[str, str] | None, reason: str
) -> None:
    before = created(user_register)
    access = guardian_process.EtcdAccess({**user_register.guardian_access(), "login": login})
    done = guardian_process.release(access, None, "r-a", time.monotonic() + 0.5)
    assert reason in done
    assert "others wait for the end of the lease" in done
    assert "s3cret" not in done
    assert user_register.read() == before
