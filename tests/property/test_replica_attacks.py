"""Mutated frames for both ends of the replication stream: each is taken or refused, and nothing else happens.

`python -m tests.replica_attacks` sends a million of them.
"""

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.replica_attacks import ErrorCounter, attack_decoders, attack_follower, attack_master

SEED = 20261128


@pytest.fixture(autouse=True)
def errors() -> Iterator[None]:
    """Fail for an error with a traceback: a frame that the code did not expect."""
    counter, logger = ErrorCounter(), logging.getLogger("pybroker")
    logger.addHandler(counter)
    yield
    logger.removeHandler(counter)
    assert not counter.found


def test_frames_are_decoded_or_refused() -> None:
    found = attack_decoders(5000, SEED)
    assert found["taken"] > 1000
    assert found["refused"] > 1000


def test_master_refuses_what_no_follower_sends(tmp_path: Path) -> None:
    found = asyncio.run(attack_master(tmp_path / "a", 1000, SEED))
    assert found["refused"] > 300


def test_without_the_secret_no_byte_of_the_store_leaves(tmp_path: Path) -> None:
    found = asyncio.run(attack_master(tmp_path / "a", 500, SEED, secret=b"a secret of enough bytes"))
    assert found["refused"] == found["frames"]
    assert not found["with bytes of the store"]


def test_follower_refuses_what_no_master_sends(tmp_path: Path) -> None:
    found = attack_follower(tmp_path, 1000, SEED)
    assert found["refused"] > 300
    assert not [each for each in found if each.startswith("store: ")], "no frame makes a store fail"
