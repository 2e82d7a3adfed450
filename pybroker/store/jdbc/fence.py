"""Which transactions may still commit: those of this mastership, and of this connection of it.

Every transaction reads the row of `pybroker_epoch` with a lock that only those who change it do not share, and fails
unless it finds its own numbers there:

| number | raised by | shuts out |
| --- | --- | --- |
| `epoch` | the new master | the former master, permanently |
| `attempt`, `job_attempt` | a master that lost its connection | what it sent on that one and has no answer to |

The lock is held until the commit, so what may commit does not depend on where in a transaction it is taken. How long a
take-over waits for it does: the server waits for no client while it is held (see `statements`).

Raising a number waits for transactions under way and makes all later ones fail. So a master that was frozen, or cut
off, cannot write once there is another, and need not find that out by any other way. And a master that does not know if
its last transaction took effect can look, for from then on the answer stays what it is.

Only taken locks, no new row version: beside a `postgres-row` lock, whose transaction is open for the whole reign, the
server can clean nothing up, and a counter raised in every transaction would be slower each time.
"""

from pybroker.broker.domain.errors import LockNotHeld
from pybroker.store.jdbc.postgres import STATEMENT_SECONDS, DatabaseConnection

MESSAGES, JOBS = "attempt", "job_attempt"
"""Numbers of the writers, which have separate connections."""
CHECK, LOOK = b"EXECUTE fence", b"EXECUTE look"
"""Prefixes of the two statements, see `Fence`."""


class Fence:
    """The numbers of one writer.

    Args:
        column: its own number.
        epoch: of the mastership.
    """

    def __init__(self, column: str, epoch: int) -> None:
        self._column = column
        self._epoch = epoch
        self._attempt = 0

    @property
    def check(self) -> bytes:
        """Return what each transaction has in it. Prepared, it takes a third of the time.

        Its name is of these numbers alone. Behind a pooler that gives one session of the server to several clients,
        another mastership's fence cannot run in its place: there is no such statement, and the transaction fails.
        """
        return b"%b_%b" % (CHECK, self._name)

    @property
    def look(self) -> bytes:
        """Return the same for where nothing is written: it locks nothing, so that there is nothing for the disk."""
        return b"%b_%b" % (LOOK, self._name)

    @property
    def _name(self) -> bytes:
        return f"{self._column}_{self._epoch}_{self._attempt}".encode()

    def prepare(self, connection: DatabaseConnection) -> None:
        """Prepare `check` and `look` on a connection, with the numbers as they are now.

        Raises:
            StoreUnavailable: the database fails.
        """
        row = f"SELECT FROM pybroker_epoch WHERE id = 1 AND epoch = {self._epoch} AND {self._column} = {self._attempt}"
        # PostgreSQL fails on purpose, outside of functions, only in arithmetic.
        prepared = "PREPARE {}_{} AS SELECT 1 / count(*) FROM ({}) AS fence"
        name = self._name.decode()
        connection.execute(f"{prepared.format('fence', name, row + ' FOR SHARE')};{prepared.format('look', name, row)}")

    def shut_out(self, connection: DatabaseConnection, *, seconds: float = STATEMENT_SECONDS) -> None:
        """Let nothing commit that was sent before, and prepare a connection. Blocks while such a transaction runs.

        Raises:
            StoreUnavailable: the database fails.
            LockNotHeld: another broker has taken over.
        """
        rows = connection.rows(
            f"UPDATE pybroker_epoch SET {self._column} = {self._column} + 1"  # noqa: S608
            f" WHERE id = 1 AND epoch = {self._epoch} RETURNING {self._column}",
            seconds=seconds,
        )
        if not rows:
            raise LockNotHeld(f"{connection.name}: another broker has taken the database over")
        ((self._attempt,),) = rows
        self.prepare(connection)
