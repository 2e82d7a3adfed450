"""The member's side of `pybroker promote`: what it waits for, and how a promotion can end."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pybroker.broker.app import replica_promotion
from pybroker.broker.app.replica_promotion import PromotionProgress, ReplicaPromotion, lost
from pybroker.broker.app.replication import Replication
from pybroker.broker.domain.replica.ports import CopyProgress
from pybroker.locks.election.election_state import (
    EpochBegun,
    MasterResigned,
    PromotionForced,
    RecordsSynced,
    RegisterChanged,
    SwapAnswered,
    SwapFailed,
)
from pybroker.locks.election.record import ElectionSettings
from pybroker.locks.election.register import RegisterState, SwapResult
from tests.unit.locks.election.test_decisions import SOUND, Member, follower
from tests.unit.locks.election.test_forced_promotion import A_ALONE, QUIET, REVISION

NEWER = RegisterChanged(RegisterState(REVISION + 1, A_ALONE))
TWO = replace(A_ALONE, settings=ElectionSettings(lease_ms=5000, min_in_sync=2))


class AskedMember:
    """A member that is asked: its clock goes on by a second at each pause, and each pause has its event."""

    def __init__(self, member: Member, *events: Callable[[Member], object]) -> None:
        self.member = member
        self._events = list(events)
        self.calls = SimpleNamespace(answered_at=float("inf"), problem="")
        self.register_problem = ""
        self.copy_progress: CopyProgress | None = None
        self.answers: list[int] = []
        self.progress = PromotionProgress("1")

    @property
    def state(self) -> Any:
        return self.member.state

    def promote(self, revision: int) -> None:
        self.member.on(PromotionForced(revision))

    def written_at(self) -> float:
        return 1795.0

    async def pause(self, _: float) -> None:
        self.member.now += 1.0
        if self._events:
            self._events.pop(0)(self.member)

    async def answer(self) -> None:
        self.answers.append(self.progress.wait_seconds)

    def ask(self, monkeypatch: pytest.MonkeyPatch, revision: int | None = None) -> PromotionProgress:
        """Ask what would be lost, or with a revision for the promotion."""
        monkeypatch.setattr(replica_promotion, "lease_clock", lambda: self.member.now)
        monkeypatch.setattr(asyncio, "sleep", self.pause)
        monkeypatch.setattr(time, "monotonic", lambda: self.member.now)
        promotion = ReplicaPromotion(cast("Replication", self), self.answer)
        run = promotion.show(self.progress) if revision is None else promotion.promote(self.progress, revision)
        asyncio.run(run)
        return self.progress


def quiet(member: Member) -> Member:
    member.now += QUIET
    return member


def wins(member: Member) -> None:
    member.wins().on(EpochBegun(10)).on(RecordsSynced(10))


def test_loss_is_told_once_nobody_else_can_take_part(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = AskedMember(follower(A_ALONE))
    progress = asked.ask(monkeypatch)
    assert asked.answers == list(range(int(QUIET), 0, -1))
    assert progress.loss is not None
    assert (progress.problem, progress.wait_seconds, progress.loss.revision) == ("", 0, REVISION)
    assert progress.loss.store_ends == SOUND.ends
    assert progress.loss.confirmed_ends == A_ALONE.durable
    assert (progress.loss.written_ms, progress.loss.complete, progress.loss.is_whole) == (1795000, "a", True)


def test_master_that_renews_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = AskedMember(follower(A_ALONE), lambda member: member.on(NEWER))
    assert asked.ask(monkeypatch).problem == "a is the master, and renews its lease"


def test_election_store_that_does_not_answer_now(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = AskedMember(quiet(follower(A_ALONE)))
    asked.calls = SimpleNamespace(answered_at=asked.member.now - 1.0, problem="timed out")
    assert asked.ask(monkeypatch).problem == "the election store does not answer: timed out"
    assert asked.progress.loss is None


def test_election_store_that_is_lost_while_it_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = AskedMember(follower(A_ALONE), lambda member: setattr(asked, "register_problem", "timed out"))
    assert "does not answer: timed out" in asked.ask(monkeypatch).problem


def test_connected_member_is_not_promoted(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = AskedMember(quiet(follower(A_ALONE)))
    asked.copy_progress = CopyProgress(True, False, 0, 0, 0, (), "")
    assert asked.ask(monkeypatch).problem == "the master a serves: this member is connected to it"
    asked.ask(monkeypatch, REVISION)
    assert asked.member.state.accepted_revision == 0


def test_promotion_that_succeeds(monkeypatch: pytest.MonkeyPatch) -> None:
    progress = AskedMember(quiet(follower(A_ALONE)), wins).ask(monkeypatch, REVISION)
    assert (progress.problem, progress.epoch, progress.is_serving) == ("", 52, True)


def test_promotion_that_waits_for_a_second_store(monkeypatch: pytest.MonkeyPatch) -> None:
    progress = AskedMember(quiet(follower(TWO)), wins).ask(monkeypatch, REVISION)
    assert (progress.problem, progress.epoch, progress.is_serving) == ("", 52, False)


def test_promotion_that_another_member_prevents(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = SwapAnswered(SwapResult(False, RegisterState(REVISION + 1, A_ALONE)))
    asked = AskedMember(quiet(follower(A_ALONE)), lambda member: member.on(answer))
    assert asked.ask(monkeypatch, REVISION).problem == "the register has changed: a takes part"


def test_promotion_over_a_register_that_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = AskedMember(quiet(follower(A_ALONE).on(NEWER)))
    assert "a is the master" in asked.ask(monkeypatch, REVISION).problem
    assert asked.member.state.accepted_revision == 0


def test_promotion_whose_outcome_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    progress = AskedMember(quiet(follower(A_ALONE)), lambda member: member.on(SwapFailed())).ask(monkeypatch, REVISION)
    assert progress.is_unknown
    assert "may yet become the master" in progress.problem


def test_promotion_whose_store_cannot_be_served(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = AskedMember(
        quiet(follower(A_ALONE)),
        lambda member: member.wins(),
        lambda member: member.on(MasterResigned("its store cannot be opened")),
    )
    assert "stepped down at once" in asked.ask(monkeypatch, REVISION).problem


def test_sentence_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    loss = AskedMember(quiet(follower(A_ALONE))).ask(monkeypatch).loss
    assert loss is not None
    assert lost(loss) == "what was confirmed after db-44.log, byte 900, is lost"
    assert "a catch-up of it was interrupted" in lost(replace(loss, is_whole=False))
