"""The choice of the event loop: by default uvloop where it is installed."""

import asyncio
import importlib.util

import pytest
import uvloop

from pybroker.broker.app.eventloop import choose
from pybroker.broker.domain.errors import ConfigError


@pytest.mark.parametrize(
    ("setting", "kind", "name"),
    [
        ("auto", uvloop.Loop, "uvloop "),
        ("uvloop", uvloop.Loop, "uvloop "),
        ("asyncio", asyncio.BaseEventLoop, "asyncio"),
    ],
)
def test_the_setting_decides(setting, kind, name):
    description, make_loop = choose(setting)
    with asyncio.Runner(loop_factory=make_loop) as runner:
        assert isinstance(runner.get_loop(), kind)
    assert description.startswith(name)


def test_without_uvloop_asyncio_does(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    description, make_loop = choose("auto")
    assert description == "asyncio (uvloop is not installed)"
    assert make_loop is asyncio.new_event_loop
    with pytest.raises(ConfigError, match="event_loop"):
        choose("uvloop")
