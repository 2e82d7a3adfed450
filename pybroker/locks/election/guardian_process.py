"""The guardian's process: when its parent, the master, has ended, it releases the cluster for another member.

It is started as a program of its own, `python -I -S guardian_process.py DESCRIPTOR`, and so imports nothing of
pybroker: it stays small, and a fault of the broker is none of its own. `guardian` starts it, and explains why it is
safe.

```text
standard input   a socket of packets, each a JSON object: first the access to the register, then each content that the
                 master has swapped, as {"revision": 17, "value": "{…}"}
DESCRIPTOR       a pidfd of the master: readable once all threads of it have ended
standard error   one line, of what was done
```

Only the end of the master makes it act; the end of the socket does not, for a process that dies closes its sockets
before it has ended. The master ends it by SIGKILL, which costs nothing: it has no state.

Source: specification of replication, 5.
"""

import base64
import json
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, cast

PACKET_BYTES_MAX = 65_536
ANSWER_BYTES_MAX = 65_536
RECORD_BYTES_MAX = 4096
"""The limit that `record` has too: this module imports nothing of the broker, so that the process stays small."""

PAUSE_SECONDS = 0.02
"""The pause between two attempts."""


class RegisterContent(NamedTuple):
    """The register's content: its revision, and the record as JSON; empty: there is none."""

    revision: int
    value: str


class RegisterAccess(Protocol):
    """Reads and swaps the register; each call has a time-out."""

    def read(self) -> RegisterContent:
        """Return the content.

        Raises:
            ConnectionError: no answer.
        """
        ...

    def swap(self, revision: int, value: str) -> bool:
        """Change the record if its revision is still this one; return True if it was.

        Raises:
            ConnectionError: the outcome is unknown.
        """
        ...


def released(value: str, run: str) -> str:
    """Return a record by which a run that has ended releases the cluster; empty if that run is not the master.

    Raises:
        ValueError: the record is no JSON.
    """
    record: dict[str, Any] = json.loads(value) if value else {}
    if record.get("state") != "serving" or record.get("master", {}).get("life") != run:
        return ""
    record.pop("for", None)
    record["state"] = "released"
    record["nonce"] = f"{run}-0"  # its own swaps count from 1
    text = json.dumps(record, separators=(",", ":"))
    if len(text) > RECORD_BYTES_MAX:
        raise ValueError(f"a record of {len(text)} bytes is longer than {RECORD_BYTES_MAX}")
    return text


