"""Logins by LDAP, and guests: the same settings have the same outcomes with ActiveMQ's login modules, or safer ones."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.integration.activemq_broker import ActiveMQProcess
from tests.integration.cluster import free_port
from tests.java.checks import Programs
from tests.java.installations import FollowedBroker
from tests.java.refusals import answered, logging_in
from tests.ldap_server import BASE, SERVICE, SERVICE_PASSWORD, LdapServer

pytestmark = [pytest.mark.component("activemq"), pytest.mark.component("slapd"), pytest.mark.timeout(300)]


class Served(NamedTuple):
    """A broker: "pybroker" or "activemq", and its port for STOMP."""

    kind: str
    port: int


Run = Callable[[Sequence[str], str], Served]
"""Starts either broker by the modules of a login.config, and by pybroker's settings."""

RULES = {"EVERY": "*", "ORDERS": "orders", "STAFF": "staff", "REMOTE": "remote", "GUESTS": "guests"}
"""Queues, and the group that may send there."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LdapServer]:
    server = LdapServer(tmp_path_factory.mktemp("slapd")).start()
    yield server
    server.stop()


@pytest.fixture(params=["pybroker", "activemq"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def run(kind: str, programs: Programs, tmp_path: Path) -> Iterator[Run]:
    with ExitStack() as brokers:

        def run(modules: Sequence[str], settings: str) -> Served:
            if kind == "activemq":
                configuration = tmp_path / "login.config"
                configuration.write_text("test {\n" + "\n".join(modules) + "\n};\n")
                rules = [f"rule=queue:{queue}:{group}:{group}:{group}" for queue, group in RULES.items()]
                advisories = "rule=topic:ActiveMQ.Advisory.>:*:*:*"
                policies = [f"jaas={configuration}", *rules, advisories]
                other = ActiveMQProcess(programs.class_path, tmp_path / "data", policies=policies)
                brokers.enter_context(closing(other)).wait()
                return Served(kind, other.stomp)
            rules_file, file = tmp_path / "rules.toml", tmp_path / "broker.toml"
            rules_file.write_text(
                "\n".join(f'[[rules]]\nqueue = "{q}"\nwrite = ["{g}"]\nadmin = ["{g}"]' for q, g in RULES.items())
            )
            file.write_text(f'rules_file = "{rules_file}"\n{settings}')
            port = free_port()
            extra = ("--config", str(file), "--openwire", str(free_port()))
            broker = FollowedBroker("memory:", name="a", port=port, extra=extra)
            brokers.callback(broker.close)
            broker.wait_for("listening on")
            return Served(kind, port)

        yield run


def outcome(served: Served, *login: str) -> str:
    """Return the queues to which a client may send, or the refusal of its login."""
    headers = dict(zip(("login", "passcode"), login, strict=False))
    with answered(served.kind, lambda: logging_in(served.port, **headers)) as (client, frame):
        if frame.command == "ERROR":
            return frame.headers["message"]
        may = [
            queue for queue in RULES if client.request("SEND", b"", destination=f"/queue/{queue}").command == "RECEIPT"
        ]
        return " ".join(may)


def refused(name: str) -> str:
    return f"User name [{name}] or password is invalid."


def ldap_of_both(server: LdapServer, tmp_path: Path, **options: str) -> tuple[str, str]:
    """Return the module of a login.config, and the table, with the same options."""
    common = {
        "userBase": f"ou=people,{BASE}", "userSearchMatching": "(uid={0})", "roleBase": f"ou=groups,{BASE}",
        "roleName": "cn", "roleSearchMatching": "(member={0})", **options,
    }  # fmt: skip
    module = {
        "initialContextFactory": "com.sun.jndi.ldap.LdapCtxFactory", "connectionURL": server.url,
        "connectionUsername": SERVICE, "connectionPassword": SERVICE_PASSWORD, "connectionProtocol": "",
        "authentication": "simple", **common,
    }  # fmt: skip
    lines = "\n".join(f'    {name}="{value}"' for name, value in module.items())
    password = tmp_path / "password"
    password.write_text(SERVICE_PASSWORD)
    password.chmod(0o600)
    table = {
        "connection_url": server.url, "connection_username": SERVICE, "connection_password_file": str(password),
        "start_tls": "no",
        **{"".join(f"_{c.lower()}" if c.isupper() else c for c in name): value for name, value in common.items()},
    }  # fmt: skip
    text = "\n".join(f'{name} = "{value}"' for name, value in table.items())
    return f"org.apache.activemq.jaas.LDAPLoginModule required\n{lines};", f"[ldap]\n{text}\n"


def test_logins_by_ldap(run: Run, kind: str, server: LdapServer, tmp_path: Path) -> None:
    module, table = ldap_of_both(server, tmp_path)
    served = run([module], table)
    assert outcome(served, "alice", "sesame") == "EVERY ORDERS"
    assert outcome(served, "ALICE", "sesame") == "EVERY ORDERS"
    assert outcome(served, "bob", "open") == "EVERY"
    assert outcome(served, "star*(name)\\", "shine") == ("EVERY" if kind == "pybroker" else refused("star*(name)\\"))
    for name, password in (
        ("alice", "open"), ("missing", "sesame"), ("carol", "x"), ("", "sesame"),
        ("*", "sesame"), ("al*", "sesame"), ("alice)(uid=*", "sesame"), ("twin", "one"),
    ):  # fmt: skip
        assert outcome(served, name, password) == refused(name)
    assert outcome(served) == refused("null")
    for login in (("alice", ""), ("alice",)):  # an anonymous bind, which this server takes for a success
        assert outcome(served, *login) == (refused("alice") if kind == "pybroker" else "EVERY ORDERS")
    server.stop()
    try:
        assert outcome(served, "bob", "wrong") == refused("bob")
        assert outcome(served, "bob", "open") == ("EVERY" if kind == "pybroker" else refused("bob")), "remembered"
    finally:
        server.start()


def test_groups_of_groups_and_of_the_entry(run: Run, kind: str, server: LdapServer, tmp_path: Path) -> None:
    module, table = ldap_of_both(
        server, tmp_path,
        expandRoles="true", expandRolesMatching="(member={0})", userRoleName="employeeType", userSearchSubtree="true",
    )  # fmt: skip
    served = run([module], table)
    assert outcome(served, "alice", "sesame") == "EVERY ORDERS STAFF REMOTE"
    assert outcome(served, "bob", "open") == "EVERY"
    assert outcome(served, "twin", "one") == (refused("twin") if kind == "pybroker" else "EVERY"), "of two the first"
    assert outcome(served, "twin", "two") == refused("twin")


def test_the_file_then_ldap_then_guests(run: Run, kind: str, server: LdapServer, tmp_path: Path) -> None:
    users = tmp_path / "users.properties"
    users.write_text("system=manager\nbob=local\n")
    users.chmod(0o600)
    (tmp_path / "groups.properties").write_text("staff=system\n")
    module, table = ldap_of_both(server, tmp_path)
    modules = [
        "org.apache.activemq.jaas.PropertiesLoginModule sufficient\n"
        '    org.apache.activemq.jaas.properties.user="users.properties"\n'
        '    org.apache.activemq.jaas.properties.group="groups.properties";',
        module.replace("required", "sufficient"),
        "org.apache.activemq.jaas.GuestLoginModule sufficient\n"
        '    credentialsInvalidate="true"\n'
        '    org.apache.activemq.jaas.guest.user="visitor"\n'
        '    org.apache.activemq.jaas.guest.group="guests";',
    ]
    settings = f'users_file = "{users}"\ngroups_file = "{tmp_path}/groups.properties"\n'
    settings += 'anonymous = "loopback"\nanonymous_user = "visitor"\nanonymous_groups = "guests"\n'
    served = run(modules, settings + table)
    assert outcome(served, "system", "manager") == "EVERY STAFF"
    assert outcome(served, "alice", "sesame") == "EVERY ORDERS"
    assert outcome(served, "bob", "local") == "EVERY"
    assert outcome(served, "bob", "open") == (refused("bob") if kind == "pybroker" else "EVERY"), "two passwords"
    assert outcome(served, "alice", "wrong") == refused("alice")
    assert outcome(served, "alice") == (refused("alice") if kind == "pybroker" else "EVERY ORDERS"), "a name alone"
    assert outcome(served) == "EVERY GUESTS"


def test_guests_with_a_wrong_password(run: Run, tmp_path: Path) -> None:
    users = tmp_path / "users.properties"
    users.write_text("system=manager\n")
    users.chmod(0o600)
    (tmp_path / "groups.properties").write_text("staff=system\n")
    modules = [
        "org.apache.activemq.jaas.PropertiesLoginModule sufficient\n"
        '    org.apache.activemq.jaas.properties.user="users.properties"\n'
        '    org.apache.activemq.jaas.properties.group="groups.properties";',
        "org.apache.activemq.jaas.GuestLoginModule sufficient\n"
        '    org.apache.activemq.jaas.guest.user="visitor"\n'
        '    org.apache.activemq.jaas.guest.group="guests";',
    ]
    settings = f'users_file = "{users}"\ngroups_file = "{tmp_path}/groups.properties"\nanonymous = "loopback"\n'
    settings += 'anonymous_if_refused = true\nanonymous_user = "visitor"\nanonymous_groups = "guests"\n'
    served = run(modules, settings)
    assert outcome(served, "system", "manager") == "EVERY STAFF"
    assert outcome(served, "system", "wrong") == "EVERY GUESTS"
    assert outcome(served, "missing", "x") == "EVERY GUESTS"
    assert outcome(served) == "EVERY GUESTS"
