"""Every test of crashes ends with a `check`, which must find no damage in what the test leaves behind."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.soundness import assert_all_sound


@pytest.fixture
def damaged_on_purpose() -> None:
    """Marks tests that damage a journal themselves, and check its findings."""


@pytest.fixture(autouse=True)
def _sound(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[None]:
    yield
    if "damaged_on_purpose" not in request.fixturenames:
        assert_all_sound(tmp_path)