def release(
    access: RegisterAccess,
    told: RegisterContent | None,
    run: str,
    deadline: float,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> str:
    """Release the cluster on behalf of a run that has ended, and return what was done, in words.

    A swap that fails, or has no answer, is repeated with what is read then: a write of the master may have come before
    it, and does not come after it, as both are based on one revision.

    Args:
        access: to the register.
        told: the content that the master knew last; None: it is read.
        run: the run that has ended.
        deadline: until when it is tried, by `clock`.
        clock: seconds.
        pause: waits.
    """
    problem = ""
    while clock() < deadline:
        try:
            content = told if told is not None else access.read()
            told = None
            value = released(content.value, run)
            if not value:
                return "the cluster has another master already, or was released"
            if access.swap(content.revision, value):
                return "the cluster is released, and another member can take over at once"
        except (ConnectionError, ValueError) as error:
            problem = str(error)
            pause(PAUSE_SECONDS)
    return f"the election store does not answer ({problem}): others wait for the end of the lease"


# ---------------------------------------------------------------- etcd


class EtcdAccess:
    """The JSON gateway of etcd, with one connection for each call. A user logs in when it is needed first."""

    def __init__(self, access: Mapping[str, Any]) -> None:
        """Take the access as `EtcdRegister` describes it; nothing is connected."""
        self._addresses: list[list[Any]] = list(access["addresses"])
        self._seconds: float = access["timeout_seconds"]
        self._key = base64.b64encode(access["key"].encode()).decode()
        self._login: dict[str, str] | None = access.get("login")
        self._token = ""
        self._tls: Any = None
        if access["is_tls"]:
            import ssl  # takes time and memory, and few need it

            self._tls = ssl.create_default_context()

    def read(self) -> RegisterContent:
        """Return the content."""
        pairs = self._call("/v3/kv/range", {"key": self._key}, may_repeat=True).get("kvs")
        if not pairs:
            return RegisterContent(0, "")
        try:
            return RegisterContent(int(pairs[0]["mod_revision"]), base64.b64decode(pairs[0]["value"]).decode())
        except (KeyError, TypeError, ValueError) as error:
            raise ConnectionError(f"an answer that is none of etcd's: {error!r}") from error

    def swap(self, revision: int, value: str) -> bool:
        """Change the record if its revision is still this one."""
        request = {
            "compare": [{"key": self._key, "target": "MOD", "result": "EQUAL", "modRevision": str(revision)}],
            "success": [{"requestPut": {"key": self._key, "value": base64.b64encode(value.encode()).decode()}}],
        }
        return self._call("/v3/kv/txn", request, may_repeat=False).get("succeeded") is True

    def _call(self, path: str, request: Mapping[str, Any], *, may_repeat: bool) -> dict[str, Any]:
        """Ask, after a login where etcd demands one, and again after another one if the token is not accepted."""
        try:
            if self._login is None or self._token:
                return self._ask_any(path, request, may_repeat)
        except PermissionError as error:
            if self._login is None:
                raise ConnectionError(str(error)) from error
        self._token = ""
        try:
            token = self._ask_any("/v3/auth/authenticate", self._login, True).get("token")
            if not isinstance(token, str) or not token.isprintable():
                raise ConnectionError("a login without a token")
            self._token = token
            return self._ask_any(path, request, may_repeat)
        except PermissionError as error:
            raise ConnectionError(str(error)) from error

    def _ask_any(self, path: str, request: Mapping[str, Any], may_repeat: bool) -> dict[str, Any]:
        """Ask the first address that answers; a swap that was sent is asked nowhere else."""
        deadline = time.monotonic() + self._seconds
        problem = "no address answers"
        for left in range(len(self._addresses), 0, -1):
            host, port = self._addresses[0]
            seconds = (deadline - time.monotonic()) / left
            if seconds <= 0:
                break
            was_sent = False
            try:
                with self._connected(host, port, seconds) as connection:
                    was_sent = True
                    limit = seconds + _now() if may_repeat else deadline
                    return _ask(connection, host, path, request, limit, self._token)
            except PermissionError:
                raise
            except (OSError, ValueError) as error:
                problem = f"{host}:{port}: {error}"
                self._addresses.append(self._addresses.pop(0))
                if was_sent and not may_repeat:
                    break
        raise ConnectionError(problem)

    def _connected(self, host: str, port: int, seconds: float) -> socket.socket:
        connection = socket.create_connection((host, port), seconds)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._tls is None:
            return connection
        try:
            wrapped: socket.socket = self._tls.wrap_socket(connection, server_hostname=host)
        except BaseException:
            connection.close()
            raise
        return wrapped


def _now() -> float:
    return time.monotonic()


def _ask(
    connection: socket.socket, host: str, path: str, request: Mapping[str, Any], deadline: float, token: str
) -> dict[str, Any]:
    """Send a request of HTTP/1.0, whose answer ends with the connection, and return the answer's object.

    Raises:
        OSError: no answer by the deadline.
        PermissionError: the token is not accepted, or there is none; nothing was carried out.
        ValueError: it is an error, or no answer of etcd.
    """
    body = json.dumps(request).encode()
    lines = [f"POST {path} HTTP/1.0", f"Host: {host}", "Content-Type: application/json", f"Content-Length: {len(body)}"]
    if token:
        lines.append(f"Authorization: {token}")
    head = "\r\n".join([*lines, "", ""])
    connection.settimeout(max(0.001, deadline - _now()))
    connection.sendall(head.encode() + body)
    answer = b""
    while len(answer) <= ANSWER_BYTES_MAX:
        connection.settimeout(max(0.001, deadline - _now()))
        part = connection.recv(ANSWER_BYTES_MAX)
        if not part:
            break
        answer += part
    start, _, content = answer.partition(b"\r\n\r\n")
    status = start.split(b" ", 2)[1:2]
    if status == [b"401"] or (status == [b"400"] and b"user name is empty" in content):
        raise PermissionError("etcd accepts no token of this user")
    if status != [b"200"]:
        raise ValueError(f"the answer was {(content or start)[:200]!r}")
    found: Any = json.loads(content)
    if not isinstance(found, dict):
        raise ValueError("an answer that is no JSON object")
    return cast("dict[str, Any]", found)


# ---------------------------------------------------------------- PostgreSQL


class PostgresAccess:
    """A row in PostgreSQL, with one session for each call. The driver is the one pybroker uses."""

    def __init__(self, access: Mapping[str, Any]) -> None:
        """Take the access as `PostgresRegister` describes it, and load the driver; nothing is connected."""
        sys.path += access["path"]
        # Loaded before it is needed, as that takes time. It has no types.
        import psycopg2 as driver  # type: ignore[import-untyped]

        self._driver: Any = driver
        self._access = access

    def read(self) -> RegisterContent:
        """Return the content."""
        rows = self._run(self._access["read"], (self._access["cluster"],))
        return RegisterContent(rows[0][0], rows[0][1]) if rows else RegisterContent(0, "")

    def swap(self, revision: int, value: str) -> bool:
        """Change the record if its revision is still this one."""
        cluster = self._access["cluster"]
        return bool(self._run(self._access["update"], (value, cluster, revision, cluster)))

    def _run(self, statement: str, values: tuple[Any, ...]) -> list[Any]:
        """Run one statement, which the server ends after the time-out."""
        try:
            connection = self._driver.connect(**self._access["parameters"])
        except self._driver.Error as error:
            raise ConnectionError(type(error).__name__) from None  # its text may have a piece of the password
        try:
            connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute(statement, values)
                rows: list[Any] = cursor.fetchall()
                return rows
        except self._driver.Error as error:
            raise ConnectionError(type(error).__name__) from None
        finally:
            connection.close()


ACCESSES: Mapping[str, Callable[[Mapping[str, Any]], RegisterAccess]] = {
    "etcd": EtcdAccess,
    "postgresql": PostgresAccess,
}

# ---------------------------------------------------------------- the process


def wait(control: socket.socket, parent: int, take: Callable[[Mapping[str, Any]], None]) -> None:
    """Pass each packet on until the parent has ended; those that it sent before come first."""
    poll = select.poll()
    poll.register(control, select.POLLIN)
    poll.register(parent, select.POLLIN)
    while True:
        ready = {descriptor for descriptor, _ in poll.poll()}
        if control.fileno() in ready:
            packet = control.recv(PACKET_BYTES_MAX)
            if packet:
                take(json.loads(packet))
            else:
                poll.unregister(control)  # the parent has closed it, and perhaps has not ended
        elif parent in ready:
            return


def main() -> None:
    """Wait for the end of the parent, release the cluster, and end."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # a supervisor sends them to the whole group, when the master is gone
    known: dict[str, Any] = {}
    accesses: list[RegisterAccess] = []

    def take(packet: Mapping[str, Any]) -> None:
        known.update(packet)
        if "kind" in packet:
            accesses[:] = [ACCESSES[packet["kind"]](packet)]

    wait(socket.socket(fileno=0), int(sys.argv[1]), take)
    if not accesses:
        return
    told = RegisterContent(known["revision"], known["value"]) if "revision" in known else None
    done = release(accesses[0], told, known["run"], time.monotonic() + known["lease_seconds"])
    sys.stderr.write(f"guardian: the process of the master {known['name']} has ended: {done}\n")


if __name__ == "__main__":
    main()
