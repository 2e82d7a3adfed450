"""The command line of the journal's tools: `pybroker journal check | dump | why | salvage | compact | export`.

The work is done by `store.journal.tools`; this module prints the results and chooses exit codes.
"""

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

import click

from pybroker.broker.app.progress_bar import Progress, progress_bar
from pybroker.broker.domain.destination import Destination, parse
from pybroker.broker.domain.errors import BrokerError, ConfigError, JournalCorrupt, StoreUnavailable
from pybroker.counted import counted, inflected

if TYPE_CHECKING:
    from pybroker.store.journal.commands import CommandType
    from pybroker.store.journal.format import Location
    from pybroker.store.journal.tools.check import CheckReport
    from pybroker.store.journal.tools.dump import DumpedGap, DumpedRecord
    from pybroker.store.journal.tools.export import Live
    from pybroker.store.journal.tools.findings import Finding
    from pybroker.store.journal.tools.journal_snapshot import JournalSnapshot
    from pybroker.store.journal.tools.salvage import LostBytes, RescuedRecord, SalvagedFile
    from pybroker.store.journal.tools.why import ExplainedFile

EXIT_SOUND: Final = 0
EXIT_DAMAGED: Final = 1
EXIT_REFUSED: Final = 2

_encode = json.JSONEncoder(separators=(",", ":")).encode
_STORE: Final = "pybroker.store"
_TEXT_SHOWN_MAX: Final = 72
"""The limit to the characters of a body on a line."""


class _Tools(click.Group):
    """A group of commands whose failures are one line and exit code 2; 1 means damage."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
        try:
            try:
                return super().invoke(ctx)
            finally:
                sys.stdout.flush()
        except ConfigError:
            raise
        except BrokerError as error:
            _fail(str(error), EXIT_REFUSED)
        except BrokenPipeError:  # the reader of the output, such as `head`, has closed it
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(EXIT_SOUND)


@click.group(cls=_Tools)
def journal() -> None:
    """Inspect, explain and repair a journal: pybroker's or ActiveMQ's, stopped or running.

    STORE is a data directory (with kahadb and perhaps scheduler in it), or a directory of db-*.log files itself.
    All commands except salvage and compact only read, and may run while a master writes.

    Exit codes: 0 sound; 1 damage was found; 2 the arguments, the store or the output cannot be used.
    """


class _JournalDirectory(NamedTuple):
    """A journal of a store."""

    directory: Path
    holds_jobs: bool


def _remember_store(context: click.Context, _: click.Parameter, store: Path | None) -> None:
    context.meta[_STORE] = store


def _choose_store(context: click.Context, parameter: click.Parameter, store: Path | None) -> Path:
    chosen: Path | None = store or context.meta[_STORE]
    if chosen is None:
        raise click.MissingParameter(ctx=context, param=parameter)
    return chosen


def _store(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command take its store as an argument, or by the option of other commands."""
    path = click.Path(path_type=Path)
    argument = click.argument("store", type=path, required=False, callback=_choose_store)
    option = click.option(
        "--store",
        "named",
        type=path,
        envvar="PYBROKER_STORE",
        is_eager=True,
        expose_value=False,
        callback=_remember_store,
        help="The store, instead of the argument.",
    )
    return argument(option(command))


_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")


# ---------------------------------------------------------------- check


_CHECK_EXAMPLES = """
\b
Example:
  pybroker journal check /mnt/shared
"""


@journal.command(epilog=_CHECK_EXAMPLES)
@_store
@_json
def check(store: Path, as_json: bool) -> None:
    """Check every file, batch and record, and report how brokers handle damage."""
    from pybroker.store.journal.tools.check import check as check_journal

    is_sound = True
    for place, snapshot in _opened(store):
        with progress_bar(f"checking {place.directory}") as progress:
            checked = check_journal(snapshot, in_use=_is_in_use(store, place.directory), progress=progress)
        is_sound = is_sound and checked.is_sound
        for finding in checked.findings:
            _put(_line(finding.as_json()) if as_json else _described_finding(finding))
        _put(_line(checked.as_json()) if as_json else _described_check(checked))
    sys.exit(EXIT_SOUND if is_sound else EXIT_DAMAGED)


