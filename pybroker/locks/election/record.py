"""The record in the register: who is the master, which stores are in sync, and how far the journals reach.

It is one JSON object of at most 4 KB (specification of replication, 3.1):

```text
{"format": 1, "cluster": "6f1c…", "name": "orders", "epoch": 43, "state": "serving",
 "master": {"name": "a", "store": "s-91…", "life": "l-7d…", "replicate": "a:61617", "clients": ["tcp://a:61616"]},
 "insync": ["s-91…", "s-c4…"], "reserved": {"kahadb": 51, "scheduler": 12},
 "durable": {"kahadb": [44, 1234567], "scheduler": [9, 4321]},
 "settings": {"lease_ms": 5000, "min": 1}, "for": "s-c4…", "nonce": "l-7d…-12", "upgrade": 1}
```

Members of different versions change the same record, so a field that is unknown here is kept as it is, at every level.
What an engine returns is not trusted: its size, its nesting and each known field are validated.
"""

import enum
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn, TypeVar

from pybroker.broker.domain.errors import MalformedData

RECORD_BYTES_MAX = 4096
"""The longest record. etcd, PostgreSQL and a Kubernetes annotation accept more; a record needs some 600 bytes."""

FORMAT = 1

NUMBER_MAX = 2**63 - 1
"""Java and SQL have no longer integer."""

LEASE_MS_MIN, LEASE_MS_MAX = 100, 3_600_000
"""Bounds of a lease in a record. A setting has narrower ones: tests need short leases."""

KAHADB, SCHEDULER = "kahadb", "scheduler"
"""Names of the journals of a store."""


class RecordedState(enum.Enum):
    """The state of the cluster, by its register."""

    SERVING = "serving"
    RELEASED = "released"


class DurableEnd(NamedTuple):
    """A place in a journal: the number of a data file, and an offset in it in bytes."""

    file_number: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterEntry:
    """The run of a member that is the master, or was the last one.

    Attributes:
        name: the member's name.
        store: the id of its store.
        run: the id of its process; it changes with every start. JSON: `life`.
        replicate: the address that followers connect to, as host and port.
        clients: the URIs for clients.
        unknown: the fields of other versions.
    """

    name: str
    store: str
    run: str
    replicate: str = ""
    clients: tuple[str, ...] = ()
    unknown: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionSettings:
    """Settings that all members must share.

    Attributes:
        lease_ms: milliseconds after which a silent master is replaced.
        min_in_sync: how many stores must stay in sync. JSON: `min`.
        unknown: the fields of other versions.
    """

    lease_ms: int = 5000
    min_in_sync: int = 1
    unknown: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionRecord:
    """The value in the register.

    Attributes:
        cluster: the id of the cluster, minted with the first record.
        name: the name of the cluster.
        epoch: the number of the first data file of the latest promotion.
        state: if a master serves, or has released the cluster in order.
        master: the run that became master with this epoch.
        in_sync: the ids of the stores that have everything that was ever confirmed. JSON: `insync`.
        reserved: the highest data file number of each journal that may exist.
        durable: how far everything that is confirmed reached in each journal, at the last renewal.
        settings: what all members share.
        nonce: unique to each write; a writer recognises its own record by it when the answer was lost.
        successor: the store for which a master released the cluster; empty: any in sync. JSON: `for`.
        unknown: the fields of other versions.
    """

    cluster: str
    name: str
    epoch: int
    state: RecordedState
    master: MasterEntry
    in_sync: frozenset[str]
    reserved: Mapping[str, int]
    durable: Mapping[str, DurableEnd]
    settings: ElectionSettings
    nonce: str
    successor: str = ""
    unknown: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def encode(self) -> bytes:
        """Return the JSON.

        Raises:
            MalformedData: it is longer than `RECORD_BYTES_MAX`.
        """
        known: dict[str, Any] = {
            "format": FORMAT,
            "cluster": self.cluster,
            "name": self.name,
            "epoch": self.epoch,
            "state": self.state.value,
            "master": {
                "name": self.master.name,
                "store": self.master.store,
                "life": self.master.run,
                "replicate": self.master.replicate,
                "clients": list(self.master.clients),
                **self.master.unknown,
            },
            "insync": sorted(self.in_sync),
            "reserved": dict(self.reserved),
            "durable": {journal: list(end) for journal, end in self.durable.items()},
            "settings": {
                "lease_ms": self.settings.lease_ms,
                "min": self.settings.min_in_sync,
                **self.settings.unknown,
            },
            "nonce": self.nonce,
        }
        if self.successor:
            known["for"] = self.successor
        data = json.dumps(known | dict(self.unknown), separators=(",", ":"), allow_nan=False).encode()
        if len(data) > RECORD_BYTES_MAX:
            raise MalformedData(f"a record of {len(data)} bytes is longer than {RECORD_BYTES_MAX}")
        return data

    @classmethod
    def decode(cls, data: bytes) -> "ElectionRecord":
        """Parse and validate JSON.

        Raises:
            MalformedData: it is too long, no JSON, of another format, or a known field is missing or has a wrong value.
        """
        found = _Fields(_parse(data), "record")
        if (format_number := found.number("format")) != FORMAT:
            raise MalformedData(f"record: its format is {format_number}, and this version knows {FORMAT}")
        return cls(
            cluster=found.text("cluster"),
            name=found.text("name"),
            epoch=found.number("epoch"),
            state=_state(found.text("state")),
            master=_master(found.below("master")),
            in_sync=frozenset(found.texts("insync")),
            reserved=found.below("reserved").numbers(),
            durable=found.below("durable").ends(),
            settings=_settings(found.below("settings")),
            nonce=found.text("nonce"),
            successor=found.text("for", ""),
            unknown=found.rest(),
        )


