"""The base class of all exceptions of pybroker: of the broker, of the client, and of `pybroker.testing`."""


class PybrokerError(Exception):
    """The base class of all exceptions of pybroker."""
