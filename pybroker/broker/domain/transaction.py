"""Transaction ids: local ones (one connection's own) and XA ones (a global transaction's branch)."""

from typing import NamedTuple


class LocalTransactionId(NamedTuple):
    """A transaction of one connection; `TX:<connection id>:<value>` in ActiveMQ's text form."""

    connection_id: str
    value: int

    def __str__(self) -> str:
        """Return ActiveMQ's text form."""
        return f"TX:{self.connection_id}:{self.value}"


class XATransactionId(NamedTuple):
    """A branch of a distributed transaction (X/Open XID)."""

    format_id: int
    global_transaction_id: bytes
    branch_qualifier: bytes

    def __str__(self) -> str:
        """Return format, global id and branch, the two latter in hexadecimal."""
        ids = f"globalId={self.global_transaction_id.hex()},branchId={self.branch_qualifier.hex()}"
        return f"XID:[{self.format_id},{ids}]"


TransactionId = LocalTransactionId | XATransactionId
