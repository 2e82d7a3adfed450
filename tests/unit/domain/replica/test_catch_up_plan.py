"""The plan of a catch-up: the table for one file, and which plans may be interrupted."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.broker.domain.replica.manifest import MalformedFrame, Manifest, ManifestFile
from pybroker.broker.domain.replica.operations import Journal
from pybroker.broker.domain.replica.plan import (
    PlanAction,
    PlanEntry,
    decode_plan,
    encode_plan,
    is_orderly,
    left_bytes,
    make_plan,
    wanted_prefixes,
)

M, S = Journal.MESSAGES, Journal.SCHEDULER
CRC, OTHER = 1, 2


def files(*lengths: tuple[int, int], crc: int = CRC) -> Manifest:
    """Return a manifest of message files, given as number and length."""
    return [ManifestFile(M, file_id, length, crc if length else 0) for file_id, length in lengths]


def plan_for(master: Manifest, follower: Manifest, *, is_beginning: bool = True) -> Sequence[PlanEntry]:
    """Return the plan, with checksums of beginnings that are equal or not."""
    wanted = wanted_prefixes(master, follower)
    crc = CRC if is_beginning else OTHER
    return make_plan(master, follower, dict.fromkeys(wanted.of_master, crc), dict.fromkeys(wanted.of_follower, crc))


TABLE: list[tuple[str, Manifest, Manifest, bool, tuple[PlanAction, int, int]]] = [
    ("same", files((1, 9)), files((1, 9)), True, (PlanAction.KEEP, 9, 9)),
    ("other checksum", files((1, 9)), files((1, 9), crc=OTHER), True, (PlanAction.REPLACE, 0, 9)),
    ("missing", files((1, 9)), [], True, (PlanAction.FETCH, 0, 9)),
    ("empty", files((1, 9)), files((1, 0)), True, (PlanAction.FETCH, 0, 9)),
    ("both empty", files((1, 0)), files((1, 0)), True, (PlanAction.KEEP, 0, 0)),
    ("shorter", files((1, 9)), files((1, 4)), True, (PlanAction.FETCH, 4, 9)),
    ("shorter and another", files((1, 9)), files((1, 4)), False, (PlanAction.REPLACE, 0, 9)),
    ("longer", files((1, 4)), files((1, 9)), True, (PlanAction.CUT, 4, 4)),
    ("longer and another", files((1, 4)), files((1, 9)), False, (PlanAction.REPLACE, 0, 4)),
    ("longer than nothing", files((1, 0)), files((1, 9)), True, (PlanAction.CUT, 0, 0)),
    ("gone", [], files((1, 9)), True, (PlanAction.DROP, 0, 0)),
]


@pytest.mark.parametrize(
    ("_name", "master", "follower", "is_beginning", "expected"), TABLE, ids=[row[0] for row in TABLE]
)
def test_table_of_one_file(
    _name: str, master: Manifest, follower: Manifest, is_beginning: bool, expected: tuple[PlanAction, int, int]
) -> None:
    assert plan_for(master, follower, is_beginning=is_beginning) == [PlanEntry(M, 1, *expected)]


def test_checksum_of_a_vanished_beginning_is_no_match() -> None:
    """The master's file went while the plan was made: its beginning has no checksum."""
    assert make_plan(files((1, 9)), files((1, 4)), {}, {})[0].action is PlanAction.REPLACE


def test_file_below_a_common_one_was_collected() -> None:
    plan = plan_for(files((4, 9), (6, 9)), files((1, 9), (4, 9), (5, 9)))
    assert [(entry.file_id, entry.action) for entry in plan] == [
        (1, PlanAction.REMOVE),
        (4, PlanAction.KEEP),
        (5, PlanAction.DROP),
        (6, PlanAction.FETCH),
    ]


def test_file_of_the_masters_term_was_collected() -> None:
    """A follower that was away for long may have no file in common with its master any more."""
    master, follower = files((7, 9), (8, 9)), files((3, 9), (5, 9), (6, 9), (9, 9))
    plan = make_plan(master, follower, {}, {}, {M: 5})
    assert [(entry.file_id, entry.action) for entry in plan] == [
        (3, PlanAction.DROP),  # of a former term: it may never have been confirmed
        (5, PlanAction.REMOVE),
        (6, PlanAction.REMOVE),
        (7, PlanAction.FETCH),
        (8, PlanAction.FETCH),
        (9, PlanAction.DROP),
    ]
    assert is_orderly(make_plan(master, files((5, 9), (6, 9)), {}, {}, {M: 5}))


