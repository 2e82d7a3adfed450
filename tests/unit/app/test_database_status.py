"""`pybroker status` for a server's sessions and locks."""

from typing import Any

import pytest

from pybroker.broker.app.database_status import DatabaseStatus, assembled, describe
from pybroker.broker.app.session_names import notice, obstacle_notice, read_notice, read_obstacle, session_name
from pybroker.broker.app.status import Exit

WHERE = "postgresql://db:5432/broker"
SECOND = 1_000
MASTER_SINCE = 1_700_000_000_000
RUN = 32 * "a"
"""The last part of the id of a lease's holder."""


def seen(**parts: Any) -> DatabaseStatus:
    rows: dict[str, Any] = {"holders": [], "lease": [], "sessions": [], "epoch": [], "waiting": []}
    return assembled(WHERE, **rows | parts)


def session(pid: int, member: str, part: str = "", statement: str | None = "BEGIN") -> tuple[Any, ...]:
    return pid, truncated(session_name(member, part)), "10.0.0.4", SECOND, statement


def serves(pid: int, member: str, *addresses: str) -> tuple[Any, ...]:
    return session(pid, member, "serves", notice(member, MASTER_SINCE, list(addresses)))


def truncated(name: str) -> str:
    """Return a session's name as a server truncates it."""
    return name.encode()[:63].decode()


def test_an_empty_database_has_no_master() -> None:
    status = seen()
    assert status.exit is Exit.NO_MASTER
    assert describe(status) == [f"no master: the lock in {WHERE} is free"]
    assert status.as_json()["locked"] is False


def test_a_master_its_standby_and_what_waits() -> None:
    status = seen(
        holders=[(7, "pybroker a", "10.0.0.4", 5 * SECOND)],
        sessions=[
            session(6, "b"),
            session(7, "a"),
            session(8, "a", "store"),
            serves(9, "a", "tcp://h:1", "stomp://h:2"),
        ],
        epoch=[(12,)],
        waiting=[("queue://A", 1234), ("topic://B", 1)],
    )
    assert status.exit is Exit.MASTER
    assert status.master is not None
    assert (status.master.name, status.master.since_ms) == ("a", MASTER_SINCE)
    first, second, third, *rest = describe(status)
    assert first == "master: a at tcp://h:1, stomp://h:2"
    assert second.startswith("  a                        master since ")
    assert second.endswith(", epoch 12, from 10.0.0.4")
    assert third.startswith("  b                        standby since ")
    assert rest == ["         1,234 messages on queue://A", "             1 message on topic://B"]


def test_a_member_that_has_the_lock_and_does_not_serve_yet() -> None:
    status = seen(holders=[(7, "pybroker a", "10.0.0.4", SECOND)], sessions=[session(7, "a"), session(8, "a", "store")])
    assert status.exit is Exit.STARTING
    assert describe(status)[0] == "no master yet: a member is being promoted"


def test_an_activemq_that_has_the_row() -> None:
    status = seen(holders=[(7, "PostgreSQL JDBC Driver", "10.0.0.9", SECOND)], sessions=[session(8, "a")])
    assert status.exit is Exit.STARTING
    answer = describe(status)[0]
    assert "no pybroker is master" in answer
    assert "PostgreSQL JDBC Driver from 10.0.0.9 (server process 7)" in answer


@pytest.mark.parametrize("holder", ["amq-7", f"someone@host-1-{RUN}"])
def test_lease_of_another_broker_is_no_member(holder: str) -> None:
    status = seen(lease=[(holder, 9 * SECOND)], sessions=[session(8, "a")])
    assert status.exit is Exit.STARTING
    assert holder in describe(status)[0]


@pytest.mark.parametrize("members", [("b",), ("a", "b")])
def test_lease_of_an_activemq_is_named_as_its_own(members: tuple[str, ...]) -> None:
    """Also where a member has the name of the ActiveMQ, as on a machine whose ActiveMQ it is to replace."""
    status = seen(lease=[("a", 9 * SECOND)], sessions=[session(number, name) for number, name in enumerate(members)])
    assert status.exit is Exit.STARTING
    assert describe(status)[0] == f"no pybroker is master: the ActiveMQ a holds the lease in {WHERE}"
    assert {member.role for member in status.members} == {"STANDBY"}


def test_a_lease_is_its_members() -> None:
    status = seen(
        lease=[(f"a@host-1-{RUN}", 9 * SECOND)],
        sessions=[session(1, "a"), serves(2, "a", "tcp://h:1"), session(3, "b")],
    )
    assert status.master is not None
    assert [(member.name, member.role) for member in status.members] == [("a", "MASTER"), ("b", "STANDBY")]


def test_session_that_serves_without_lock_is_no_master() -> None:
    """It may be that of a former master that has not noticed yet."""
    status = seen(
        holders=[(7, "pybroker b", "h", SECOND)],
        sessions=[session(1, "a"), serves(2, "a", "tcp://h:1"), session(7, "b")],
    )
    assert [(member.name, member.role, member.listeners) for member in status.members] == [
        ("a", "STANDBY", ()),
        ("b", "PROMOTING", ()),
    ]
    assert status.exit is Exit.STARTING


def test_two_members_of_one_name_are_two() -> None:
    status = seen(
        holders=[(7, "pybroker a", "h", SECOND)],
        sessions=[session(7, "a"), session(8, "a"), serves(9, "a", "tcp://h:1")],
    )
    assert [(member.name, member.role) for member in status.members] == [("a", "MASTER"), ("a", "STANDBY")]


