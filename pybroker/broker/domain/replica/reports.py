"""Reports of a replicated cluster: how far its members are, and the results of comparisons of their stores.

Both go over the stream as JSON, and a reader ignores fields that it does not know.

Source: specification of replication, section 9.
"""

import enum
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

from pybroker.broker.domain.replica.manifest import MalformedFrame, as_journal
from pybroker.broker.domain.replica.operations import Journal

DIFFERENCES_MAX: Final = 500
"""The most files that a result names. A store in which more files differ is better copied again."""

MEMBERS_MAX: Final = 32
NAME_LENGTH_MAX: Final = 100
_FILE_ID_MAX: Final = (1 << 32) - 1


class CopyState(enum.StrEnum):
    """The state of a member, as the master sees it: one word for scripts."""

    MASTER = "master"
    IN_SYNC = "in-sync"
    """It follows, and its store has everything that is confirmed."""
    CAUGHT_UP = "caught-up"
    """It receives operations as they happen, and is about to be in sync."""
    CATCHING_UP = "catching-up"
    NOT_CONNECTED = "not-connected"


class MemberProgress(NamedTuple):
    """A member's progress, as the master sees it.

    Attributes:
        name: its name; of a store in sync whose member is not connected, the store's id.
        store: its store.
        is_master: it serves.
        is_in_sync: its store has everything that is confirmed, so that it may take over.
        may_stand: it may become master: its settings do not forbid it.
        is_connected: it follows the master now, or is the master.
        is_live: it receives operations as they happen; False during its catch-up.
        lag_bytes: bytes that are not sent to it yet.
        lag_seconds: for how long it has not confirmed what it was sent; 0: it has confirmed everything.
        left_bytes: about how much of its catch-up is left.
        verified_ms: when its store was last compared with the master's, in milliseconds since the epoch; 0: never.
        damaged: the number of its files that differed in that comparison and that the master had sound.
    """

    name: str
    store: str
    is_master: bool = False
    is_in_sync: bool = False
    may_stand: bool = True
    is_connected: bool = False
    is_live: bool = False
    lag_bytes: int = 0
    lag_seconds: float = 0.0
    left_bytes: int = 0
    verified_ms: int = 0
    damaged: int = 0

    @property
    def state(self) -> CopyState:
        """Its state."""
        if self.is_master:
            return CopyState.MASTER
        if not self.is_connected:
            return CopyState.NOT_CONNECTED
        if self.is_in_sync:
            return CopyState.IN_SYNC
        return CopyState.CAUGHT_UP if self.is_live else CopyState.CATCHING_UP

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON for scripts: with its state, and null for what is not known of a member that is away."""
        values = self._asdict() | {"state": self.state.value, "verified_ms": self.verified_ms or None}
        return values if self.is_connected else values | dict.fromkeys(("lag_bytes", "lag_seconds", "left_bytes"))

    @classmethod
    def from_json(cls, values: object) -> "MemberProgress":
        """Return the member that is described so, by this version or another one.

        Raises:
            MalformedFrame: a field is not of its type.
        """
        if not isinstance(values, dict):
            raise MalformedFrame("a member is no JSON object")
        given = {key: value for key, value in cast("dict[str, Any]", values).items() if value is not None}
        fields = {key: _typed(given, key, default) for key, default in _DEFAULTS.items()}
        for key in ("name", "store"):
            fields[key] = fields[key][:NAME_LENGTH_MAX]
        return cls(**fields)


class ClusterReport(NamedTuple):
    """The state of a cluster, as the master sees it.

    Attributes:
        epoch: the master's.
        members: the master first.
    """

    epoch: int
    members: Sequence[MemberProgress]

    def encode(self) -> bytes:
        """Return it as JSON."""
        members = [
            each._replace(name=each.name[:NAME_LENGTH_MAX], store=each.store[:NAME_LENGTH_MAX])._asdict()
            for each in self.members[:MEMBERS_MAX]
        ]
        return json.dumps({"epoch": self.epoch, "members": members}).encode()

    @classmethod
    def decode(cls, data: bytes) -> "ClusterReport":
        """Return the report that these bytes are.

        Raises:
            MalformedFrame: they are no report.
        """
        values = _values(data)
        members = [MemberProgress.from_json(each) for each in _list(values, "members")[:MEMBERS_MAX]]
        return cls(int(_typed(values, "epoch", 0)), members)


class FileDifference(NamedTuple):
    """A data file that is not the same in a follower's store as in the master's.

    Attributes:
        journal: its journal.
        file_id: its number.
        is_masters: the master's file has damaged records, so that it is not the one to copy.
    """

    journal: Journal
    file_id: int
    is_masters: bool

    @property
    def name(self) -> str:
        """Its path in a store, such as `kahadb/db-3.log`."""
        return f"{self.journal.register_name}/db-{self.file_id}.log"


class ComparisonResult(NamedTuple):
    """The result of a comparison of a follower's store with the master's.

    Attributes:
        file_count: the number of data files that were compared.
        byte_count: their logical contents.
        differences: the files that differ, `DIFFERENCES_MAX` at most.
        problem: why the comparison is not whole; empty: it is.
    """

    file_count: int = 0
    byte_count: int = 0
    differences: Sequence[FileDifference] = ()
    problem: str = ""

    @property
    def is_equal(self) -> bool:
        """True if everything was compared, and nothing differs."""
        return not self.problem and not self.differences

    def encode(self) -> bytes:
        """Return it as JSON."""
        found = [[each.journal.value, each.file_id, each.is_masters] for each in self.differences[:DIFFERENCES_MAX]]
        values = {"files": self.file_count, "bytes": self.byte_count, "different": found, "problem": self.problem}
        return json.dumps(values).encode()

    @classmethod
    def decode(cls, data: bytes) -> "ComparisonResult":
        """Return the result that these bytes are.

        Raises:
            MalformedFrame: they are no result.
        """
        values = _values(data)
        differences: list[FileDifference] = []
        for each in _list(values, "different")[:DIFFERENCES_MAX]:
            match each:
                case [int(number), int(file_id), bool(is_masters)] if _are_numbers(number, file_id):
                    differences.append(FileDifference(as_journal(number), file_id, is_masters))
                case _:
                    raise MalformedFrame("a difference is not a journal, a file's number and a truth value")
        file_count, byte_count = int(_typed(values, "files", 0)), int(_typed(values, "bytes", 0))
        return cls(file_count, byte_count, differences, str(_typed(values, "problem", "")))


def _are_numbers(number: int, file_id: int) -> bool:
    """Return True if both are numbers and no truth values, and a frame can hold the data file's."""
    return type(number) is int and type(file_id) is int and 0 < file_id <= _FILE_ID_MAX


def _values(data: bytes) -> Mapping[str, Any]:
    try:
        values = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise MalformedFrame("a report is not JSON") from error
    if not isinstance(values, dict):
        raise MalformedFrame("a report is no JSON object")
    return cast("dict[str, Any]", values)


def _list(values: Mapping[str, Any], key: str) -> list[Any]:
    found = values.get(key)
    if not isinstance(found, list):
        raise MalformedFrame(f"{key} is no list")
    return found  # pyright: ignore[reportUnknownVariableType]


def _typed(values: Mapping[str, Any], key: str, default: Any) -> Any:
    """Return a field of the same type as its default, or the default if the field is missing.

    Raises:
        MalformedFrame: it has another type, or is a number out of range.
    """
    value = values.get(key, default)
    is_number = isinstance(default, float) and type(value) is int
    if not (is_number or type(value) is type(default)) or (isinstance(value, int | float) and not 0 <= value < 1 << 63):
        raise MalformedFrame(f"{key} is not of its type")
    return float(value) if is_number else value


_DEFAULTS: Final[Mapping[str, Any]] = {"name": "", "store": ""} | MemberProgress._field_defaults
