"""Makes a member's part in a replicated cluster from its settings."""

import asyncio
import socket

from pybroker.broker.app.config import Config
from pybroker.broker.app.layout import layout_of
from pybroker.broker.app.machine import MACHINE, Machine
from pybroker.broker.app.replica_admission import admit
from pybroker.broker.app.replica_join import address_of_master, election_place, names_master
from pybroker.broker.app.replica_peers import (
    LOOPBACK,
    is_protected,
    peer_certificates_of,
    read_password,
    read_secret,
    stream_host,
)
from pybroker.broker.app.replica_term import StreamSettings
from pybroker.broker.app.replication import Replication, ReplicationSettings
from pybroker.broker.app.wiring import needs_driver
from pybroker.broker.domain.errors import ConfigError, StoreUnavailable
from pybroker.broker.domain.replica.operations import Journal
from pybroker.locks.election.election_state import ElectionPolicy
from pybroker.locks.election.record import ElectionSettings
from pybroker.locks.election.register import Register
from pybroker.locks.file import FileLock
from pybroker.store.replica.receiver import ReceiverSettings
from pybroker.transports.replica.server import StreamPolicy

_CALLS_PER_LEASE = 4


async def make_replication(config: Config, name: str, machine: Machine = MACHINE) -> Replication:
    """Return a member's part in its cluster, to which its store belongs. Called on the event loop.

    Args:
        config: the settings, with `replicate`.
        name: the member's name.
        machine: the machine of this member.

    Raises:
        ConfigError: a setting is not valid.
        StoreUnavailable: another process uses the store, or it does not belong into the cluster.
    """
    where = layout_of(config)
    register = make_register(config)
    secret = b"" if config.replicate_secret_file is None else read_secret(config.replicate_secret_file)
    tls = peer_certificates_of(config)
    address = _address_of(config)
    _check_address(address)
    lock = FileLock(where.journal / "lock", clock=machine.clock)
    if not lock.try_acquire():
        raise StoreUnavailable(
            f"{where.journal / 'lock'} is held by another process: each member of a cluster has a directory of its own",
            path=str(where.journal),
            hint="stop the other process, or give this member another store",
        )
    journals = {Journal.MESSAGES: where.journal, Journal.SCHEDULER: where.scheduler}
    await asyncio.to_thread(admit, where.root, journals, register, may_discard=config.replicate_discard)
    settings = ReplicationSettings(
        root=where.root,
        journals=journals,
        opened=frozenset(Journal if config.scheduler else (Journal.MESSAGES,)),
        name=name,
        address=address,
        clients=(),
        policy=ElectionPolicy(
            cluster_name=register.cluster,
            replica_timeout=config.replicate_timeout,
            gives_grace=config.replicate_grace,
            may_stand=config.replicate_promote,
            first_settings=ElectionSettings(
                lease_ms=round(config.replicate_lease * 1000), min_in_sync=config.replicate_min
            ),
        ),
        stream=StreamSettings(
            host=stream_host(config),
            port=config.replicate_port,
            policy=StreamPolicy(timeout=config.replicate_timeout, rate_bytes=config.replicate_catch_up_rate),
            secret=secret,
            tls=tls,
            election=election_place(config, register.name),
        ),
        receiver=ReceiverSettings(
            preallocate_bytes=config.journal_file_max if config.journal_preallocate else 0,
            archive_directory=where.journal / "data-archive" if config.archive else None,
            discarded_max=config.replicate_discarded,
            reserve_bytes=config.disk_reserve,
        ),
        is_durable=config.sync == "always",
        failback=config.replicate_failback,
    )
    return Replication(settings, register, lock)


def check(config: Config) -> None:
    """Check what the settings of replication name, but for the store, the election store and the port.

    Raises:
        ConfigError: a setting is not valid, a file cannot be used, or the driver is not installed.
    """
    if names_master(config):
        address_of_master(config.replicate or "")
    else:
        make_register(config).close()
    if config.replicate_secret_file is not None:
        read_secret(config.replicate_secret_file)
    peer_certificates_of(config)
    _check_address(_address_of(config))


def _address_of(config: Config) -> str:
    """Return host and port that other members dial, as text."""
    if config.replicate_url:
        return config.replicate_url
    host = socket.gethostname() if is_protected(config) else LOOPBACK
    return f"{host}:{config.replicate_port}"


def _check_address(address: str) -> None:
    """Check that other members can dial an address.

    Raises:
        ConfigError: they cannot.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isascii() or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise ConfigError(
            f"{address!r} is not HOST:PORT",
            setting="replicate_url",
            hint="write the host name and replicate_port, without a scheme",
        )


def make_register(config: Config) -> Register:
    """Return the register in the configured election store. Nothing is connected.

    Raises:
        ConfigError: the URL is not valid, or the driver is not installed.
    """
    url = config.replicate or ""
    seconds = config.replicate_lease / _CALLS_PER_LEASE
    scheme = url.partition("://")[0]
    if scheme in ("etcd", "etcd+https"):
        from pybroker.locks.election.etcd import EtcdRegister  # few members need it
        from pybroker.locks.election.etcd_gateway import EtcdUser

        password = read_password(config)
        user = None if password is None else EtcdUser(name=config.replicate_user or "", password=password)
        return EtcdRegister(url, timeout_seconds=seconds, user=user)
    if config.replicate_user is not None:
        raise ConfigError(
            "it is for etcd alone",
            setting="replicate_user",
            hint="other election stores have their own: a user in the URL, PGPASSWORD, or a service account",
        )
    if scheme == "kubernetes":
        from pybroker.locks.election.kubernetes import KubernetesRegister

        return KubernetesRegister(url, timeout_seconds=seconds)
    if scheme in ("postgresql", "postgres"):
        with needs_driver("an election store in PostgreSQL", "replicate"):
            from pybroker.locks.election.postgres import PostgresRegister

        return PostgresRegister(url, timeout_seconds=seconds)
    raise ConfigError(
        "it names no election store: write etcd://HOST:2379/NAME, kubernetes://NAME or "
        "postgresql://USER@HOST/DATABASE?cluster=NAME",
        setting="replicate",
    )
