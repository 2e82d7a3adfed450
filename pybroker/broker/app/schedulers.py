"""Warnings about directories with scheduled messages that this broker does not serve.

An ActiveMQ keeps them in `<dataDirectory>/<brokerName>/scheduler` or its `schedulerDirectory`, and its KahaDB usually
in `<dataDirectory>/kahadb`. pybroker's are in `DIR/scheduler`, or in `scheduler_store`. Directories called `scheduler`
are found in or beside the store's directory, or up to two levels below, and only read.
"""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pybroker.broker.app.config import Config
from pybroker.broker.app.layout import layout_of
from pybroker.broker.domain.errors import StoreError
from pybroker.counted import counted
from pybroker.store.directories import has_data_files

_log = logging.getLogger(__name__)

_PLACES: Final = ("scheduler", "*/scheduler", "*/*/scheduler")


def warn(config: Config) -> None:
    """Log each directory near the store whose scheduled messages this broker does not serve, and the reason."""
    try:
        others = list(directories_elsewhere(config))
    except OSError as error:
        _log.warning("cannot search for other scheduled messages near %s: %s", config.store, error)
        return
    for directory in others:
        try:
            count = job_count(directory)
        except StoreError as error:
            _log.warning("%s may hold scheduled messages that this broker does not serve: %s", directory, error)
            continue
        if count:
            _log.warning("%s", _sentence(config, directory, count))


def _sentence(config: Config, directory: Path, count: int) -> str:
    where = layout_of(config)
    what = f"{counted(count, 'scheduled message')} in {directory}"
    if not config.scheduler:
        remedy = "set scheduler = true"
        if not _is_same(directory, where.scheduler):
            remedy += f' and scheduler_store = "{directory}"'
        return f"{what}: not served, because the scheduler is off; {remedy}, on all members"
    return (
        f"{what}: not served, because this broker's are in {where.scheduler}; "
        f'set scheduler_store = "{directory}" to serve them in place of those, on all members'
    )


def directories_elsewhere(config: Config) -> Iterator[Path]:
    """Yield the directories of schedulers with data files that are not served."""
    where = layout_of(config)
    root = Path(config.store)
    served = where.scheduler if config.scheduler else None
    seen: set[Path] = set()
    for base in (root, root.parent) if where.journal == root else (root,):
        for place in _PLACES:
            for directory in sorted(base.glob(place)):
                found = directory.resolve()
                if found in seen or (served is not None and _is_same(directory, served)):
                    continue
                seen.add(found)
                if has_data_files(directory):
                    yield directory


def _is_same(one: Path, other: Path) -> bool:
    return one.resolve() == other.resolve()


def job_count(directory: Path) -> int:
    """Return the number of scheduled messages in a directory.

    Raises:
        StoreError: it cannot be read.
    """
    from pybroker.store.journal.tools.observed_replay import read_jobs  # nearly no broker needs it
    from pybroker.store.scheduler.state import JobState

    return len(read_jobs(directory, JobState(), held_bytes_max=0).jobs)
