"""`pybroker doctor` beside real members."""

import json
from pathlib import Path
from typing import Any

from tests.integration.cluster import Pair
from tests.integration.forked import run_forked


def findings(store: str, *extra: str) -> tuple[int, list[dict[str, Any]]]:
    arguments = ("--store", store, "--stomp", "0", "--openwire", "0", "--disk-reserve", "0", "--json", *extra)
    done = run_forked("doctor", *arguments)
    found = json.loads(done.stdout)
    assert found["exit_code"] == done.returncode
    return done.returncode, found["findings"]


def test_a_pair_and_what_is_left_of_it(tmp_path: Path) -> None:
    with Pair(tmp_path / "store") as pair:
        standby = pair.wait_for_standby()
        pair.wait_for_status(lambda status: {each["role"] for each in status["members"]} == {"MASTER", "STANDBY"})
        code, found = findings(pair.store)
        assert (code, [each["check"] for each in found]) == (0, ["standby"])  # both are on one machine
        standby.kill()
        code, found = findings(pair.store)
        assert (code, [(each["severity"], each["check"]) for each in found]) == (3, [("warning", "standby")])
        pair.wait_for_master().kill()
        code, found = findings(pair.store)
        assert (code, found) == (0, [])  # members that have ended are no longer expected


def test_what_is_printed_for_people(tmp_path: Path) -> None:
    done = run_forked("doctor", "--store", "memory:", "--stomp", "0", "--openwire", "0")
    assert done.returncode == 3
    assert done.stdout == (
        "WARNING  store: messages are in memory, and end with the process\n         -> set store to a directory\n"
    )
    well = run_forked("doctor", "--store", str(tmp_path), "--stomp", "0", "--openwire", "0", "--disk-reserve", "0")
    assert well.returncode == 0
    assert well.stdout.startswith("ADVICE   store: there is no store in ")
