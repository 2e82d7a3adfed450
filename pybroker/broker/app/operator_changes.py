"""Changes by the commands for operators: counted and confirmed before, watched meanwhile, and ended by Ctrl-C.

```text
plan: "move 20 messages of A to queue://B" --> --dry-run: "would move …"
  `-> confirmed? --> POST in a thread --> its answer: what was done
                       |  a terminal shows how many are left
                       `- Ctrl-C: the connection is closed, which ends the operation; the queue is counted again
```
"""

import json
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from pybroker.broker.app.operator_text import plain
from pybroker.broker.domain.errors import ConfigError
from pybroker.counted import counted

if TYPE_CHECKING:
    from pybroker.management_client.client import ManagementClient
    from pybroker.management_client.exchange import ApiExchange

OPERATION_SECONDS: Final = 660.0
"""Longer than a member works at one operation: it answers an error after ten minutes."""

_LOOK_SECONDS: Final = 0.1
_COUNT_SECONDS: Final = 1.0
"""The interval at which the queue is counted while an operation is under way."""

_SETTLE_SECONDS: Final = 3.0
"""The time in which an operation that was ended comes to its end: two counts are the same then."""

_EXIT_REFUSED: Final = 1
_EXIT_INTERRUPTED: Final = 130
_SPINNER: Final = "|/-\\"


class Manner(NamedTuple):
    """How a change is made.

    Attributes:
        is_confirmed: True if no question is asked.
        is_dry_run: True if nothing is changed.
        as_json: True to print JSON.
    """

    is_confirmed: bool
    is_dry_run: bool
    as_json: bool

    @property
    def asks(self) -> bool:
        """True if it is shown first what would be changed."""
        return self.is_dry_run or not self.is_confirmed


class Plan(NamedTuple):
    """A change to be made.

    Attributes:
        act: the sentence after "would": `purge 3 messages of ORDERS`.
        facts: the same as JSON, for a dry run.
    """

    act: str
    facts: Mapping[str, Any]


def is_wanted(plan: Plan, manner: Manner) -> bool:
    """Return True if a change is to be made: it was confirmed. A dry run is shown instead.

    Raises:
        ConfigError: there is no terminal for the question.
        SystemExit: the answer is no.
    """
    if manner.is_dry_run:
        click.echo(json.dumps({"dry_run": True, **plan.facts}) if manner.as_json else f"would {plan.act}")
        return False
    if manner.is_confirmed:
        return True
    if not _is_terminal():
        hint = "add --yes, or see with --dry-run what would be done"
        raise ConfigError(f"there is no terminal to confirm this: {plan.act}", setting="--yes", hint=hint)
    if not click.confirm(f"{plan.act}?", err=True):
        click.echo("pybroker: nothing was changed", err=True)
        sys.exit(_EXIT_REFUSED)
    return True


def _is_terminal() -> bool:
    return sys.stdin.isatty()


def made(answer: Mapping[str, Any], text: str, manner: Manner) -> None:
    """Print the answer of a change, as JSON or as a sentence."""
    click.echo(json.dumps(answer) if manner.as_json else text)


# ---------------------------------------------------------------- operations on messages


class MessageOperation(NamedTuple):
    """An operation on the messages of a queue.

    Attributes:
        verb: `purge`, `remove`, `move`, `copy` or `retry`; the last part of its path.
        done: its past participle.
        queue: the name of the queue.
        body: the fields of its request.
        where: words after the name of the queue.
    """

    verb: str
    done: str
    queue: str
    body: Mapping[str, Any]
    where: str = ""


def operate(client: "ManagementClient", operation: MessageOperation, manner: Manner) -> None:
    """Count the messages, ask, carry it out and print the result; the exit code is 1 if it has ended early.

    Raises:
        ManagementError: it was refused, or its answer is lost.
        SystemExit: it ended early, or was interrupted, which a sentence on standard error reports.
    """
    name = plain(operation.queue)
    expected = _count(client, operation)
    act = f"{operation.verb} {counted(expected['affected'], 'message')} of {name}{operation.where}"
    if not manner.is_dry_run and not expected["affected"]:
        made(expected, f"there is nothing to {operation.verb}: no such message waits in {name}", manner)
        return
    if not is_wanted(Plan(act, expected), manner):
        return
    result = _watched(client, operation)
    text = f"{operation.done} {counted(result['affected'], 'message')} of {name}{operation.where}{_beside(result)}"
    made(result, text, manner)
    if result["error"] or result["is_cancelled"]:
        sys.stdout.flush()
        click.echo(f"pybroker: it ended early: {result['error'] or 'it was cancelled'}", err=True)
        sys.exit(_EXIT_REFUSED)


