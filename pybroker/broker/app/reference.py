"""Generator of the reference pages `docs/settings.md`, `docs/cli.md`, `docs/states.md` and `docs/man/pybroker.1`.

    python -m pybroker.broker.app.reference docs

writes them; a test checks that they are up to date.
"""

import inspect
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from pybroker.broker.app import message_json
from pybroker.broker.app.cli import commands, shown
from pybroker.broker.app.config import ENVIRONMENT_PREFIX, SETTINGS, TABLES, flag, is_table
from pybroker.broker.app.manual import manual
from pybroker.broker.core import search, transaction_states
from pybroker.broker.domain.states import Transitions
from pybroker.transports.openwire import states as openwire_states

_WIDTH = 100

_SETTINGS = f"""\
# Settings

One broker reads its settings once, when it starts: from a TOML file (`pybroker start --config FILE`), then the
environment, then flags; the later wins. All are checked before anything is touched, and an error names the setting,
the error and the remedy.

Setting `sync_interval` is `sync_interval` in TOML, `{ENVIRONMENT_PREFIX}SYNC_INTERVAL` in the environment and
`{flag("sync_interval")}` on the command line. Sizes are written `65536`, `512kb`, `64mb`, `2gb` (of 1024), durations
`500ms`, `30s`, `5min`, `1h`.
"""

_TABLES = """
These are tables or lists, which only the file can hold; [policies](policies.md) shows each with examples:

| table | meaning |
|---|---|"""

_COMMAND_LINE = """\
# Command line

Every expected failure is one line on standard error and an exit code: 2 for a setting or argument that cannot be used,
1 for a refusal or failure of the broker, the store or the network. `pybroker status`, `pybroker doctor`, `pybroker
handback`, `pybroker journal` and the commands for operators have other codes, below."""


_STATES = """\
# States

The state machines of the broker, drawn from the tables that it follows. An event without an arrow out of a state cannot
happen there; if one did, by a mistake in the broker, it would raise an error that names both."""

_MACHINES: Mapping[str, Transitions[Any, Any]] = {
    "A transaction": transaction_states.TRANSITIONS,
    "A queue's search for the next message": search.TRANSITIONS,
    "An OpenWire connection": openwire_states.TRANSITIONS,
}


def pages() -> dict[str, str]:
    """Return the pages by file name."""
    made = {"settings.md": _settings(), "cli.md": _command_line(), "states.md": _states()}
    return {name: "\n".join(lines) + "\n" for name, lines in made.items()} | {"man/pybroker.1": manual()}


def _settings() -> Iterator[str]:
    yield _SETTINGS
    yield "| setting | default | meaning |"
    yield "|---|---|---|"
    for name, field in SETTINGS.items():
        if not is_table(name):
            yield f"| `{name}` | `{shown(name, field.default)}` | {field.description} |"
    yield _TABLES
    yield from (f"| `{name}` | {SETTINGS[name].description} |" for name in TABLES)


def _command_line() -> Iterator[str]:
    yield _COMMAND_LINE
    for name, command in commands.commands.items():
        yield from _described(f"pybroker {name}", command)
    yield ""
    yield "## Messages as JSON"
    yield ""
    yield from inspect.cleandoc(message_json.__doc__ or "").splitlines()


def _states() -> Iterator[str]:
    yield _STATES
    for name, transitions in _MACHINES.items():
        yield ""
        yield f"## {name}"
        yield ""
        yield from transitions.drawn()


def _described(name: str, command: click.Command) -> Iterator[str]:
    """Yield the section of a command, and those of its subcommands."""
    yield ""
    yield f"## {name}"
    yield ""
    yield "```text"
    context = click.Context(command, info_name=name, terminal_width=_WIDTH, max_content_width=_WIDTH)
    yield from (line.rstrip() for line in command.get_help(context).splitlines())
    yield "```"
    if isinstance(command, click.Group):
        for own_name, own in command.commands.items():
            yield from _described(f"{name} {own_name}", own)


if __name__ == "__main__":
    for file_name, text in pages().items():
        (Path(sys.argv[1]) / file_name).write_text(text, encoding="utf-8")
