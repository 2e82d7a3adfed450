"""pybroker: a message broker in pure Python, a drop-in member of an ActiveMQ Classic installation.

`connect` and `aio` are the client (`pybroker.client`), loaded when first used: a broker, a test or a Spark job may
never do so. `__init__.pyi` declares them for type checkers.
"""

import importlib

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    if name == "connect":
        return importlib.import_module("pybroker.client.sync").connect
    if name == "aio":
        return importlib.import_module("pybroker.client.aio")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
