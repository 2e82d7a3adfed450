"""Makes a member's store the master's at an operator's word, though it lacks something that was confirmed.

```text
pybroker promote                 loss -------> what would be lost, and over which revision of the register
pybroker promote --accept-loss   loss, then promote with that revision ----> the election (PromotionForced)
```

| field of the answer | meaning |
|---|---|
| `id`, `is_done` | as in `replica_requests` |
| `wait_seconds` | for so long the register must not change yet, so that no other member takes part |
| `problem` | why this store cannot be promoted, or was not; empty if it can be, or was |
| `loss` | what would be lost, the fields of `PromotionLoss`; null if it cannot be promoted |
| `epoch` | that of the promotion; 0: there was none |
| `is_serving` | true: clients are served; false: not before enough other members are in sync |
| `is_unknown` | true: the election store has not answered, and may yet make this member the master |

Source: specification of replication, 6.1.
"""

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from pybroker.broker.app.election_run import lease_clock
from pybroker.broker.app.replica_waiting import others_in_sync
from pybroker.broker.app.replication import Replication
from pybroker.locks.election.election_state import ElectionRole
from pybroker.locks.election.forced_promotion import LackingStore, is_accepted, lacking_store, quiet_seconds_left
from pybroker.locks.election.record import DurableEnd, RecordedState

LOOK_SECONDS: Final = 0.2
OUTCOME_SECONDS: Final = 30.0
"""Time for the election store to answer, and for the journal to be opened."""

PORTS_SECONDS: Final = 5.0
"""Time for the first record to be confirmed; after that, other members are missing."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PromotionLoss:
    """The confirmed messages and acknowledgements that are lost if a store becomes the master.

    Attributes:
        cluster: the name of the cluster.
        member: the name of the member.
        revision: of the register's content that this is about.
        store_ends: where the store ends, by journal: number of the data file and offset in bytes.
        confirmed_ends: how far everything confirmed reached at the former master's last renewal. It may have gone on.
        written_ms: when the store's journal was changed last, in milliseconds since the epoch; None: unknown.
        is_whole: False: a catch-up was interrupted, so that something is missing before the end, too.
        master: the name of the member that is the master by the register, or was the last one.
        address: its address for members; empty: unknown.
        has_released: it has ended in order, or handed over.
        complete: the members whose stores have everything.
        minimum: how many stores must be in sync until clients are served.
    """

    cluster: str
    member: str
    revision: int
    store_ends: Mapping[str, DurableEnd]
    confirmed_ends: Mapping[str, DurableEnd]
    written_ms: int | None
    is_whole: bool
    master: str
    address: str
    has_released: bool
    complete: str
    minimum: int


@dataclass(slots=True)
class PromotionProgress:
    """A request that is being carried out; the fields are those of the answer."""

    id: str
    is_done: bool = False
    wait_seconds: int = 0
    problem: str = ""
    loss: PromotionLoss | None = None
    epoch: int = 0
    is_serving: bool = False
    is_unknown: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return the answer."""
        return asdict(self)


