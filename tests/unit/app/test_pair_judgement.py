"""Each judgement of a pair: what it takes, when it is made, and what it must not be made of."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pybroker import __version__
from pybroker.broker.app.pair_judgement import (
    BEHIND_SECONDS,
    LASTING_SECONDS,
    READING_SECONDS,
    Judgement,
    PairFacts,
    PairMemory,
    judge,
)
from pybroker.broker.domain.role import Role
from pybroker.store.members import Followed, MemberRecord, MemberStatus, PublishedEnd, StoreIdentity

INODE = 7
IDENTITY = StoreIdentity(
    broker_id="ID:a", journal_inode=1, scheduler_inode=2, scheduler_file="db-3.log", lock_stamp=1_000
)


def member(name: str, role: Role, *, is_alive: bool = True, written_ms: int = 0, **fields: Any) -> MemberStatus:
    known: dict[str, Any] = {
        "pid": 1,
        "host": "there",
        "version": __version__,
        "since_ms": 0,
        "started_ms": 0,
        "updated_ms": 10_000,
    }
    record = MemberRecord(name=name, role=role, **(known | {"checked_ms": 1, "identity": IDENTITY} | fields))
    return MemberStatus(
        name=name, alive=is_alive, member=record, written_ms=written_ms or record.updated_ms, inode=INODE
    )


MASTER = member("a", Role.MASTER, journal_end=PublishedEnd(file_id=1, offset=100))
STANDBY = member("b", Role.STANDBY)
AT_END = Followed(file_id=1, offset=100, at_ms=0, messages=0)


def standby(*others: MemberStatus, **found: Any) -> PairFacts:
    """Return what the standby b sees of a pair that is well, but for some facts."""
    known: dict[str, Any] = {
        "followed": AT_END,
        "members": [*(others or (MASTER,)), STANDBY],
        "inode": INODE,
        "is_locked": True,
        "identity": IDENTITY,
        "has_scheduler": True,
    }
    return PairFacts(role=Role.STANDBY, name="b", now=0.0, directory="/mnt/shared", **(known | found))


def master(*others: MemberStatus, **found: Any) -> PairFacts:
    """Return what the master a sees."""
    known: dict[str, Any] = {"members": [MASTER, *others], "inode": INODE, "is_locked": True, "identity": IDENTITY}
    return PairFacts(role=Role.MASTER, name="a", now=0.0, directory="/mnt/shared", **(known | found))


class Looks:
    """Looks one after another, with one memory."""

    def __init__(self) -> None:
        self.memory = PairMemory()
        self.now = 0.0

    def look(self, facts: PairFacts, seconds: float = 0.0) -> Judgement:
        self.now += seconds
        return judge(replace(facts, now=self.now), self.memory)

    def after(self, facts: PairFacts, seconds: float) -> list[str]:
        """Return the kinds of the findings after that time, with a look every second."""
        self.look(facts)
        for _ in range(int(seconds)):
            found = self.look(facts, 1.0)
        return [each.kind for each in found.findings]


@pytest.fixture
def looks() -> Looks:
    return Looks()


def renewed(entry: MemberStatus, updated_ms: int, **fields: Any) -> MemberStatus:
    assert entry.member is not None
    return replace(entry, member=replace(entry.member, updated_ms=updated_ms, **fields), written_ms=updated_ms)


# ---------------------------------------------------------------- a standby


def test_standby_of_a_pair_that_is_well_has_no_findings(looks: Looks) -> None:
    for second in range(30):
        found = looks.look(standby(renewed(MASTER, 1_000 * second)), 1.0)
        assert found == Judgement((), is_clean=True)


@pytest.mark.parametrize(
    ("found", "kind"),
    [
        ({"port_problem": "stomp: taken"}, "port"),
        ({"store_problem": "the lock cannot be opened"}, "store"),
        ({"members": [MASTER]}, "place"),
        ({"members": [MASTER, replace(STANDBY, inode=8)]}, "place"),
    ],
)
def test_obstacle_that_is_certain_is_reported_at_once(looks: Looks, found: dict[str, Any], kind: str) -> None:
    judgement = looks.look(standby(**found))
    assert [(each.kind, each.is_obstacle) for each in judgement.findings] == [(kind, True)]


def test_own_entry_that_cannot_be_examined_is_no_other_directory(looks: Looks) -> None:
    assert looks.after(standby(members=[MASTER, replace(STANDBY, inode=0)]), 5) == []


@pytest.mark.parametrize(
    ("facts", "kind", "is_obstacle"),
    [
        (standby(journal_problem="it cannot be read"), "journal", True),
        (standby(is_locked=False), "lock", True),
        (standby(member("a", Role.STANDBY), is_locked=False), "lock", True),
        (standby(identity=replace(IDENTITY, broker_id="ID:b")), "identity", True),
        (standby(identity=replace(IDENTITY, journal_inode=9)), "identity", True),
        (standby(identity=replace(IDENTITY, scheduler_inode=9)), "scheduler", True),
        (standby(identity=replace(IDENTITY, scheduler_inode=0)), "scheduler", True),
        (standby(settings={"policies": "ab"}), "settings", False),
        (standby(member("a", Role.MASTER, version="0.0.1")), "version", False),
        (standby(MASTER, member("c", Role.MASTER)), "masters", True),
        (standby(member("a", Role.MASTER, is_alive=False)), "zombie", True),
        (standby(member("a", Role.MASTER, is_alive=False), is_locked=None, identity=None), "elsewhere", False),
        (standby(STANDBY, is_locked=None, has_journal=False), "elsewhere", True),
    ],
)
def test_finding_is_reported_once_it_has_lasted(
    looks: Looks, facts: PairFacts, kind: str, *, is_obstacle: bool
) -> None:
    first = looks.look(facts)
    assert [first.findings, first.is_clean] == [(), False]
    found = looks.look(facts, LASTING_SECONDS).findings
    assert [(each.kind, each.is_obstacle) for each in found] == [(kind, is_obstacle)]


def test_different_users_come_with_the_remedy(looks: Looks) -> None:
    looks.look(standby(settings={"users": "ab"}))
    (found,) = looks.look(standby(settings={"users": "ab"}), LASTING_SECONDS).findings
    remedy = "copy one users.toml to all members, as each has other hashes of the same passwords"
    assert found.text == f"not the same here and on the master a: users; {remedy}"


def test_finding_that_comes_and_goes_is_not_reported(looks: Looks) -> None:
    wrong = standby(is_locked=False)
    for _ in range(3):
        assert looks.after(wrong, LASTING_SECONDS - 1) == []
        assert looks.look(standby()).is_clean


@pytest.mark.parametrize(
    "facts",
    [
        standby(identity=replace(IDENTITY, journal_inode=9, scheduler_inode=9), has_stable_inodes=False),
        standby(identity=None),
        standby(identity=replace(IDENTITY, scheduler_inode=0), has_scheduler=False),
        standby(member("a", Role.MASTER, identity=None)),
        standby(member("a", Role.MASTER, checked_ms=0), settings={"policies": "ab"}),
        standby(member("a", Role.PROMOTING), is_locked=False),
        standby(member("a", Role.RELINQUISHING)),
        standby(member("a", Role.STOPPED, is_alive=False), identity=replace(IDENTITY, lock_stamp=2_000)),
        standby(STANDBY),
    ],
    ids=["fuse", "unknown here", "no scheduler", "unknown there", "not examined", "promoted", "stepping back",
         "an ActiveMQ after a member", "an ActiveMQ"],
)  # fmt: skip
def test_what_is_unknown_or_changing_is_no_finding(looks: Looks, facts: PairFacts) -> None:
    assert looks.after(facts, 8) == []


def test_lock_that_is_polled_may_be_free_until_the_next_try(looks: Looks) -> None:
    facts = standby(member("a", Role.MASTER, is_alive=False), is_locked=False, lock_seconds=10.0)
    assert looks.after(facts, 12) == []
    assert looks.after(facts, 2) == ["lock"]


def test_master_that_renews_nothing_for_ten_seconds_is_silent(looks: Looks) -> None:
    """However far its clock is from this one's."""
    facts = standby(renewed(MASTER, 999_999_999))
    assert looks.after(facts, 10) == []
    assert (
        looks.look(facts, 1.0)
        .findings[0]
        .text.startswith("the master a on there has been silent for 11 s and holds the lock")
    )


