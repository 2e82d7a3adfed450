# mypy: disable-error-code="comparison-overlap"
"""The public names of the package exist, and modules load at their first use."""

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import pybroker
from pybroker import client
from pybroker.client import aio, errors, sync


def test_the_names_of_the_stub_are_those_of_the_package() -> None:
    stub = Path(str(pybroker.__file__)).with_suffix(".pyi")
    awaitable = {
        alias.name
        for node in ast.parse(stub.read_text()).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert awaitable == {"aio", "connect"}
    assert pybroker.connect is client.connect
    assert pybroker.aio.connect is not pybroker.connect
    with pytest.raises(AttributeError, match="disconnect"):
        _ = pybroker.disconnect  # type: ignore[attr-defined]


def test_every_name_of_the_client_is_there() -> None:
    for name in client.__all__:
        assert getattr(client, name).__name__ == name
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = client.no_such_name


@pytest.mark.parametrize("name", ["Connection", "Consumer", "Producer", "Sending", "Transaction"])
def test_both_apis_have_the_same_methods_with_the_same_arguments(name: str) -> None:
    threads, tasks = (
        {key: value for key, value in inspect.getmembers(getattr(module, name)) if not key.startswith("_")}
        for module in (sync, aio)
    )
    assert threads.keys() - {"destination"} == tasks.keys()
    for key, method in tasks.items():
        if inspect.isfunction(method):
            assert inspect.signature(threads[key]).parameters.keys() == inspect.signature(method).parameters.keys()
            assert not inspect.iscoroutinefunction(threads[key])
        assert inspect.getdoc(threads[key])
    assert inspect.signature(sync.connect).parameters == inspect.signature(aio.connect).parameters


def test_every_error_can_be_caught_by_its_name_from_the_client() -> None:
    kinds = {kind.__name__ for kind in vars(errors).values() if getattr(kind, "__module__", "") == errors.__name__}
    assert kinds <= set(client.__all__)
    assert all(issubclass(getattr(client, name), client.ClientError) for name in kinds)
    assert issubclass(client.Timeout, TimeoutError)


def test_nothing_is_loaded_before_it_is_used() -> None:
    program = "import sys, pybroker, pybroker.client; print(sum(name.startswith('pybroker.') for name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"