def _beside(result: Mapping[str, Any]) -> str:
    """Return what was not done, in words."""
    words = [
        f"{result[key]:,} {text}"
        for key, text in (("in_flight", "at consumers stay"), ("skipped", "were left as they are"))
        if result[key]
    ]
    return f"; {', '.join(words)}" if words else ""


def _count(client: "ManagementClient", operation: MessageOperation) -> Mapping[str, Any]:
    """Return the result that the operation would have now."""
    if operation.verb != "purge":
        names = ("queues", operation.queue, operation.verb)
        answer: Mapping[str, Any] = client.change(
            "POST", *names, body={**operation.body, "dry_run": True}, seconds=OPERATION_SECONDS
        )
        return answer
    queue = client.get("queues", operation.queue)
    waiting = max(0, queue["size"] - queue["in_flight"])
    beside = {"skipped": 0, "in_flight": queue["in_flight"], "is_cancelled": False, "error": None}
    return {"affected": waiting, "examined": queue["size"], **beside}


def _watched(client: "ManagementClient", operation: MessageOperation) -> Mapping[str, Any]:
    """Return the result of an operation, which is shown on a terminal while it is under way."""
    running = _RunningChange(
        client, "POST", ("queues", operation.queue, operation.verb), operation.body, OPERATION_SECONDS
    )
    before = client.get("queues", operation.queue)["size"]
    count = _size_by(client, operation.queue, before) if sys.stderr.isatty() else None
    try:
        running.start()  # here, as an interrupt may come while its thread begins
        while not running.done.wait(_LOOK_SECONDS):
            if count is not None:
                _show(f"{operation.verb} {plain(operation.queue)}: {before:,} at first, {count():,} now")
        return running.result()
    except KeyboardInterrupt:
        running.end()
        now = _settled(client, operation.queue)
        if count is not None:
            _clear()
        name = plain(operation.queue)
        text = f"interrupted: {name} had {before:,} messages and has {now}; what was done stays done"
        click.echo(f"pybroker: {text}", err=True)
        sys.exit(_EXIT_INTERRUPTED)
    finally:
        if count is not None:
            _clear()


class _RunningChange:
    """A change in a thread, so that the main thread can show it and end it."""

    def __init__(
        self, client: "ManagementClient", method: str, names: tuple[str, ...], body: Mapping[str, Any], seconds: float
    ) -> None:
        self.done = threading.Event()
        self._answer: Any = None
        self._error: Exception | None = None
        self._exchange: ApiExchange | None = None

        def run() -> None:
            try:
                self._answer = client.change(method, *names, body=body, seconds=seconds, begin=self._begin)
            except Exception as error:
                self._error = error
            self.done.set()

        self._thread = threading.Thread(target=run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def result(self) -> Mapping[str, Any]:
        """Return the answer.

        Raises:
            ManagementError: there is none.
        """
        if self._error is not None:
            raise self._error
        answer: Mapping[str, Any] = self._answer
        return answer

    def end(self) -> None:
        """Close its connection."""
        if self._exchange is not None:
            self._exchange.end()

    def _begin(self, exchange: "ApiExchange") -> None:
        self._exchange = exchange


def _size_by(client: "ManagementClient", name: str, size: int) -> Callable[[], int]:
    """Return a function that counts a queue, of `size` now, at most once an interval."""
    counted_at = time.monotonic()

    def count() -> int:
        nonlocal size, counted_at
        if time.monotonic() - counted_at > _COUNT_SECONDS:
            found = _size(client, name)
            size, counted_at = size if found is None else found, time.monotonic()
        return size

    return count


def _size(client: "ManagementClient", name: str) -> int | None:
    """Return the number of messages of a queue; None if it is not known, since no member answers or it is gone."""
    from pybroker.management_client.errors import ManagementError

    try:
        return int(client.get("queues", name)["size"])
    except ManagementError:
        return None


def _settled(client: "ManagementClient", name: str) -> str:
    """Return the number of messages of a queue once two counts are the same, in words."""
    deadline = time.monotonic() + _SETTLE_SECONDS
    last, now = None, _size(client, name)
    while now != last and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
        last, now = now, _size(client, name)
    return "an unknown number now" if now is None else f"{now:,} now"


def _show(text: str) -> None:
    spinner = _SPINNER[int(time.monotonic() * 8) % len(_SPINNER)]
    sys.stderr.write(f"\r\x1b[K{spinner} {text}; Ctrl-C ends it")
    sys.stderr.flush()


def _clear() -> None:
    sys.stderr.write("\r\x1b[K")
    sys.stderr.flush()
