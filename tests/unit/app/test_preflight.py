"""What is found wrong before anything is changed."""

import os

import pytest

from pybroker.broker.app import preflight
from pybroker.broker.app.config import Config
from pybroker.broker.domain.errors import ConfigError


@pytest.mark.parametrize("made", [True, False], ids=["there", "to be made"])
def test_a_store_that_is_not_writable(tmp_path, monkeypatch, made):
    store = tmp_path / "store"
    if made:
        store.mkdir()
    refusing = store if made else tmp_path
    monkeypatch.setattr(os, "access", lambda path, mode: path != refusing)
    with pytest.raises(ConfigError, match=f"store: {refusing} is not writable for this user"):
        preflight.check(Config(store=str(store), stomp="0"))
    assert list(tmp_path.iterdir()) == ([store] if made else [])


def test_a_new_store_is_fine_and_not_made_yet(tmp_path):
    preflight.check(Config(store=str(tmp_path / "a" / "b"), stomp="0"))
    assert list(tmp_path.iterdir()) == []
