"""The manifest of a store whose files go while it is read."""

from pathlib import Path

import pytest

from pybroker.broker.domain.replica.operations import Journal
from pybroker.store.journal.reader import load
from pybroker.store.replica import manifest_files
from pybroker.store.replica.manifest_files import ManifestFiles
from tests.replicas import MasterJournals, journals


@pytest.mark.parametrize("is_before", [True, False])
def test_file_that_is_collected_while_it_is_read_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_before: bool
) -> None:
    source = MasterJournals(tmp_path)
    for _ in range(3):
        source.begin(Journal.MESSAGES)
        source.write(Journal.MESSAGES, b"message")
    source.close()

    def loaded(path: Path) -> bytes:
        if is_before and path.name == "db-1.log":
            path.unlink()
        data = bytes(load(path))
        if path.name == "db-1.log":
            path.unlink()
        return data

    monkeypatch.setattr(manifest_files, "load", loaded)
    files = ManifestFiles(tmp_path, journals(tmp_path))
    assert {2, 3} <= {each.entry.file_id for each in files.read(sync=False)}
    assert [each.entry.file_id for each in files.read(sync=False)] == [2, 3]
