"""A register in etcd 3.4 or newer: one key, over the JSON gateway, with the standard library alone.

```text
read    POST /v3/kv/range   linearizable (etcd's default): a node asks its leader, and the leader a quorum
swap    POST /v3/kv/txn     compare MOD = revision (0: there is no key), then put; else the present value
watch   POST /v3/watch      one JSON object a line; after a compaction: read, and watch from there
```

In this gateway 64-bit integers are texts, keys and values are base64, and fields that are 0 or empty are left out. The
revision of the register is the key's `mod_revision`.

The key has no lease of etcd's own: a time to live is in whole seconds, grows with a change of etcd's leader, and etcd
3.4.23 lets a deposed leader answer its renewals (specification of replication, 3.3, measured). The history that
renewals leave is etcd's to compact: `--auto-compaction-retention=1h`.

An address that refuses the connection is passed over. A read that is not answered is asked again at the next address,
within its time. A swap that was sent is not.
"""

import base64
import json
import ssl
from collections.abc import Mapping
from http.client import HTTPException, HTTPResponse
from typing import Any

from pybroker.locks.election.etcd_gateway import EtcdGateway, EtcdUser
from pybroker.locks.election.etcd_url import EtcdUrl
from pybroker.locks.election.http_calls import (
    BODY_BYTES_MAX,
    CallFailed,
    HttpAnswer,
    HttpChannel,
    StoreRequest,
    object_or_none,
)
from pybroker.locks.election.record import ElectionRecord
from pybroker.locks.election.register import (
    RegisterCallback,
    RegisterState,
    RegisterUnavailable,
    SwapResult,
)
from pybroker.locks.election.reopened_watch import ReopenedWatch
from pybroker.locks.postgres.timing import now

PREFIX = "/pybroker/"
"""Prefix of the key; the rest is the name of the cluster."""

_IDLE_FACTOR = 4
"""A stream without a line for so many time-outs (a lease) is opened again, since its connection may be dead."""


class EtcdRegister:
    """A `Register` in etcd."""

    def __init__(
        self,
        url: str,
        *,
        timeout_seconds: float,
        user: EtcdUser | None = None,
        tls: ssl.SSLContext | None = None,
        setting: str = "replicate",
    ) -> None:
        """Create the register. Nothing is connected.

        Args:
            url: as `EtcdUrl`.
            timeout_seconds: how long a call may take: a quarter of the lease.
            user: the user, where etcd demands one.
            tls: trusted authorities, and the certificate of this member, for `etcd+https`; None: the system's trust.
            setting: the setting that the URL comes from.

        Raises:
            ConfigError: the URL is not valid.
        """
        self._url = EtcdUrl.parse(url, setting)
        self._timeout_seconds = timeout_seconds
        self._user = user
        self._setting = setting
        self._has_own_tls = tls is not None
        if self._url.is_tls and tls is None:
            tls = ssl.create_default_context()
        self._tls = tls if self._url.is_tls else None
        self._gateway = self._open_gateway()
        self._watches: list[EtcdWatch] = []

    @property
    def name(self) -> str:
        """The URL."""
        return str(self._url)

    @property
    def cluster(self) -> str:
        """The name of the cluster."""
        return self._url.cluster

    @property
    def key(self) -> str:
        """The key in etcd."""
        return PREFIX + self._url.cluster

    def read(self) -> RegisterState:
        """Return the present content; see `Register`."""
        state, _ = self.read_at()
        return state

    def read_at(self) -> tuple[RegisterState, int]:
        """Return the present content, and the revision of etcd as a whole at which it was read.

        Raises:
            RegisterUnavailable: as `read`.
            RegisterMalformed: as `read`.
            ConfigError: as `read`.
        """
        gateway = self._gateway
        found = gateway.call("/v3/kv/range", {"key": gateway.key}, now() + self._timeout_seconds, may_repeat=True)
        return gateway.state_of(found), gateway.revision_of(found)

    def swap(self, revision: int, record: ElectionRecord) -> SwapResult:
        """Change the record if its revision is still this one; see `Register`."""
        gateway = self._gateway
        request = {
            "compare": [{"key": gateway.key, "target": "MOD", "result": "EQUAL", "modRevision": str(revision)}],
            "success": [{"requestPut": {"key": gateway.key, "value": base64.b64encode(record.encode()).decode()}}],
            "failure": [{"requestRange": {"key": gateway.key}}],
        }
        answer = gateway.call("/v3/kv/txn", request, now() + self._timeout_seconds, may_repeat=False)
        try:
            if answer.get("succeeded") is True:
                return SwapResult(True, RegisterState(gateway.revision_of(answer), record))
            found = answer["responses"][0]["response_range"]
        except (KeyError, IndexError, TypeError) as error:
            raise RegisterUnavailable(self.name, "an answer without the fields of a transaction") from error
        return SwapResult(False, gateway.state_of(found))

    def watch(self, callback: RegisterCallback) -> "EtcdWatch":
        """Call back at changes; see `Register`."""
        reader = EtcdRegister(
            self.name, timeout_seconds=self._timeout_seconds, user=self._user, tls=self._tls, setting=self._setting
        )
        watching = EtcdWatch(reader, self._open_gateway(), callback, self._timeout_seconds)
        self._watches.append(watching)
        return watching

    def guardian_access(self) -> Mapping[str, Any]:
        """Return what a guardian needs, with user and password; see `Register`. It shows no certificate."""
        if self._has_own_tls:
            return {"reason": "it cannot show a certificate to this election store"}
        login = {} if self._user is None else {"login": {"name": self._user.name, "password": self._user.password}}
        return {
            **login,
            "kind": "etcd",
            "addresses": [list(each) for each in self._gateway.channel.addresses],
            "key": self.key,
            "is_tls": self._url.is_tls,
            "timeout_seconds": self._timeout_seconds,
        }

    def close(self) -> None:
        """Close the connections, and end the watches. May be repeated."""
        while self._watches:
            self._watches.pop().close()
        self._gateway.channel.close()

    def interrupt(self) -> None:
        """End a call under way, and let every later one fail; from any thread."""
        self._gateway.channel.interrupt()

    def _open_gateway(self) -> EtcdGateway:
        channel = HttpChannel(self._url.addresses, self._tls)
        return EtcdGateway(channel, key=self.key, name=self.name, user=self._user, setting=self._setting)