def unable(pid: int, member: str, obstacle: str) -> tuple[Any, ...]:
    return session(pid, member, "unable", obstacle_notice(member, obstacle)[:1023])


def test_a_standby_that_could_not_serve_is_shown() -> None:
    status = seen(
        holders=[(7, "pybroker a", "10.0.0.4", SECOND)],
        sessions=[
            session(6, "b"),
            session(7, "a"),
            serves(8, "a", "tcp://h:1"),
            unable(9, "b", "stomp: 10.9.9.9 is no address of this machine (100 %)"),
            session(10, "c"),
        ],
    )
    assert status.exit is Exit.UNREADY_STANDBY
    found = {member.name: member.obstacle for member in status.members}
    assert found == {"a": "", "b": "stomp: 10.9.9.9 is no address of this machine (100 %)", "c": ""}
    assert describe(status)[2].endswith(", COULD NOT SERVE: stomp: 10.9.9.9 is no address of this machine (100 %)")
    assert status.as_json()["members"][0]["obstacle"]


def test_a_master_is_not_shown_as_unable() -> None:
    """The session may be left from when it was a standby."""
    status = seen(
        holders=[(7, "pybroker a", "10.0.0.4", SECOND)],
        sessions=[session(7, "a"), serves(8, "a", "tcp://h:1"), unable(9, "a", "taken")],
    )
    assert status.exit is Exit.MASTER


def test_an_obstacle_hidden_from_this_role_is_shown_as_such() -> None:
    hidden = session(9, "b", "unable", "<insufficient privilege>")
    status = seen(
        holders=[(7, "pybroker a", "10.0.0.4", SECOND)],
        sessions=[session(6, "b"), session(7, "a"), serves(8, "a", "tcp://h:1"), hidden],
    )
    assert status.exit is Exit.UNREADY_STANDBY
    assert "COULD NOT SERVE: a reason that the server does not show to this role" in "\n".join(describe(status))


@pytest.mark.parametrize("text", ["a\nDROP TABLE activemq_msgs", "a\r;", "\0", "é" * 5000, "x" * 5000])
def test_an_obstacle_stays_in_its_comment(text: str) -> None:
    statement = obstacle_notice("m" * 100, text)
    assert statement.isprintable()
    assert statement.isascii()
    assert len(statement) < 1000
    assert len(read_obstacle(statement)) == min(len(text), 700)


LONG = "a-member-whose-name-is-longer-than-all-that-a-session-keeps-of-it-north"
LISTENERS = ("tcp://broker-of-the-north.example.org:61616", "stomp://broker-of-the-north.example.org:61613")


def test_long_names_and_addresses_are_shown_whole() -> None:
    other = LONG.replace("north", "south")
    status = seen(
        holders=[(7, truncated(session_name(LONG)), "h", SECOND)],
        sessions=[session(7, LONG), session(8, LONG, "store"), serves(9, LONG, *LISTENERS), session(10, other)],
    )
    assert status.master is not None
    assert (status.master.name, status.master.listeners) == (LONG, LISTENERS)
    assert [member.role for member in status.members] == ["MASTER", "STANDBY"]
    assert len({member.name for member in status.members}) == 2
    assert describe(status)[0] == f"master: {LONG} at {', '.join(LISTENERS)}"


def test_lease_of_a_long_name_is_its_members() -> None:
    status = seen(lease=[(f"{LONG}@host-1-{RUN}", SECOND)], sessions=[session(7, LONG), serves(9, LONG, *LISTENERS)])
    assert status.exit is Exit.MASTER


@pytest.mark.parametrize("length", range(40, 125))
def test_address_that_the_server_cut_is_left_out(length: int) -> None:
    found = read_notice(notice("a", MASTER_SINCE, ["tcp://h:61616", "stomp://h:61613"])[:length])
    addresses = ("tcp://h:61616", "stomp://h:61613")
    assert found is None or found == ("a", MASTER_SINCE, addresses[: len(found.addresses)], "")


@pytest.mark.parametrize("length", range(40, 150))
def test_management_that_the_server_cut_is_left_out(length: int) -> None:
    url, addresses = "https://h.example.org:8161", ("tcp://h:61616", "stomp://h:61613")
    found = read_notice(notice("a", MASTER_SINCE, addresses, url)[:length])
    assert found is None or found.management in ("", url)
    assert found is None or found.addresses == addresses[: len(found.addresses)]


def test_management_of_a_master_is_shown() -> None:
    statement = notice("a", MASTER_SINCE, ["tcp://h:1"], "http://h:8161")
    status = seen(
        holders=[(7, "pybroker a", "h", SECOND)],
        sessions=[session(7, "a"), session(6, "b"), session(9, "a", "serves", statement)],
    )
    assert [(each.name, each.management, each.listeners) for each in status.members] == [
        ("a", "http://h:8161", ("tcp://h:1",)),
        ("b", "", ()),
    ]


@pytest.mark.parametrize("statement", [None, "", "<insufficient privilege>"])
def test_master_of_another_role_is_one_without_addresses(statement: str | None) -> None:
    status = seen(
        holders=[(7, "pybroker a", "h", SECOND)], sessions=[session(7, "a"), session(9, "a", "serves", statement)]
    )
    assert status.exit is Exit.MASTER
    assert describe(status)[0] == "master: a at an address that the server does not show to this role"


def test_member_that_has_not_shown_its_addresses_is_promoting() -> None:
    status = seen(holders=[(7, "pybroker a", "h", SECOND)], sessions=[session(7, "a"), session(9, "a", "serves")])
    assert status.exit is Exit.STARTING
