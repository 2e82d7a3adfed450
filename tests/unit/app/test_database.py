# mypy: disable-error-code="arg-type"
"""A store in a database has no journal: which settings of a journal it does not obey."""

import asyncio
from typing import Any

import pytest

from pybroker.broker.app import wiring
from pybroker.broker.app.config import SETTINGS, Config
from pybroker.broker.app.database import UNUSED
from pybroker.transports.turn import Turn

pytest.importorskip("psycopg2", reason="install pybroker[postgres]")

REFUSED = {"scheduler_store", "journal_directory"}
"""Settings that `Config` refuses with a store in a database."""


async def settings_read(store: str) -> set[str]:
    """Return the settings that are read to make a store and its scheduler's."""
    read: set[str] = set()

    class RecordingConfig(Config):
        def __getattribute__(self, name: str) -> Any:
            read.add(name)
            return super().__getattribute__(name)

    config = RecordingConfig(store=store)
    read.clear()
    lock = wiring.make_lock(Config(store=store))
    turn = Turn(asyncio.get_running_loop())
    messages = wiring.make_store(config, lock, pytest.fail, turn)
    wiring.make_jobs(config, lock, pytest.fail, turn, messages)
    return read & set(SETTINGS)


def test_every_setting_that_only_a_journal_obeys_is_unused(tmp_path):
    of_journal = asyncio.run(settings_read(str(tmp_path)))
    of_database = asyncio.run(settings_read("postgresql://user@localhost/database"))
    assert of_journal - of_database - REFUSED == set(UNUSED)
