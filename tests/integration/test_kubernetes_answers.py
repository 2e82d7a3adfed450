"""A register in Kubernetes before a server that gives answers as the API's reference describes them.

These tests are about what is sent, and how an answer is read. They prove nothing about conflicts, watches or versions
of a real API server: `test_registers.py` does, where `KUBECONFIG` names one.
"""

import json
import queue
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import trustme

from pybroker.broker.app.replica_guardian import GuardianKeeper
from pybroker.broker.domain.errors import ConfigError
from pybroker.locks.election.http_calls import HttpAddress
from pybroker.locks.election.kubernetes import KubernetesRegister
from pybroker.locks.election.kubernetes_access import KubernetesAccess, find_access
from pybroker.locks.election.kubernetes_lease import ANNOTATION
from pybroker.locks.election.record import ElectionRecord
from pybroker.locks.election.register import ABSENT, RegisterMalformed, RegisterState, RegisterUnavailable
from tests.integration.register_engines import PATIENT_SECONDS, RECORD, record
from tests.integration.test_registers import Seen

LEASES = "/apis/coordination.k8s.io/v1/namespaces/shop/leases"


def lease(found: ElectionRecord, version: str) -> dict[str, Any]:
    """Return a Lease as an API server sends it."""
    return {
        "kind": "Lease",
        "apiVersion": "coordination.k8s.io/v1",
        "metadata": {
            "name": "orders",
            "namespace": "shop",
            "uid": "a-uid",
            "resourceVersion": version,
            "labels": {"team": "shop"},
            "annotations": {ANNOTATION: found.encode().decode()},
        },
        "spec": {"holderIdentity": found.master.name, "leaseTransitions": found.epoch},
    }


def status(code: int, reason: str, **details: str) -> tuple[int, dict[str, Any]]:
    """Return an error as an API server sends it."""
    message = f"the message of {reason}"
    common = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    return code, {**common, "message": message, "reason": reason, "details": details, "code": code}


ABSENCE = status(404, "NotFound", name="orders", group="coordination.k8s.io", kind="leases")
CONFLICT = status(409, "Conflict", name="orders", group="coordination.k8s.io", kind="leases")
PRESENT = (200, lease(RECORD, "7"))