def _described_finding(finding: "Finding") -> str:
    where = finding.path
    if finding.offset is not None:
        where += f", offset {finding.offset}"
    if finding.length is not None:
        where += f", {finding.length} {inflected(finding.length, 'byte')}"
    return "\n".join(
        (
            f"{finding.level.value.upper()}: {where}: {finding.kind}",
            f"  what:     {finding.what}",
            f"  ActiveMQ: {finding.activemq}",
            f"  pybroker: {finding.pybroker}",
            f"  remedy:   {finding.remedy}",
        )
    )


def _described_check(checked: "CheckReport") -> str:
    found = checked.as_json()
    findings = ", ".join(counted(found[f"{level}s"], level) for level in ("damage", "hazard", "notice"))
    counts = ", ".join(f"{name} {count}" for name, count in checked.records.items())
    return (
        f"{checked.directory}: {'sound' if checked.is_sound else 'DAMAGED'}: {counted(checked.files, 'file')}, "
        f"{counted(checked.bytes, 'byte')}, {counted(checked.batches, 'batch')}; {findings}\n  {counts or 'no records'}"
    )


# ---------------------------------------------------------------- dump


_DUMP_EXAMPLES = """
\b
Examples:
  pybroker journal dump /mnt/shared/kahadb --destination 'queue://ORDERS.>'
  pybroker journal dump data --type commit --type rollback --json
  pybroker journal dump data --file 3 --from 1048576 --bodies
"""


@journal.command(epilog=_DUMP_EXAMPLES)
@_store
@click.option("--destination", "destinations", multiple=True, help="Only about this one, or this pattern; repeatable.")
@click.option("--type", "types", multiple=True, help="Only records of this type, such as add_message; repeatable.")
@click.option("--file", "file_ids", multiple=True, type=click.IntRange(min=1), help="Only of db-N.log; repeatable.")
@click.option("--from", "start", metavar="[FILE:]OFFSET", help="Only from this position on.")
@click.option("--to", "stop", metavar="[FILE:]OFFSET", help="Only before this position.")
@click.option("--bodies", is_flag=True, help="Decode the messages: headers, properties, bodies.")
@_json
def dump(
    store: Path,
    destinations: tuple[str, ...],
    types: tuple[str, ...],
    file_ids: tuple[int, ...],
    start: str | None,
    stop: str | None,
    bodies: bool,
    as_json: bool,
) -> None:
    """Print the records of a journal in their order, one a line."""
    from pybroker.store.journal.tools.dump import DumpedGap, RecordFilter
    from pybroker.store.journal.tools.dump import dump as dump_journal

    wanted = RecordFilter(
        destinations=[_destination(text) for text in destinations],
        types=[_type(text) for text in types],
        file_ids=file_ids,
        start=_place(start, "--from", file_ids),
        stop=_place(stop, "--to", file_ids),
    )
    is_damaged = False
    for place, snapshot in _opened(store):
        with progress_bar(f"reading {place.directory}", is_printing=True) as progress:
            for item in dump_journal(snapshot, wanted, bodies=bodies, progress=progress):
                is_damaged = is_damaged or (isinstance(item, DumpedGap) and item.is_damage)
                _put(_line(item.as_json()) if as_json else _described_record(item))
    sys.exit(EXIT_DAMAGED if is_damaged else EXIT_SOUND)


def _described_record(item: "DumpedRecord | DumpedGap") -> str:
    fields = item.as_json()
    place = f"{fields.pop('file')}:{fields.pop('offset')}"
    size = fields.pop("size")
    name = fields.pop("record", None) or fields["kind"].upper()
    fields.pop("kind")
    details = " ".join(f"{key}={_short(value)}" for key, value in fields.items() if value not in (None, "", {}))
    return f"{place:<16} {size:>8}  {name:<22} {details}"


def _destination(text: str) -> Destination | str:
    return parse(text) if "://" in text else text


def _type(text: str) -> "CommandType":
    from pybroker.store.journal.commands import CommandType

    name = text.upper().replace("-", "_")
    found = [kind for kind in CommandType if kind.name in (name, f"{name}_MESSAGE")]
    if not found:
        known = ", ".join(kind.name.lower() for kind in CommandType)
        raise ConfigError(f"there is no record type {text!r}", setting="--type", hint=f"known are {known}")
    return found[0]