class ReplicaPromotion:
    """One request to promote this member's store, or to tell what would be lost.

    Args:
        replication: the member's part in its cluster.
        answer: writes the answer as it is now.
    """

    def __init__(self, replication: Replication, answer: Callable[[], Awaitable[None]]) -> None:
        self._replication = replication
        self._answer = answer

    async def show(self, progress: PromotionProgress) -> None:
        """Find out what would be lost, or why this store cannot be promoted."""
        progress.problem = await self._unanswered()
        first = 0
        while not progress.problem:
            found = self._found()
            if isinstance(found, str):
                progress.problem = found
                return
            first = first or found.revision
            if found.revision != first:
                progress.problem = _taking_part(found)
                return
            progress.wait_seconds = math.ceil(quiet_seconds_left(self._replication.state, lease_clock()))
            if not progress.wait_seconds:
                progress.loss = await self._loss(found)
                return
            await self._answer()
            await asyncio.sleep(LOOK_SECONDS)
            progress.problem = self._away()

    async def promote(self, progress: PromotionProgress, revision: object) -> None:
        """Promote this store over a revision of the register, and wait for the outcome."""
        found = self._found()
        progress.problem = self._away() or (found if isinstance(found, str) else "")
        if progress.problem or isinstance(found, str):
            return
        if found.revision != revision or quiet_seconds_left(self._replication.state, lease_clock()):
            progress.problem = _taking_part(found)
            return
        _log.warning("an operator has this store become the master: %s", lost(await self._loss(found)))
        self._replication.promote(found.revision)
        await self._follow(progress)

    async def _follow(self, progress: PromotionProgress) -> None:
        """Wait until this member serves, or another one takes part, or for as long as is reasonable."""
        began = time.monotonic()
        won_at: float | None = None
        while True:
            state, now = self._replication.state, time.monotonic()
            if state.mastery is not None:
                won_at = now if won_at is None else won_at
                progress.epoch = state.mastery.epoch
                progress.is_serving = state.role is ElectionRole.SERVING
                if progress.is_serving or now - won_at > PORTS_SECONDS:
                    return
            elif won_at is not None:
                progress.problem = "this member was the master, and stepped down at once: see its log"
                return
            elif not is_accepted(state):
                master = "another member" if state.record is None else state.record.master.name
                progress.problem = f"the register has changed: {master} takes part"
                return
            elif now - began > OUTCOME_SECONDS:
                progress.problem = "the election store has not answered: this member may yet become the master"
                progress.is_unknown = True
                return
            await asyncio.sleep(LOOK_SECONDS)

    # ------------------------------------------------------------ private

    def _found(self) -> LackingStore | str:
        """Return this store as one that may be promoted, or why it may not."""
        found = lacking_store(self._replication.state)
        progress = self._replication.copy_progress
        if not isinstance(found, str) and progress is not None and progress.is_connected:
            return f"the master {found.record.master.name} serves: this member is connected to it"
        return found

    async def _unanswered(self) -> str:
        """Wait for an answer of the election store from now on; return why there is none, or nothing."""
        asked_at, calls = time.monotonic(), self._replication.calls
        record = self._replication.state.record
        limit = asked_at + max(2.0, 0.0 if record is None else record.settings.lease_ms / 1000)
        while calls.answered_at is None or calls.answered_at < asked_at:
            if time.monotonic() > limit:
                return f"the election store does not answer: {calls.problem or 'see the log'}"
            await asyncio.sleep(LOOK_SECONDS)
        return ""

    def _away(self) -> str:
        problem = self._replication.register_problem
        return f"the election store does not answer: {problem}" if problem else ""

    async def _loss(self, found: LackingStore) -> PromotionLoss:
        state, record = self._replication.state, found.record
        written_at = await asyncio.to_thread(self._replication.written_at)
        return PromotionLoss(
            cluster=record.name,
            member=state.me.name,
            revision=found.revision,
            store_ends=dict(found.store.ends),
            confirmed_ends=dict(record.durable),
            written_ms=None if written_at is None else round(written_at * 1000),
            is_whole=found.store.is_sound,
            master=record.master.name,
            address=record.master.replicate,
            has_released=record.state is RecordedState.RELEASED,
            complete=others_in_sync(state, record),
            minimum=record.settings.min_in_sync,
        )


def _taking_part(found: LackingStore) -> str:
    """Return that another member takes part, by the newest register."""
    record = found.record
    if record.state is RecordedState.SERVING:
        return f"{record.master.name} is the master, and renews its lease"
    return "the register has changed: another member takes part"


def lost(loss: PromotionLoss) -> str:
    """Return what is lost, for a log."""
    if not loss.is_whole:
        return "a catch-up of it was interrupted, so that it lacks some of what was confirmed, and all after that"
    end = loss.store_ends.get("kahadb", DurableEnd(0, 0))
    return f"what was confirmed after db-{end.file_number}.log, byte {end.offset:,}, is lost"
