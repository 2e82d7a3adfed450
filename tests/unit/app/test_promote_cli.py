"""`pybroker promote`: what it shows, and what it needs to do it."""

import time
from typing import Any

import pytest
from click.testing import CliRunner

from pybroker.broker.app import promote_cli
from pybroker.broker.app.promote_cli import described, promote
from tests.pages import block

LOSS = {
    "cluster": "orders",
    "member": "b",
    "revision": 7,
    "store_ends": {"kahadb": [44, 900], "scheduler": [9, 100]},
    "confirmed_ends": {"kahadb": [51, 1234567]},
    "written_ms": 1_000_000,
    "is_whole": True,
    "master": "a",
    "address": "a.example:61620",
    "has_released": False,
    "complete": "a",
    "minimum": 2,
}


class AnsweringMember:
    """A member that answers, first what would be lost."""

    def __init__(self, **promoted: Any) -> None:
        self.requests: list[Any] = []
        self._promoted = promoted

    def __call__(self, store: object, request: Any, heard: Any) -> Any:
        self.requests.append(request)
        heard({"wait_seconds": 20})
        heard({"wait_seconds": 19})
        answer = {"problem": "", "is_unknown": False, "loss": LOSS, "epoch": 0}
        return answer if request["act"] == "loss" else answer | {"loss": None} | self._promoted


def run(
    monkeypatch: pytest.MonkeyPatch, member: Any, *arguments: str, typed: str | None = None
) -> tuple[int, str, str]:
    monkeypatch.setattr(promote_cli, "converse", member)
    monkeypatch.setattr(promote_cli, "_is_terminal", lambda: typed is not None)
    result = CliRunner().invoke(promote, ["--store", "here", *arguments], input=typed)
    return result.exit_code, result.stdout, result.stderr


def test_lines_of_a_loss() -> None:
    lines = described(LOSS, 1_000 + 3 * 3600 + 62)
    assert lines[0] == "b would become the master of cluster orders, and lacks what was confirmed after its end:"
    assert lines[1].startswith("  its store ends at         db-44.log, byte 900, written 1970-01-01 ")
    assert lines[1].endswith(", 3 h 1 min ago")
    assert lines[2] == "  confirmed at least up to  db-51.log, byte 1,234,567"
    assert lines[3] == "  which is in the store of  a"
    assert "If a can be brought back" in lines[5]
    assert "The process of the former master a (a.example:61620) must have ended" in lines[6]


def test_the_page_shows_what_is_printed() -> None:
    written = time.mktime(time.strptime("2026-11-28 10:12:33", "%Y-%m-%d %H:%M:%S"))
    ends = {"store_ends": {"kahadb": [44, 1234567]}, "confirmed_ends": {"kahadb": [51, 9876]}}
    lines = described(LOSS | ends | {"written_ms": written * 1000}, written + 63 * 60)
    assert "\n".join(lines) + "\n" == block("docs/replication.md", "text", "b would become the master")


def test_lines_where_no_other_store_is_left() -> None:
    lines = described(LOSS | {"complete": "", "has_released": True, "is_whole": False, "written_ms": None}, 0)
    assert lines[1] == "  its store ends at         db-44.log, byte 900"
    assert lines[3] == "  which is in the store of  no other member"
    assert "lacks parts of what was confirmed before its end" in lines[4]
    assert "has released the cluster" in lines[-1]


def test_nothing_is_done_without_the_acceptance(monkeypatch: pytest.MonkeyPatch) -> None:
    member = AnsweringMember()
    code, shown, text = run(monkeypatch, member)
    assert code == 3
    assert [each["act"] for each in member.requests] == ["loss"]
    assert "what was confirmed after its end" in shown
    assert text.count("looking for") == 1
    assert run(monkeypatch, member, "--yes")[0] == 2


def test_word_must_be_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    member = AnsweringMember(epoch=52, is_serving=True)
    assert run(monkeypatch, member, "--accept-loss")[0] != 0, "there is no terminal"
    assert run(monkeypatch, member, "--accept-loss", typed="yes\n")[0] == 3
    assert [each["act"] for each in member.requests] == ["loss", "loss"]
    code, shown, _ = run(monkeypatch, member, "--accept-loss", typed="lose it\n")
    assert code == 0
    assert member.requests[-1] == {"act": "promote", "revision": 7}
    assert shown.endswith("b is the master of orders with epoch 52: clients are served\n")


@pytest.mark.parametrize(
    ("answer", "code", "sentence"),
    [
        ({"epoch": 52, "is_serving": False}, 0, "it serves once 2 stores are in sync"),
        ({"problem": "a takes part"}, 4, "was not promoted: a takes part"),
        ({"problem": "no answer", "is_unknown": True}, 1, "no answer"),
    ],
)
def test_outcomes(monkeypatch: pytest.MonkeyPatch, answer: Any, code: int, sentence: str) -> None:
    found, shown, text = run(monkeypatch, AnsweringMember(**answer), "--accept-loss", "--yes")
    assert found == code
    assert sentence in shown + text


def test_refusal_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    code, shown, _ = run(monkeypatch, lambda *_: {"problem": "it is the master", "loss": None}, "--json")
    assert (code, shown) == (4, '{"problem": "it is the master", "loss": null}\n')