def _place(text: str | None, setting: str, file_ids: tuple[int, ...]) -> "Location | None":
    from pybroker.store.journal.format import Location

    if text is None:
        return None
    file_text, separator, offset = text.rpartition(":")
    if not separator and len(file_ids) == 1:
        file_text = str(file_ids[0])
    if not (file_text.isascii() and file_text.isdigit() and offset.isascii() and offset.isdigit()):
        raise ConfigError(
            f"{text!r} is no position", setting=setting, hint="write FILE:OFFSET, or OFFSET with one --file"
        )
    return Location(int(file_text), int(offset))


# ---------------------------------------------------------------- why


_WHY_EXAMPLES = """
\b
Example:
  pybroker journal why /mnt/shared
"""


@journal.command(epilog=_WHY_EXAMPLES)
@_store
@_json
def why(store: Path, as_json: bool) -> None:
    """Explain for each data file why it cannot be deleted, and the remedy."""
    from pybroker.store.journal.tools.why import why as why_files
    from pybroker.store.journal.tools.why import why_jobs

    is_damaged = False
    for place, snapshot in _opened(store):
        with progress_bar(f"reading {place.directory}") as progress:
            found = why_jobs(snapshot) if place.holds_jobs else why_files(snapshot, progress=progress)
        is_damaged = is_damaged or found.is_damaged
        for file in found.files:
            _put(_line(file.as_json()) if as_json else _described_file(file))
    sys.exit(EXIT_DAMAGED if is_damaged else EXIT_SOUND)


def _described_file(file: "ExplainedFile") -> str:
    verdict = "is held" if file.is_held else "can go"
    lines = [f"{file.path}: {verdict}, {counted(file.size, 'byte')}{': ' if file.note else ''}{file.note}"]
    for reason in file.reasons:
        count = f"{reason.count:,} " if reason.count else ""
        lines.append(f"  {count}{reason.what}")
        if reason.because:
            chain = " <- ".join(f"db-{file_id}.log" for file_id in (file.file_id, *reason.because))
            lines.append(f"    because: {chain}")
        if reason.examples:
            lines.append(f"    such as: {', '.join(reason.examples)}")
        lines.append(f"    remedy:  {reason.remedy}")
    return "\n".join(lines)


# ---------------------------------------------------------------- salvage


_SALVAGE_EXAMPLES = """
\b
Example:
  pybroker journal salvage /mnt/shared /mnt/rescued
"""


@journal.command(epilog=_SALVAGE_EXAMPLES)
@click.argument("source", type=click.Path(path_type=Path))
@click.argument("target", type=click.Path(path_type=Path))
@click.option("--strict", is_flag=True, help="Leave out records that decode, but have no valid checksum.")
@_json
def salvage(source: Path, target: Path, strict: bool, as_json: bool) -> None:
    """Rescue every intact record of a damaged store into a new one, and list what was lost. SOURCE is not changed."""
    from pybroker.store.journal.tools.salvage import LostBytes, prepare_target
    from pybroker.store.journal.tools.salvage import salvage as salvage_journal

    places = _places(source)
    prepare_target(target, source, *places)
    is_bare = places == [source]
    is_damaged = False
    for place, snapshot in _opened(source):
        into = target if is_bare else target / place.directory.name
        into.mkdir(exist_ok=True)
        with progress_bar(f"salvaging {place.directory}", is_printing=True) as progress:
            for item in salvage_journal(snapshot, into, strict=strict, progress=progress):
                is_damaged = is_damaged or (isinstance(item, LostBytes) and item.is_damage)
                is_damaged = is_damaged or item.as_json()["kind"] == "rescued"
                _put(_line(item.as_json()) if as_json else _described_salvage(item, place.directory, into))
    sys.exit(EXIT_DAMAGED if is_damaged else EXIT_SOUND)


