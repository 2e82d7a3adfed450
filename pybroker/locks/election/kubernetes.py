"""A register in Kubernetes: one Lease, over the API server's REST interface, with the standard library alone.

```text
read    GET     .../leases/NAME     without resourceVersion: the API server asks its etcd, and that a quorum
swap    PUT     .../leases/NAME     with metadata.resourceVersion and uid; 409: another one was quicker
        POST    .../leases          a first record; 409: there is one
watch   GET     .../leases?watch=1&fieldSelector=metadata.name=NAME     one JSON object a line; 410: read again
```

Rights: get, create, update and watch on leases of coordination.k8s.io, in the namespace of the Lease. What is in the
object: `kubernetes_lease`; where the API server is: `kubernetes_access`.

The trust is that of the API server's own etcd. A Lease is an object like others here: no controller of Kubernetes ends
or renews it. The members' own rules do, as with other engines.

There is no guardian (`guardian_access`): in a container it would end together with the master, by the kernel or by the
container's runtime. There the kubelet starts a killed master again, which then resumes at once, as its own store's lock
proves that its former run has ended.
"""

import json
import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from http.client import HTTPException, HTTPResponse
from typing import Any
from urllib.parse import quote, urlencode

from pybroker.broker.domain.errors import ConfigError
from pybroker.locks.election.http_calls import (
    BODY_BYTES_MAX,
    CallFailed,
    HttpAnswer,
    HttpChannel,
    StoreRequest,
    object_or_none,
    parse_object,
)
from pybroker.locks.election.kubernetes_access import KubernetesAccess, find_access
from pybroker.locks.election.kubernetes_lease import API_VERSION, LeaseObject, is_absent, new_lease
from pybroker.locks.election.kubernetes_url import SCHEME, KubernetesUrl
from pybroker.locks.election.record import ElectionRecord
from pybroker.locks.election.register import (
    ABSENT,
    RegisterCallback,
    RegisterMalformed,
    RegisterState,
    RegisterUnavailable,
    SwapResult,
)
from pybroker.locks.election.reopened_watch import ReopenedWatch
from pybroker.locks.postgres.timing import now

_IDLE_FACTOR = 4
"""A stream without a line for so many time-outs (a lease) is opened again, since its connection may be dead."""

_OK = (200, 201)
_NOT_FOUND, _CONFLICT, _GONE = 404, 409, 410
_REFUSED = (401, 403)

NO_GUARDIAN = "in a container it would end together with the master"

AccessFinder = Callable[[], KubernetesAccess]


def _of_environment() -> KubernetesAccess:
    return find_access(os.environ)


class KubernetesRegister:
    """A `Register` in Kubernetes."""

    def __init__(
        self,
        url: str,
        *,
        timeout_seconds: float,
        setting: str = "replicate",
        find: AccessFinder = _of_environment,
    ) -> None:
        """Create the register. Nothing is connected.

        Args:
            url: as `KubernetesUrl`.
            timeout_seconds: how long a call may take: a quarter of the lease.
            setting: the setting that the URL comes from.
            find: reads where the API server is, and the credentials, for each call.

        Raises:
            ConfigError: the URL is not valid, or there is no way to an API server.
        """
        self._timeout_seconds = timeout_seconds
        self._api = LeaseApi(KubernetesUrl.parse(url, setting), find, setting)
        self._setting = setting
        self._find = find
        self._found: LeaseObject | None = None
        self._watches: list[KubernetesWatch] = []

    @property
    def name(self) -> str:
        """The URL, with the namespace."""
        return self._api.name

    @property
    def cluster(self) -> str:
        """The name of the cluster."""
        return self._api.lease

    def read(self) -> RegisterState:
        """Return the present content; see `Register`."""
        return self._read(now() + self._timeout_seconds)

    def swap(self, revision: int, record: ElectionRecord) -> SwapResult:
        """Change the record if its revision is still this one; see `Register`."""
        deadline = now() + self._timeout_seconds
        if not revision:
            swapped = self._api.create(record, deadline)
        else:
            found = self._found
            if found is None or found.revision != revision:
                state = self._read(deadline)  # the fields that are to be kept
                found = self._found
                if found is None or found.revision != revision:
                    return SwapResult(False, state)
            swapped = self._api.replace(found, record, deadline)
        if swapped is None:
            return SwapResult(False, self._read(deadline))
        self._found = swapped
        return SwapResult(True, RegisterState(swapped.revision, record))

    def watch(self, callback: RegisterCallback) -> "KubernetesWatch":
        """Call back at changes; see `Register`."""
        api = LeaseApi(KubernetesUrl.parse(self.name, self._setting), self._find, self._setting)
        self._watches.append(KubernetesWatch(api, callback, self._timeout_seconds))
        return self._watches[-1]

    def guardian_access(self) -> Mapping[str, Any]:
        """Return why there is no guardian; see `Register`."""
        return {"reason": NO_GUARDIAN}

    def close(self) -> None:
        """Close the connections, and end the watches. May be repeated."""
        while self._watches:
            self._watches.pop().close()
        self._api.channel.close()

    def _read(self, deadline: float) -> RegisterState:
        self._found = self._api.read(deadline)
        return ABSENT if self._found is None else self._found.state(self.name)


