"""The options of `spark.read.format("kahadb")`, checked when they are given.

Spark hands options over as texts, their names in any case. An unknown name or value is an error with what was meant;
Spark by itself would ignore it.
"""

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

from pybroker.broker.domain.errors import ConfigError
from pybroker.store.columns.files import journal_of
from pybroker.store.columns.schema import BY_NAME, DEFAULT_COLUMNS
from pybroker.store.columns.table import Mode
from pybroker.store.journal.format import Location

PARTITION_BYTES: Final = 32 * 1024 * 1024
"""A data file of the usual size is one partition; larger ones are cut at batches."""

EARLIEST: Final = "earliest"
LATEST: Final = "latest"

_NAMES: Final = (
    "path",
    "paths",
    "archive",
    "columns",
    "partitionBytes",
    "mode",
    "pushdown",
    "maxBytesPerTrigger",
    "startingPosition",
    "failOnDataLoss",
)
_BY_LOWER: Final = {name.lower(): name for name in _NAMES}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Checked options, see docs/spark.md.

    Attributes:
        directories: journals to read, each once: directories with data files, also where a broker's data directory was
            named.
        archive: read the files in each one's `data-archive` as well.
        columns: of the table, unless the reader is given a schema.
        partition_bytes: of a data file, at least, that one task reads.
        mode: treatment of damage.
        pushdown: let Spark hand over its filters.
        max_bytes_per_trigger: of a micro-batch, roughly: a batch of the journal is read whole.
        starting_position: where a stream begins that has no checkpoint: earliest, latest, or a location.
        fail_on_data_loss: a stream ends when a data file is collected before it was read.
    """

    directories: tuple[str, ...]
    archive: bool = False
    columns: tuple[str, ...] = DEFAULT_COLUMNS
    partition_bytes: int = PARTITION_BYTES
    mode: Mode = Mode.PERMISSIVE
    pushdown: bool = False
    max_bytes_per_trigger: int | None = None
    starting_position: str | Location = EARLIEST
    fail_on_data_loss: bool = True


def parse(options: Mapping[str, str], *, pushdown: bool = False) -> Options:
    """Return the options that Spark handed over.

    Args:
        options: by name, in any case.
        pushdown: the default.

    Raises:
        ConfigError: a name or a value means nothing.
    """
    given = {_name(key): value for key, value in options.items() if not key.startswith(("__", "spark."))}
    max_bytes = given.get("maxBytesPerTrigger")
    return Options(
        directories=_directories(given),
        archive=_flag(given, "archive", False),
        columns=_columns(given.get("columns")),
        partition_bytes=_bytes("partitionBytes", given.get("partitionBytes", str(PARTITION_BYTES))),
        mode=_mode(given.get("mode", Mode.PERMISSIVE.value)),
        pushdown=_flag(given, "pushdown", pushdown),
        max_bytes_per_trigger=None if max_bytes is None else _bytes("maxBytesPerTrigger", max_bytes),
        starting_position=_position(given.get("startingPosition", EARLIEST)),
        fail_on_data_loss=_flag(given, "failOnDataLoss", True),
    )


def _name(key: str) -> str:
    name = _BY_LOWER.get(key.lower())
    if name is None:
        raise ConfigError("there is no such option", setting=key, hint=_guess(key.lower(), _BY_LOWER))
    return name


def _guess(text: str, names: Mapping[str, str]) -> str:
    near = difflib.get_close_matches(text, names, 1)
    return f"did you mean {names[near[0]]}?" if near else f"there are {', '.join(names.values())}"


def _directories(given: Mapping[str, str]) -> tuple[str, ...]:
    listed = json.loads(given["paths"]) if "paths" in given else [given["path"]] if "path" in given else []
    named = (Path(_directory(str(path))) for path in cast("list[object]", listed))
    found = tuple(dict.fromkeys(str(journal_of(path)) for path in named))
    if not found:
        raise ConfigError("no directory is given", setting="path", hint='write .load("/path/to/data")')
    return found


def _directory(path: str) -> str:
    scheme, separator, rest = path.partition(":")
    if separator and scheme == "file":
        return "/" + rest.lstrip("/")
    if separator and "/" not in scheme and rest.startswith("/") and not Path(path).exists():
        raise ConfigError(
            f"{path} is not in a file system that the workers have mounted",
            setting="path",
            hint="mount it, or copy closed data files; docs/spark-setup.md says how",
        )
    return path


def _columns(text: str | None) -> tuple[str, ...]:
    if text is None:
        return DEFAULT_COLUMNS
    names = tuple(dict.fromkeys(filter(None, (each.strip() for each in text.split(",")))))
    for name in names:
        if name not in BY_NAME:
            hint = _guess(name, {each: each for each in BY_NAME})
            raise ConfigError(f"there is no column {name}", setting="columns", hint=hint)
    if not names:
        raise ConfigError("no column is named", setting="columns", hint="for example file,offset,destination")
    return names


def _flag(given: Mapping[str, str], name: str, default: bool) -> bool:
    text = given.get(name, str(default)).strip().lower()
    if text not in ("true", "false"):
        raise ConfigError(f"{text!r} is neither true nor false", setting=name)
    return text == "true"


def _bytes(name: str, text: str) -> int:
    digits, unit = text.strip().lower().removesuffix("b"), 1
    for suffix, factor in (("k", 1024), ("m", 1024**2), ("g", 1024**3)):
        if digits.endswith(suffix):
            digits, unit = digits.removesuffix(suffix), factor
    if not (digits.isascii() and digits.isdecimal()) or int(digits) == 0:
        raise ConfigError(f"{text!r} is no number of bytes above 0", setting=name, hint="for example 8388608, or 8m")
    return int(digits) * unit


def _mode(text: str) -> Mode:
    try:
        return Mode[text.strip().upper()]
    except KeyError:
        hint = _guess(text.strip().upper(), {mode.name: mode.name for mode in Mode})
        raise ConfigError(f"there is no mode {text}", setting="mode", hint=hint) from None


def _position(text: str) -> str | Location:
    word = text.strip().lower()
    if word in (EARLIEST, LATEST):
        return word
    file_id, _, offset = word.partition(":")
    if file_id.isdecimal() and offset.isdecimal():
        return Location(int(file_id), int(offset))
    raise ConfigError(
        f"{text!r} is no position",
        setting="startingPosition",
        hint="write earliest, latest, or <file>:<offset of a batch>, such as 7:0",
    )