def _described_salvage(item: "LostBytes | RescuedRecord | SalvagedFile", source: Path, target: Path) -> str:
    fields = item.as_json()
    about = fields.get("about", {})
    known = " ".join(str(about[key]) for key in ("record", "destination", "message_id") if key in about)
    match fields["kind"]:
        case "file" if fields["size"]:
            counts = ", ".join(f"{name} {count}" for name, count in fields["records"].items())
            return f"wrote {target}/db-{fields['file']}.log: {counted(fields['size'], 'byte')}, {counts}"
        case "file":
            return f"nothing in {source}/db-{fields['file']}.log"
        case "rescued":
            return f"rescued {about['file']}:{about['offset']}, {about['integrity']}: {known}"
        case kind:
            what = "LOST" if kind == "lost" else kind
            length = f"{fields['size']} {inflected(fields['size'], 'byte')}"
            place = f"{source}/db-{fields['file']}.log, offset {fields['offset']}, {length}"
            return f"{what}: {place}: {fields['reason']}{': ' if known else ''}{known}"


# ---------------------------------------------------------------- compact


_ALIVE: Final = {
    "messages": "message",
    "subscriptions": "subscription",
    "transactions": "transaction",
    "scheduled": "scheduled message",
}
"""The nouns of a compaction's counts."""

_COMPACT_EXAMPLES = """
\b
Example:
  pybroker journal compact /mnt/shared
"""


@journal.command(epilog=_COMPACT_EXAMPLES)
@_store
@click.option(
    "--archive", type=click.Path(path_type=Path), help="Directory for the original files, on the same file system."
)
@click.option("--delete-originals", is_flag=True, help="Delete the original files instead.")
@_json
def compact(store: Path, archive: Path | None, delete_originals: bool, as_json: bool) -> None:
    """Rewrite a stopped store with only its live records; the original files move to an archive.

    It holds the store's lock, as a master does. By default the originals go to data-archive in the journal's
    directory, into a new directory named after the time.
    """
    from pybroker.broker.app.journal_lock import locked
    from pybroker.store.journal.files import JournalFiles
    from pybroker.store.journal.tools.compact import CompactionOptions, compact_jobs
    from pybroker.store.journal.tools.compact import compact as compact_journal

    if archive is not None and delete_originals:
        raise ConfigError(
            "there is no archive with --delete-originals", setting="--archive", hint="leave one of them out"
        )
    with locked(*_places(store)) as check_lock:
        for place, snapshot in _opened(store):
            snapshot.close()
            into = None if delete_originals else _archive(archive, place.directory)
            with progress_bar(f"compacting {place.directory}") as progress:
                options = CompactionOptions(check=check_lock, archive=into, progress=progress)
                try:
                    done = (compact_jobs if place.holds_jobs else compact_journal)(
                        JournalFiles(place.directory), options
                    )
                except JournalCorrupt as error:
                    _fail(str(error), EXIT_DAMAGED)
            alive = ", ".join(counted(count, _ALIVE[name]) for name, count in done.alive.items())
            _put(
                _line(done.as_json())
                if as_json
                else f"{done.directory}: {counted(done.files_before, 'file')}, {counted(done.bytes_before, 'byte')} -> "
                f"{counted(done.files_after, 'file')}, {counted(done.bytes_after, 'byte')}; {alive}; originals "
                + (f"in {done.archive}" if done.archive else "deleted")
            )


def _archive(wanted: Path | None, directory: Path) -> Path:
    """Return a new or empty directory for a journal's original files."""
    from datetime import UTC, datetime

    stamp = f"compacted-{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}"
    if wanted is None:
        return directory / "data-archive" / stamp
    try:
        wanted.mkdir(parents=True, exist_ok=True)
        same = wanted.stat().st_dev == directory.stat().st_dev
    except OSError as error:
        raise ConfigError(f"{wanted}: {error.strerror}", setting="--archive", hint="name another directory") from error
    if not same:
        raise ConfigError(f"{wanted} is on another file system", setting="--archive", hint="copy it there afterwards")
    return wanted / f"{directory.name}-{stamp}"


# ---------------------------------------------------------------- export


_EXPORT_EXAMPLES = """
\b
Examples:
  pybroker journal export --live --json /mnt/shared > store.jsonl
  pybroker journal export --json data
"""


