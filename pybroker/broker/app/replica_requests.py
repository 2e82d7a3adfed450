r"""Requests of the command line to the member of a replicated store: two files in the store's directory.

```text
DIR/replica/request.json    {"id": "…", "act": "verify"}\n            written by a command, as a whole
DIR/replica/answer.json     {"id": "…", "is_done": false, …}\n        written by the member, each time as a whole
```

Who may write into the directory may ask: that needs neither a port nor a password. A member looks once in half a
second, in a thread.

| `act` | meaning |
|---|---|
| `verify`, `repair` | of `pybroker replica`; the answer has the fields below |
| `loss`, `promote` | of `pybroker promote`; the answer's fields are those of `replica_promotion` |

| field of the answer | meaning |
|---|---|
| `id` | that of the request |
| `is_done` | the answer does not change any more |
| `done_bytes`, `total_bytes` | how far the comparison is |
| `comparisons` | each with `member`, `files`, `bytes`, `different` (each with `file` and `damaged`: whose), `problem` |
| `repaired` | the files of this store that were fetched |
| `problem` | the reason why there is no comparison; empty if there is one |
"""

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

from pybroker.broker.app.replica_promotion import PromotionProgress, ReplicaPromotion
from pybroker.broker.app.replication import Replication
from pybroker.broker.domain.replica.reports import ComparisonResult
from pybroker.store.journal.files import JournalFiles
from pybroker.store.replica import DIRECTORY

REQUEST_NAME: Final = "request.json"
ANSWER_NAME: Final = "answer.json"
LOOK_SECONDS: Final = 0.5
REPAIRS_MAX: Final = 3
"""Rounds of repair and comparison in one request: other files may be damaged meanwhile."""

GONE_SECONDS: Final = 1.0
"""The interval at which a master that waits for results looks if the connections are still there."""

SILENT_SECONDS: Final = 60.0
"""The time without progress after which a request has failed."""

ComparisonResults = asyncio.Queue[tuple[str, ComparisonResult]]
"""Stores, and the results of their comparisons; the own store is the empty text."""

_BYTES_MAX: Final = 1 << 20

_log = logging.getLogger(__name__)


def put(root: Path, name: str, values: Mapping[str, Any]) -> None:
    """Write the file with a request, or with its answer, as a whole. Blocks.

    Raises:
        OSError: it cannot be written.
    """
    directory = root / DIRECTORY
    JournalFiles(directory).put(directory / name, (json.dumps(values).encode() + b"\n",))


