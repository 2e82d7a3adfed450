"""`pybroker replica`: compares the stores of a replicated cluster, and fetches what is damaged."""

import contextlib
import enum
import fcntl
import json
import os
import secrets
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click

from pybroker.broker.domain.errors import ConfigError, StoreUnavailable
from pybroker.counted import counted

LOOK_SECONDS: Final = 0.2
BEGIN_SECONDS: Final = 15.0
"""A member looks for requests twice in a second."""

SILENT_SECONDS: Final = 120.0


class ReplicaExit(enum.IntEnum):
    """Exit codes of `pybroker replica`, for scripts."""

    EQUAL = 0
    FAILED = 1
    DIFFERENT = 3
    """At least one file differs."""
    NOT_COMPARED = 4
    """The stores could not be compared, or not as a whole."""


_VERIFY_EXAMPLES: Final = """
\b
Examples:
  pybroker replica verify --store /var/lib/pybroker          on a standby: compare its store with the master's
  pybroker replica verify --store /var/lib/pybroker --json   on the master: compare the stores of all standbys
"""

_REPAIR_EXAMPLES: Final = """
\b
Examples:
  pybroker replica repair --store /var/lib/pybroker          on the standby whose store differs
"""

_store = click.option("--store", required=True, envvar="PYBROKER_STORE", help="Directory of a member of the cluster.")
_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


@click.group()
def replica() -> None:
    """Compare the stores of a replicated cluster, and repair a copy.

    Exit code 0: the stores are equal; 3: files differ; 4: they could not be compared; 1: no member answers.
    """


@replica.command(epilog=_VERIFY_EXAMPLES)
@_store
@_json
def verify(store: str, as_json: bool) -> None:
    """Compare the data files of a standby's store with the master's, while both serve.

    The member that runs on the directory does it: every byte of the journals that is confirmed is read from the disks
    and its checksums are compared. The master compares all standbys that follow it. Exit code 0: the stores are equal;
    3: files differ; 4: they could not be compared, or not as a whole; 1: no member answers.
    """
    _run(Path(store), "verify", as_json=as_json)


@replica.command(epilog=_REPAIR_EXAMPLES)
@_store
@_json
def repair(store: str, as_json: bool) -> None:
    """Fetch the data files of a standby's store that differ from the master's.

    Compares first, fetches whole files from the master, and compares again. What the files had is kept in
    `replica/discarded` below the store. A file that is damaged in the master's own store is left as it is. Exit code 0:
    the stores are equal now; 3: files still differ; 4: they could not be compared; 1: no member answers.
    """
    _run(Path(store), "repair", as_json=as_json)


def _run(store: Path, act: str, *, as_json: bool) -> None:
    answer = ask(store, act)
    click.echo(json.dumps(answer) if as_json else "\n".join(described(answer)))
    sys.exit(code_of(answer))


def ask(store: Path, act: str) -> Mapping[str, Any]:
    """Have the member of a store compare it or repair it, and return its last answer.

    Raises:
        ConfigError: there is no such store, or it is not replicated.
        StoreUnavailable: its member does not answer.
    """
    from pybroker.broker.app.progress_bar import progress_bar

    with progress_bar("comparing") as progress:
        return converse(
            store,
            {"act": act},
            lambda answer: None if progress is None else progress(answer["done_bytes"], answer["total_bytes"]),
        )


def converse(
    store: Path, request: Mapping[str, object], heard: Callable[[Mapping[str, Any]], None]
) -> Mapping[str, Any]:
    """Have the member of a store carry out a request, and return its last answer.

    Args:
        store: its directory.
        request: see `replica_requests`; without an id.
        heard: called with each answer until then.

    Raises:
        ConfigError: there is no such store, or it is not replicated.
        StoreUnavailable: its member does not answer, or another command is asking it.
    """
    from pybroker.store.replica import DIRECTORY

    if not (store / DIRECTORY).is_dir():
        raise ConfigError(f"{store} is not the directory of a replicated member", setting="--store")
    with _alone(store, store / DIRECTORY):
        return _converse(store, request, heard)


@contextlib.contextmanager
def _alone(store: Path, directory: Path) -> Generator[None]:
    """Hold the lock of those who ask: there is one file for all requests, and one for their answers.

    Raises:
        StoreUnavailable: another command holds it.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StoreUnavailable(
                f"{store}: another command is asking its member, and nothing was asked",
                path=str(store),
                hint="try again when that one has ended",
            ) from error
        yield
    finally:
        os.close(descriptor)


def _converse(
    store: Path, request: Mapping[str, object], heard: Callable[[Mapping[str, Any]], None]
) -> Mapping[str, Any]:
    from pybroker.broker.app import replica_requests

    identity = secrets.token_hex(8)
    try:
        replica_requests.put(store, replica_requests.REQUEST_NAME, {"id": identity, **request})
    except OSError as error:
        raise StoreUnavailable(f"{store}: {error.strerror or error}", path=str(store)) from error
    before: object = None
    heard_at, patience = time.monotonic(), BEGIN_SECONDS
    while True:
        answer = replica_requests.get(store, replica_requests.ANSWER_NAME)
        if answer.get("id") == identity:
            if answer["is_done"]:
                return answer
            heard(answer)
            if answer != before:
                before, heard_at, patience = answer, time.monotonic(), SILENT_SECONDS
        if time.monotonic() - heard_at > patience:
            raise StoreUnavailable(
                f"{store}: no member has answered for {patience:.0f} s", path=str(store), hint="does one run there?"
            )
        time.sleep(LOOK_SECONDS)


def code_of(answer: Mapping[str, Any]) -> ReplicaExit:
    """Return the exit code of an answer."""
    compared: Sequence[Mapping[str, Any]] = answer["comparisons"]
    if any(each["different"] for each in compared):
        return ReplicaExit.DIFFERENT
    if answer["problem"] or not compared or any(each["problem"] for each in compared):
        return ReplicaExit.NOT_COMPARED
    return ReplicaExit.EQUAL


def described(answer: Mapping[str, Any]) -> list[str]:
    """Return an answer in lines."""
    lines = [f"not compared: {answer['problem']}"] if answer["problem"] else []
    lines += [f"{name}: fetched from the master" for name in answer["repaired"]]
    for each in answer["comparisons"]:
        lines += [
            f"{found['file']}: differs, and the records of "
            + (
                "the MASTER's are damaged: make a standby master"
                if found["damaged"] == "master"
                else f"the master's are sound: pybroker replica repair, on {each['member']}"
            )
            for found in each["different"]
        ]
        size = f"{counted(each['files'], 'data file')}, {each['bytes']:,} bytes"
        if each["problem"]:
            lines.append(f"{each['member']}: NOT COMPARED as a whole: {each['problem']}")
        elif each["different"]:
            lines.append(f"{each['member']}: {len(each['different'])} of {size} DIFFER from the master's")
        else:
            lines.append(f"{each['member']}: equal to the master's: {size}")
    return lines
