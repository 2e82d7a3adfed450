"""The choice of the event loop: uvloop if it is installed, else asyncio's. Both behave alike."""

import asyncio
import importlib.util
from collections.abc import Callable

from pybroker.broker.domain.errors import ConfigError

MakeLoop = Callable[[], asyncio.AbstractEventLoop]


def choose(setting: str) -> tuple[str, MakeLoop]:
    """Return name and factory of the loop for a value of the setting `event_loop`.

    Raises:
        ConfigError: uvloop is configured and not installed.
    """
    if setting == "asyncio":
        return "asyncio", asyncio.new_event_loop
    if importlib.util.find_spec("uvloop") is None:
        if setting == "auto":
            return "asyncio (uvloop is not installed)", asyncio.new_event_loop
        raise ConfigError("uvloop is not installed", setting="event_loop", hint="install it, or write `auto`")
    import uvloop
    from uvloop._version import __version__ as version  # importlib.metadata takes as long as uvloop itself

    return f"uvloop {version}", uvloop.new_event_loop
