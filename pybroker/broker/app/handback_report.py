"""The work of `pybroker handback`, and what it prints."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import click

from pybroker.broker.app.activemq_target import ActiveMQVersion, version, xml_lines
from pybroker.broker.app.config import Config
from pybroker.broker.app.handback import (
    NO_REMEDY,
    HandbackFacts,
    HandbackFinding,
    JournalFacts,
    Readiness,
    Urgency,
    commands,
    element,
    judge,
    readiness,
)
from pybroker.broker.app.stores import MEMORY_STORE, is_database, without_secrets
from pybroker.broker.domain.errors import ConfigError
from pybroker.counted import counted

_COLOURS: Final = {Urgency.TODO: "red", Urgency.SETTING: "yellow", Urgency.NOTE: "cyan"}
_WIDTH: Final = max(len(each.value) for each in Urgency)


@dataclass(frozen=True, slots=True, kw_only=True)
class HandbackOptions:
    """Options of the command.

    Attributes:
        activemq_version: the ActiveMQ that is to open the store.
        user: the user that it runs as; None: `activemq`, if there is one.
        accepted: kinds of findings that do not count.
        is_in_use: members may use the store, and nothing is to be moved.
        jobs_to: the new directory of scheduled messages; None: they stay.
        move_to: the new directory of what ActiveMQ ignores; None: it stays.
        yes: move it.
    """

    activemq_version: str
    user: str | None = None
    accepted: Sequence[str] = ()
    is_in_use: bool = False
    jobs_to: Path | None = None
    move_to: Path | None = None
    yes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HandbackReport:
    """The result of the command.

    Attributes:
        facts: about the store.
        findings: what there is to do and to know.
        moves: source and target of what is to be moved, or was.
        is_moved: it was.
    """

    facts: HandbackFacts
    findings: Sequence[HandbackFinding]
    moves: Sequence[tuple[str, str]] = ()
    is_moved: bool = False


def report_on(config: Config, options: HandbackOptions) -> HandbackReport:
    """Examine a store, and move what is to be moved.

    Raises:
        ConfigError: the options do not go with the store.
        StoreError: the store is in use, cannot be read, or something cannot be moved.
        LockNotHeld: the lock was lost while something was moved.
    """
    target = version(options.activemq_version)
    if config.store == MEMORY_STORE:
        hint = "name a directory or a database"
        raise ConfigError("a store in memory ends with its broker", setting="store", hint=hint)
    if options.yes and options.jobs_to is None and options.move_to is None:
        raise ConfigError("there is nothing to move", setting="--yes", hint="add --jobs-to or --move-to")
    if options.yes and options.is_in_use:
        raise ConfigError("nothing can be moved then", setting="--in-use", hint="stop all members, and leave it out")
    if not is_database(config.store):
        return _of_directory(config, target, options)
    if options.move_to is not None:
        raise ConfigError("tables are no files", setting="--move-to", hint="leave it out: ActiveMQ ignores the tables")
    return _of_database(config, target, options)


def _of_directory(config: Config, target: ActiveMQVersion, options: HandbackOptions) -> HandbackReport:
    from pybroker.broker.app.handback_examination import examine
    from pybroker.broker.app.handback_moves import after, perform, plan
    from pybroker.broker.app.journal_lock import locked

    facts = examine(config, target, options.user, is_in_use=options.is_in_use)
    place = facts.place
    assert isinstance(place, JournalFacts), "the store is a directory"
    moves = plan(place, move_to=options.move_to, jobs_to=options.jobs_to)
    if options.yes:
        with locked(place.journal) as check:
            perform(moves, check)
        facts = replace(facts, place=after(place, moves))
    return HandbackReport(
        facts=facts,
        findings=judge(facts, options.accepted),
        moves=[(str(move.source), str(move.target)) for move in moves],
        is_moved=options.yes,
    )


def _of_database(config: Config, target: ActiveMQVersion, options: HandbackOptions) -> HandbackReport:
    from pybroker.broker.app.handback_database import examine, export_jobs

    facts = examine(config, target, is_in_use=options.is_in_use)
    moves: list[tuple[str, str]] = []
    if options.jobs_to is not None:
        moves = [("pybroker_jobs", str(options.jobs_to.absolute()))]
        if options.yes:
            facts = export_jobs(config, facts, options.jobs_to.absolute())
    return HandbackReport(facts=facts, findings=judge(facts, options.accepted), moves=moves, is_moved=options.yes)


# ---------------------------------------------------------------- output


def show(report: HandbackReport, *, as_json: bool) -> int:
    """Print a report; return the exit code."""
    code = readiness(report.findings)
    click.echo(json.dumps(_as_json(report, code), ensure_ascii=False) if as_json else "\n".join(_lines(report, code)))
    return code


def _as_json(report: HandbackReport, code: Readiness) -> dict[str, Any]:
    facts = report.facts
    contents = facts.contents
    return {
        "kind": "handback",
        "store": without_secrets(facts.store),
        "activemq_version": facts.target.name,
        "tried": facts.target.tried or None,
        "exit_code": int(code),
        "messages": contents.messages,
        "subscriptions": contents.subscriptions,
        "in_doubt": list(contents.in_doubt),
        "scheduled": _scheduled(facts),
        "findings": [each.as_json() for each in report.findings],
        "moves": [{"from": source, "to": target, "done": report.is_moved} for source, target in report.moves],
        "activemq_xml": xml_lines(element(facts)),
        "java": facts.target.java,
        "commands": commands(facts),
    }


def _lines(report: HandbackReport, code: Readiness) -> Iterator[str]:
    facts = report.facts
    for each in report.findings:
        head = click.style(f"{each.urgency.value.upper():<{_WIDTH}}", fg=_COLOURS[each.urgency], bold=True)
        yield f"{head} {each.kind}: {each.what}"
        yield f"{'':<{_WIDTH}} ActiveMQ: {each.activemq}"
        if each.remedy != NO_REMEDY:
            yield f"{'':<{_WIDTH}} -> {each.remedy}"
    for source, target in report.moves:
        yield f"{'moved' if report.is_moved else 'with --yes it moves'} {source} to {target}"
    contents = facts.contents
    held = [
        counted(contents.messages, "message"),
        counted(contents.subscriptions, "durable subscription"),
        counted(_scheduled(facts), "scheduled message"),
        counted(len(contents.in_doubt), "transaction") + " in doubt",
    ]
    state = "ready for" if code is Readiness.READY else "NOT READY for"
    yield ""
    yield f"{without_secrets(facts.store)}: {state} ActiveMQ {facts.target.name}: {', '.join(held)}"
    yield ""
    yield "Its activemq.xml has to say:"
    yield ""
    yield from (f"  {line}" for line in xml_lines(element(facts)))
    yield ""
    yield f"Start it, with Java {facts.target.java} or later{'' if code is Readiness.READY else ', once all is done'}:"
    yield ""
    yield from (f"  {line}" for line in commands(facts))


def _scheduled(facts: HandbackFacts) -> int:
    place = facts.place
    return sum(place.jobs.values()) if isinstance(place, JournalFacts) else place.jobs + place.exported_jobs
