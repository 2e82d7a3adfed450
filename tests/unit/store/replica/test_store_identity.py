"""The id of a store: kept over starts, and made anew where the store may not have what it confirmed."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from pybroker.broker.domain.errors import StoreUnavailable
from pybroker.store.replica.identity import FILE_NAME, IdentityFile, boot_id


def test_id_stays_over_starts_and_reboots_of_a_durable_store(tmp_path: Path) -> None:
    first = IdentityFile(tmp_path, boot="1").load(is_durable=True)
    IdentityFile(tmp_path, boot="1").keep(replace(first, cluster="c", epoch=7))
    again = IdentityFile(tmp_path, boot="2").load(is_durable=True)
    assert (again.store, again.cluster, again.epoch) == (first.store, "c", 7)
    assert IdentityFile(tmp_path, boot="3").peek() == again


def test_copied_directory_gets_another_id(tmp_path: Path) -> None:
    first = IdentityFile(tmp_path / "a", boot="1").load(is_durable=True)
    IdentityFile(tmp_path / "a", boot="1").keep(replace(first, cluster="c"))
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    copied = IdentityFile(tmp_path / "b", boot="1").load(is_durable=True)
    assert copied.store != first.store
    assert copied.cluster == "c", "it may become a copy of that cluster's store"
    assert IdentityFile(tmp_path / "a", boot="1").load(is_durable=True).store == first.store


@pytest.mark.parametrize(
    ("boot", "closed", "stays"),
    [("1", False, True), ("2", False, False), ("", False, False), ("2", True, True)],
    ids=["same start", "new start", "unknown start", "closed in order"],
)
def test_store_without_syncs_gets_another_id_after_a_reboot(
    tmp_path: Path, boot: str, closed: bool, stays: bool
) -> None:
    first = IdentityFile(tmp_path, boot="1").load(is_durable=False)
    IdentityFile(tmp_path, boot="1").keep(replace(first, cluster="c", is_durable=closed))
    again = IdentityFile(tmp_path, boot=boot).load(is_durable=False)
    assert (again.store == first.store) is stays
    assert again.cluster == "c"


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"format": 2}', b"\xff" * 10, b"[" * 4000])
def test_unusable_file_is_made_again(tmp_path: Path, content: bytes) -> None:
    first = IdentityFile(tmp_path, boot="1").load(is_durable=True)
    (tmp_path / "replica" / FILE_NAME).write_bytes(content)
    assert IdentityFile(tmp_path, boot="1").peek() is None
    assert IdentityFile(tmp_path, boot="1").load(is_durable=True).store != first.store


def test_file_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "replica").write_bytes(b"")
    with pytest.raises(StoreUnavailable, match="cannot be"):
        IdentityFile(tmp_path, boot="1").load(is_durable=True)


def test_identity_is_one_line_of_json(tmp_path: Path) -> None:
    IdentityFile(tmp_path, boot="1").load(is_durable=True)
    path = tmp_path / "replica" / FILE_NAME
    values = json.loads(path.read_text())
    assert values["inode"] == path.stat().st_ino
    assert list(path.parent.iterdir()) == [path]
    assert len(boot_id()) == 36, "a UUID"
