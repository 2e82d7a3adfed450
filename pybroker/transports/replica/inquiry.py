"""Asks a master what a member needs to know to join its cluster: dials it as a follower, and hangs up after the plan.

Nothing of the store is kept. The master sees a follower that comes and goes. Its store id is used once, so that it is
never taken for a store of the cluster.
"""

import secrets
import socket

from pybroker.broker.domain.replica.frames import (
    FROM_MASTER,
    PROTOCOL_VERSION,
    PROTOCOL_VERSION_MIN,
    Hello,
    MasterPlan,
    RefusedFrame,
    StreamDecoder,
    StreamFrame,
    encode_frame,
)
from pybroker.broker.domain.replica.manifest import MalformedFrame
from pybroker.broker.domain.replica.ports import ReplicaMember
from pybroker.transports.replica.follower import handshake_hint, read_exactly
from pybroker.transports.replica.handshake import GREETING_BYTES, NONCE_BYTES, Handshake, require_protection
from pybroker.transports.replica.peer_certificates import PeerCertificates

READ_BYTES = 64 << 10


def ask_master(
    address: tuple[str, int],
    member: ReplicaMember,
    *,
    timeout: float,
    secret: bytes = b"",
    tls: PeerCertificates | None = None,
) -> MasterPlan:
    """Return the plan that a master makes for an empty store. Blocks.

    Args:
        address: host and port.
        member: the member that asks.
        timeout: in seconds, until the connection, and then for each answer.
        secret: the cluster's; empty for none.
        tls: certificates for TLS; None: without.

    Raises:
        ConfigError: the stream would be open to a network.
        MalformedFrame: it refuses, or does not speak the protocol.
        OSError: it cannot be reached, or does not answer.
    """
    require_protection(address[0], is_protected=bool(secret) or tls is not None)
    connection = socket.create_connection(address, timeout)
    try:
        if tls is not None:
            connection = secured = tls.wrap(connection, address[0])
            tls.shake_hands(secured)
        hint = handshake_hint(is_tls=tls is not None, has_secret=bool(secret))
        shake = Handshake(secret, secrets.token_bytes(NONCE_BYTES), is_master=False)
        connection.sendall(shake.greeting)
        shake.receive_greeting(read_exactly(connection, GREETING_BYTES, hint))
        connection.sendall(shake.proof())
        shake.check_proof(read_exactly(connection, shake.proof_bytes, hint))
        seal, receive = shake.seals()
        hello = Hello(PROTOCOL_VERSION_MIN, PROTOCOL_VERSION, member, 0, [])
        connection.sendall(encode_frame(seal, StreamFrame(0, hello)))
        decoder = StreamDecoder(FROM_MASTER, receive)
        while True:
            data = connection.recv(READ_BYTES)
            if not data:
                raise MalformedFrame("the master closed the connection before its plan")
            for _, body in decoder.receive(data):
                if isinstance(body, MasterPlan):
                    return body
                if isinstance(body, RefusedFrame):
                    raise MalformedFrame(f"the master closed the connection: {body.sentence}")
    finally:
        connection.close()
