"""A broker to converse with."""

import pytest

from tests.unit.transports.openwire.conversation import World


@pytest.fixture
def world() -> World:
    """Return a broker over a memory store."""
    return World()
