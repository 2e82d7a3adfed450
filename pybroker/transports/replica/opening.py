"""Opens a master's data files in a thread, so that a session which ends meanwhile leaves none open."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import cast

from pybroker.broker.domain.replica.operations import Journal
from pybroker.broker.domain.replica.store_ports import DataFileSource, MasterStore


async def open_data_file(
    store: MasterStore, in_thread: Callable[[Callable[[], object]], Awaitable[object]], journal: Journal, file_id: int
) -> DataFileSource | None:
    """Open a data file; None if it is gone. A cancelled call closes what the thread has opened.

    Raises:
        StoreUnavailable: it cannot be opened.
    """
    opening = asyncio.ensure_future(in_thread(partial(store.open, journal, file_id)))
    try:
        return cast("DataFileSource | None", await asyncio.shield(opening))
    except asyncio.CancelledError:
        opening.add_done_callback(_close_opened)
        raise


def _close_opened(opening: asyncio.Future[object]) -> None:
    """Close a file that was opened for a session that had ended by then."""
    if not opening.cancelled() and opening.exception() is None:
        source = cast("DataFileSource | None", opening.result())
        if source is not None:
            source.close()
