"""The election store of a member's settings."""

import sys

import pytest

from pybroker.broker.app.config import Config
from pybroker.broker.app.replica_wiring import make_register
from pybroker.broker.domain.errors import ConfigError


def test_missing_driver_is_a_sentence_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in sys.modules if each.startswith(("psycopg2", "pybroker.locks.election.postgres"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "psycopg2", None)
    monkeypatch.delitem(sys.modules, "pybroker.locks.postgres.session", raising=False)
    with pytest.raises(ConfigError, match=r"replicate: .*needs psycopg2, which is not installed; pip install psycopg2"):
        make_register(Config(store="data", replicate="postgresql://db/orders"))
