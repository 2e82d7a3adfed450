"""One run of a member in the election: in which order the actions of its decisions are performed."""

from collections import deque
from collections.abc import Callable

import pytest

from pybroker.broker.app import election_run
from pybroker.broker.app.election_run import ElectionRun
from pybroker.locks.election.election_state import (
    ConfirmRecords,
    ElectionAction,
    ElectionDecision,
    ElectionEvent,
    ElectionPolicy,
    ElectionState,
    RecordsSynced,
    StepDown,
    TimePassed,
)
from pybroker.locks.election.record import MasterEntry

ME = MasterEntry(name="a", store="s-a", run="l-a", replicate="localhost:1", clients=())


class Member:
    """A run whose decisions are: confirm what was synced, and step down when time passes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(election_run, "decide", self.decide)
        self.performed: list[ElectionAction] = []
        self.posted: deque[Callable[[], None]] = deque()
        self.on_perform: Callable[[ElectionAction], None] = lambda action: None
        self.run = ElectionRun(
            ME, ElectionPolicy(), perform=self.perform, post=self.posted.append, name="test", clock=lambda: 0.0
        )

    def decide(self, state: ElectionState, event: ElectionEvent, now: float) -> ElectionDecision:
        match event:
            case RecordsSynced(0):
                return ElectionDecision(state)
            case RecordsSynced(sequence):
                return ElectionDecision(state, (ConfirmRecords(sequence),))
            case _:
                return ElectionDecision(state, (StepDown("late"),))

    def perform(self, action: ElectionAction) -> None:
        self.performed.append(action)
        self.on_perform(action)

    def turn(self) -> None:
        while self.posted:
            self.posted.popleft()()


@pytest.fixture
def member(monkeypatch: pytest.MonkeyPatch) -> Member:
    return Member(monkeypatch)


def test_on_the_loop_actions_are_performed_at_once(member: Member) -> None:
    member.run.tell_here(RecordsSynced(1))
    assert member.performed == [ConfirmRecords(1)]
    member.run.tell_here(RecordsSynced(0))
    assert not member.posted


def test_actions_that_wait_are_performed_first(member: Member) -> None:
    """Else a master would confirm something after it has decided to step down."""
    member.run.tell(TimePassed())
    member.run.tell_here(RecordsSynced(1))
    assert member.performed == []
    member.turn()
    assert member.performed == [StepDown("late"), ConfirmRecords(1)]
    member.run.tell_here(RecordsSynced(2))
    assert member.performed[2:] == [ConfirmRecords(2)]


@pytest.mark.parametrize("is_posted", [False, True])
def test_what_an_action_leads_to_comes_after_it(member: Member, *, is_posted: bool) -> None:
    def tell_once(action: ElectionAction) -> None:
        if action == ConfirmRecords(1):
            member.run.tell_here(RecordsSynced(2))
            assert member.performed == [ConfirmRecords(1)]

    member.on_perform = tell_once
    (member.run.tell if is_posted else member.run.tell_here)(RecordsSynced(1))
    member.turn()
    assert member.performed == [ConfirmRecords(1), ConfirmRecords(2)]


def test_a_failed_action_does_not_hold_up_the_next_ones(member: Member) -> None:
    def fail(action: ElectionAction) -> None:
        member.on_perform = lambda action: None
        raise ValueError

    member.on_perform = fail
    member.run.tell_here(RecordsSynced(1))
    member.run.tell_here(RecordsSynced(2))
    assert member.performed == [ConfirmRecords(1), ConfirmRecords(2)]