class ApiRequest(NamedTuple):
    """A request that the server got."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]


class ScriptedServer:
    """Gives each request the next answer: a status, and an object or the lines of a stream.

    Attributes:
        requests: those that came.
    """

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.requests: list[ApiRequest] = []
        self._answers: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
        self._closing = closing = threading.Event()
        scripted = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                length = int(self.headers.get("Content-Length", "0"))
                body = json.loads(self.rfile.read(length) or b"{}")
                scripted.requests.append(ApiRequest(self.command, self.path, dict(self.headers), body))
                code, answer = scripted._answers.get()
                self.send_response(code)
                if isinstance(answer, list):
                    self.send_header("Transfer-Encoding", "chunked")
                    self.end_headers()
                    self.stream(answer)
                else:
                    data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                    self.send_header("Content-Length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data)

            do_POST = do_PUT = do_GET

            def stream(self, lines: list[Any]) -> None:
                for line in lines:
                    if line is Ellipsis:  # open, and silent
                        closing.wait(PATIENT_SECONDS)
                        break
                    data = json.dumps(line).encode() + b"\n"
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
                self.wfile.write(b"0\r\n\r\n")

            def log_message(self, format: str, *args: object) -> None:
                pass

        class Quiet(ThreadingHTTPServer):
            def handle_error(self, request: object, client_address: object) -> None:
                pass  # clients that do not trust it, or hang up

        self._server = Quiet(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = False
        self._server.block_on_close = False
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self.address = HttpAddress("127.0.0.1", self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def __enter__(self) -> "ScriptedServer":
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def answer(self, *answers: tuple[int, Any]) -> None:
        """Add answers."""
        for each in answers:
            self._answers.put(each)


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as server:
        yield server


NewRegister = Callable[..., KubernetesRegister]


@pytest.fixture
def new_register(server: ScriptedServer) -> Iterator[NewRegister]:
    made: list[KubernetesRegister] = []

    def new(
        url: str = "kubernetes://orders", *, seconds: float = PATIENT_SECONDS, **changes: Any
    ) -> KubernetesRegister:
        access = replace(KubernetesAccess(address=server.address, is_tls=False, namespace="shop"), **changes)
        made.append(KubernetesRegister(url, timeout_seconds=seconds, find=lambda: access))
        return made[-1]

    yield new
    for register in made:
        register.close()


# ---------------------------------------------------------------- read and swap


def test_read_asks_for_the_lease_without_a_version(server: ScriptedServer, new_register: NewRegister) -> None:
    register = new_register(token="a-token")
    server.answer(PRESENT)
    assert register.read() == (7, RECORD)
    (request,) = server.requests
    assert (request.method, request.path) == ("GET", f"{LEASES}/orders")
    assert request.headers["Authorization"] == "Bearer a-token"
    assert request.headers["Accept"] == "application/json"


def test_namespace_of_the_url_comes_first(server: ScriptedServer, new_register: NewRegister) -> None:
    register = new_register("kubernetes://stock/orders", path="/k8s/clusters/c-1")
    assert (register.name, register.cluster) == ("kubernetes://stock/orders", "orders")
    assert new_register().name == "kubernetes://shop/orders"
    server.answer(ABSENCE)
    assert register.read() == ABSENT
    path = "/k8s/clusters/c-1/apis/coordination.k8s.io/v1/namespaces/stock/leases/orders"
    assert server.requests[0].path == path


def test_first_record_is_posted(server: ScriptedServer, new_register: NewRegister) -> None:
    server.answer((201, lease(RECORD, "8")))
    assert new_register().swap(0, RECORD) == (True, (8, RECORD))
    (request,) = server.requests
    assert (request.method, request.path) == ("POST", LEASES)
    assert request.body["metadata"]["name"] == "orders"
    assert request.headers["Content-Type"] == "application/json"


def test_first_record_of_another_is_a_conflict(server: ScriptedServer, new_register: NewRegister) -> None:
    server.answer(status(409, "AlreadyExists"), PRESENT)
    assert new_register().swap(0, record("second")) == (False, (7, RECORD))


def test_swap_puts_the_object_that_was_read(server: ScriptedServer, new_register: NewRegister) -> None:
    register, changed = new_register(), record("next")
    server.answer(PRESENT, (200, lease(changed, "9")), (200, lease(changed, "11")))
    assert register.read().revision == 7
    assert register.swap(7, changed) == (True, (9, changed))
    assert register.swap(9, changed).present.revision == 11
    first, second = server.requests[1:]
    assert (first.method, first.path) == ("PUT", f"{LEASES}/orders")
    assert [each.body["metadata"]["resourceVersion"] for each in (first, second)] == ["7", "9"]
    assert {each.body["metadata"]["uid"] for each in (first, second)} == {"a-uid"}
    assert first.body["metadata"]["labels"] == {"team": "shop"}


def test_swap_of_a_revision_that_was_not_read_reads_first(server: ScriptedServer, new_register: NewRegister) -> None:
    server.answer(PRESENT, PRESENT, (200, lease(record("next"), "9")))
    register = new_register()
    assert register.swap(6, record("late")) == (False, (7, RECORD))
    assert new_register().swap(7, record("next")).is_swapped
    assert [each.method for each in server.requests] == ["GET", "GET", "PUT"]


@pytest.mark.parametrize("refusal", [CONFLICT, ABSENCE])
def test_swap_that_is_refused_returns_what_is_there(
    server: ScriptedServer, new_register: NewRegister, refusal: tuple[int, Any]
) -> None:
    register, other = new_register(), record("other")
    server.answer(PRESENT, refusal, (200, lease(other, "8")), PRESENT, refusal, ABSENCE)
    register.read()
    assert register.swap(7, record("late")) == (False, (8, other))
    register.read()
    assert register.swap(7, record("late")) == (False, ABSENT)


def test_record_that_is_none_is_malformed_for_a_swap_too(server: ScriptedServer, new_register: NewRegister) -> None:
    register, broken = new_register(), lease(RECORD, "8")
    broken["metadata"]["annotations"][ANNOTATION] = "no JSON"
    server.answer(PRESENT, CONFLICT, (200, broken), (200, broken))
    register.read()
    for call in (lambda: register.swap(7, RECORD), register.read):
        with pytest.raises(RegisterMalformed, match="no record"):
            call()


def test_version_that_is_no_number_is_malformed_and_unknown_after_a_write(
    server: ScriptedServer, new_register: NewRegister
) -> None:
    register, opaque = new_register(), (200, lease(RECORD, "b7-41"))
    server.answer(opaque, opaque, PRESENT, opaque)
    with pytest.raises(RegisterMalformed, match="'b7-41' is no number"):
        register.read()
    with pytest.raises(RegisterUnavailable, match="'b7-41' is no number"):
        register.swap(0, RECORD)
    with pytest.raises(RegisterUnavailable, match="'b7-41' is no number"):
        register.swap(7, RECORD)


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(("code", "reason"), [(401, "Unauthorized"), (403, "Forbidden")])
def test_refused_member_is_told_which_rights_it_needs(
    server: ScriptedServer, new_register: NewRegister, code: int, reason: str
) -> None:
    register = new_register(token="s3cret")
    for call in (register.read, lambda: register.swap(0, RECORD)):
        server.answer(status(code, reason))
        with pytest.raises(ConfigError) as caught:
            call()
        assert str(caught.value) == (
            f"replicate: kubernetes://shop/orders refuses this member: the message of {reason}; give its service "
            "account the rights get, create, update and watch on leases of coordination.k8s.io in the namespace shop"
        )


@pytest.mark.parametrize(
    "answer",
    [
        status(422, "Invalid"),
        status(429, "TooManyRequests"),
        status(500, "InternalError"),
        status(504, "Timeout"),
        status(404, "NotFound", name="shop", kind="namespaces"),
        (404, b"404 page not found\n"),
        (503, b""),
        (200, b"<html>a proxy's page</html>"),
        (200, {"kind": "Status", "status": "Success"}),
        (200, {**PRESENT[1], "metadata": {**PRESENT[1]["metadata"], "name": "invoices"}}),
        (200, b"x" * 70_000),
        (302, b""),
    ],
)
def test_answer_that_is_none_leaves_the_outcome_unknown(
    server: ScriptedServer, new_register: NewRegister, answer: tuple[int, Any]
) -> None:
    register = new_register()
    server.answer(PRESENT, answer, answer, answer)
    register.read()
    for call in (register.read, lambda: register.swap(0, RECORD), lambda: register.swap(7, RECORD)):
        with pytest.raises(RegisterUnavailable):
            call()


def test_call_without_answer_ends_in_its_time(server: ScriptedServer, new_register: NewRegister) -> None:
    with pytest.raises(RegisterUnavailable, match="no answer in time"):
        new_register(seconds=0.2).read()
    server.answer(PRESENT)  # for the server's thread


# ---------------------------------------------------------------- watch


def change(kind: str, found: ElectionRecord, version: str) -> dict[str, Any]:
    return {"type": kind, "object": lease(found, version)}


def test_watch_begins_after_what_was_read(server: ScriptedServer, new_register: NewRegister) -> None:
    seen = Seen()
    bookmark = {"type": "BOOKMARK", "object": {"kind": "Lease", "metadata": {"resourceVersion": "12"}}}
    lines = [change("ADDED", RECORD, "7"), bookmark, change("MODIFIED", record("next"), "9"), ...]
    server.answer(PRESENT, (200, lines))
    new_register().watch(seen.states.put)
    assert seen.wait_for_nonce("next") == (9, record("next"))
    assert server.requests[1].path == f"{LEASES}?watch=1&fieldSelector=metadata.name%3Dorders&resourceVersion=7"


def test_watch_of_an_absent_lease_begins_with_the_next_one(server: ScriptedServer, new_register: NewRegister) -> None:
    seen = Seen()
    server.answer(ABSENCE, (200, [change("ADDED", RECORD, "7"), ...]))
    new_register().watch(seen.states.put)
    assert seen.wait_for(lambda state: True) == ABSENT
    assert seen.wait_for_nonce(RECORD.nonce).revision == 7
    assert server.requests[1].path == f"{LEASES}?watch=1&fieldSelector=metadata.name%3Dorders"


@pytest.mark.parametrize(
    "end",
    [
        (200, [{"type": "ERROR", "object": status(410, "Expired")[1]}]),
        status(410, "Expired"),
        (200, [{"type": "ERROR", "object": status(500, "InternalError")[1]}]),
        (200, [{"type": "ERROR", "object": {}}]),
        (200, [change("DELETED", RECORD, "8")]),
        (200, []),
        (200, ["no object"]),
        (200, [{"type": "MODIFIED"}]),
        (200, [{"type": "MODIFIED", "object": {"kind": "Lease"}}]),
        status(403, "Forbidden"),
    ],
)
def test_watch_that_ends_is_read_and_opened_again(
    server: ScriptedServer, new_register: NewRegister, end: tuple[int, Any]
) -> None:
    seen = Seen()
    server.answer(PRESENT, end, (200, lease(record("read again"), "11")), (200, [...]))
    new_register(seconds=0.5).watch(seen.states.put)
    assert seen.wait_for_nonce("read again") == (11, record("read again"))


# ---------------------------------------------------------------- credentials


@pytest.fixture
def account(tmp_path: Path) -> Path:
    """The files of a service account."""
    for name, text in (("token", "first"), ("ca.crt", ""), ("namespace", "shop")):
        (tmp_path / name).write_text(text)
    return tmp_path


def of_pod(account: Path, server: ScriptedServer, seconds: float = PATIENT_SECONDS) -> KubernetesRegister:
    """Return the register of a member in a pod."""
    variables = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(server.address.port)}
    url = "kubernetes://orders"
    return KubernetesRegister(url, timeout_seconds=seconds, find=lambda: find_access(variables, account))


def constant(access: KubernetesAccess) -> Callable[[], KubernetesAccess]:
    """Return what finds the same access each time."""
    return lambda: access


def serving(authority: trustme.CA, *, demands: trustme.CA | None = None) -> ScriptedServer:
    """Return a server with a certificate of an authority, which may demand one of its clients."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    if demands is not None:
        demands.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
    return ScriptedServer(context)


