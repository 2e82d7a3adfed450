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

from pybroker.broker.app.policies import Policies
from pybroker.broker.app.units import parse_duration, parse_size
from pybroker.broker.app.virtual import (
    DEFAULT_VIRTUAL_TOPICS,
    CompositeQueues,
    CompositeTopics,
    Mirrored,
    VirtualTopics,
)
from pybroker.broker.domain.errors import ConfigError
from pybroker.locks.postgres.timing import LEASE_SECONDS, LEASE_SECONDS_MIN, Timing

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

PORTS = ("stomp", "openwire", "auto", "stomp_ssl", "openwire_ssl", "auto_ssl")
"""The settings that are ports of listeners."""

TABLES = ("policies", "virtual_topics", "composite_queues", "composite_topics", "mirrored_queues")
"""The settings that are TOML tables, and neither flags nor variables."""

_TLS_SUFFIX = "_ssl"
_POSTGRES_SCHEMES = ("postgresql://", "postgres://")


def _off(description: str) -> Any:
    """Declare a port that is off unless it is set."""
    return Field("off", validate_default=True, description=description)


class Config(BaseModel):
    """All settings of one broker."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    store: str = Field(
        "data",
        repr=False,
        description="Data directory shared by the members of a pair; or a database with ActiveMQ's tables, "
        "`postgresql://USER@HOST:5432/DATABASE`, which then holds the lock too; or `memory:` for none.",
    )
    name: str | None = Field(
        None, description="This member's name in status and logs; by default the host's name, with a number if taken."
    )
    bind: str = Field("127.0.0.1", description="Address the listeners bind to; `0.0.0.0` for every interface.")
    stomp: Port = Field(61613, description="Port of the STOMP listener; `0` for any free one, `off` for none.")
    openwire: Port = Field(61616, description="Port of the OpenWire listener; `0` for any free one, `off` for none.")
    auto: Port = _off("Port of a listener that takes every protocol and tells them apart by their first bytes.")
    stomp_ssl: Port = _off("Port of the STOMP listener with TLS.")
    openwire_ssl: Port = _off("Port of the OpenWire listener with TLS.")
    auto_ssl: Port = _off("Port of a listener as `auto` with TLS.")
    tls_certificate: Path | None = Field(
        None, description="PEM file with the certificate of the TLS listeners, and behind it any intermediate ones."
    )
    tls_key: Path | None = Field(
        None, description="PEM file with the certificate's private key; by default `tls_certificate` has it."
    )
    tls_key_password_file: Path | None = Field(None, description="File that holds the key's password, if it has one.")
    tls_client_ca: Path | None = Field(
        None,
        description="PEM file with the authorities that vouch for clients; when set, a TLS client must present a "
        "certificate of one of them.",
    )
    openwire_url: str | None = Field(
        None,
        description="Where OpenWire clients are told that this broker is; by default made of `bind`, or this machine's "
        "name, and the port.",
    )
    openwire_brokers: str = Field(
        "",
        description="Comma list of all members' OpenWire URLs, which failover clients then know without having them in "
        "their own; empty: they use what they have.",
    )
    lock: Literal["file", "flock", "postgres-row", "postgres-lease", "postgres-advisory"] = Field(
        "file",
        description="The lock that elects the master: `file` is ActiveMQ's own (fcntl on `lock`), `flock` uses "
        "flock(2) on a file beside it, for file systems without byte range locks; it does not exclude an ActiveMQ. "
        "`postgres-row` and `postgres-lease` are ActiveMQ's two in a database, `postgres-advisory` is for pybrokers "
        "only; they need `lock_url`. A store in a database has its lock there, `postgres-row` unless it is said "
        "otherwise.",
    )
    lock_url: str | None = Field(
        None,
        repr=False,
        description="The database of a `postgres-` lock, `postgresql://USER@HOST:5432/DATABASE`; by default the "
        "store's, if that is one. Rather than on the command line, give a password in the environment or in a file "
        "that `PGPASSFILE` names.",
    )
    create_tables: bool = Field(
        True, description="Create tables that are missing in a database, as ActiveMQ's `createTablesOnStartup`."
    )
    database_grace: Duration | None = Field(
        None,
        ge=0,
        description="How long a master keeps its clients waiting while the store's database is away, before it steps "
        "back; at most what a lock that was just confirmed is still good for, by default half of `lock_lease`.",
    )
    lock_lease: Duration = Field(
        LEASE_SECONDS,
        ge=LEASE_SECONDS_MIN,
        le=3600,
        description="How long the database keeps its lock for a master that it hears nothing of.",
    )
    lock_renew: Duration | None = Field(
        None,
        description="How often a master confirms its lock in a database, at most half of `lock_lease`; by default a "
        "third.",
    )
    lock_poll: Duration | None = Field(
        None,
        description="Try the lock at this interval, instead of waiting in the kernel, where blocking waits misbehave; "
        "with `postgres-lease`, where nothing else is possible, 250ms by default.",
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
    store_limit: Size = Field(
        0,
        ge=0,
        description="Size of the journal at which persistent messages are refused, as with ActiveMQ's `storeUsage` and "
        "`sendFailIfNoSpace`; `0`: none but the disk's.",
    )
    disk_reserve: Size = Field(
        32 << 20,
        ge=0,
        description="Room on the store's disk kept back for acknowledgements: when the disk is full, sends are "
        "refused, and consumers are served on it; `0`: none.",
    )
    cleanup_interval: Duration = Field(
        30.0, ge=0.1, le=86400, description="How often journal files that nothing needs any more are removed."
    )
    archive: bool = Field(False, description="Move such files to `data-archive` instead of deleting them.")
    connections_max: int = Field(1000, ge=1, le=100_000, description="Most client connections at a time.")
    connect_timeout: Duration = Field(
        30.0,
        gt=0,
        le=3600,
        description="How long a client may take for its TLS handshake, and again for its first frame.",
    )
    frame_max: Size = Field(
        100 << 20, ge=1 << 10, le=1 << 30, description="Largest frame, thereby largest message, a client may send."
    )
    openwire_max_inactivity: Duration = Field(
        30.0,
        ge=0,
        le=86400,
        description="Silence after which an OpenWire client is given up, unless it asks for less; 0: never.",
    )
    openwire_initial_delay: Duration = Field(
        10.0, ge=0, le=86400, description="Time an OpenWire client has before that silence counts."
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
    policies: Policies = Field((), description="Rules per destination or wildcard.")
    virtual_topics: VirtualTopics = Field(
        DEFAULT_VIRTUAL_TOPICS, description="Topics whose messages are copied to the queues of their consumers."
    )
    composite_queues: CompositeQueues = Field((), description="Queues that stand for other destinations.")
    composite_topics: CompositeTopics = Field((), description="Topics that stand for other destinations.")
    mirrored_queues: Mirrored = Field(None, description="Topics on which every queue's messages are shown.")
    memory_limit: Size = Field(
        0,
        description="Memory that all messages may take before producers are slowed down; `0`: 70 % of the machine's, "
        "or of the control group's.",
    )
    scheduler: bool = Field(
        True, description="Serve `AMQ_SCHEDULED_DELAY` and its kin; otherwise such messages are delivered at once."
    )
    jobs_max: int = Field(1_000_000, ge=1, description="How many scheduled messages clients may have at a time.")
    stop_timeout: Duration = Field(
        5.0, ge=0, le=600, description="How long an orderly stop waits for clients to take what they are owed."
    )
    event_loop: Literal["auto", "asyncio", "uvloop"] = Field(
        "auto", description="What moves the bytes: uvloop, asyncio's own loop, or uvloop where it is installed."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="What is logged.")

    @field_validator("name")
    @classmethod
    def _name_is_plain(cls, value: str | None) -> str | None:
        if value is not None and not _NAME.fullmatch(value):
            raise ValueError("a name has 1 to 100 letters, digits, `.`, `_` or `-`, and begins with a letter or digit")
        return value

    @field_validator("store")
    @classmethod
    def _store_is_known(cls, value: str) -> str:
        if not value:
            raise ValueError("write a directory, or `memory:`")
        if "://" in value and not is_database(value):
            raise ValueError(
                f"{value.partition('://')[0]}:// is not a store of this version: write a directory, or "
                "postgresql://USER@HOST:5432/DATABASE"
            )
        return value

    @model_validator(mode="before")
    @classmethod
    def _lock_is_with_the_store(cls, values: dict[str, Any]) -> dict[str, Any]:
        """A store in a database is locked there."""
        if not _names_database(values):
            return values
        return {"lock": "postgres-row"} | values | {"lock_url": values.get("lock_url") or values["store"]}

    @model_validator(mode="after")
    def _database_fits(self) -> "Config":
        if not is_database(self.store):
            if self.database_grace is not None:
                raise ValueError("database_grace goes with a store in a database")
            return self
        if not is_in_database(self.lock):
            raise ValueError(
                f"lock = {self.lock} does not guard a store in a database: leave it out, or write postgres-row, "
                "postgres-lease or postgres-advisory"
            )
        if _place(self.store) != _place(self.lock_url or ""):
            raise ValueError(
                "store and lock_url are two databases, and a lock in one does not guard the other from those who "
                "lock there: leave lock_url out"
            )
        return self

    @model_validator(mode="after")
    def _lock_fits(self) -> "Config":
        if is_in_database(self.lock):
            if not self.lock_url:
                raise ValueError(f"lock = {self.lock} needs a database: set lock_url")
            if not self.lock_url.startswith(_POSTGRES_SCHEMES):
                raise ValueError("lock_url is not that of a database: write postgresql://USER@HOST:5432/DATABASE")
            try:
                timing = Timing.of(self.lock_lease, self.lock_renew)
            except ConfigError as error:
                raise ValueError(str(error)) from error
            if self.database_grace is not None and self.database_grace > timing.grace_seconds_max:
                raise ValueError(
                    f"database_grace must be at most {timing.grace_seconds_max:g}s: then another member may have the "
                    "lock; or raise lock_lease"
                )
        elif self.lock_url:
            raise ValueError(f"lock_url goes with the locks of a database: set lock to postgres-row, not {self.lock}")
        return self

    @model_validator(mode="after")
    def _limits_fit(self) -> "Config":
        if self.journal_batch_max > self.journal_file_max:
            raise ValueError("journal_batch_max must not be larger than journal_file_max")
        if self.store_limit and self.store_limit < 2 * self.journal_file_max:
            raise ValueError("store_limit must be 0, or at least twice journal_file_max: whole files are let go")
        return self

    @model_validator(mode="after")
    def _listeners_fit(self) -> "Config":
        users: dict[int, str] = {}
        for name, port in self.ports().items():
            if port and port in users:
                raise ValueError(f"{users[port]} and {name} cannot both have port {port}")
            users[port] = name
            if is_tls(name) and self.tls_certificate is None:
                raise ValueError(f"{name} needs a certificate: set tls_certificate")
        if self.tls_certificate is None and (self.tls_key or self.tls_key_password_file or self.tls_client_ca):
            raise ValueError("tls_key, tls_key_password_file and tls_client_ca go with a tls_certificate")
        return self

    def ports(self) -> dict[str, int]:
        """Return the listeners that are on: their settings' names and their ports."""
        values = {name: getattr(self, name) for name in PORTS}
        return {name: port for name, port in values.items() if port is not None}


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
        if is_table(name):
            continue
        variable = ENVIRONMENT_PREFIX + name.upper()
        if variable in environment:
            values[name], origin[name] = environment[variable], variable
        if flags.get(name) is not None:
            values[name], origin[name] = flags[name], flag(name)
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        raise _translated(error, origin) from error