def _state(text: str) -> RecordedState:
    try:
        return RecordedState(text)
    except ValueError:
        raise MalformedData(f"record: its state is {text[:40]!r}") from None


def _master(found: "_Fields") -> MasterEntry:
    return MasterEntry(
        name=found.text("name"),
        store=found.text("store"),
        run=found.text("life"),
        replicate=found.text("replicate", ""),
        clients=tuple(found.texts("clients", ())),
        unknown=found.rest(),
    )


def _settings(found: "_Fields") -> ElectionSettings:
    lease_ms, min_in_sync = found.number("lease_ms"), found.number("min")
    if not LEASE_MS_MIN <= lease_ms <= LEASE_MS_MAX:
        raise MalformedData(f"record: settings.lease_ms is {lease_ms}, not {LEASE_MS_MIN} to {LEASE_MS_MAX}")
    if min_in_sync < 1:
        raise MalformedData(f"record: settings.min is {min_in_sync}, and one store at least is in sync")
    return ElectionSettings(lease_ms=lease_ms, min_in_sync=min_in_sync, unknown=found.rest())


def _parse(data: bytes) -> object:
    if len(data) > RECORD_BYTES_MAX:
        raise MalformedData(f"record: {len(data)} bytes are more than {RECORD_BYTES_MAX}")
    try:
        return json.loads(data.decode(), parse_constant=_refuse_constant)
    except RecursionError:  # 4,096 brackets are more than the parser's stack holds
        raise MalformedData("record: its JSON is nested too deeply") from None
    except ValueError as error:  # JSON, UTF-8 or an integer of thousands of digits
        raise MalformedData(f"record: no JSON: {error}") from None


def _refuse_constant(name: str) -> NoReturn:
    raise MalformedData(f"record: {name} is not JSON")


_T = TypeVar("_T")
_REQUIRED: Any = object()


class _Fields:
    """The fields of a JSON object, validated as they are read; those that were not read are the unknown ones."""

    def __init__(self, value: object, where: str) -> None:
        self._where = where
        self._left: dict[str, object] = dict(_typed(value, dict, where, "an object"))

    def text(self, name: str, default: str = _REQUIRED) -> str:
        return _text(self._read(name, default), f"{self._where}.{name}", "a text")

    def number(self, name: str) -> int:
        return _number(self._read(name, _REQUIRED), f"{self._where}.{name}")

    def texts(self, name: str, default: tuple[str, ...] = _REQUIRED) -> list[str]:
        value = self._read(name, default)
        where = f"{self._where}.{name}"
        items: list[object] = list(_typed(value, list | tuple, where, "an array"))
        return [_text(item, where, "an array of texts") for item in items]

    def below(self, name: str) -> "_Fields":
        return _Fields(self._read(name, _REQUIRED), f"{self._where}.{name}")

    def numbers(self) -> Mapping[str, int]:
        return {name: _number(value, f"{self._where}.{name}") for name, value in self._left.items()}

    def ends(self) -> Mapping[str, DurableEnd]:
        found: dict[str, DurableEnd] = {}
        for name, value in self._left.items():
            where = f"{self._where}.{name}"
            items: list[object] = list(_typed(value, list, where, "a file number and an offset"))
            if len(items) != len(DurableEnd._fields):
                raise MalformedData(f"{where} is not a file number and an offset")
            found[name] = DurableEnd(*(_number(item, where) for item in items))
        return found

    def rest(self) -> Mapping[str, Any]:
        return self._left

    def _read(self, name: str, default: object) -> object:
        value = self._left.pop(name, default)
        if value is _REQUIRED:
            raise MalformedData(f"{self._where}.{name} is missing")
        return value


def _typed(value: object, kind: Any, where: str, meaning: str) -> Any:
    if not isinstance(value, kind):
        raise MalformedData(f"{where} is not {meaning}")
    return value


def _text(value: object, where: str, meaning: str) -> str:
    text: str = _typed(value, str, where, meaning)
    return text


def _number(value: object, where: str) -> int:
    number: int = _typed(value, int, where, "a number")
    if isinstance(value, bool) or not 0 <= number <= NUMBER_MAX:
        raise MalformedData(f"{where} is not a number from 0 to {NUMBER_MAX}")
    return number
