"""Clients that show certificates: the same files and key stores have the same outcomes with ActiveMQ's JAAS plugins."""

import ssl
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.integration.activemq_broker import ActiveMQProcess
from tests.integration.cluster import free_port
from tests.integration.stomp_client import Disconnected, StompClient
from tests.java.checks import Outcomes, Programs, compare
from tests.java.installations import FollowedBroker
from tests.java.refusals import answered, logging_in
from tests.java.stores import Issuer, subject

pytestmark = [pytest.mark.component("activemq"), pytest.mark.timeout(300)]

USERS = r"""
client1=CN=client one, OU=test, O=x, C=US
anyone=/CN=worker-[0-9], O=x/
exact=CN=worker-7, O=x
quoted=CN="Doe, John", O=x
accents=EMAILADDRESS=jose@example.org, CN=Jos\u00e9
deep=CN=deep, O=x
late=CN=expired, O=x
strange=CN=strange, O=x
"""
GROUPS = "apps=client1,anyone,quoted,accents,deep\nothers=exact,client1 \n"


@dataclass(frozen=True, kw_only=True)
class Served:
    """A broker that looks at certificates.

    Attributes:
        broker: "pybroker" or "activemq".
        variant: "want" or "need" a certificate; "dual": want one with TLS, and a password without.
        openwire, stomp: its ports with TLS.
        plain: its port for STOMP without TLS.
    """

    broker: str
    variant: str
    directory: Path
    openwire: int
    stomp: int
    plain: int

    def client(self, certificate: str = "", **headers: str) -> StompClient:
        """Return a STOMP client over TLS that has sent CONNECT."""
        context = ssl.create_default_context(cafile=str(self.directory / "trust.pem"))
        if certificate:
            context.load_cert_chain(self.directory / f"{certificate}.pem")
        client = StompClient(self.stomp, is_connected=False, tls=context)
        client.send("CONNECT", b"", accept_version="1.2", host="h", **headers)
        return client


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates, and the files of users."""
    directory = tmp_path_factory.mktemp("certificates")
    authority, strange = Issuer.make("authority"), Issuer.make("strange authority")
    authority.trust(directory)
    for name, made in {
        "server": subject(cn="server"),
        "client": subject(c="US", o="x", ou="test", cn="client one"),
        "worker-1": subject(o="x", cn="worker-1"),
        "worker-7": subject(o="x", cn="worker-7"),
        "worker-long": subject(c="US", o="x", cn="worker-1"),
        "quoted": subject(o="x", cn="Doe, John"),
        "accents": subject(cn="José", email="jose@example.org"),
        "other": subject(o="x", cn="other"),
    }.items():
        authority.issue(made, directory, name)
    authority.issue(subject(o="x", cn="expired"), directory, "expired", days=-1)
    Issuer.make("middle", authority).issue(subject(o="x", cn="deep"), directory, "deep")
    strange.issue(subject(o="x", cn="strange"), directory, "strange")
    (directory / "users-of-certificates").write_text(USERS)
    (directory / "groups-of-certificates").write_text(GROUPS)
    (directory / "users.properties").write_text("u=right\n")
    (directory / "users.properties").chmod(0o600)
    (directory / "groups.properties").write_text("apps=u\n")
    return directory


@pytest.fixture(scope="module", params=["want", "need", "dual"])
def variant(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def served(
    programs: Programs, broker: str, variant: str, directory: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    openwire, stomp, plain = free_port(), free_port(), free_port()
    own = tmp_path_factory.mktemp(f"{broker}-{variant}")
    start = _activemq if broker == "activemq" else _pybroker
    with ExitStack() as running:
        start(running, programs, directory, own, variant, (openwire, stomp, plain))
        yield Served(broker=broker, variant=variant, directory=directory, openwire=openwire, stomp=stomp, plain=plain)


Ports = tuple[int, int, int]


def _activemq(running: ExitStack, programs: Programs, directory: Path, own: Path, variant: str, ports: Ports) -> None:
    configuration = own / "login.config"
    configuration.write_text(f"""
