"""The answer to a STOMP client whose login a broker may refuse."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from tests.integration.stomp_client import Disconnected, Frame, StompClient

TRIES = 5


@contextmanager
def answered(kind: str, connect: Callable[[], StompClient]) -> Iterator[tuple[StompClient, Frame]]:
    """Yield a client and its first frame; a stock broker that refuses it may close before the ERROR has left.

    Args:
        kind: "pybroker" or "activemq".
        connect: returns a client that has sent CONNECT.
    """
    for left in reversed(range(TRIES)):
        with closing(connect()) as client:
            try:
                frame = client.read()
            except Disconnected:
                if kind != "activemq" or not left:
                    raise
                continue
            yield client, frame
            return


def logging_in(port: int, *, version: str = "1.2", **headers: str) -> StompClient:
    """Return a client without TLS that has sent CONNECT."""
    client = StompClient(port, is_connected=False)
    client.send("CONNECT", b"", accept_version=version, host="h", **headers)
    return client
