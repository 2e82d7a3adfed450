"""The reference pages agree with the code."""

import subprocess

import click
import pytest

from pybroker.broker.app.cli import commands
from pybroker.broker.app.config import SETTINGS, flag, is_table
from pybroker.broker.app.reference import pages


@pytest.mark.parametrize("name", sorted(pages()))
def test_reference_page_is_up_to_date(name, root):
    page = (root / "docs" / name).read_text(encoding="utf-8")
    assert page == pages()[name], "run: python -m pybroker.broker.app.reference docs"


@pytest.mark.component("mandoc")
def test_manual_page_is_free_of_faults(root):
    command = ["mandoc", "-Tlint", "-Wstyle", root / "docs" / "man" / "pybroker.1"]
    found = subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()
    without_date = [line for line in found if "missing date" in line]  # as it would differ at each generation
    assert (len(without_date), [line for line in found if line not in without_date]) == (1, [])


@pytest.mark.component("mandoc")
def test_manual_page_shows_every_command_and_setting(root):
    command = ["mandoc", "-Tascii", "-Owidth=1000", root / "docs" / "man" / "pybroker.1"]
    shown = subprocess.run(
        ["sh", "-c", '"$@" | sed "s/.\b//g"', "sh", *command], capture_output=True, text=True, check=True
    )
    lines = [line.strip() for line in shown.stdout.splitlines()]
    for name, each in commands.commands.items():
        own = each.commands if isinstance(each, click.Group) else {"": each}
        for path in (f"pybroker {name} {sub}".strip() for sub in own):
            assert any(line.startswith(path) for line in lines), path
    for name in SETTINGS:
        if not is_table(name):
            assert any(line.split(" ")[0].rstrip(",") == flag(name) for line in lines), name
    assert "pybroker start --store memory: --stomp 0 a broker for tests, on any free port" in [
        " ".join(line.split()) for line in lines
    ]