def get(root: Path, name: str) -> dict[str, Any]:
    """Return the request or the answer in a file; an empty one if the file is not there, or is malformed. Blocks."""
    try:
        with (root / DIRECTORY / name).open("rb") as file:
            values = json.loads(file.read(_BYTES_MAX))
    except (OSError, ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", values) if isinstance(values, dict) else {}


@dataclass(slots=True)
class RequestProgress:
    """A request that is being carried out; the fields are those of the answer."""

    id: str
    is_done: bool = False
    done_bytes: int = 0
    total_bytes: int = 0
    comparisons: Sequence[Mapping[str, Any]] = ()
    repaired: list[str] = field(default_factory=list[str])
    problem: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the answer."""
        return {name: getattr(self, name) for name in self.__slots__}


class ReplicaRequests:
    """Carries out the requests to one member, one at a time.

    Args:
        replication: the member's part in its cluster.
        name: the member's name.
        root: the store's directory.
    """

    def __init__(self, replication: Replication, name: str, root: Path) -> None:
        self._replication = replication
        self._name = name
        self._root = root
        self._results: ComparisonResults | None = None
        """The results that the present request waits for; None without one: then nothing takes them."""

    async def run(self) -> None:
        """Look for requests until cancelled."""
        seen, earlier = await asyncio.to_thread(self._look)
        await asyncio.to_thread(self._end_interrupted, earlier)
        while True:
            found, request = await asyncio.to_thread(self._look)
            if found == seen or not isinstance(request.get("id"), str):
                await asyncio.sleep(LOOK_SECONDS)
                continue
            seen = found
            try:
                await self._take_up(request, request["id"])
            except OSError as error:
                _log.warning("a request in %s cannot be answered: %s", self._root / DIRECTORY, error)

    def _look(self) -> tuple[tuple[int, int], dict[str, Any]]:
        """Return inode number and time of the request's file, which identify the request, and its content. Blocks."""
        try:
            status = (self._root / DIRECTORY / REQUEST_NAME).stat()
        except OSError:
            return (0, 0), {}
        return (status.st_ino, status.st_mtime_ns), get(self._root, REQUEST_NAME)

    def _end_interrupted(self, request: Mapping[str, Any]) -> None:
        """Answer a request that a former run of this member was carrying out: a command waits for it. Blocks."""
        answer = get(self._root, ANSWER_NAME)
        if answer.get("id") != request.get("id") or answer.get("is_done") is not False:
            return
        ended = {"is_done": True, "problem": "the member was restarted meanwhile: ask it again"}
        if request.get("act") == "promote":
            ended |= {
                "is_unknown": True,
                "problem": "the member was restarted meanwhile: pybroker status tells its role",
            }
        try:
            put(self._root, ANSWER_NAME, answer | ended)
        except OSError as error:
            _log.warning("a request in %s cannot be answered: %s", self._root / DIRECTORY, error)

    async def _take_up(self, request: Mapping[str, Any], identity: str) -> None:
        act = str(request.get("act"))
        if act not in ("loss", "promote"):
            await self._compare(act, RequestProgress(identity))
            return
        progress = PromotionProgress(identity)
        await self._answer(progress)
        promotion = ReplicaPromotion(self._replication, lambda: self._answer(progress))
        if act == "loss":
            await promotion.show(progress)
        else:
            await promotion.promote(progress, request.get("revision"))
        progress.is_done = True
        await self._answer(progress)

    async def _compare(self, act: str, progress: RequestProgress) -> None:
        await self._answer(progress)
        self._results = asyncio.Queue()
        try:
            if self._replication.elected is not None:
                await self._compare_followers(act, progress, self._results)
            elif self._replication.copy is not None:
                await self._compare_own(act, progress, self._results)
            else:
                progress.problem = "this member follows no master now: see pybroker status"
        finally:
            self._results = None
        progress.is_done = True
        await self._answer(progress)

    async def _answer(self, progress: RequestProgress | PromotionProgress) -> None:
        await asyncio.to_thread(put, self._root, ANSWER_NAME, progress.as_json())

    # ------------------------------------------------------------ a master

    async def _compare_followers(self, act: str, progress: RequestProgress, results: ComparisonResults) -> None:
        """Compare the stores of all live followers with the own one."""
        term = self._replication.elected
        assert term is not None, "it is the master"
        if act == "repair":
            progress.problem = "this member is the master: repair the store of a standby, where that one runs"
            return
        term.on_verified = self._take
        waiting = set(term.server.compare())
        followers = term.server.progress()
        names = {each.store: each.name for each in followers}
        connections = {(each.store, each.connection) for each in followers}
        progress.comparisons = [
            _shown(each.name, ComparisonResult(problem="it is catching up, or is being compared already"))
            for each in followers
            if each.store not in waiting
        ]
        if not followers:
            progress.problem = "no follower is connected"
        while waiting:
            try:
                store, result = await asyncio.wait_for(results.get(), GONE_SECONDS)
            except TimeoutError:
                # One that has connected again is another connection, on which nothing is compared.
                left = connections & {(each.store, each.connection) for each in term.server.progress()}
                gone = waiting - {store for store, _ in left}
                found = [(store, ComparisonResult(problem="its connection has ended")) for store in sorted(gone)]
            else:
                found = [(store, result)]
            for store, result in found:
                waiting.discard(store)
                progress.comparisons = [*progress.comparisons, _shown(names.get(store, store), result)]
                progress.done_bytes = progress.total_bytes = result.byte_count
            await self._answer(progress)

    def _take(self, store: str, result: ComparisonResult) -> None:
        if self._results is not None:
            self._results.put_nowait((store, result))

    # ------------------------------------------------------------ a follower

    async def _compare_own(self, act: str, progress: RequestProgress, results: ComparisonResults) -> None:
        """Compare the own store with the master's, and fetch what differs."""
        result = await self._compared(progress, results, repaired=False)
        for _ in range(REPAIRS_MAX if act == "repair" else 0):
            files = [each for each in result.differences if not each.is_masters]
            copy = self._replication.copy
            if result.problem or not files or copy is None:
                break
            progress.repaired += [each.name for each in files if each.name not in progress.repaired]
            copy.repair([each[:2] for each in files])
            ended = await self._compared(progress, results, repaired=True)
            # A file that is being written is replaced on another connection, so that there is no comparison yet.
            result = await self._compared(progress, results, repaired=False) if ended.problem else ended
        left = {each.name for each in result.differences}
        is_known = not result.problem  # else it is not known what was fetched
        progress.repaired = [each for each in progress.repaired if is_known and each not in left]
        progress.comparisons = [_shown(self._name, result)]

    async def _compared(
        self, progress: RequestProgress, results: ComparisonResults, *, repaired: bool
    ) -> ComparisonResult:
        """Request a comparison of the own store, unless a repair has (`repaired`), and return its result."""
        self._replication.on_verified = lambda result: self._take("", result)
        copy = self._replication.copy
        if copy is not None and not repaired:
            copy.verify()
        silent = 0.0
        before: object = None
        while silent < SILENT_SECONDS:
            try:
                return (await asyncio.wait_for(results.get(), LOOK_SECONDS))[1]
            except TimeoutError:
                pass
            copy = self._replication.copy
            if copy is None:
                return ComparisonResult(problem="this member follows no master any more")
            left, now = copy.progress.compare_left, (copy.progress.compare_left, copy.progress.left_bytes)
            silent, before = (silent + LOOK_SECONDS if now == before else 0.0), now
            progress.total_bytes = max(progress.total_bytes, left)
            progress.done_bytes = progress.total_bytes - max(0, left)
            await self._answer(progress)
        return ComparisonResult(problem=copy.progress.refusal if copy and copy.progress.refusal else "no answer came")


def _shown(member: str, result: ComparisonResult) -> Mapping[str, Any]:
    return {
        "member": member,
        "files": result.file_count,
        "bytes": result.byte_count,
        "different": [
            {"file": each.name, "damaged": "master" if each.is_masters else member} for each in result.differences
        ],
        "problem": result.problem,
    }
