"""Stores captured from a real ActiveMQ (see tests/golden/kahadb), unpacked for a test."""

import json
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

GOLDEN = Path(__file__).parents[2] / "golden" / "kahadb"


@dataclass(frozen=True)
class Sample:
    """A captured store: its directories and what a real broker found in them."""

    kahadb: Path
    scheduler: Path
    facts: dict[str, Any]


@pytest.fixture
def sample(tmp_path: Path) -> Callable[[str], Sample]:
    """Unpack a sample by name into the test's own directory."""

    def unpack(name: str) -> Sample:
        with tarfile.open(GOLDEN / f"{name}.tar.gz") as archive:
            for member in archive:
                if member.isfile():
                    target = tmp_path / member.name
                    target.parent.mkdir(parents=True, exist_ok=True)
                    content = archive.extractfile(member)
                    assert content is not None
                    target.write_bytes(content.read())
        facts = json.loads((GOLDEN / f"{name}.json").read_text())
        return Sample(tmp_path / name / "kahadb", tmp_path / name / "scheduler", facts)

    return unpack
