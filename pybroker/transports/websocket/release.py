"""The end of an object of the library `websockets`, so that it is freed without a garbage collection.

A protocol object has a generator that refers to it, and errors whose tracebacks do.
"""

from websockets.server import ServerProtocol


def release(protocol: ServerProtocol) -> None:
    """Break the reference cycles of a protocol object that is not used any more."""
    protocol.parser.close()
    for error in (protocol.parser_exc, protocol.handshake_exc):
        _release_tracebacks(error)


def _release_tracebacks(error: BaseException | None) -> None:
    while error is not None:
        error.__traceback__ = None
        error = error.__cause__ or error.__context__