@pytest.mark.parametrize(("ahead_ms", "words"), [(5_000, "5.0 s ahead of"), (-3_000, "3.0 s behind")])
def test_clock_of_the_master_is_compared_by_the_file_system(looks: Looks, ahead_ms: int, words: str) -> None:
    def entry(updated_ms: int) -> MemberStatus:
        return replace(renewed(MASTER, updated_ms), written_ms=updated_ms - ahead_ms)

    assert looks.look(standby(entry(10_000))).is_clean  # one entry may have been written late
    (finding,) = looks.look(standby(entry(12_000)), 2.0).findings
    assert (finding.kind, finding.is_obstacle) == ("clock", False)
    assert words in finding.text
    assert looks.look(standby(renewed(MASTER, 14_000)), 2.0).is_clean


# ---------------------------------------------------------------- lag


def end(offset: int) -> MemberStatus:
    return renewed(MASTER, offset, journal_end=PublishedEnd(file_id=1, offset=offset))


def at(offset: int) -> Followed:
    return replace(AT_END, offset=offset)


def test_follower_that_reaches_each_end_in_time_is_not_behind(looks: Looks) -> None:
    for second in range(1, 30):
        assert looks.look(standby(end(second * 1_000), followed=at(second * 1_000 - 1)), 1.0).findings == ()


