"""`pybroker doctor`: shows the findings of `doctor`."""

import json
from collections.abc import Sequence

import click

from pybroker.broker.app.diagnosis import Diagnosis, Severity
from pybroker.broker.app.doctor import exit_code

_COLOURS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.ADVICE: "cyan"}


def show(findings: Sequence[Diagnosis], *, as_json: bool) -> int:
    """Print findings; return the exit code."""
    code = exit_code(findings)
    if as_json:
        listed = [
            {"severity": each.severity.value, "check": each.check, "evidence": each.evidence, "remedy": each.remedy}
            for each in findings
        ]
        click.echo(json.dumps({"exit_code": int(code), "findings": listed}, ensure_ascii=False))
        return code
    for each in findings:
        head = click.style(f"{each.severity.name:<8}", fg=_COLOURS[each.severity], bold=True)
        click.echo(f"{head} {each.check}: {each.evidence}\n         -> {each.remedy}")
    if not findings:
        click.echo("nothing found: settings, file system, locks, clocks, members and bridges look well")
    return code
