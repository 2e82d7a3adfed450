"""Examines a store in a directory for `pybroker handback`: its journals, its files, and who may open them.

Nothing is changed.
"""

import pwd
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from pybroker.broker.app import schedulers
from pybroker.broker.app.activemq_target import JOURNAL_FILE_BYTES, ActiveMQVersion
from pybroker.broker.app.config import Config
from pybroker.broker.app.handback import HandbackFacts, JournalFacts, StoreContents
from pybroker.broker.app.journal_lock import FLOCK_FILE, require_free
from pybroker.broker.app.layout import StoreDirectories, journals_of, layout_of
from pybroker.broker.app.progress_bar import progress_bar
from pybroker.broker.core.scheduling_queue import SCHEDULING_QUEUE
from pybroker.broker.core.selector.portability import is_refused_by_activemq
from pybroker.broker.domain.errors import ConfigError, StoreUnavailable
from pybroker.broker.domain.openwire.objects import decode_subscription_info
from pybroker.store.directories import has_data_files
from pybroker.store.journal.clean_stop import INDEX_FILES
from pybroker.store.journal.collector import DAMAGED_DIRECTORY
from pybroker.store.journal.contents import Added, PriorityClass, unpack
from pybroker.store.journal.files import SEALED_SUFFIX
from pybroker.store.journal.identity import stored_identity
from pybroker.store.journal.state import StoreState
from pybroker.store.journal.tools.check import CheckReport, check
from pybroker.store.journal.tools.journal_snapshot import JournalSnapshot
from pybroker.store.journal.tools.observed_replay import Writer
from pybroker.store.scheduler.recovery import INDEX_FILES as JOB_INDEX_FILES

ACTIVEMQ_USER: Final = "activemq"
"""The user that packages of ActiveMQ create, and as which their services run."""

_OWN_FILES: Final = ("pybroker.*", f"*{SEALED_SUFFIX}", DAMAGED_DIRECTORY)
"""Patterns of what pybroker has in the directory of a journal, besides data files and locks."""


def examine(
    config: Config, target: ActiveMQVersion, user: str | None = None, *, is_in_use: bool = False
) -> HandbackFacts:
    """Gather the facts about a store in a directory. Blocks while it reads the journals.

    Args:
        config: the settings of the members, `store` and `scheduler_store` above all.
        target: the ActiveMQ that is to open the store.
        user: the user that it runs as; None: `activemq`, if there is such a user.
        is_in_use: members may use the store meanwhile.

    Raises:
        ConfigError: there is no such user.
        StoreUnavailable: the store is in use, or it cannot be read.
        JournalCorrupt: the data files are no journal, or a newer version wrote them.
    """
    where = journal_places(config)
    if not is_in_use:
        require_free(*_journals(where))
    report = _checked(where.journal)
    jobs = _checked(where.scheduler) if has_data_files(where.scheduler) else None
    indexes = list(_existing(where.journal, INDEX_FILES))
    job_indexes = list(_existing(where.scheduler, JOB_INDEX_FILES))
    is_outdated = report.last_writer is Writer.PYBROKER
    is_job_index_outdated = is_outdated and jobs is not None and jobs.last_writer is Writer.PYBROKER
    stale = [*(indexes if is_outdated else ()), *(job_indexes if is_job_index_outdated else ())]
    place = JournalFacts(
        root=where.root,
        journal=where.journal.absolute(),
        findings=[*report.findings, *(jobs.findings if jobs is not None else ())],
        records=report.records,
        scheduler=where.scheduler.absolute(),
        jobs=_job_counts(config, where),
        stale_indexes=stale,
        own_indexes=[each for each in (*indexes, *job_indexes) if each not in stale],
        own_files=list(_own_files(where)),
        is_excluded=config.lock == "file" and not (where.journal / FLOCK_FILE).exists(),
        foreign_owner=_foreign_owner(where, user),
        activemq_user=user or ACTIVEMQ_USER,
        attributes=_attributes(config),
    )
    identity = stored_identity(where.journal)
    return HandbackFacts(
        store=config.store,
        broker_name=config.broker_name if identity is None else identity.name,
        target=target,
        contents=contents_of(report.state),
        place=place,
        is_in_use=is_in_use,
    )


