"""A link to the coordinator, by which a client begins and ends its transactions.

```text
 declare                       declared, with the id of the transaction
 discharge, fail false         commit: accepted once it is on disk
 discharge, fail true          roll-back: accepted once it is carried out
 an unknown transaction        rejected, amqp:transaction:unknown-id
 a commit that fails           rejected, amqp:transaction:rollback
```

Source: AMQP 1.0, part 4, "Transactions".
"""

import logging
from functools import partial
from typing import Final

from pybroker.broker.domain.amqp.codec import AmqpReader
from pybroker.broker.domain.amqp.composites import read_composite
from pybroker.broker.domain.amqp.errors import AmqpError
from pybroker.broker.domain.amqp.performatives import (
    AmqpAccepted,
    AmqpDeclare,
    AmqpDeclared,
    AmqpDeliveryState,
    AmqpDischarge,
    AmqpFlow,
    AmqpRejected,
    AmqpTransfer,
)
from pybroker.broker.domain.amqp.sections import VALUE, bare_parts
from pybroker.broker.domain.errors import RequestError
from pybroker.transports.amqp.incoming import IncomingSession, TransferAssembly
from pybroker.transports.amqp.links import AmqpLink
from pybroker.transports.amqp.peer import AmqpPeer
from pybroker.transports.amqp.refusals import NOT_ALLOWED, NOT_IMPLEMENTED, LinkRefused, error_condition
from pybroker.transports.amqp.transactions import AmqpTransactions

_log = logging.getLogger(__name__)

_ACCEPTED: Final = AmqpAccepted()


class CoordinatorLink(AmqpLink):
    """A link whose messages begin and end transactions."""

    __slots__ = ("_assembly", "_peer", "_session", "_transactions")

    def __init__(
        self,
        handle: int,
        name: str,
        session: IncomingSession,
        peer: AmqpPeer,
        transactions: AmqpTransactions,
        *,
        delivery_count: int,
    ) -> None:
        super().__init__(handle, name)
        self._session = session
        self._peer = peer
        self._transactions = transactions
        self._assembly = TransferAssembly(peer, delivery_count)

    def start(self) -> None:
        """Give the client its credit."""
        self._assembly.replenish(0)
        self._send_flow()

    def flow(self, flow: AmqpFlow) -> None:
        """Answer if the client asks for it."""
        if flow.echo:
            self._send_flow()

    def transfer(self, transfer: AmqpTransfer, payload: bytes) -> None:
        """Begin or end a transaction."""
        found = self._assembly.add(transfer, payload)
        if self._assembly.replenish(0):
            self._send_flow()
        if found is None:
            return
        first, is_settled, whole = found
        delivery_id = first.delivery_id or 0
        try:
            request = _request(whole)
            if isinstance(request, AmqpDeclare):
                if is_settled:
                    raise LinkRefused("A declare is settled, so that its transaction has no id", NOT_ALLOWED)
                transaction = self._transactions.declare(self)
                self._session.dispose(delivery_id, AmqpDeclared(txn_id=transaction.txn_id))
                return
            self._session.end_of_chunk()  # earlier sends are part of it, and those beside it keep their order
            self._transactions.discharge(request.txn_id, fail=bool(request.fail))
        except RequestError as error:
            _log.info("%s: a transaction is refused: %s", self._peer.connection.connection_id, error)
            self._answer(delivery_id, AmqpRejected(error=error_condition(error)), is_settled=is_settled)
        else:
            self._answer(delivery_id, _ACCEPTED, is_settled=is_settled)

    def _answer(self, delivery_id: int, state: AmqpDeliveryState, *, is_settled: bool) -> None:
        if not is_settled:
            self._peer.connection.when_durable(partial(self._session.dispose, delivery_id, state))

    def end(self, *, is_closed: bool) -> None:
        """Roll back the open transactions that this link has declared."""
        self._assembly.clear()
        self._transactions.roll_back_of(self)

    def abandon(self) -> None:
        """Drop an unfinished request."""
        self._assembly.clear()

    def _send_flow(self) -> None:
        self._session.send_flow(self.handle, self._assembly.delivery_count, self._assembly.credit)


def _body(payload: bytes) -> object:
    """Return the composite value in the body of a message; None without one."""
    for part in bare_parts(payload):
        if part.code == VALUE:
            return read_composite(AmqpReader(payload, part.value, part.stop))
    return None


def _request(payload: bytes) -> AmqpDeclare | AmqpDischarge:
    """Return the request in a message.

    Raises:
        LinkRefused: there is none.
    """
    try:
        body = _body(payload)
    except AmqpError as error:
        raise LinkRefused(f"A message to the coordinator is malformed: {error}", error.condition) from error
    if isinstance(body, AmqpDischarge):
        return body
    if not isinstance(body, AmqpDeclare):
        raise LinkRefused("A message to the coordinator is neither declare nor discharge", NOT_ALLOWED)
    if body.global_id is not None:
        raise LinkRefused("Distributed transactions are not possible over AMQP", NOT_IMPLEMENTED)
    return body