class EtcdWatch(ReopenedWatch):
    """A stream of changes, opened again after every failure."""

    def __init__(
        self, register: "EtcdRegister", gateway: EtcdGateway, callback: RegisterCallback, timeout_seconds: float
    ) -> None:
        """Start the thread.

        Args:
            register: reads the content before each stream; owned from here on.
            gateway: opens the streams; owned from here on.
            callback: called with each content.
            timeout_seconds: the time for an answer, and between two tries.
        """
        super().__init__(register.name, timeout_seconds)
        self._register = register
        self._gateway = gateway
        self._callback = callback
        self._timeout_seconds = timeout_seconds
        self.start()

    def _interrupt(self) -> None:
        self._register.interrupt()
        self._gateway.channel.interrupt()

    def _release(self) -> None:
        self._gateway.channel.close()
        self._register.close()

    def _follow(self) -> None:
        """Pass the content on, and then each change after that revision of etcd, until the stream ends."""
        state, revision = self._register.read_at()
        self.has_read()
        self._callback(state)
        gateway = self._gateway
        body = json.dumps({"create_request": {"key": gateway.key, "start_revision": str(revision + 1)}}).encode()
        deadline = now() + self._timeout_seconds
        try:
            request = StoreRequest("/v3/watch", body, may_repeat=True, headers=gateway.headers())
            with gateway.channel.opened(request, deadline) as stream:
                if stream.status != 200:
                    self._refused(HttpAnswer(stream.status, stream.read(BODY_BYTES_MAX)), deadline)
                    return
                while self._pass_on(self._line(stream)):
                    self.succeeded()
        except (CallFailed, OSError, HTTPException) as error:
            gateway.channel.rotate()
            if not isinstance(error, TimeoutError):  # silence is usual where no master renews
                raise RegisterUnavailable(gateway.name, str(error)) from error

    def _refused(self, answer: HttpAnswer, deadline: float) -> None:
        gateway = self._gateway
        gateway.channel.close()
        if gateway.is_refused(answer):
            gateway.log_in(deadline)
        else:
            gateway.object_of(answer)

    def _line(self, stream: HTTPResponse) -> dict[str, Any]:
        """Wait for the next line and return its result.

        Raises:
            RegisterUnavailable: the stream has ended, or is none of etcd's.
            TimeoutError: there was none for long.
        """
        self._gateway.channel.set_deadline(now() + _IDLE_FACTOR * self._timeout_seconds)
        line = stream.readline(BODY_BYTES_MAX)
        found = self._gateway.object_of(HttpAnswer(200, line))
        result = object_or_none(found.get("result"))
        if result is None:
            raise RegisterUnavailable(self._gateway.name, "the stream of changes has ended")
        return result

    def _pass_on(self, result: dict[str, Any]) -> bool:
        """Pass the changes of a line on. Return False if a read is needed: after a compaction or a deletion."""
        if result.get("canceled"):
            return False
        try:
            for event in result.get("events", []):
                if event.get("type") == "DELETE":
                    return False
                self._callback(self._gateway.pair(event["kv"]))
        except (AttributeError, KeyError, TypeError) as error:
            raise RegisterUnavailable(self._gateway.name, "a change without its fields") from error
        return True