def journal_places(config: Config) -> StoreDirectories:
    """Return the directories of a store that has a journal of messages.

    Raises:
        StoreUnavailable: it has none.
    """
    journals_of(Path(config.store))
    where = layout_of(config)
    if where.is_new():
        raise StoreUnavailable(
            f"{where.journal}: there is no journal of messages, no db-<number>.log",
            path=str(where.journal),
            hint="name the directory with kahadb in it",
        )
    return where


def _journals(where: StoreDirectories) -> list[Path]:
    return [each for each in (where.journal, where.scheduler) if has_data_files(each)]


def contents_of(state: StoreState) -> StoreContents:
    """Return what a store's state means to the next broker."""
    messages = largest_bytes = 0
    has_priorities = False
    for contents in state.destinations.values():
        packed = contents.materialise()
        messages += len(packed)
        for message_id, each in packed.items():
            entry = unpack(message_id, each)
            largest_bytes = max(largest_bytes, entry.size)
            has_priorities |= entry.priority_class is not PriorityClass.DEFAULT
    subscriptions = [decode_subscription_info(each.info) for _, _, each in state.subscriptions()]
    queues = state.queues()
    waiting = state.destinations.get(SCHEDULING_QUEUE)
    return StoreContents(
        messages=messages,
        largest_bytes=largest_bytes,
        subscriptions=len(subscriptions),
        owned=sum(each.user is not None for each in subscriptions),
        refused=refused_selectors((each.key, each.selector) for each in subscriptions),
        has_priorities=has_priorities,
        in_doubt=[str(each) for each in state.prepared],
        scheduling=0 if waiting is None else len(waiting.messages),
        scheduling_in_doubt=sum(
            isinstance(operation, Added) and operation.destination == SCHEDULING_QUEUE
            for transaction in state.prepared.values()
            for operation in transaction.operations
        ),
        empty_queues=[each.name for each in queues if not state.destinations[each].messages],
    )


def refused_selectors(subscriptions: Iterable[tuple[str, str | None]]) -> list[str]:
    """Return the durable subscriptions whose selector ActiveMQ refuses, from keys and selectors."""
    found = {f"{key} ({text})": None for key, text in subscriptions if text and is_refused_by_activemq(text)}
    return list(found)


def _checked(directory: Path) -> CheckReport:
    with JournalSnapshot(directory) as snapshot, progress_bar(f"reading {directory}") as progress:
        return check(snapshot, progress=progress)


def _job_counts(config: Config, where: StoreDirectories) -> dict[Path, int]:
    directories = dict.fromkeys(path.absolute() for path in schedulers.directories_elsewhere(config))
    if has_data_files(where.scheduler):
        directories = {where.scheduler.absolute(): None, **directories}
    return {directory: schedulers.job_count(directory) for directory in directories}


def _existing(directory: Path, names: Iterable[str]) -> Iterator[Path]:
    return (directory / name for name in names if (directory / name).exists())


def _own_files(where: StoreDirectories) -> Iterator[Path]:
    for directory in dict.fromkeys((where.journal, where.scheduler)):
        for pattern in _OWN_FILES:
            yield from sorted(directory.glob(pattern))
    yield from _existing(where.members.parent, (where.members.name,))


def _foreign_owner(where: StoreDirectories, user: str | None) -> str:
    """Return the user to whom files belong that ActiveMQ's user cannot write; empty: there are none."""
    try:
        activemq = pwd.getpwnam(user or ACTIVEMQ_USER).pw_uid
    except KeyError:
        if user is None:
            return ""
        raise ConfigError(f"there is no user {user}", setting="--user", hint="correct the name") from None
    if activemq == 0:
        return ""
    for directory in _journals(where):
        for path in (directory, *directory.iterdir()):
            owner = path.stat().st_uid
            if owner != activemq:
                with suppress(KeyError):
                    return pwd.getpwuid(owner).pw_name
                return str(owner)
    return ""


def _attributes(config: Config) -> dict[str, str]:
    """Return the attributes of `kahaDB` that follow from settings other than the defaults."""
    attributes: dict[str, str] = {}
    if config.journal_file_max != JOURNAL_FILE_BYTES:
        attributes["journalMaxFileLength"] = str(config.journal_file_max)
    if config.sync != "always":
        attributes["journalDiskSyncStrategy"] = config.sync
    if config.sync == "periodic":
        attributes["journalDiskSyncInterval"] = str(round(config.sync_interval * 1000))
    if config.archive:
        attributes["archiveDataLogs"] = "true"
    return attributes
