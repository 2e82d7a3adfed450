"""The compiled programs and two brokers, made once, when they are first needed."""

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from tests.integration.activemq_broker import ActiveMQProcess
from tests.integration.cluster import free_port
from tests.java import policies
from tests.java.checks import HERE, Laboratory, Programs
from tests.java.installations import FollowedBroker


@pytest.fixture(scope="session")
def programs(activemq_class_path: str, tmp_path_factory: pytest.TempPathFactory) -> Programs:
    """Compile all sources at once."""
    classes = tmp_path_factory.mktemp("classes")
    sources = [str(source) for source in sorted(HERE.glob("*.java"))]
    command = ["javac", "-nowarn", "-cp", activemq_class_path, "-d", str(classes), *sources]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return Programs(os.pathsep.join((str(classes), activemq_class_path)))


@pytest.fixture(scope="module", params=["pybroker", "activemq"])
def broker(request: pytest.FixtureRequest) -> str:
    """The broker of a test that runs against each of both."""
    return str(request.param)


@pytest.fixture(scope="session")
def laboratory(
    programs: Programs, start_activemq: Callable[[], ActiveMQProcess], request: pytest.FixtureRequest
) -> Laboratory:
    """Runs areas against either broker."""
    return Laboratory(programs, start_activemq, request)


@pytest.fixture(scope="session")
def start_activemq(programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], ActiveMQProcess]:
    """Starts a stock ActiveMQ with an empty store; the caller waits for it and closes it."""

    def start() -> ActiveMQProcess:
        directory = tmp_path_factory.mktemp("activemq") / "data"
        return ActiveMQProcess(programs.class_path, directory, policies=(*policies.for_activemq(), "useJmx"))

    return start


@pytest.fixture(scope="session")
def activemq(start_activemq: Callable[[], ActiveMQProcess]) -> Iterator[ActiveMQProcess]:
    """A stock ActiveMQ."""
    with closing(start_activemq()) as broker:
        yield broker.wait()


@pytest.fixture(scope="session")
def pybroker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FollowedBroker]:
    """A pybroker with the same policies."""
    directory = tmp_path_factory.mktemp("pybroker")
    file = directory / "pybroker.toml"
    file.write_text(f"scheduler = true\nstatistics = true\nexpire_interval = 0.1\n{policies.for_pybroker()}")
    extra = ("--config", str(file), "--openwire", str(free_port()))
    broker = FollowedBroker(str(directory / "store"), name="a", port=free_port(), extra=extra)
    try:
        broker.wait_for("listening on")
        yield broker
    finally:
        broker.close()


@pytest.fixture(scope="session")
def activemq_uri(activemq: ActiveMQProcess) -> str:
    return activemq.uri


@pytest.fixture(scope="session")
def activemq_stomp(activemq: ActiveMQProcess) -> int:
    return activemq.stomp


@pytest.fixture(scope="session")
def pybroker_uri(pybroker: FollowedBroker) -> str:
    return pybroker.wait_for(r"(tcp://127\.0\.0\.1:\d+)")[1]


@pytest.fixture(scope="session")
def pybroker_stomp(pybroker: FollowedBroker) -> int:
    return pybroker.port
