"""Settings: read once from a TOML file, the environment and flags (the later wins), checked whole, then frozen.

One declaration per setting. The command line's flags, the names of environment variables and `docs/settings.md` are
made from it: setting `sync_interval` is `--sync-interval`, `PYBROKER_SYNC_INTERVAL`, and `sync_interval` in TOML.
"""

import difflib
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator, model_validator

from pybroker.broker.app.units import parse_duration, parse_size
from pybroker.broker.domain.errors import ConfigError

ENVIRONMENT_PREFIX = "PYBROKER_"
MEMORY_STORE = "memory:"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def _port(value: object) -> object:
    """Turn `off` into None and digits into a port."""
    if isinstance(value, str):
        text = value.strip().lower()
        if text == "off":
            return None
        if text.isascii() and text.isdecimal():
            return int(text)
        raise ValueError(f"{value!r} is neither a port number nor `off`")
    return value


Size = Annotated[int, BeforeValidator(parse_size)]
Duration = Annotated[float, BeforeValidator(parse_duration)]
Port = Annotated[Annotated[int, Field(ge=0, le=65535)] | None, BeforeValidator(_port)]


class Config(BaseModel):
    """All settings of one broker."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    store: str = Field("data", description="Data directory shared by the members of a pair, or `memory:` for none.")
    name: str | None = Field(
        None, description="This member's name in status and logs; by default the host's name, with a number if taken."
    )
    bind: str = Field("127.0.0.1", description="Address the listeners bind to; `0.0.0.0` for every interface.")
    stomp: Port = Field(61613, description="Port of the STOMP listener; `0` for any free one, `off` for none.")
    openwire: Port = Field(None, description="Port of the OpenWire listener; only `off` is accepted in this version.")
    lock: Literal["file", "flock"] = Field(
        "file",
        description="The lock that elects the master: `file` is ActiveMQ's own (fcntl on `lock`), `flock` uses "
        "flock(2) on a file beside it, for file systems without byte range locks; it does not exclude an ActiveMQ.",
    )
    lock_poll: Duration | None = Field(
        None,
        description="Try the lock at this interval, instead of waiting in the kernel, where blocking waits misbehave.",
    )
    lock_check: Duration = Field(
        0.5, ge=0.05, le=60, description="How often an idle master makes sure that the lock is still its own."
    )
    sync: Literal["always", "periodic", "never"] = Field(
        "always",
        description="When the journal is synced to disk: before anything is acknowledged, every `sync_interval`, or by "
        "the operating system's leave. Only `always` keeps what was acknowledged through a power failure.",
    )
    sync_interval: Duration = Field(1.0, ge=0.01, le=3600, description="Time between syncs with `sync = periodic`.")
    journal_file_max: Size = Field(
        32 << 20, ge=1 << 20, le=1 << 30, description="Length at which a journal file is full and the next is begun."
    )
    journal_batch_max: Size = Field(
        4 << 20, ge=64 << 10, le=64 << 20, description="Most bytes written and synced together."
    )
    journal_preallocate: bool = Field(
        True, description="Give journal files their full length when they are made (sparse), as ActiveMQ does."
    )
    cleanup_interval: Duration = Field(
        30.0, ge=0.1, le=86400, description="How often journal files that nothing needs any more are removed."
    )
    archive: bool = Field(False, description="Move such files to `data-archive` instead of deleting them.")
    connections_max: int = Field(1000, ge=1, le=100_000, description="Most client connections at a time.")
    connect_timeout: Duration = Field(
        30.0, gt=0, le=3600, description="How long a client may take to send its CONNECT frame."
    )
    frame_max: Size = Field(
        100 << 20, ge=1 << 10, le=1 << 30, description="Largest frame, thereby largest message, a client may send."
    )
    max_redeliveries: int = Field(
        6,
        ge=-1,
        le=1_000_000,
        description="How often a message may come back before it goes to ActiveMQ.DLQ; -1: ever.",
    )
    topic_pending_limit: int = Field(
        1000,
        ge=-1,
        description="Messages that may wait for a slow topic consumer beyond its prefetch; older are dropped. -1: all.",
    )
    destinations_max: int = Field(100_000, ge=1, description="Most queues and topics clients may create.")
    expire_interval: Duration = Field(
        30.0,
        ge=0.1,
        le=86400,
        description="How often destinations without consumers are searched for expired messages.",
    )
    stop_timeout: Duration = Field(
        5.0, ge=0, le=600, description="How long an orderly stop waits for clients to take what they are owed."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="What is logged.")

    @field_validator("name")
    @classmethod
    def _name_is_plain(cls, value: str | None) -> str | None:
        if value is not None and not _NAME.fullmatch(value):
            raise ValueError("a name has 1 to 100 letters, digits, `.`, `_` or `-`, and begins with a letter or digit")
        return value

    @field_validator("openwire")
    @classmethod
    def _openwire_is_off(cls, value: int | None) -> int | None:
        if value is not None:
            raise ValueError("this version has no OpenWire listener yet: write `off`")
        return value

    @field_validator("store")
    @classmethod
    def _store_is_known(cls, value: str) -> str:
        if not value:
            raise ValueError("write a directory, or `memory:`")
        if "://" in value:
            raise ValueError(f"{value.partition('://')[0]}:// is not a store of this version: write a directory")
        return value

    @model_validator(mode="after")
    def _limits_fit(self) -> "Config":
        if self.journal_batch_max > self.journal_file_max:
            raise ValueError("journal_batch_max must not be larger than journal_file_max")
        return self


def load(file: Path | None, flags: Mapping[str, Any], environment: Mapping[str, str] = os.environ) -> Config:
    """Return the settings: defaults, overridden by the file, by the environment, by flags that are not None.

    Raises:
        ConfigError: naming the first setting that is unknown or out of range, where it came from, and the remedy.
    """
    values: dict[str, Any] = {}
    origin: dict[str, str] = {}
    for name, value in _from_file(file).items() if file else ():
        values[name], origin[name] = value, f"{name} (in {file})"
    for name in Config.model_fields:
        variable = ENVIRONMENT_PREFIX + name.upper()
        if variable in environment:
            values[name], origin[name] = environment[variable], variable
        if flags.get(name) is not None:
            values[name], origin[name] = flags[name], flag(name)
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        raise _translated(error, origin) from error


def flag(name: str) -> str:
    """Return the command line's flag of a setting."""
    return "--" + name.replace("_", "-")


def is_size(name: str) -> bool:
    """Tell whether a setting is a size in bytes."""
    return any(
        isinstance(hint, BeforeValidator) and hint.func is parse_size for hint in Config.model_fields[name].metadata
    )


def _from_file(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}", setting="--config") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} is not TOML: {error}", setting="--config") from error


def _translated(error: ValidationError, origin: Mapping[str, str]) -> ConfigError:
    first = error.errors()[0]
    name = str(first["loc"][0]) if first["loc"] else ""
    if first["type"] == "extra_forbidden":
        near = difflib.get_close_matches(name, Config.model_fields, n=1)
        hint = f"did you mean {near[0]}?" if near else "see `pybroker start --help` for all settings"
        return ConfigError("there is no such setting", setting=origin.get(name, name), hint=hint)
    message = str(first["msg"]).removeprefix("Value error, ")
    return ConfigError(message, setting=origin.get(name, name) or "settings", hint=_given(first))


def _given(first: Any) -> str:
    """Tell what was given, unless the message does already."""
    given = first.get("input")
    return "" if first["type"] == "value_error" or isinstance(given, dict) else f"given was {given!r}"
