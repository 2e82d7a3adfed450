"""`pybroker promote`: makes a standby that lacks something the master, at an operator's word."""

import enum
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click

from pybroker.broker.app.replica_cli import converse
from pybroker.broker.domain.errors import ConfigError

WORD: Final = "lose it"

_EXAMPLES: Final = """
\b
Examples:
  pybroker promote --store /var/lib/pybroker                 what would be lost; nothing is changed
  pybroker promote --store /var/lib/pybroker --accept-loss   the same, and a question, and then it is done
  pybroker promote --store /var/lib/pybroker --accept-loss --yes --json
                                                             for a script that has made sure that the master is off
"""


class PromoteExit(enum.IntEnum):
    """Exit codes of `pybroker promote`, for scripts."""

    PROMOTED = 0
    FAILED = 1
    """No member has answered, or the election store has not, so that the outcome is not known."""
    SHOWN = 3
    """It could be promoted; nothing was changed."""
    REFUSED = 4


@click.command(epilog=_EXAMPLES)
@click.option("--store", required=True, envvar="PYBROKER_STORE", help="Directory of the standby; it must be running.")
@click.option("--accept-loss", "accepts_loss", is_flag=True, help="Promote it, after a question.")
@click.option("--yes", "is_confirmed", is_flag=True, help="With --accept-loss: do not ask. For scripts.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def promote(store: str, accepts_loss: bool, is_confirmed: bool, as_json: bool) -> None:
    """Make a replicated standby the master that lacks what was confirmed, where the stores that have it are lost.

    Shows what would be lost. With --accept-loss, and once that is confirmed, the standby becomes the master, and what
    only others had is lost; a former master that comes back is brought into line with it. The process of the former
    master must have ended before: pybroker cannot see that. Refused while a master renews its lease, and on a member
    that takes over by itself.

    Exit code 0: it is the master; 3: nothing was changed; 4: it cannot be promoted; 1: no member answers, or the
    outcome is not known.
    """
    if is_confirmed and not accepts_loss:
        raise click.UsageError("--yes answers the question of --accept-loss, and does nothing without it.")
    shown = converse(Path(store), {"act": "loss"}, _Wait())
    if shown["problem"]:
        _end(shown, f"cannot be promoted: {shown['problem']}", PromoteExit.REFUSED, as_json=as_json)
    loss: Mapping[str, Any] = shown["loss"]
    click.echo("\n".join(described(loss, time.time())), err=as_json or accepts_loss)
    if not accepts_loss:
        _end(shown, "nothing was changed: --accept-loss promotes it", PromoteExit.SHOWN, as_json=as_json)
    if not is_confirmed and not _is_wanted():
        _end(shown, "nothing was changed", PromoteExit.SHOWN, as_json=as_json)
    answer = converse(Path(store), {"act": "promote", "revision": loss["revision"]}, _Wait())
    if answer["is_unknown"]:
        _end(answer, answer["problem"], PromoteExit.FAILED, as_json=as_json)
    if answer["problem"]:
        _end(answer, f"was not promoted: {answer['problem']}", PromoteExit.REFUSED, as_json=as_json)
    served = "clients are served" if answer["is_serving"] else f"it serves once {loss['minimum']} stores are in sync"
    _end(
        {**answer, "loss": loss},
        f"{loss['member']} is the master of {loss['cluster']} with epoch {answer['epoch']}: {served}",
        PromoteExit.PROMOTED,
        as_json=as_json,
    )


class _Wait:
    """Says once for how long no other member may take part."""

    def __init__(self) -> None:
        self._has_told = False

    def __call__(self, answer: Mapping[str, Any]) -> None:
        if answer["wait_seconds"] and not self._has_told:
            self._has_told = True
            click.echo(f"looking for {answer['wait_seconds']} s if a master is there …", err=True)


def _is_wanted() -> bool:
    """Return True if the operator types the word.

    Raises:
        ConfigError: there is no terminal for the question.
    """
    if not _is_terminal():
        raise ConfigError("there is no terminal for the question", setting="--accept-loss", hint="add --yes")
    typed: str = click.prompt(f"The former master is off, and what it alone has may go: type `{WORD}`", err=True)
    return typed.strip() == WORD


def _is_terminal() -> bool:
    return sys.stdin.isatty()


def _end(answer: Mapping[str, Any], sentence: str, code: PromoteExit, *, as_json: bool) -> None:
    """Print the answer, and end."""
    if as_json:
        click.echo(json.dumps(answer))
    else:
        click.echo(sentence, err=code is not PromoteExit.PROMOTED)
    sys.exit(code)


def described(loss: Mapping[str, Any], now: float) -> list[str]:
    """Return what would be lost, in lines.

    Args:
        loss: the fields of `PromotionLoss`.
        now: seconds since the epoch.
    """
    member, master = loss["member"], loss["master"]
    where = f" ({loss['address']})" if loss["address"] else ""
    written = "" if loss["written_ms"] is None else f", written {_at(loss['written_ms'] / 1000, now)}"
    lines = [
        f"{member} would become the master of cluster {loss['cluster']}, and lacks what was confirmed after its end:",
        f"  its store ends at         {_place(loss['store_ends'])}{written}",
        f"  confirmed at least up to  {_place(loss['confirmed_ends'])}",
        f"  which is in the store of  {loss['complete'] or 'no other member'}",
    ]
    if not loss["is_whole"]:
        lines.append("  its copy was interrupted  so that it also lacks parts of what was confirmed before its end")
    lines.append("What was sent after that place is lost, and what was acknowledged after it may be delivered again.")
    if loss["complete"]:
        lines.append(f"If {loss['complete']} can be brought back, do that instead: then nothing is lost.")
    lines.append(
        f"The former master {master}{where} has released the cluster: it has ended, or only has a copy."
        if loss["has_released"]
        else f"The process of the former master {master}{where} must have ended: it may serve on without the election "
        "store."
    )
    return lines


def _place(ends: Mapping[str, Sequence[int]]) -> str:
    """Return where the journal of messages ends."""
    number, offset = ends.get("kahadb", (0, 0))
    return f"db-{number}.log, byte {offset:,}" if number else "nothing"


def _at(seconds: float, now: float) -> str:
    """Return a time, and how long ago it was."""
    ago = max(0, round(now - seconds))
    hours, minutes = ago // 3600, ago // 60 % 60
    text = f"{hours} h {minutes} min" if hours else f"{minutes} min" if minutes else f"{ago} s"
    return f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(seconds))}, {text} ago"
