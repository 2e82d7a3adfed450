# mypy: disable-error-code="arg-type"
"""A scheduler killed at each failpoint of either store: what was promised is a job or a message, for a moment both."""

import signal
from pathlib import Path

import pytest

from pybroker.store.journal.store import JournalStore
from pybroker.store.scheduler.store import JournalJobStore
from tests.crash import children
from tests.crash.scheduler_child import QUEUE, SETTINGS, STEPS
from tests.runtimes import runtime

WRITING = ("create data", "write data", "sync data", "truncate data", "sync directory")
CASES = [
    (where, f"{moment} {operation}:{ordinal}")
    for where in ("kahadb", "scheduler")
    for operation in WRITING
    for moment, ordinal in (("before", 2), ("after", 9))
]
CASES += [("scheduler", f"{moment} unlink data:{ordinal}") for moment in ("before", "after") for ordinal in (1, 2)]
"""The messages have no consumer, so no file of theirs is ever removed."""


def work(directory: Path, where: str, failpoint: str, *, status: int = -signal.SIGKILL) -> list[str]:
    """Run a process on the directory until its failpoint; return what it promised."""
    done = children.run("tests.crash.scheduler_child", str(directory), where, failpoint)
    assert done.returncode == status, f"it was to end with {status} at {where} {failpoint}: {done.stderr}"
    return done.stdout.splitlines()


def contents(directory: Path) -> tuple[list[str], list[str]]:
    """Return the ids of the messages and of the jobs there are, after taking over as the next master does."""
    store = JournalStore(directory / "kahadb", settings=SETTINGS, runtime=runtime())
    jobs = JournalJobStore(directory / "scheduler", settings=SETTINGS, runtime=runtime())
    # What is delivered once has the producer 1 of the child as producer -2, see `scheduled`.
    messages = [each.replace(":1:-2:", ":1:1:") for each in store.recover().queues.get(QUEUE, ())]
    found = [job.job_id for job in jobs.recover()]
    assert not store.damages
    assert not jobs.damages
    store.abandon()
    jobs.abandon()
    return messages, found


def judge(directory: Path, promised: list[str]) -> None:
    messages, jobs = contents(directory)
    assert len(set(messages)) == len(messages), "a message is there twice"
    assert len(set(jobs)) == len(jobs), "a job is there twice"
    lost = set(promised) - set(messages) - set(jobs)
    assert not lost
    endless = {each for each in promised if int(each.rpartition(":")[2]) % 5 == 0}
    assert endless <= set(jobs), "what has runs left is still a job"
    assert contents(directory) == (messages, jobs)


@pytest.mark.parametrize(("where", "failpoint"), CASES)
def test_a_scheduler_killed_at_a_failpoint(tmp_path: Path, where: str, failpoint: str) -> None:
    judge(tmp_path, work(tmp_path, where, failpoint))


def test_one_master_after_the_other_is_killed(tmp_path: Path) -> None:
    promised = []
    for failpoint in ("after sync data:12", "before write data:14", "after write data:16"):
        promised += work(tmp_path, "scheduler", failpoint)
        judge(tmp_path, promised)
    assert len(promised) > 10


def test_an_undisturbed_run_keeps_every_promise(tmp_path: Path) -> None:
    promised = work(tmp_path, "scheduler", "nowhere:1", status=0)
    assert len(promised) == STEPS - 1
    judge(tmp_path, promised)
    messages, jobs = contents(tmp_path)
    assert not {each for each in set(messages) & set(jobs) if int(each.rpartition(":")[2]) % 5}, "settled, all of them"
