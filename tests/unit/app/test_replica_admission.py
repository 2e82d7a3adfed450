"""The first look of a member at its store: what is never discarded."""

from pathlib import Path
from typing import Any

import pytest

from pybroker.broker.app.replica_admission import admit
from pybroker.broker.domain.errors import StoreUnavailable
from pybroker.locks.election.record import ElectionRecord, ElectionSettings, MasterEntry, RecordedState
from pybroker.locks.election.register import RegisterState
from pybroker.store.journal.format import data_file_name
from pybroker.store.replica.identity import FILE_NAME
from tests.replicas import batch, journals

RECORD = ElectionRecord(
    cluster="c",
    name="orders",
    epoch=5,
    state=RecordedState.SERVING,
    master=MasterEntry(name="a", store="s-a", run="l-a"),
    in_sync=frozenset({"s-a"}),
    reserved={},
    durable={},
    settings=ElectionSettings(),
    nonce="n",
)


class _Register:
    name = "orders"

    def read(self) -> RegisterState:
        return RegisterState(7, RECORD)


def test_store_without_messages_is_told_so(tmp_path: Path) -> None:
    (kahadb := tmp_path / "kahadb").mkdir()
    (kahadb / data_file_name(1)).write_bytes(batch(b"record"))
    register: Any = _Register()
    text = "this store was begun outside cluster orders, whose master is a, and has no messages; move it away, or add"
    with pytest.raises(StoreUnavailable, match=text):
        admit(tmp_path, journals(tmp_path), register, may_discard=False)


def test_store_whose_id_cannot_be_read_is_not_discarded(tmp_path: Path) -> None:
    (kahadb := tmp_path / "kahadb").mkdir()
    path = kahadb / data_file_name(1)
    path.write_bytes(batch(b"record"))
    (tmp_path / "replica" / FILE_NAME).mkdir(parents=True)  # it cannot be opened as a file
    register: Any = _Register()
    with pytest.raises(StoreUnavailable, match=r"store\.json cannot be read"):
        admit(tmp_path, journals(tmp_path), register, may_discard=True)
    assert path.exists()