@journal.command(epilog=_EXPORT_EXAMPLES)
@_store
@click.option("--live", is_flag=True, help="Only what recovery finds, in dispatch order; otherwise every record.")
@_json
def export(store: Path, live: bool, as_json: bool) -> None:
    """Print the contents of a store: messages, subscriptions, transactions, scheduled messages."""
    is_damaged = False
    for place, snapshot in _opened(store):
        with progress_bar(f"reading {place.directory}", is_printing=True) as progress:
            if live:
                is_damaged = _export_live(place, snapshot, progress, as_json) or is_damaged
            else:
                is_damaged = _export_all(snapshot, progress, as_json) or is_damaged
    sys.exit(EXIT_DAMAGED if is_damaged else EXIT_SOUND)


def _export_live(
    place: _JournalDirectory, snapshot: "JournalSnapshot", progress: Progress | None, as_json: bool
) -> bool:
    """Print live contents; return True if there was damage."""
    from pybroker.store.journal.tools.export import Export, scheduled

    items: Iterable[Live]
    contents = None if place.holds_jobs else Export(snapshot, progress=progress)
    items = scheduled(place.directory) if contents is None else contents
    for item in items:
        fields = item.as_json()
        _put(_line(fields) if as_json else _described_live(fields))
    return contents is not None and contents.is_damaged


def _export_all(snapshot: "JournalSnapshot", progress: Progress | None, as_json: bool) -> bool:
    from pybroker.store.journal.tools.dump import DumpedGap
    from pybroker.store.journal.tools.dump import dump as dump_journal

    is_damaged = False
    for item in dump_journal(snapshot, bodies=True, progress=progress):
        is_damaged = is_damaged or (isinstance(item, DumpedGap) and item.is_damage)
        _put(_line(item.as_json()) if as_json else _described_record(item))
    return is_damaged


def _described_live(fields: dict[str, Any]) -> str:
    match fields["kind"]:
        case "message" | "scheduled":
            due = f"due {fields['next_execution_time']}  " if fields["kind"] == "scheduled" else ""
            shown = fields.get("problem") or _short(fields.get("body"))
            return f"{fields['kind']}  {due}{fields.get('destination')}  {fields.get('message_id')}  {shown}"
        case "subscription":
            pending = f"{len(fields['pending'])} pending"
            return f"subscription  {fields['client_id']}:{fields['name']}  {fields['destination']}  {pending}"
        case _:
            counts = f"{len(fields['sent'])} sent, {len(fields['acknowledged'])} acknowledged"
            return f"transaction  {fields['transaction']}  {fields['state']}  {counts}"


# ---------------------------------------------------------------- stores


def _places(store: Path) -> list[Path]:
    """Return the directories of a store's journals.

    Raises:
        StoreUnavailable: there is none; the hint names directories nearby.
    """
    from pybroker.broker.app.layout import journals_of
    from pybroker.broker.app.stores import is_database

    if is_database(str(store).replace(":/", "://", 1)):  # not printed: it may have a password; a path drops a slash
        raise StoreUnavailable("a store in a database has no journal", hint="see it with pybroker status and browse")
    return journals_of(store)


def _opened(store: Path) -> Iterator[tuple[_JournalDirectory, "JournalSnapshot"]]:
    """Yield a store's journals, open."""
    from pybroker.store.journal.tools.journal_snapshot import JournalSnapshot
    from pybroker.store.journal.tools.observed_replay import holds_jobs

    for directory in _places(store):
        with JournalSnapshot(directory) as snapshot:
            yield _JournalDirectory(directory, holds_jobs(snapshot)), snapshot


def _is_in_use(store: Path, directory: Path) -> bool:
    from pybroker.broker.app.journal_lock import is_in_use
    from pybroker.broker.app.layout import found_layout

    return any(is_in_use(each) for each in (directory, found_layout(str(store)).journal))


# ---------------------------------------------------------------- output


def _put(line: str) -> None:
    """Print a line, buffered: there may be millions."""
    sys.stdout.write(line + "\n")


def _line(value: dict[str, Any]) -> str:
    return _encode(value)


def _short(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    text = text if text.isprintable() else json.dumps(text)[1:-1]
    return text if len(text) <= _TEXT_SHOWN_MAX else f"{text[: _TEXT_SHOWN_MAX - 1]}…"


def _fail(message: str, code: int) -> NoReturn:
    click.echo(f"pybroker: {message}", err=True)
    sys.exit(code)