def test_follower_that_falls_behind_is_a_warning_with_its_lag(looks: Looks) -> None:
    for second in range(1, 7):
        found = looks.look(standby(end(second * 100_000), followed=at(second)), 1.0)
    assert found.findings == ()
    (finding,) = looks.look(standby(end(700_000), followed=at(7)), 1.0).findings
    assert (finding.kind, finding.is_obstacle) == ("behind", False)
    assert finding.text.startswith("this member is 699,993 bytes behind the master's journal, for 6 s")
    assert looks.look(standby(end(700_000), followed=at(700_000)), 1.0).is_clean


def test_follower_that_sees_nothing_of_a_growing_journal_is_an_obstacle(looks: Looks) -> None:
    kinds = [looks.look(standby(end(100 + second)), 1.0).findings for second in range(int(BEHIND_SECONDS) + 3)]
    assert [each.kind for each in kinds[-1]] == ["stuck"]
    assert kinds[-1][0].is_obstacle


def test_first_reading_of_a_long_journal_is_a_warning_after_a_minute(looks: Looks) -> None:
    for second in range(int(READING_SECONDS) + 1):
        assert looks.look(standby(renewed(MASTER, second), followed=None), 1.0).findings == ()
    assert [each.kind for each in looks.look(standby(followed=None), 1.0).findings] == ["reading"]


# ---------------------------------------------------------------- a master


def test_master_without_another_member_ever_has_no_pair(looks: Looks) -> None:
    assert looks.after(master(), 60) == []


@pytest.mark.parametrize("other", [member("b", Role.STANDBY, is_alive=False), None])
def test_master_that_lost_its_standby_is_alone(looks: Looks, other: MemberStatus | None) -> None:
    """Also after the entry of the standby was deleted."""
    looks.look(master(STANDBY))
    facts = master(*filter(None, [other]))
    assert looks.after(facts, LASTING_SECONDS - 1) == []
    assert looks.after(facts, 1) == ["alone"]


def test_standby_that_is_silent_is_found_by_the_master(looks: Looks) -> None:
    assert looks.after(master(STANDBY), 10) == []
    assert looks.after(master(STANDBY), 1) == ["silent b"]
    assert looks.after(master(STANDBY), 3) == ["silent b", "alone"]


@pytest.mark.parametrize(
    ("facts", "kind"),
    [
        (master(STANDBY, store_problem="it cannot be read"), "store"),
        (master(STANDBY, unconfirmed_seconds=11.0), "unconfirmed"),
        (master(member("c", Role.MASTER)), "masters"),
    ],
)
def test_findings_of_a_master_are_warnings(looks: Looks, facts: PairFacts, kind: str) -> None:
    looks.look(facts)
    found = looks.look(facts, 3.0).findings
    assert [(each.kind, each.is_obstacle) for each in found] == [(kind, False)]


@pytest.mark.parametrize("role", [Role.PROMOTING, Role.RELINQUISHING, Role.STOPPED])
def test_member_that_changes_its_role_is_not_judged(looks: Looks, role: Role) -> None:
    assert looks.after(replace(standby(store_problem="gone"), role=role), 5) == []


def test_findings_of_the_former_role_do_not_last(looks: Looks) -> None:
    make: Callable[..., PairFacts] = master
    assert looks.after(standby(is_locked=False), 2) == []
    assert looks.after(make(member("b", Role.STANDBY, is_alive=False)), 2) == []
