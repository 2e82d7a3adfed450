"""Settings, read once from a TOML file, the environment and flags (the later wins), checked together, then frozen.

Each setting has one declaration. Flags, environment variables and `docs/settings.md` are derived from it: setting
`sync_interval` is `--sync-interval`, `PYBROKER_SYNC_INTERVAL`, and `sync_interval` in TOML.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn, Self, cast

from pybroker.broker.app.listeners import check_addresses, networks_of
from pybroker.broker.app.listening import check_tls, open_listeners
from pybroker.broker.app.management_roles import ROLES, ManagementRoles
from pybroker.broker.app.message_settings import MESSAGE_TABLES, MessageSettings
from pybroker.broker.app.network_settings import NetworkSettings
from pybroker.broker.app.setting import (
    ListenAddress,
    Setting,
    address,
    broker_name,
    choice,
    declared,
    member_name,
    nearest,
    path,
    port,
    read_values,
    text,
    user_name,
    user_names,
    web_address,
    whole,
    yes_or_no,
)
from pybroker.broker.app.stores import MEMORY_STORE, check_lock, check_store, is_database, journal_name
from pybroker.broker.app.stores import store as store_place
from pybroker.broker.domain.addresses import is_loopback
from pybroker.broker.domain.errors import ConfigError
from pybroker.broker.domain.security import ANONYMOUS, User
from pybroker.locks.postgres.timing import LEASE_SECONDS, LEASE_SECONDS_MIN
from pybroker.security.anonymous import AnonymousPolicy
from pybroker.security.jasypt import ALGORITHMS
from pybroker.store.directories import JOURNAL
from pybroker.units import parse_duration as duration
from pybroker.units import parse_size as size

if TYPE_CHECKING:  # imported when a file has tables
    from pybroker.broker.app.listener_tables import ListenerTable
    from pybroker.security.ldap_settings import LdapSettings

ENVIRONMENT_PREFIX = "PYBROKER_"

TABLES = ("listeners", "network", *MESSAGE_TABLES, "ldap", "management_roles")
"""The settings that are TOML tables, and neither flags nor variables."""


_PURGE_SECONDS_MIN = 0.1


def _ldap(value: object) -> Any:
    """Read the table `ldap`, with a module that is imported when it is needed."""
    from pybroker.broker.app import directory

    return directory.LDAP.read(value)


class Config(NetworkSettings, MessageSettings):
    """All settings of one broker, frozen."""

    store: str = declared(
        store_place,
        "data",
        is_secret=True,
        description="Data directory shared by the members of a pair, with `replicate` one for each member; or a "
        "database with ActiveMQ's tables, `postgresql://USER@HOST:5432/DATABASE`, which then holds the lock too; or "
        "`memory:` for none.",
    )
    journal_directory: str = declared(
        journal_name,
        JOURNAL,
        description="Name of the journal's directory in the store's, the same for all members: the last part of "
        "what an ActiveMQ has as `directory` of its `kahaDB`, such as `KahaDB`; `.` for the store's own directory.",
    )
    name: str | None = declared(
        member_name,
        None,
        description="This member's name in status and logs; by default the host's name, with a number if taken.",
    )
    broker_name: str = declared(
        broker_name,
        "localhost",
        description="The broker's name to clients and to bridges of other brokers, the same for all members: what "
        "ActiveMQ calls `brokerName`, with ActiveMQ's default. In a network of brokers give each pair another one.",
    )
    statistics: bool = declared(
        yes_or_no,
        False,
        description="Answer messages to `ActiveMQ.Statistics.Broker`, `ActiveMQ.Statistics.DestinationNAME` and "
        "`ActiveMQ.Statistics.Subscription`, as ActiveMQ's `statisticsBrokerPlugin` does.",
    )
    health: int | None = declared(
        port,
        None,
        description="Port of the health checks over HTTP, `/live`, `/ready`, `/master` and `/standby`, which every "
        "member answers; `0` for any free one, `off` for none.",
    )
    management: ListenAddress | None = declared(
        address,
        None,
        description="Address of the HTTP server for management, `HOST:PORT`, or a port on `bind`; it has REST, metrics "
        "and the health checks, on master and standby; `off` for none. It needs the extra `management`, and "
        "users with a role unless HOST is a loopback address.",
    )
    management_tls: bool = declared(
        yes_or_no, False, description="Serve management over TLS, with `tls_certificate`, and never otherwise."
    )
    on_ha_event: Path | None = declared(
        path,
        None,
        description="Program that is run when this member becomes master, steps back, is degraded or healthy again: "
        "it gets [a line of JSON](watching.md#events) on its standard input.",
    )
    ha_webhook: str | None = declared(
        web_address,
        None,
        is_secret=True,
        description="URL of a web server to which the same JSON is posted, `https://…` or `http://…`.",
    )
    lock: str = declared(
        choice("file", "flock", "postgres-row", "postgres-lease", "postgres-advisory"),
        "file",
        description="The lock that elects the master: `file` is ActiveMQ's own (fcntl on `lock`), `flock` uses "
        "flock(2) on a file beside it, for file systems without byte range locks; it does not exclude an ActiveMQ. "
        "`postgres-row` and `postgres-lease` are ActiveMQ's two in a database, `postgres-advisory` is for pybrokers "
        "only; they need `lock_url`. A store in a database has its lock there, `postgres-row` unless this is "
        "set.",
    )
    lock_url: str | None = declared(
        text,
        None,
        is_secret=True,
        description="The database of a `postgres-` lock, `postgresql://USER@HOST:5432/DATABASE`; by default the "
        "store's, if that is one. Rather than on the command line, give a password in the environment or in a file "
        "that `PGPASSFILE` names.",
    )
    create_store: bool = declared(
        yes_or_no,
        True,
        description="Create a new, empty store in a directory that holds none. With `no` such a start is refused, as "
        "when the name is mistyped or the share not mounted: set it once the store is there, and `scheduler_store` "
        "too if that is set.",
    )
    create_tables: bool = declared(
        yes_or_no,
        True,
        description="Create tables that are missing in a database, as ActiveMQ's `createTablesOnStartup`.",
    )
    database_grace: float | None = declared(
        duration,
        None,
        least=0,
        description="How long a master keeps its clients waiting while the store's database is away, before it steps "
        "back; at most what a lock that was just confirmed is still good for, by default half of `lock_lease`.",
    )
    lock_lease: float = declared(
        duration,
        LEASE_SECONDS,
        least=LEASE_SECONDS_MIN,
        most=3600,
        description="How long the database keeps the lock of a master that does not renew it.",
    )
    lock_renew: float | None = declared(
        duration,
        None,
        description="How often a master confirms its lock in a database, at most half of `lock_lease`; by default a "
        "third.",
    )
    lock_poll: float | None = declared(
        duration,
        None,
        description="Try the lock at this interval, instead of waiting in the kernel, where blocking waits misbehave; "
        "with `postgres-lease`, which has no other way, 250ms by default.",
    )
    lock_check: float = declared(
        duration,
        0.5,
        least=0.05,
        most=60,
        description="How often an idle master checks that it still holds the lock.",
    )
    replicate: str | None = declared(
        text,
        None,
        is_secret=True,
        description="The election store of a replicated cluster, whose members have a directory each and share none: "
        "`etcd://HOST:2379,HOST:2379/NAME`, `etcd+https://…`, `kubernetes://[NAMESPACE/]NAME`, or "
        "`postgresql://USER@HOST/DATABASE?cluster=NAME`. "
        "All members of a cluster name the same one; a standby may name its master instead, `tcp://HOST:61620`, and "
        "learns the rest from it.",
    )
    replicate_user: str | None = declared(
        text, None, description="User of this member in etcd, where that demands one. Needs `replicate_password_file`."
    )
    replicate_password_file: Path | None = declared(
        path, None, description="File with the password of `replicate_user`, which its owner alone may read."
    )
    replicate_port: int = declared(
        whole,
        61620,
        least=1,
        most=65535,
        description="Port on which a master accepts the members that copy its store.",
    )
    replicate_url: str | None = declared(
        text,
        None,
        description="HOST:PORT at which other members reach `replicate_port`; by default this host's name, and the "
        "loopback address without a secret.",
    )
    replicate_secret_file: Path | None = declared(
        path,
        None,
        description="File with the secret that all members share. Without one members can only be on this machine.",
    )
    replicate_tls_certificate: Path | None = declared(
        path,
        None,
        description="Certificate of this member, in PEM, with which members know each other: the stream is encrypted "
        "then. With `replicate_tls_ca` or `replicate_members`, `tls_certificate` by default.",
    )
    replicate_tls_key: Path | None = declared(path, None, description="Its key in PEM, by default in the same file.")
    replicate_tls_ca: Path | None = declared(
        path,
        None,
        description="The authority of the members' certificates, in PEM; by default `tls_client_ca`, which needs "
        "`replicate_members`.",
    )
    replicate_members: str | None = declared(
        text,
        None,
        description="Names of the members in their certificates, with commas: no other certificate is accepted. By "
        "default every one of `replicate_tls_ca` is.",
    )
    replicate_min: int = declared(
        whole,
        1,
        least=1,
        most=9,
        description="On how many disks a message has to be before it is acknowledged, of a cluster that this member "
        "creates.",
    )
    replicate_lease: float = declared(
        duration,
        5.0,
        least=1,
        most=3600,
        description="After which time a silent master is replaced, of a cluster that this member creates.",
    )
    replicate_timeout: float = declared(
        duration,
        2.0,
        least=0.1,
        most=600,
        description="After which time a master goes on without a member that confirms nothing; and after five to ten "
        "times as long without one that is ever later.",
    )
    replicate_grace: bool = declared(
        yes_or_no,
        True,
        description="While the election store is away, a master goes on as long as all other members in sync promise "
        "not to take over.",
    )
    replicate_promote: bool = declared(
        yes_or_no, True, description="Let this member become master; with `no` it only has a copy of the store."
    )
    replicate_failback: float | None = declared(
        duration,
        None,
        least=1,
        most=86_400,
        description="For the one member of a cluster that is preferred as master: once it has been in sync for that "
        "long, the master hands over to it, which cuts clients off once. By default the master stays.",
    )
    replicate_discard: bool = declared(
        yes_or_no,
        False,
        description="Move a store with messages that the cluster does not know to `replica/discarded`, and begin with "
        "a copy of the master's.",
    )
    replicate_discarded: int = declared(
        whole,
        2,
        least=0,
        most=100,
        description="How often what a member has to cut off its copy is kept in `replica/discarded`.",
    )
    replicate_catch_up_rate: int = declared(
        size,
        0,
        least=0,
        description="Most bytes a second that a master sends to a member that catches up; 0 for no limit.",
    )
    sync: str = declared(
        choice("always", "periodic", "never"),
        "always",
        description="When the journal is synced to disk: before anything is acknowledged, every `sync_interval`, or by "
        "the operating system. Only `always` keeps what was acknowledged through a power failure.",
    )
    sync_interval: float = declared(
        duration, 1.0, least=0.01, most=3600, description="Time between syncs with `sync = periodic`."
    )
    journal_file_max: int = declared(
        size,
        32 << 20,
        least=1 << 20,
        most=1 << 30,
        description="Length at which a journal file is full.",
    )
    journal_batch_max: int = declared(
        size, 4 << 20, least=64 << 10, most=64 << 20, description="Most bytes written and synced together."
    )
    journal_preallocate: bool = declared(
        yes_or_no,
        True,
        description="Give journal files their full length when they are made (sparse), as ActiveMQ does.",
    )
    store_limit: int = declared(
        size,
        0,
        least=0,
        description="Size of the journal at which persistent messages are refused, as with ActiveMQ's `storeUsage` and "
        "`sendFailIfNoSpace`; `0`: only the disk's.",
    )
    disk_reserve: int = declared(
        size,
        32 << 20,
        least=0,
        description="Disk space reserved for acknowledgements: when the disk is full, sends are "
        "refused, and consumers are still served; `0`: none.",
    )
    cleanup_interval: float = declared(
        duration,
        30.0,
        least=0.1,
        most=86400,
        description="How often journal files without live records are removed.",
    )
    archive: bool = declared(
        yes_or_no, False, description="Move such files to `data-archive` instead of deleting them."
    )
    users_file: Path | None = declared(
        path,
        None,
        description="File of the users: pybroker's own, `users.toml` (see `pybroker user`), or an ActiveMQ's "
        "`users.properties`. Without it there are no logins. The broker reads it again within two seconds of a change.",
    )
    groups_file: Path | None = declared(
        path, None, description="ActiveMQ's `groups.properties`, with a `users_file` that is its `users.properties`."
    )
    encryption_algorithm: str = declared(
        choice(*ALGORITHMS),
        ALGORITHMS[0],
        description="How the `ENC(…)` values in `users.properties` are encrypted; the password for that is in the "
        "environment, in `ACTIVEMQ_ENCRYPTION_PASSWORD`.",
    )
    certificate_users_file: Path | None = declared(
        path,
        None,
        description="ActiveMQ's file of users by the subject of their certificates, `user=CN=…`. With it TLS clients "
        "are known by their certificates alone. Read again like `users_file`.",
    )
    certificate_groups_file: Path | None = declared(
        path, None, description="ActiveMQ's `groups.properties` for the users of `certificate_users_file`."
    )
    rules_file: Path | None = declared(
        path,
        None,
        description="File of the rules for what users may read, write, create and remove, in TOML. Without it every "
        "user may do everything. The broker reads it again within two seconds of a change.",
    )
    populate_jmsx_user_id: bool = declared(
        yes_or_no,
        False,
        description="Write the name of the user who sends a message into it, as `JMSXUserID`, in place of what the "
        "client has put there. Costs some ten microseconds for each message.",
    )
    anonymous: str = declared(
        choice("auto", *(each.value for each in AnonymousPolicy)),
        "auto",
        description="The addresses from which clients may connect without a login: none, those of this host, or all; "
        "`auto` is `refused` with a `users_file`, `certificate_users_file` or `ldap`, and `loopback` without one.",
    )
    anonymous_user: str = declared(
        user_name, ANONYMOUS.name, description="The name of clients without a login, which is that of no other user."
    )
    anonymous_groups: str = declared(
        user_names, ",".join(ANONYMOUS.groups), description="Comma list of the groups of clients without a login."
    )
    anonymous_if_refused: bool = declared(
        yes_or_no,
        False,
        description="Take clients whose login is refused as clients without a login, as ActiveMQ's "
        "`GuestLoginModule` without `credentialsInvalidate` does.",
    )
    login_needs_tls: bool = declared(
        yes_or_no,
        False,
        description="Refuse to start with a `users_file` or `ldap`, and listeners without TLS that other machines can "
        "reach; otherwise that is a warning.",
    )
    max_redeliveries: int = declared(
        whole,
        6,
        least=-1,
        most=1_000_000,
        description="How often a message may come back before it goes to ActiveMQ.DLQ; -1: ever.",
    )
    topic_pending_limit: int = declared(
        whole,
        1000,
        least=-1,
        description="Messages that may wait for a slow topic consumer above its prefetch; older are dropped. -1: all.",
    )
    destinations_max: int = declared(
        whole,
        100_000,
        least=1,
        description="Most queues and topics clients may create; temporary ones are limited by memory.",
    )
    expire_interval: float = declared(
        duration,
        30.0,
        least=0.1,
        most=86400,
        description="How often destinations without consumers are searched for expired messages.",
    )
    ldap: "LdapSettings | None" = declared(
        _ldap, None, description="The LDAP directory that has users and groups: see [logins](security.md)."
    )
    management_roles: ManagementRoles | None = declared(
        ROLES.read,
        None,
        description="The groups whose users may use management, by role: see [management](management.md#roles).",
    )
    memory_limit: int = declared(
        size,
        0,
        description="Memory limit of all messages, above which producers are slowed down; `0`: 70 % of the machine's, "
        "or of the control group's.",
    )
    spool_limit: int = declared(
        size,
        10 << 30,
        least=0,
        description="Disk space for messages that no store has, such as non-persistent ones, when they leave memory: "
        "ActiveMQ's `tempUsage`; `0`: they stay in memory.",
    )
    spool_directory: Path | None = declared(
        path,
        None,
        description="Directory of these files, which have no name; by default the store's, and for a store in a "
        "database the system's temporary directory. That one is memory if it is a tmpfs.",
    )
    scheduler: bool = declared(
        yes_or_no,
        True,
        description="Serve `AMQ_SCHEDULED_DELAY` and related headers; otherwise such messages are delivered at once.",
    )
    scheduler_store: Path | None = declared(
        path,
        None,
        description="Directory of the scheduled messages, the same for all members; by default `scheduler` in the "
        "store's. An ActiveMQ has them in `DATA/BROKER/scheduler` or its `schedulerDirectory`: name "
        "that one to serve them, and to leave them to an ActiveMQ again.",
    )
    jobs_max: int = declared(
        whole,
        1_000_000,
        least=1,
        description="How many scheduled messages clients may have at a time, if `memory_limit` has room for them.",
    )
    stop_timeout: float = declared(
        duration,
        5.0,
        least=0,
        most=600,
        description="How long an orderly stop waits for clients to read outstanding answers.",
    )
    event_loop: str = declared(
        choice("auto", "asyncio", "uvloop"),
        "auto",
        description="The event loop: uvloop, asyncio's own loop, or uvloop where it is installed.",
    )
    log_level: str = declared(
        choice("debug", "info", "warning", "error"), "info", description="The lowest level that is logged."
    )
    log_format: str = declared(
        choice("text", "json"), "text", description="The form of the log: text, or a line of JSON for each event."
    )
    log_file: Path | None = declared(
        path, None, "File of this member's log, opened again when it was renamed; by default standard error."
    )
    log_connections: bool = declared(
        yes_or_no,
        False,
        description="Log each client that connects, and how its connection ended, at `info`; at `debug` it is logged "
        "anyway.",
    )

    def __init__(self, /, **given: object) -> None:
        """Read the given values; other settings have their defaults.

        Raises:
            ConfigError: a value is not valid.
        """
        given = _with_lock(given)
        vars(self).update({name: setting.default for name, setting in SETTINGS.items()})
        vars(self).update(read_values(SETTINGS, given, _unknown), given=MappingProxyType(given))
        try:
            given_tables = cast("tuple[ListenerTable, ...]", self.listeners)
            vars(self)["listeners"] = tuple(open_listeners(self, given_tables))
            check_store(self.store, self.lock, self.lock_url, self.database_grace, may_create=self.create_store)
            check_lock(self.lock, self.lock_url, self.database_grace, (self.lock_lease, self.lock_renew))
            self._check_scheduler()
            self._check_limits()
            self._check_users()
            self._check_listeners()
            self._check_management()
            self._check_replication()
        except ValueError as error:
            raise ConfigError(str(error), setting="") from error

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{name}: settings are read once")

    def __repr__(self) -> str:
        shown = (f"{name}={getattr(self, name)!r}" for name, each in SETTINGS.items() if not each.is_secret)
        return f"Config({', '.join(shown)})"

    def replace(self, **values: object) -> Self:
        """Return a copy with other values.

        Raises:
            ConfigError: a value is not valid.
        """
        return type(self)(**(dict(self.given) | values))

    def _check_replication(self) -> None:
        if self.replicate is None:
            return
        if not self.is_in_directory:
            raise ValueError("replicate goes with a store in a directory of each member: name one with store")
        if "lock" in self.given or self.lock_url is not None:
            raise ValueError("replicate elects the master by the election store: leave lock and lock_url out")
        if self.scheduler_store is not None:
            raise ValueError("replicate copies the scheduled messages beside the journal: leave scheduler_store out")
        if (self.replicate_user is None) != (self.replicate_password_file is None):
            raise ValueError("replicate_user and replicate_password_file go together: one of them is missing")

    def _check_scheduler(self) -> None:
        if self.redelivery is not None and not self.scheduler:
            raise ValueError("redelivery goes with scheduler = yes: what is redelivered later is scheduled")
        if self.journal_directory != JOURNAL and not self.is_in_directory:
            raise ValueError("journal_directory goes with a store in a directory: others have no journal")
        if self.scheduler_store is not None and not self.is_in_directory:
            raise ValueError(
                "scheduler_store goes with a store in a directory: others hold scheduled messages themselves"
            )

    def _check_limits(self) -> None:
        if self.journal_batch_max > self.journal_file_max:
            raise ValueError("journal_batch_max must not be larger than journal_file_max")
        if self.store_limit and self.store_limit < 2 * self.journal_file_max:
            raise ValueError("store_limit must be 0, or at least twice journal_file_max: whole files are removed")
        if 0 < self.purge_interval < _PURGE_SECONDS_MIN:
            raise ValueError("destination_purge_interval must be 0, or at least 100ms: it looks at all destinations")
        if len(self.destinations) > self.destinations_max:
            raise ValueError("destinations are more than destinations_max")
        if self.connections_reserved is not None and self.connections_reserved >= self.connections_max:
            raise ValueError("connections_reserved must be less than connections_max: a client begins without a login")
        if self.connections_per_user and not self.has_users:
            raise ValueError(
                "connections_per_user goes with a users_file or certificate_users_file: other names are not verified"
            )

    def _check_users(self) -> None:
        if self.users_file is None:
            if self.groups_file is not None:
                raise ValueError("groups_file goes with a users_file")
            if self.anonymous == AnonymousPolicy.REFUSED.value and not self.has_users:
                raise ValueError("anonymous = refused goes with a users_file: without one no client could connect")
        elif self.users_file.suffix not in (".toml", ".properties"):
            raise ValueError(f"users_file {self.users_file} must end in .toml or .properties, which tells its format")
        elif self.groups_file is not None and self.users_file.suffix == ".toml":
            raise ValueError("groups_file goes with a users.properties: a users.toml has the groups itself")

        if self.anonymous_if_refused and (not self.has_users or self.anonymous_policy is AnonymousPolicy.REFUSED):
            raise ValueError("anonymous_if_refused goes with users, and with anonymous = loopback or everywhere")
        asks_clients = any(each.tls is not None and each.tls.client_ca is not None for each in self.listeners)
        if self.certificate_users_file is not None and self.tls_client_ca is None and not asks_clients:
            raise ValueError("certificate_users_file goes with tls_client_ca, which vouches for the certificates")
        if self.certificate_users_file is None and self.certificate_groups_file is not None:
            raise ValueError("certificate_groups_file goes with a certificate_users_file")

    @property
    def purge_interval(self) -> float:
        """Seconds between sweeps for destinations that nothing uses; 0: there are none."""
        given = self.destination_purge_interval
        return self.expire_interval if given is None else given

    @property
    def has_users(self) -> bool:
        """True if clients log in, or are known by their certificates."""
        return self.has_passwords or self.certificate_users_file is not None

    @property
    def has_passwords(self) -> bool:
        """True if clients log in with a password."""
        return self.users_file is not None or self.ldap is not None

    @property
    def guest(self) -> User:
        """The user that clients without a login are."""
        return User(self.anonymous_user, frozenset(filter(None, self.anonymous_groups.split(","))), is_guest=True)

    @property
    def anonymous_policy(self) -> AnonymousPolicy:
        """The addresses from which clients may connect without a login."""
        if self.anonymous != "auto":
            return AnonymousPolicy(self.anonymous)
        return AnonymousPolicy.REFUSED if self.has_users else AnonymousPolicy.LOOPBACK

    def _check_listeners(self) -> None:
        web = self.management or ListenAddress(None, 0)
        others = [("health", self.bind, self.health or 0), ("management", web.host or self.bind, web.port)]
        check_addresses([(each.setting, each.host, each.port) for each in self.listeners] + others)
        if any(each.is_for_proxies for each in self.listeners) != bool(
            networks_of("proxy_networks", self.proxy_networks)
        ):
            raise ValueError(
                "proxy_protocol and proxy_networks go together: the listeners for proxies, and the addresses of those "
                "that are trusted"
            )
        for name in ("allow", "deny"):
            networks_of(name, getattr(self, name))
        check_tls(self)

    def _check_management(self) -> None:
        if self.management is None:
            return
        if self.has_users and not self.has_passwords:
            raise ValueError("management goes with a users_file or ldap: users by certificate have no password for it")
        host = self.management.host or self.bind
        if not self.has_users and not is_loopback(host):
            raise ValueError(
                f"management would be open to everyone at {host}: set a users_file, or bind it to 127.0.0.1"
            )
        if self.management_tls and self.tls_certificate is None:
            raise ValueError("management_tls needs a certificate: set tls_certificate")

    @property
    def is_in_directory(self) -> bool:
        """True if the store is a directory: neither a database nor memory."""
        return self.store != MEMORY_STORE and not is_database(self.store)


def _in_order() -> Iterator[tuple[str, object]]:
    """Yield all attributes: those of the network follow the names, those about messages and destinations the others."""
    for name, value in vars(Config).items():
        yield name, value
        if name == "broker_name":
            yield from vars(NetworkSettings).items()
    yield from vars(MessageSettings).items()


SETTINGS = {name: each for name, each in _in_order() if isinstance(each, Setting)}
"""All settings by name, in the order of the documents."""


def load(
    file: Path | None,
    flags: Mapping[str, Any],
    environment: Mapping[str, str] = os.environ,
    base: tuple[Mapping[str, object], Mapping[str, str]] = ({}, {}),
) -> Config:
    """Return the settings: defaults, overridden by the base, the file, the environment, and flags that are not None.

    Args:
        file: a TOML file.
        flags: those of the command line.
        environment: the variables of the environment.
        base: values from elsewhere, and where each came from, by name.

    Raises:
        ConfigError: a setting is unknown or not valid; names its origin and the remedy.
    """
    values: dict[str, Any] = dict(base[0])
    origin: dict[str, str] = dict(base[1])
    for name, value in _from_file(file).items() if file else ():
        values[name], origin[name] = value, f"{name} (in {file})"
    for name in SETTINGS:
        if is_table(name):
            continue
        variable = ENVIRONMENT_PREFIX + name.upper()
        if variable in environment:
            values[name], origin[name] = environment[variable], variable
        if flags.get(name) is not None:
            values[name], origin[name] = flags[name], flag(name)
    try:
        return Config(**values)
    except ConfigError as error:
        raise ConfigError(error.reason, setting=origin.get(error.setting, error.setting) or "settings") from error


def _unknown(name: str) -> str:
    near = nearest(name, SETTINGS)
    remedy = f"did you mean {near}?" if near else "see `pybroker start --help` for all settings"
    return f"there is no such setting; {remedy}"


def is_table(name: str) -> bool:
    """Return True for a setting of TOML tables, which only a file can have."""
    return name in TABLES


def flag(name: str) -> str:
    """Return the command line's flag of a setting."""
    return "--" + name.replace("_", "-")


def is_size(name: str) -> bool:
    """Return True for a setting that is a size in bytes."""
    return SETTINGS[name].read is size


def _with_lock(values: dict[str, object]) -> dict[str, object]:
    """Return given settings, with the default lock of a store in a database."""
    if not _names_database(values):
        return values
    return {"lock": "postgres-row"} | values | {"lock_url": values.get("lock_url") or values["store"]}


def _names_database(values: Mapping[str, Any]) -> bool:
    """Return True if given settings name a store in a database."""
    store = values.get("store")
    return isinstance(store, str) and is_database(store)


def _from_file(file: Path) -> dict[str, Any]:
    import tomllib  # only some brokers have a file

    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}", setting="--config") from error
    except ValueError as error:
        raise ConfigError(f"{file} is not TOML: {error}", setting="--config") from error
