"""The engines of registers as their tests use them: a place of one record, and how to reach it.

ENGINES = engines("etcd", "postgres")

@pytest.fixture(params=ENGINES)
def engine(request):
    yield from engine_of(request)
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol

import pytest

from pybroker.locks.election.etcd import PREFIX, EtcdRegister
from pybroker.locks.election.kubernetes import KubernetesRegister
from pybroker.locks.election.kubernetes_lease import ANNOTATION
from pybroker.locks.election.postgres import TABLE, PostgresRegister
from pybroker.locks.election.record import (
    KAHADB,
    SCHEDULER,
    DurableEnd,
    ElectionRecord,
    ElectionSettings,
    MasterEntry,
    RecordedState,
)
from pybroker.locks.election.register import Register
from tests.etcd_cluster import EtcdCluster
from tests.kubernetes_cluster import KubernetesCluster
from tests.postgres_cluster import PostgresDatabase

PATIENT_SECONDS = 20.0
"""Time-out of a call where nothing is to fail, on a busy machine."""

RECORD = ElectionRecord(
    cluster="c-1",
    name="orders",
    epoch=43,
    state=RecordedState.SERVING,
    master=MasterEntry(name="a", store="s-a", run="r-a", replicate="a:61617", clients=("tcp://a:61616",)),
    in_sync=frozenset({"s-a", "s-b"}),
    reserved={KAHADB: 51, SCHEDULER: 12},
    durable={KAHADB: DurableEnd(44, 1234567), SCHEDULER: DurableEnd(9, 4321)},
    settings=ElectionSettings(lease_ms=5000, min_in_sync=1),
    nonce="r-a-1",
)
"""The example of the specification."""


def record(nonce: str, **changes: Any) -> ElectionRecord:
    """Return a record with a nonce of its own."""
    return replace(RECORD, nonce=nonce, **changes)


class RegisterEngine(Protocol):
    """One register in an election store."""

    port: int
    """The port of the election store."""

    def new(self, *, port: int = 0, seconds: float = PATIENT_SECONDS) -> Register:
        """Return an adapter, which may go through a proxy."""
        ...

    def neighbour(self) -> Register:
        """Return the adapter of another register in the same place."""
        ...

    def write(self, value: str) -> None:
        """Write any text where the record belongs."""
        ...

    def delete(self) -> None:
        """Delete the record."""
        ...


class EtcdEngine:
    """A key in etcd."""

    def __init__(self, cluster: EtcdCluster, keep: Callable[[Register], None]) -> None:
        self.cluster = cluster
        self.port = cluster.nodes[0].port
        self._name = cluster.url().rpartition("/")[2]
        self._keep = keep

    def new(self, *, port: int = 0, seconds: float = PATIENT_SECONDS) -> EtcdRegister:
        addresses = f"127.0.0.1:{port}" if port else self.cluster.addresses
        register = EtcdRegister(f"etcd://{addresses}/{self._name}", timeout_seconds=seconds)
        self._keep(register)
        return register

    def neighbour(self) -> EtcdRegister:
        register = EtcdRegister(self.cluster.url(), timeout_seconds=PATIENT_SECONDS)
        self._keep(register)
        return register

    def write(self, value: str) -> None:
        self.cluster.put(PREFIX + self._name, value.encode())

    def delete(self) -> None:
        self.cluster.delete(PREFIX + self._name)


class PostgresEngine:
    """A row in PostgreSQL."""

    def __init__(self, database: PostgresDatabase, keep: Callable[[Register], None]) -> None:
        self.database = database
        self.port = database.cluster.port
        self._keep = keep

    def new(self, *, port: int = 0, seconds: float = PATIENT_SECONDS) -> PostgresRegister:
        url = self.database.through(port) if port else self.database.url
        register = PostgresRegister(f"{url}?cluster=orders", timeout_seconds=seconds)
        self._keep(register)
        return register

    def neighbour(self) -> PostgresRegister:
        register = PostgresRegister(f"{self.database.url}?cluster=invoices", timeout_seconds=PATIENT_SECONDS)
        self._keep(register)
        return register

    def write(self, value: str) -> None:
        self.database.sql(
            f"INSERT INTO {TABLE} (name, value) VALUES ('orders', $v${value}$v$) "
            "ON CONFLICT (name) DO UPDATE SET value = excluded.value, "
            f"revision = nextval(pg_get_serial_sequence('{TABLE}', 'revision'))"
        )

    def delete(self) -> None:
        self.database.sql(f"DELETE FROM {TABLE} WHERE name = 'orders'")


class KubernetesEngine:
    """A Lease in Kubernetes."""

    def __init__(self, cluster: KubernetesCluster, keep: Callable[[Register], None]) -> None:
        self.cluster = cluster
        self.port = cluster.port
        self._name = cluster.new_name()
        self._keep = keep

    def new(self, *, port: int = 0, seconds: float = PATIENT_SECONDS) -> KubernetesRegister:
        return self._new(self._name, port, seconds)

    def neighbour(self) -> KubernetesRegister:
        return self._new(self.cluster.new_name(), 0, PATIENT_SECONDS)

    def write(self, value: str) -> None:
        lease = self.cluster.get(self._name) or {"metadata": {"name": self._name}}
        lease["metadata"]["annotations"] = {ANNOTATION: value}
        self.cluster.put(self._name, lease)

    def delete(self) -> None:
        self.cluster.delete(self._name)

    def _new(self, name: str, port: int, seconds: float) -> KubernetesRegister:
        access = self.cluster.access(port)
        register = KubernetesRegister(f"kubernetes://{name}", timeout_seconds=seconds, find=lambda: access)
        self._keep(register)
        return register


_FIXTURES: dict[str, tuple[str, Callable[[Any, Callable[[Register], None]], RegisterEngine]]] = {
    "etcd": ("etcd_cluster", EtcdEngine),
    "postgres": ("postgres_database", PostgresEngine),
    "kubernetes": ("kubernetes_cluster", KubernetesEngine),
}


def engines(*names: str) -> Sequence[Any]:
    """Return the parameters of a fixture for engines, each of which a run without its component skips."""
    return [name if name == "postgres" else pytest.param(name, marks=pytest.mark.component(name)) for name in names]


def engine_of(request: pytest.FixtureRequest) -> Iterator[RegisterEngine]:
    """Give the engine of a parameter, and close its registers in the end."""
    made: list[Register] = []
    fixture, engine = _FIXTURES[request.param]
    yield engine(request.getfixturevalue(fixture), made.append)
    for register in made:
        register.close()