def test_token_and_authority_are_read_for_each_request(account: Path) -> None:
    old, new = trustme.CA(), trustme.CA()
    with serving(new) as server:
        (account / "ca.crt").write_bytes(new.cert_pem.bytes())
        register = of_pod(account, server)
        server.answer(*[PRESENT] * 3)
        register.read()
        (account / "token").write_text("second\n")
        register.read()
        (account / "ca.crt").write_bytes(old.cert_pem.bytes())
        with pytest.raises(RegisterUnavailable, match="its certificate is refused"):
            register.read()
        (account / "ca.crt").unlink()
        with pytest.raises(RegisterUnavailable, match=r"ca\.crt cannot be read"):
            register.read()
        (account / "ca.crt").write_bytes(b"no certificate")
        with pytest.raises(RegisterUnavailable, match="a certificate or its key cannot be used"):
            register.read()
        (account / "ca.crt").write_bytes(new.cert_pem.bytes())
        register.read()
        register.close()
        assert [each.headers["Authorization"] for each in server.requests] == ["Bearer first"] + ["Bearer second"] * 2


def test_certificates_that_are_none_are_refused_at_the_start(account: Path, server: ScriptedServer) -> None:
    (account / "ca.crt").write_text("no certificate")
    with pytest.raises(
        ConfigError, match="replicate: Kubernetes cannot be reached: a certificate or its key cannot be used"
    ):
        of_pod(account, server)


def test_client_with_a_certificate_is_accepted() -> None:
    authority, clients = trustme.CA(), trustme.CA()
    issued = clients.issue_cert("member")
    with serving(authority, demands=clients) as server:
        access = KubernetesAccess(address=server.address, namespace="shop", authority=authority.cert_pem.bytes())
        own = replace(access, certificate=issued.cert_chain_pems[0].bytes(), key=issued.private_key_pem.bytes())
        named = replace(own, server_name="another.example")
        server.answer(PRESENT)
        for each, is_accepted in ((own, True), (access, False), (named, False)):
            register = KubernetesRegister("kubernetes://orders", timeout_seconds=5.0, find=constant(each))
            if is_accepted:
                assert register.read() == RegisterState(7, RECORD)
            else:
                with pytest.raises(RegisterUnavailable):
                    register.read()
            register.close()


def test_member_without_guardian_says_why(new_register: NewRegister, caplog: pytest.LogCaptureFixture) -> None:
    keeper = GuardianKeeper(new_register().guardian_access(), "a", "r-a")
    keeper.begin(RegisterState(1, RECORD))
    keeper.close()
    assert "there is no guardian: in a container it would end together with the master" in caplog.text
