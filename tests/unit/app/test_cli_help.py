"""Layout of `--help`: the mark that keeps examples in lines is for click, and is not shown."""

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from pybroker.broker.app.cli import commands


def _paths(group: click.Group, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, command in group.commands.items():
        yield (*above, name)
        if isinstance(command, click.Group):
            yield from _paths(command, (*above, name))


@pytest.mark.parametrize("path", list(_paths(commands)), ids=" ".join)
def test_help_shows_no_marks(path: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(commands, [*path, "--help"])
    assert shown.exit_code == 0, shown.output
    assert "\b" not in shown.output
    assert "\\b" not in shown.output


@pytest.mark.parametrize(
    ("command", "example"),
    [
        ("produce", "  pybroker produce ORDERS < orders.txt"),
        ("consume", "  pybroker consume ORDERS --count 10"),
        ("browse", "  pybroker browse ActiveMQ.DLQ --json"),
    ],
)
def test_an_example_has_a_line_of_its_own(command: str, example: str) -> None:
    lines = CliRunner().invoke(commands, [command, "--help"]).output.splitlines()
    assert example in [line.rstrip().removeprefix("  ") for line in lines]