class LeaseApi:
    """Requests of one thread for one Lease."""

    def __init__(self, url: KubernetesUrl, find: AccessFinder, setting: str) -> None:
        """Request nothing yet.

        Args:
            url: which Lease.
            find: reads where the API server is, and the credentials.
            setting: the setting that an error of the member's rights names.

        Raises:
            ConfigError: there is no way to an API server.
        """
        self._find = find
        self._setting = setting
        self._access = access = find()
        self._namespace = url.namespace or access.namespace
        self.lease = url.cluster
        self.name = f"{SCHEME}{self._namespace}/{self.lease}"
        """The register's name."""
        self._leases = f"/apis/{API_VERSION}/namespaces/{self._namespace}/leases"
        self.channel = HttpChannel([access.address])
        self._connect_by(access)

    def read(self, deadline: float) -> LeaseObject | None:
        """Return the Lease; None: there is none.

        Raises:
            RegisterUnavailable: there was no answer in time, or one that is an error.
            RegisterMalformed: its version cannot be compared.
            ConfigError: the API server refuses this member.
        """
        answer = self._call("GET", f"{self._leases}/{self.lease}", None, deadline)
        return self._lease_of(answer)

    def create(self, record: ElectionRecord, deadline: float) -> LeaseObject | None:
        """Create the Lease, and return it; None: there is one already. Errors: as `read`."""
        values = new_lease(self.lease, self._namespace, record, datetime.now(UTC))
        answer = self._call("POST", self._leases, values, deadline)
        return None if answer.status == _CONFLICT else self._written(answer)

    def replace(self, found: LeaseObject, record: ElectionRecord, deadline: float) -> LeaseObject | None:
        """Change the record, and return the Lease; None: it is not that one any more. Errors: as `read`."""
        values = found.changed(record, datetime.now(UTC))
        answer = self._call("PUT", f"{self._leases}/{self.lease}", values, deadline)
        return None if answer.status == _CONFLICT else self._written(answer)

    def watch_path(self, found: LeaseObject | None) -> str:
        """Return the path of a stream of changes: of those after an object, or of all."""
        options = {"watch": "1", "fieldSelector": f"metadata.name={self.lease}"}
        if found is not None:
            options["resourceVersion"] = str(found.revision)
        return f"{self._access.path}{self._leases}?{urlencode(options, quote_via=quote)}"

    def headers(self) -> Mapping[str, str]:
        """Return the headers of a request, after the credentials were read again.

        Raises:
            RegisterUnavailable: they cannot be read, or not be used, at the moment.
        """
        try:
            access = self._find()
            if access != self._access:
                self._use(access)
        except ConfigError as error:
            raise RegisterUnavailable(self.name, error.reason) from error
        except OSError as error:  # no place for a file that `ssl` wants
            raise RegisterUnavailable(self.name, str(error)) from error
        headers = {"Accept": "application/json", "User-Agent": "pybroker"}
        if access.token:
            headers["Authorization"] = f"Bearer {access.token}"
        return headers

    def lease_of(self, values: Mapping[str, Any]) -> LeaseObject:
        """Return an object that must be the Lease. Errors: as `read`."""
        return LeaseObject.of(values, self.name, self.lease)

    def error_of(self, status: int, body: Mapping[str, Any]) -> RegisterUnavailable | ConfigError:
        """Return the error of a `Status` object, which an answer or a stream has."""
        text: object = body.get("message")
        message = text[:200] if isinstance(text, str) and text else "no description"
        if status in _REFUSED:
            return ConfigError(
                f"{self.name} refuses this member: {message}",
                setting=self._setting,
                hint="give its service account the rights get, create, update and watch on leases of "
                f"coordination.k8s.io in the namespace {self._namespace}",
            )
        return RegisterUnavailable(self.name, f"HTTP {status}: {message}")

    def _use(self, access: KubernetesAccess) -> None:
        """Use other credentials; a connection is kept if only the token is another."""
        if not access.has_connection_of(self._access):
            self._connect_by(access)
        self._access = access

    def _connect_by(self, access: KubernetesAccess) -> None:
        self.channel.redirect(access.address, access.tls(), access.server_name)

    def _call(self, method: str, path: str, values: Mapping[str, Any] | None, deadline: float) -> HttpAnswer:
        body = b"" if values is None else json.dumps(values).encode()
        headers = self.headers()  # first, as they may come with another address
        request = StoreRequest(self._access.path + path, body, method == "GET", headers, method)
        try:
            return self.channel.call(request, deadline)
        except CallFailed as error:
            raise RegisterUnavailable(self.name, str(error)) from error

    def _written(self, answer: HttpAnswer) -> LeaseObject | None:
        try:
            return self._lease_of(answer)
        except RegisterMalformed as error:  # it was written all the same
            raise RegisterUnavailable(self.name, str(error)) from error

    def _lease_of(self, answer: HttpAnswer) -> LeaseObject | None:
        found = parse_object(answer.body) or {}
        if answer.status in _OK:
            return self.lease_of(found)
        if answer.status == _NOT_FOUND and is_absent(found, self.lease):
            return None
        # Also overload, and a time-out of the API server's own: what was asked may yet be carried out.
        raise self.error_of(answer.status, found)


