"""What a guardian does with the register, over one that does not answer, or that has changed."""

import json

import pytest

from pybroker.locks.election.guardian_process import PAUSE_SECONDS, RegisterAccess, RegisterContent, release, released

RUN = "r-a"
RECORD = {"format": 1, "epoch": 43, "state": "serving", "master": {"name": "a", "life": RUN}, "insync": ["s-a"], "x": 1}


def serving(**changes: object) -> str:
    return json.dumps(RECORD | changes)


class Answers:
    """A register with a script: each call is answered by the next item.

    Attributes:
        content: the present content.
        swaps: the revisions of the swaps that were asked for.
        now: the time; each pause lets it pass.
    """

    def __init__(self, content: RegisterContent, *script: str) -> None:
        """Take a script of `ok`, `lost` (nothing is done), and `late` (done, and not answered)."""
        self.content = content
        self.swaps: list[int] = []
        self.now = 0.0
        self._script = list(script)

    def read(self) -> RegisterContent:
        self._answer()
        return self.content

    def swap(self, revision: int, value: str) -> bool:
        self.swaps.append(revision)
        how = self._script[0] if self._script else "ok"
        is_swapped = how != "lost" and revision == self.content.revision
        if is_swapped:
            self.content = RegisterContent(revision + 1, value)
        self._answer()
        return is_swapped

    def _answer(self) -> None:
        if self._script and self._script.pop(0) != "ok":
            raise ConnectionError("no answer")

    def release(self, told: RegisterContent | None, seconds: float = 5.0) -> str:
        access: RegisterAccess = self
        return release(access, told, RUN, seconds, lambda: self.now, self._pause)

    def _pause(self, seconds: float) -> None:
        self.now += seconds


def test_record_is_released_as_it_is() -> None:
    found = json.loads(released(serving(**{"for": "s-c"}), RUN))
    assert found == RECORD | {"state": "released", "nonce": "r-a-0"}


@pytest.mark.parametrize(
    "value",
    ["", serving(state="released"), serving(master={"name": "b", "life": "r-b"}), serving(master={})],
)
def test_record_that_is_not_that_runs_is_left(value: str) -> None:
    assert released(value, RUN) == ""
    register = Answers(RegisterContent(7, value))
    assert "another master already, or was released" in register.release(RegisterContent(7, value))
    assert register.swaps == []


@pytest.mark.parametrize("value", ["{", serving(x="y" * 4096)])
def test_record_that_cannot_be_released_is_named(value: str) -> None:
    assert "wait for the end of the lease" in Answers(RegisterContent(7, value)).release(None)


def test_told_content_is_swapped_without_a_read() -> None:
    register = Answers(RegisterContent(7, serving()))
    assert "is released" in register.release(register.content)
    assert register.swaps == [7]
    assert json.loads(register.content.value)["state"] == "released"


def test_newer_record_of_the_run_is_read_and_released() -> None:
    register = Answers(RegisterContent(9, serving(insync=["s-a", "s-b"])))
    assert "is released" in register.release(RegisterContent(7, serving()))
    assert register.swaps == [7, 9]
    assert json.loads(register.content.value)["insync"] == ["s-a", "s-b"]


def test_newer_record_of_another_run_stays() -> None:
    register = Answers(RegisterContent(9, serving(epoch=52, master={"name": "b", "life": "r-b"})))
    before = register.content
    assert "another master already" in register.release(RegisterContent(7, serving()))
    assert register.content == before


def test_swap_without_an_answer_is_looked_up() -> None:
    register = Answers(RegisterContent(7, serving()), "late")
    assert "was released" in register.release(register.content)
    assert register.swaps == [7]


def test_swap_that_was_lost_is_repeated() -> None:
    register = Answers(RegisterContent(7, serving()), "lost", "lost", "ok", "lost")
    assert "is released" in register.release(register.content)
    assert register.swaps == [7, 7, 7]


def test_it_gives_up_at_the_end_of_the_lease() -> None:
    register = Answers(RegisterContent(7, serving()), *["lost"] * 100)
    assert "does not answer (no answer): others wait" in register.release(None, 10 * PAUSE_SECONDS)
    assert 9 * PAUSE_SECONDS < register.now < 12 * PAUSE_SECONDS