def test_journals_are_compared_by_themselves() -> None:
    theirs = [*files((1, 9)), ManifestFile(S, 1, 3, CRC)]
    mine = [*files((1, 9)), ManifestFile(S, 2, 3, CRC)]
    plan = plan_for(mine, theirs)
    assert [(entry.journal, entry.file_id, entry.action) for entry in plan] == [
        (M, 1, PlanAction.KEEP),
        (S, 1, PlanAction.DROP),
        (S, 2, PlanAction.FETCH),
    ]


@pytest.mark.parametrize(
    ("master", "follower", "expected"),
    [
        (files((1, 9), (2, 9)), files((1, 9), (2, 4)), True),  # appends
        (files((1, 9), (2, 9), (3, 9)), files((1, 9)), True),  # appends, and new files
        (files((2, 9)), files((1, 9), (2, 4)), True),  # removals, and appends
        (files((1, 4)), files((1, 9)), True),  # a former master's tail in its last file
        (files((1, 9), (2, 9)), files((2, 9)), False),  # an older file is fetched
        (files((1, 9), (2, 9)), files((1, 4), (2, 9)), False),  # and one is fetched in part
        (files((1, 4), (2, 9)), files((1, 9), (2, 9)), False),  # and one is cut
        (files((1, 9)), files((1, 9), (2, 9)), False),  # a file behind the last common one goes
        (files((1, 9), (2, 9)), files((1, 9), (2, 9), crc=OTHER), False),  # files are replaced
        ([], [], True),
        (files((1, 9), (2, 9)), [], True),  # a new store, in ascending order
    ],
)
def test_orderly_plans(master: Manifest, follower: Manifest, expected: bool) -> None:
    assert is_orderly(plan_for(master, follower)) is expected


manifests = st.dictionaries(st.tuples(st.sampled_from(Journal), st.integers(1, 6)), st.integers(0, 4), max_size=8).map(
    lambda lengths: [ManifestFile(*key, length, CRC if length else 0) for key, length in sorted(lengths.items())]
)


@given(manifests, manifests, st.booleans())
def test_plan_makes_the_follower_a_beginning_of_the_master(
    master: Manifest, follower: Manifest, is_beginning: bool
) -> None:
    plan = plan_for(master, follower, is_beginning=is_beginning)
    assert decode_plan(encode_plan(plan)) == plan
    assert {entry[:2] for entry in plan} == {each[:2] for each in (*master, *follower)}
    lengths = {each[:2]: each.length for each in follower}
    for entry in plan:
        if entry.action in (PlanAction.DROP, PlanAction.REMOVE):
            del lengths[entry[:2]]
        else:
            assert entry.action is not PlanAction.CUT or entry.length < lengths[entry[:2]]
            assert (
                entry.action is not PlanAction.FETCH
                or entry.length == lengths.get(entry[:2], 0) < entry.total
                or (entry[:2] not in lengths)
            )
            lengths[entry[:2]] = entry.total
    assert lengths == {each[:2]: each.length for each in master}
    fetched = sum(
        entry.total - entry.length for entry in plan if entry.action in (PlanAction.FETCH, PlanAction.REPLACE)
    )
    assert left_bytes(plan) == fetched


@pytest.mark.parametrize(
    "plan",
    [
        [PlanEntry(M, 2, PlanAction.KEEP, 0, 0), PlanEntry(M, 1, PlanAction.KEEP, 0, 0)],
        [PlanEntry(M, 1, PlanAction.KEEP, 0, 0), PlanEntry(M, 1, PlanAction.DROP, 0, 0)],
        [(2, 1, 0, 0, 0)],
        [(0, 1, 6, 0, 0)],
    ],
)
def test_malformed_plan_is_refused(plan: Sequence[PlanEntry]) -> None:
    with pytest.raises(MalformedFrame):
        decode_plan(encode_plan(plan))