certificates {{
    org.apache.activemq.jaas.TextFileCertificateLoginModule required
    baseDir="{directory}"
    org.apache.activemq.jaas.textfiledn.user="users-of-certificates"
    org.apache.activemq.jaas.textfiledn.group="groups-of-certificates";
}};
test {{
    org.apache.activemq.jaas.PropertiesLoginModule required
    baseDir="{directory}"
    org.apache.activemq.jaas.properties.user="users.properties"
    org.apache.activemq.jaas.properties.group="groups.properties";
}};
""")
    openwire, stomp, plain = ports
    auth = "need" if variant == "need" else "want"
    policies = [
        f"{'dual' if variant == 'dual' else 'certificates'}={configuration}",
        f"ssl={openwire}:{stomp}:{auth}:{directory}",
        *(["populateJMSXUserID"] if variant == "need" else ["populateJMSXUserID", "useAuthenticatedPrincipal"]),
        "rule=topic:ActiveMQ.Advisory.>:*:*:*",
        "rule=queue:APPS.>:apps:apps:apps", "rule=queue:OTHERS.>:others:others:others",
    ]  # fmt: skip
    process = ActiveMQProcess(programs.class_path, own / "data", policies=policies, stomp=plain)
    running.enter_context(closing(process)).wait()


def _pybroker(running: ExitStack, programs: Programs, directory: Path, own: Path, variant: str, ports: Ports) -> None:
    rules = own / "rules.toml"
    for group in ("apps", "others"):
        with rules.open("a") as file:
            file.write(f'[[rules]]\nqueue = "{group.upper()}.>"\n')
            file.writelines(f'{right} = ["{group}"]\n' for right in ("read", "write", "admin"))
    openwire, stomp, plain = ports
    options: dict[str, object] = {
        "openwire-ssl": openwire, "stomp-ssl": stomp, "tls-certificate": directory / "server.pem",
        "tls-client-ca": directory / "trust.pem", "tls-client-auth": "need" if variant == "need" else "want",
        "certificate-users-file": directory / "users-of-certificates",
        "certificate-groups-file": directory / "groups-of-certificates", "rules-file": rules,
    }  # fmt: skip
    if variant == "dual":
        options |= {"users-file": directory / "users.properties", "groups-file": directory / "groups.properties"}
    extra = (*(f"--{name}={value}" for name, value in options.items()), "--populate-jmsx-user-id")
    member = FollowedBroker("memory:", name="a", port=plain, extra=extra)
    running.callback(member.close)
    member.wait_for("listening on")


@pytest.fixture(scope="module")
def outcomes(programs: Programs, served: Served) -> Outcomes:
    """What the Java client saw."""
    return programs.area(
        "Certificates", f"ssl://127.0.0.1:{served.openwire}", answer=lambda check, question: str(served.directory)
    )


APPS = {"apps": "sent", "others": "javax.jms.JMSSecurityException"}
OTHERS = {"apps": "javax.jms.JMSSecurityException", "others": "sent"}
_REFUSED = {"other": "CN=other, O=x", "worker-long": "CN=worker-1, O=x, C=US"}
NO_CERTIFICATE = "Unable to authenticate transport without SSL certificate."


def unknown(subject: str, name: str = "null") -> str:
    return f"User name [{name}] or password is invalid. No user for client certificate: {subject}"


def refused(text: str) -> dict[str, Any]:
    return {"error": f"javax.jms.JMSSecurityException: {text} <- java.lang.SecurityException", "at once": True}


BROKEN_OFF = "javax.jms.JMSException"
"""The TLS handshake failed."""

EXPECTED: dict[str, Any] = {
    "exactAndExpression": OTHERS,
    "exactSubject": APPS,
    "expired": BROKEN_OFF,
    "expression": APPS,
    "expressionWithinASubject": refused(unknown(_REFUSED["worker-long"])),
    "noCertificate": refused(NO_CERTIFICATE),
    "noCertificateButAPassword": refused(NO_CERTIFICATE),
    "otherCharacters": APPS,
    "quotedSubject": APPS,
    "textOfADenial": "javax.jms.JMSSecurityException: User client1 is not authorized to write to: queue://OTHERS.a <- "
    "java.lang.SecurityException",
    "unknownSubject": refused(unknown(_REFUSED["other"])),
    "unknownSubjectBesideAPassword": refused(unknown(_REFUSED["other"], "u")),
    "unknownSubjectWithFailover": refused(unknown(_REFUSED["other"])),
    "untrusted": BROKEN_OFF,
    "userOnAMessage": "client1",
    "withAnIntermediateAuthority": APPS,
    "wrongPasswordBesideACertificate": APPS,
}


@pytest.mark.parametrize("check", EXPECTED)
def test_outcome(outcomes: Outcomes, served: Served, check: str) -> None:
    expected = dict(EXPECTED)
    if served.variant == "need":
        expected |= {"noCertificate": BROKEN_OFF, "noCertificateButAPassword": BROKEN_OFF}
        if served.broker == "activemq":  # here it uses what it takes for the name, which is the subject
            expected["userOnAMessage"] = "CN=client one, OU=test, O=x, C=US"
    elif served.broker == "activemq":  # it names its authorities in the handshake: a Java client has none to show
        expected["untrusted"] = refused(NO_CERTIFICATE)
    compare(outcomes, served.broker, "Certificates", check, expected)


@pytest.mark.parametrize("login", [{}, {"login": "u", "passcode": "right"}], ids=["certificate", "with a password"])
@pytest.mark.parametrize(
    ("certificate", "may_send"),
    [
        ("client", "APPS"), ("worker-1", "APPS"), ("worker-7", "OTHERS"), ("quoted", "APPS"), ("accents", "APPS"),
        ("deep", "APPS"),
    ],
)  # fmt: skip
def test_a_stomp_client_with_a_certificate(
    served: Served, certificate: str, may_send: str, login: dict[str, str]
) -> None:
    with closing(served.client(certificate, **login)) as client:
        assert client.read().command == "CONNECTED"
        for queue in ("APPS", "OTHERS"):
            answer = client.request("SEND", b"m", destination=f"/queue/{queue}.stomp")
            assert answer.command == ("RECEIPT" if queue == may_send else "ERROR")


@pytest.mark.parametrize("login", [{}, {"login": "u", "passcode": "right"}], ids=["certificate", "with a password"])
@pytest.mark.parametrize("certificate", ["other", "worker-long", ""])
def test_a_refused_stomp_client(served: Served, certificate: str, login: dict[str, str]) -> None:
    if served.variant == "need" and not certificate:
        _expect_no_handshake(served, certificate)
        return
    with answered(served.broker, lambda: served.client(certificate, **login)) as (client, frame):
        text = unknown(_REFUSED[certificate], login.get("login", "null")) if certificate else NO_CERTIFICATE
        assert (frame.command, frame.headers["message"], frame.body.decode()) == ("ERROR", text, text)
        assert frame.headers["content-type"] == "text/plain"
        assert client.read_to_end().strip() == b""


@pytest.mark.parametrize("certificate", ["expired", "strange"])
def test_a_stomp_client_without_a_valid_certificate(served: Served, certificate: str) -> None:
    _expect_no_handshake(served, certificate)


def _expect_no_handshake(served: Served, certificate: str) -> None:
    """The client sees it at its first read, as a handshake of TLS 1.3 ends before the broker verifies."""
    with pytest.raises(Disconnected, match=r"certificate|unknown ca|reset"):  # noqa: SIM117 - the client's own, too
        with closing(served.client(certificate)) as client:
            client.read()


@pytest.mark.parametrize(
    ("login", "dual"),
    [
        ({}, "User name [null] or password is invalid."),
        ({"login": "u", "passcode": "wrong"}, "User name [u] or password is invalid."),
        ({"login": "u", "passcode": "right"}, "CONNECTED"),
    ],
)
def test_a_listener_without_tls(served: Served, login: dict[str, str], dual: str) -> None:
    with answered(served.broker, lambda: logging_in(served.plain, **login)) as (_, frame):
        outcome = frame.headers.get("message", frame.command)
        assert outcome == (dual if served.variant == "dual" else NO_CERTIFICATE)
