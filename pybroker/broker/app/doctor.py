"""`pybroker doctor`: judges a member's settings, store and pair, before it goes live and by cron.

The facts are gathered by `examination`; nothing here looks at anything itself. Each finding has the evidence and the
remedy.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from pybroker.broker.app import bridge_findings
from pybroker.broker.app.diagnosis import Diagnosis, Severity, Verdict, advice, error, warning
from pybroker.broker.app.examination import Facts, Neighbour
from pybroker.broker.app.listeners import ListenerKind
from pybroker.broker.app.machine import SPARE_FILES
from pybroker.broker.app.mounts import LOST_TYPES, Mount
from pybroker.broker.app.pair_remedies import OTHER, REMEDIES, kinds_and_texts
from pybroker.broker.app.stores import MEMORY_STORE
from pybroker.broker.domain.addresses import is_loopback
from pybroker.broker.domain.role import Role
from pybroker.store.members import SILENT_MS, MemberRecord, ReplicaReport

SKEW_MS: Final = 2_000
LAG_MS: Final = 10_000


def judge(facts: Facts) -> list[Diagnosis]:
    """Return what is wrong, the worst first."""
    findings = [
        *_of_settings(facts),
        *_of_file_system(facts),
        *_of_locks(facts),
        *_of_scheduler(facts),
        *_of_space(facts),
        *_of_clocks(facts),
        *_of_election(facts),
        *_of_members(facts),
        *_of_failover(facts),
        *_of_bridges(facts),
    ]
    order = list(Severity)
    return sorted(findings, key=lambda finding: -order.index(finding.severity))


def exit_code(findings: Sequence[Diagnosis]) -> Verdict:
    """Return the exit code for findings."""
    severities = {each.severity for each in findings}
    if Severity.ERROR in severities:
        return Verdict.ERRORS
    return Verdict.WARNINGS if Severity.WARNING in severities else Verdict.WELL


def _of_settings(facts: Facts) -> Iterator[Diagnosis]:
    config, refusal = facts.config, facts.refusal
    if refusal is not None:
        reason, _, remedy = (refusal.reason, "", refusal.hint) if refusal.hint else refusal.reason.partition("; ")
        yield error("settings", f"a member would not start: {refusal.setting}: {reason}", remedy or "see the reason")
    for text in facts.warnings:
        evidence, _, remedy = text.partition(": ")
        yield warning("settings", evidence, remedy or "see the log's explanation in docs/watching.md")
    if config.store == MEMORY_STORE:
        yield warning("store", "messages are in memory, and end with the process", "set store to a directory")
    elif facts.is_new and refusal is None:
        yield advice("store", f"there is no store in {config.store} yet", "nothing, before the first start")
    if facts.missing_tables and refusal is None:
        yield advice(
            "store",
            f"the first start creates the tables {', '.join(facts.missing_tables)}",
            "nothing, before the first start",
        )
    if config.sync != "always" and config.is_in_directory:
        yield warning(
            "sync",
            f"sync = {config.sync}: a power failure takes messages that were confirmed",
            "leave sync at always, where messages must not be lost",
        )
    needed = config.connections_max + SPARE_FILES
    if facts.files_max < needed:
        yield error(
            "files",
            f"this user may open {facts.files_max} files, and {config.connections_max} connections need {needed}",
            "raise the limit (`LimitNOFILE` of systemd, `ulimit -Hn`), or lower connections_max",
        )


def _of_file_system(facts: Facts) -> Iterator[Diagnosis]:
    mount = facts.mount
    if mount is None:
        return
    where = f"{facts.config.store} is on {mount.type} ({mount.source}, mounted on {mount.point})"
    if mount.type in LOST_TYPES:
        yield error("file system", f"{where}: it ends with the machine or the container", "put the store on a disk")
    if mount.type in ("nfs", "nfs4"):
        yield from _of_nfs(mount, where)
    if mount.type == "ocfs2" and facts.config.lock == "file":
        yield error(
            "file system",
            f"{where}: without its cluster stack in user space, fcntl locks are local to each machine",
            "set lock = flock on all members, if none is an ActiveMQ; or try it: start two members, kill one",
        )
    if mount.type == "lustre" and mount.option("flock") is None:
        yield error("file system", f"{where}, without the option flock", "mount it with the option flock")
    if mount.type in ("cifs", "smb3") and mount.option("nobrl") is not None:
        yield error("file system", f"{where}, with nobrl: locks are local to each machine", "mount it without nobrl")
    if mount.type in ("9p",) or (mount.type.startswith("fuse.") and facts.config.lock == "file"):
        yield warning(
            "file system",
            f"{where}: whether its locks hold between machines is up to its server",
            "try it: start a member on each machine, kill the master, and look at `pybroker status`",
        )


def _of_nfs(mount: Mount, where: str) -> Iterator[Diagnosis]:
    version = mount.option("vers") or ("4" if mount.type == "nfs4" else "3")
    if not version.startswith("4"):
        yield error(
            "file system",
            f"{where}, version {version}: the locks of a machine that lost power stay until it is back, and no standby "
            "takes over meanwhile",
            "mount it with vers=4.1 or later",
        )
    if mount.option("nolock") is not None or (mount.option("local_lock") or "none") != "none":
        yield error(
            "file system",
            f"{where}, with nolock or local_lock: locks are local to each machine, and both members become master",
            "mount it without these options",
        )
    if mount.option("soft") is not None or mount.option("softerr") is not None:
        yield error(
            "file system",
            f"{where}, with soft: a write that was reported as failed may still happen later",
            "mount it with hard",
        )
    kept = [mount.option(name) for name in ("actimeo", "acregmax")]
    if mount.option("noac") is None and not any(value is not None and int(value or 0) <= 3 for value in kept):
        yield advice(
            "file system",
            f"{where}: attributes of the lock may be up to a minute old",
            "mount it with actimeo=1, so that a replaced lock is noticed sooner",
        )


def _of_locks(facts: Facts) -> Iterator[Diagnosis]:
    if facts.has_locks is False:
        yield error(
            "locks",
            f"lock = {facts.config.lock} does not work in {facts.config.store}: {facts.lock_problem}",
            "use another file system, or lock = flock on all members if none is an ActiveMQ",
        )
    elif facts.lock_problem:
        yield error("store", facts.lock_problem, "mount it read-write, or change its owner")
    for each in facts.members:
        if each.is_renewed:
            yield error(
                "locks",
                f"{each.record.name} on {each.record.host} goes on writing its state, and its lock is not seen here: "
                "locks do not hold between the two machines, and both could be master",
                "mount the file system on both with locks that are passed to the server",
            )
    masters = [each.record.name for each in _living(facts) if each.record.role is Role.MASTER]
    if len(masters) > 1:
        yield error("master", f"{' and '.join(masters)} are both master", "stop one of them at once, then see locks")


def _of_scheduler(facts: Facts) -> Iterator[Diagnosis]:
    mount, scheduler = facts.mount, facts.scheduler_mount
    if mount is not None and scheduler is not None and mount.point != scheduler.point:
        found = f"scheduled messages are on {scheduler.point} ({scheduler.type}), the store on {mount.point}"
        if mount.is_shared and not scheduler.is_shared:
            yield error(
                "scheduler",
                f"{found}, which other members do not see: after a failover scheduled messages are gone",
                "leave scheduler_store out, or put it on the shared file system",
            )
        else:
            yield advice("scheduler", found, "keep both together, so that one cannot be missing")


def _of_space(facts: Facts) -> Iterator[Diagnosis]:
    config, free = facts.config, facts.free_bytes
    if not config.is_in_directory:
        return
    megabytes = f"{free / 2**20:,.0f} MB are free for {config.store}"
    if free < config.disk_reserve:
        yield error("disk", f"{megabytes}, less than disk_reserve", "free space, or lower disk_reserve")
    elif free < 2 * config.disk_reserve + 4 * config.journal_file_max:
        yield warning("disk", megabytes, "free space: persistent messages are refused when it is used up")
    elif config.store_limit and free < config.store_limit:
        yield advice("disk", f"{megabytes}, less than store_limit", "lower store_limit, so that it is what counts")


def _of_clocks(facts: Facts) -> Iterator[Diagnosis]:
    clocks = [(facts.host, facts.skew_ms)]
    clocks += [(each.record.host, each.skew_ms) for each in _living(facts) if each.record.host != facts.host]
    earliest, latest = min(clocks, key=_skew), max(clocks, key=_skew)
    if latest[1] - earliest[1] > SKEW_MS:
        yield warning(
            "clocks",
            f"the clock of {latest[0]} is {(latest[1] - earliest[1]) / 1000:.1f} s ahead of that of {earliest[0]}: "
            "after a failover, expirations and scheduled messages shift by as much",
            "keep the clocks together, by NTP for example",
        )
    elif abs(facts.skew_ms) > SKEW_MS and len(clocks) == 1:
        yield warning(
            "clocks",
            f"the clock of this machine is {facts.skew_ms / 1000:+.1f} s from that of the file server",
            "keep the clocks together, by NTP for example",
        )


def _of_election(facts: Facts) -> Iterator[Diagnosis]:
    if facts.election_problem:
        yield error(
            "election store",
            f"it cannot be used: {facts.election_problem}",
            "see that it runs and that this machine reaches it, and correct replicate: a member waits for it",
        )
    if facts.store_refusal:
        yield error(
            "replication", facts.store_refusal, "move the store away, or start the member with --replicate-discard"
        )


def _of_members(facts: Facts) -> Iterator[Diagnosis]:
    living = list(_living(facts))
    replicas = [each.record.replica for each in living if each.record.replica is not None]
    if replicas:  # the others have stores of their own, and the lock on this one tells nothing of them
        for replica in replicas:
            yield from _of_replica(replica)
    else:
        yield from _of_pair(facts, living)
    yield from _of_records(living)


def _of_replica(replica: ReplicaReport) -> Iterator[Diagnosis]:
    cluster = f"cluster {replica.cluster}" if replica.cluster else "the cluster"
    if replica.problem:
        yield error("replication", replica.problem, "see docs/replication.md for this sentence, and the member's log")
    elif not replica.master:
        yield error("replication", f"no member of {cluster} is master", "see the logs of the members")
    elif not replica.is_in_sync:
        yield warning(
            "replication",
            f"this store is not in sync with {cluster}, so it cannot take over",
            "wait for its catch-up: `pybroker status --wait in-sync`",
        )
    elif replica.in_sync < replica.minimum:
        yield error(
            "replication",
            f"{replica.in_sync} of {replica.minimum} replicas in sync: nothing persistent is accepted until then",
            "start another member, or look at its log",
        )
    elif replica.in_sync < 2:
        yield warning(
            "replication",
            f"only one store of {cluster} is in sync: no other member can take over",
            "start another member, or look at its log",
        )


def _of_pair(facts: Facts, living: Sequence[Neighbour]) -> Iterator[Diagnosis]:
    roles = {each.record.role for each in living}
    if not roles & {Role.MASTER, Role.PROMOTING, Role.RELINQUISHING}:
        if facts.is_locked:
            yield advice(
                "master", "the lock is held by none of the members: an ActiveMQ is master", "nothing, if that is so"
            )
        elif living:
            yield error("master", "no member is master", "see the logs of the members")
    if not living:
        return
    if Role.STANDBY not in roles:
        yield warning(
            "standby", "there is no standby: nothing takes over when the master fails", "start a member elsewhere"
        )
    elif len({each.record.host for each in living}) == 1:
        yield advice(
            "standby", f"all members are on {living[0].record.host}", "start a member on another machine as well"
        )


def _of_records(living: Sequence[Neighbour]) -> Iterator[Diagnosis]:
    for each in living:
        record = each.record
        if each.age_ms > SILENT_MS:
            yield error(
                "members",
                f"{record.name} on {record.host} has been silent for {each.age_ms / 1000:.0f} s: it hangs, or does not "
                "reach the store",
                "look at that machine; end the process if it does not come back",
            )
        elif record.obstacle or record.obstacles or record.warnings:
            yield from _of_watch(record)
        elif record.role is Role.STANDBY and record.followed is not None:
            behind_ms = record.updated_ms - record.followed.at_ms
            if behind_ms > LAG_MS:
                yield warning(
                    "standby",
                    f"{record.name} follows the journal {behind_ms / 1000:.0f} s behind",
                    "look at its disk and its load: it has more to read when it takes over",
                )
        if record.load is not None and record.load.is_full:
            yield error(
                "disk", "persistent messages are refused: the store is full", "let consumers run, or free space"
            )
    versions = {each.record.version for each in living}
    if len(versions) > 1:
        yield advice("versions", f"members have the versions {', '.join(sorted(versions))}", "upgrade all of them")


def _of_watch(record: MemberRecord) -> Iterator[Diagnosis]:
    """Yield what a member has found itself; see `pair_judgement`."""
    obstacles = record.obstacles or tuple(filter(None, [record.obstacle]))
    is_standby = record.role is Role.STANDBY
    for index, (kind, text) in enumerate(kinds_and_texts(record.kinds, obstacles, record.warnings)):
        remedy = REMEDIES.get(kind, REMEDIES[OTHER])
        if index < len(obstacles) and is_standby:
            yield error("standby", f"{record.name} could not serve: {text}", remedy)
        elif kind != "alone":  # which is found here in any case
            add = error if kind in ("masters", "store", "hanging", "unconfirmed") else warning
            yield add("pair", f"found by {record.name}: {text}", remedy)


def _of_failover(facts: Facts) -> Iterator[Diagnosis]:
    config = facts.config
    others = {each.record.host for each in _living(facts)} - {facts.host}
    if others and all(is_loopback(host) for host in config.hosts):
        yield error(
            "failover",
            f"this member listens on {', '.join(sorted(config.hosts))}, and others are on {', '.join(sorted(others))}: "
            "their clients cannot reach it after a failover",
            "set bind, for example to 0.0.0.0",
        )
    openwire = [each.host for each in config.listeners if each.kind is ListenerKind.OPENWIRE]
    if not config.openwire_brokers and not all(is_loopback(host) for host in openwire):
        yield advice(
            "failover",
            "openwire_brokers is not set: clients know the members only if their failover: URIs name all of them",
            "set openwire_brokers to the OpenWire URLs of all members",
        )


def _of_bridges(facts: Facts) -> Iterator[Diagnosis]:
    loads = [each.record.load for each in _living(facts) if each.record.load is not None]
    yield from bridge_findings.of_tables(facts, loads)
    yield from bridge_findings.of_running(loads)


def _living(facts: Facts) -> Iterator[Neighbour]:
    return (each for each in facts.members if each.is_alive)


def _skew(named: tuple[str, int]) -> int:
    return named[1]