class KubernetesWatch(ReopenedWatch):
    """A stream of changes, opened again after every failure, and at its usual end after some minutes."""

    def __init__(self, api: LeaseApi, callback: RegisterCallback, timeout_seconds: float) -> None:
        """Start the thread.

        Args:
            api: reads and opens the streams; owned from here on.
            callback: called with each content.
            timeout_seconds: the time for an answer, and between two tries.
        """
        super().__init__(api.name, timeout_seconds)
        self._api = api
        self._callback = callback
        self._timeout_seconds = timeout_seconds
        self.start()

    def _interrupt(self) -> None:
        self._api.channel.interrupt()

    def _release(self) -> None:
        self._api.channel.close()

    def _follow(self) -> None:
        """Pass the content on, and then each change, until the stream ends."""
        api = self._api
        deadline = now() + self._timeout_seconds
        found = api.read(deadline)
        self.has_read()
        self._callback(ABSENT if found is None else found.state(api.name))
        headers = api.headers()
        try:
            request = StoreRequest(api.watch_path(found), b"", True, headers, "GET")
            with api.channel.opened(request, deadline) as stream:
                if stream.status != _OK[0]:
                    raise api.error_of(stream.status, parse_object(stream.read(BODY_BYTES_MAX)) or {})
                count = 0
                while (line := self._line(stream)) and self._pass_on(line):
                    self.succeeded()
                    count += 1
                if not line and not count:
                    self.pause()  # a server that ends each stream at once must not be asked without end
        except (CallFailed, OSError, HTTPException) as error:
            api.channel.close()
            if not isinstance(error, TimeoutError):  # silence is usual where no master renews
                raise RegisterUnavailable(api.name, str(error)) from error

    def _line(self, stream: HTTPResponse) -> bytes:
        """Wait for the next line and return it; empty at the end.

        Raises:
            TimeoutError: there was none for long.
        """
        self._api.channel.set_deadline(now() + _IDLE_FACTOR * self._timeout_seconds)
        return stream.readline(BODY_BYTES_MAX)

    def _pass_on(self, line: bytes) -> bool:
        """Pass the change of a line on. Return False if a read is needed: after a deletion, or where one was missed."""
        event = parse_object(line) or {}
        kind, found = event.get("type"), object_or_none(event.get("object"))
        if found is None:
            raise RegisterUnavailable(self._api.name, "a change without its fields")
        if kind in ("ADDED", "MODIFIED"):
            self._callback(self._api.lease_of(found).state(self._api.name))
        elif kind == "ERROR":
            code: object = found.get("code")
            if code != _GONE:
                raise self._api.error_of(code if isinstance(code, int) else 0, found)
            return False
        return kind != "DELETED"
