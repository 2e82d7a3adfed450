"""Generator of the manual page `docs/man/pybroker.1`, from the declarations of the command line.

The page is in the macros of man(7), which man-db and mandoc render. `reference` writes it, beside the pages of `docs`.
"""

import inspect
import re
import textwrap
from collections.abc import Iterator

import click

from pybroker.broker.app.cli import commands
from pybroker.broker.app.config import ENVIRONMENT_PREFIX, SETTINGS

_VERBATIM = "\b"
"""The first line of a paragraph that click does not wrap."""

_WIDTH = 78
"""The width of the page's source, but for words that are longer; a program that shows it chooses its own."""

_FIRST = "start"
"""The command that lists all settings; others refer to it."""

_HEAD = r"""
.\" Made by `python -m pybroker.broker.app.reference docs`.
.TH PYBROKER 1 "" "pybroker" "User Commands"
.SH NAME
pybroker \- message broker, for ActiveMQ Classic's master/slave pairs
.SH SYNOPSIS
.B pybroker
.I COMMAND
.RI [ OPTION ...]
.RI [ ARGUMENT ...]
.SH DESCRIPTION
"""

_DESCRIPTION = """
`pybroker start` runs a broker for STOMP and OpenWire clients. Two of them on one store are a pair: one serves, and the
other stands by and takes over when the first one ends. The other commands look at a pair, its messages and its journal,
and change them.
"""

_ENVIRONMENT = f"""
Each setting of `pybroker start` is read from the TOML file of `--config`, then from the environment, then from its
option; the later wins. The variable of `--log-file` is `{ENVIRONMENT_PREFIX}LOG_FILE`.

`NOTIFY_SOCKET` and `WATCHDOG_USEC` are those of sd_notify(3): a unit of systemd may have `Type=notify` and
`WatchdogSec`.
"""

_EXIT_STATUS = """
0: done; a broker has stopped as asked.

1: the broker, the store or the network has refused or failed.

2: a setting or an argument cannot be used.

`pybroker status`, `pybroker doctor`, `pybroker handback`, `pybroker journal` and the commands for operators have
others, which are above.
"""


def manual() -> str:
    """Return the text of the page."""
    lines = _HEAD.strip().splitlines()
    lines += [*_paragraphs(_DESCRIPTION), ".SH COMMANDS"]
    for name, command in commands.commands.items():
        lines += _described(f"pybroker {name}", command)
    for title, text in (("ENVIRONMENT", _ENVIRONMENT), ("EXIT STATUS", _EXIT_STATUS)):
        lines += [f".SH {title}", *_paragraphs(text)]
    lines += [".SH SEE ALSO", r"\fBsystemd.service\fR(5), \fBlogrotate\fR(8)"]
    return "\n".join(lines) + "\n"


def _described(name: str, command: click.Command) -> Iterator[str]:
    """Yield the section of a command, and those of its subcommands."""
    context = click.Context(command, info_name=name)
    yield f".SS {_escaped(' '.join((name, *command.collect_usage_pieces(context))))}"
    yield from _paragraphs(command.help or "")
    has_settings = False
    for parameter in command.get_params(context):
        if parameter.name in SETTINGS and command.name != _FIRST:
            has_settings = True
        elif isinstance(parameter, click.Option) and (record := parameter.get_help_record(context)) is not None:
            yield ".TP"
            yield rf"\fB{_escaped(record[0])}\fR"
            yield from _formatted(record[1])
    if has_settings:
        yield from _paragraphs(f"Settings are options, as of `pybroker {_FIRST}`.", first=".PP")
    if command.epilog:
        yield from _paragraphs(command.epilog, first=".PP")
    if isinstance(command, click.Group):
        for own_name, own in command.commands.items():
            yield from _described(f"{name} {own_name}", own)


def _paragraphs(text: str, first: str = "") -> Iterator[str]:
    """Yield the lines of paragraphs; `first` stands before the first one, as `.PP` before the others."""
    between = first
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        own = paragraph.strip("\n").splitlines()
        if between:
            yield between
        between = ".PP"
        if own and own[0].strip(" ") == _VERBATIM:
            yield from (".nf", *map(_escaped, own[1:]), ".fi")
        elif own:
            yield from _formatted(" ".join(own))


def _formatted(text: str) -> Iterator[str]:
    """Yield the lines of a paragraph, with code in bold."""
    marked = re.sub(r"`([^`]+)`", r"\\fB\1\\fR", _without_escapes(" ".join(text.split())))
    yield from map(_as_text, textwrap.wrap(marked, _WIDTH, break_long_words=False, break_on_hyphens=False))


def _escaped(line: str) -> str:
    return _as_text(_without_escapes(line.rstrip()))


def _without_escapes(text: str) -> str:
    return text.replace("\\", r"\e").replace("-", r"\-")


def _as_text(line: str) -> str:
    """Return a line that is no request of roff, whatever it begins with."""
    return rf"\&{line}" if line.startswith((".", "'")) else line
