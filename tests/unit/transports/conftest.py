"""Each scenario over real sockets runs on both event loops."""

import asyncio
import functools
from collections.abc import Callable

import pytest
import uvloop

from tests.unit.transports.certificates import Certificates
from tests.unit.transports.world import run_on


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Run a scenario: `run(scenario, connections_max=100, tls=None)`."""
    return functools.partial(run_on, request.param)


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Certificates and keys in files."""
    return Certificates(directory=tmp_path_factory.mktemp("certificates"))