def is_database(store: str) -> bool:
    """Tell whether a store is a database."""
    return store.startswith(_POSTGRES_SCHEMES)


def is_in_database(lock: str) -> bool:
    """Tell whether a kind of lock is one of a database."""
    return lock.startswith("postgres-")


def is_table(name: str) -> bool:
    """Tell whether a setting is tables, which only a file can hold."""
    return name in TABLES


def flag(name: str) -> str:
    """Return the command line's flag of a setting."""
    return "--" + name.replace("_", "-")


def is_tls(name: str) -> bool:
    """Tell whether a port's listener encrypts."""
    return name.endswith(_TLS_SUFFIX)


def plain(name: str) -> str:
    """Return the port setting of the same protocol without TLS."""
    return name.removesuffix(_TLS_SUFFIX)


def is_size(name: str) -> bool:
    """Tell whether a setting is a size in bytes."""
    return any(
        isinstance(hint, BeforeValidator) and hint.func is parse_size for hint in Config.model_fields[name].metadata
    )


def _names_database(values: Mapping[str, Any]) -> bool:
    """Tell whether settings, as they were given, name a store in a database."""
    store = values.get("store")
    return isinstance(store, str) and is_database(store)


def _place(url: str) -> tuple[str, str]:
    """Return server and database that a URL names, without user and options."""
    authority, _, rest = url.partition("://")[2].partition("/")
    return authority.rpartition("@")[2], re.split("[?#]", rest)[0]


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
