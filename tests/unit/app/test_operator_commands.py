"""The commands for operators, over the real HTTP server of a simulated node: output, questions and exit codes."""

import asyncio
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import CliRunner, Result

from pybroker.broker.app import operator_access, operator_changes, operator_lists
from pybroker.broker.app.cli import commands
from pybroker.broker.app.operator_lists import ListRequest, fetch_list
from pybroker.broker.app.operator_names import destination_of
from pybroker.broker.domain.errors import ConfigError
from pybroker.broker.domain.node_requests import BranchRow, ConnectionRow, RequestFailed
from pybroker.broker.domain.role import Role
from pybroker.management_client.client import ManagementClient
from pybroker.store.members import MemberRecord
from tests.unit.management.served import ServedNode, served
from tests.unit.management.simulated import row

ROWS = [
    row("b", size=2, in_flight=1, consumers=1, enqueued=5),
    row("c", size=9, is_paused=True),
    row("a", size=0, is_dead_letter_queue=True),
    row("t", "topic", enqueued=3),
]
RESULT = {"affected": 2, "examined": 9, "skipped": 0, "in_flight": 1, "is_cancelled": False, "error": None}


def destinations(arguments: Mapping[str, Any]) -> Any:
    return [each for each in ROWS if arguments.get("name") in (None, each.name)]


METHODS: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "overview": lambda _: {"broker_name": "amq", "host": "h", "role": "MASTER", "since_ms": 0},
    "destinations": destinations,
    "connections": lambda _: [ConnectionRow("ID:c:1", "app1", "anna", "10.0.0.7:5", "stomp", 1, 0, 0, False)],
    "consumers": lambda _: [],
    "subscriptions": lambda _: [],
    "branches": lambda _: [BranchRow("XID:1", "anna", 3, 4)],
    "jobs": lambda _: {"total": 0, "cursor": None},
    "change": lambda _: RESULT,
    "pause": lambda _: {},
    "create": lambda _: {"created": True},
    "delete": lambda _: {"deleted": True},
    "cut_off": lambda _: {},
    "end_branch": lambda _: {},
}


@pytest.fixture
def node() -> Iterator[ServedNode]:
    with served(METHODS) as found:
        yield found


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYBROKER_MANAGEMENT_URL", "PYBROKER_STORE", "PYBROKER_USER", "PYBROKER_PASSWORD"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator_changes, "_is_terminal", lambda: True)


def run(node: ServedNode | str, *arguments: str, **more: Any) -> Result:
    url = node if isinstance(node, str) else node.url
    return CliRunner().invoke(commands, [*arguments, "--url", url], **more)


def done(node: ServedNode | str, *arguments: str, **more: Any) -> str:
    found = run(node, *arguments, **more)
    assert found.exit_code == 0, found.output
    return found.stdout


# ---------------------------------------------------------------- lists


def test_queues_are_a_table(node: ServedNode) -> None:
    lines = done(node, "queues", "--sort", "-size").splitlines()
    assert lines[0].split("  ")[0] == "NAME"
    assert [line.split()[:2] for line in lines[1:]] == [["c", "9"], ["b", "2"], ["a", "0"]]
    assert lines[1].endswith("paused")
    assert lines[3].endswith("dead letters")


def test_json_has_the_names_of_the_api(node: ServedNode) -> None:
    page = json.loads(done(node, "queues", "--json", "--name", "B"))
    assert (page["count"], page["items"][0]["name"], page["items"][0]["in_flight"]) == (1, "b", 1)
    (connection,) = json.loads(done(node, "connections", "--json"))["items"]
    assert connection["client_id"] == "app1"
    assert json.loads(done(node, "transactions", "--json"))["items"][0]["branch"] == "XID:1"
    assert json.loads(done(node, "topics", "--json", "--filter", "empty"))["count"] == 1


def test_a_limit_is_reported(node: ServedNode) -> None:
    found = run(node, "queues", "--limit", "1", "--sort", "name")
    assert [line.split()[0] for line in found.stdout.splitlines()] == ["NAME", "a"]
    assert "1 of 3 are shown: --limit shows more" in found.stderr


def test_all_pages_are_fetched_and_sorted(node: ServedNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator_lists, "PAGE", 2)
    items = json.loads(done(node, "queues", "--json", "--sort", "-size"))["items"]
    assert [each["name"] for each in items] == ["c", "b", "a"]


class PagedClient:
    """Answers a list of jobs in pages of one."""

    def __init__(self) -> None:
        self.cursors: list[str | None] = []

    def get(self, *names: str, after: str | None, page_size: int) -> Any:
        self.cursors.append(after)
        number = len(self.cursors)
        found = {"job_id": f"j{number}", "destination": "queue://A", "next_time_ms": -number}
        return {"items": [found], "count": 3, "page_size": 1, "cursor": f"{number}:j" if number < 3 else None}


def test_all_pages_of_jobs_follow_the_cursor() -> None:
    client = PagedClient()
    asked = ListRequest(sort="next_time_ms", name="a", limit=2)
    answer = fetch_list(cast("ManagementClient", client), "jobs", asked)
    assert client.cursors == [None, "1:j", "2:j"]
    assert ([each["job_id"] for each in answer.items], answer.count) == (["j3", "j2"], 3)


def test_layouts_of_activemq(node: ServedNode) -> None:
    lines = done(node, "queues", "--format", "dstat").splitlines()
    assert [line.split()[0] for line in lines] == ["Name", "a", "b", "c"]
    assert "destinationType = Topic" in done(node, "topics", "--format", "bstat").splitlines()


@pytest.mark.parametrize("command", ["queues", "topics", "subscriptions", "connections", "consumers", "transactions"])
def test_an_unknown_column_is_named(node: ServedNode, command: str) -> None:
    found = run(node, command, "--sort", "colour", "--limit", "5")
    assert found.exit_code != 0
    assert "there is no column 'colour'" in found.stderr + str(found.exception)


# ---------------------------------------------------------------- exit codes


def test_exit_codes_name_the_cause(node: ServedNode) -> None:
    assert run("http://127.0.0.1:1", "queues").exit_code == 3
    assert run(node, "queues", "--filter", "x").exit_code == 2
    assert run(node, "purge", "d", "--yes").exit_code == 1
    with served(METHODS, role=Role.STANDBY) as standby:
        found = run(standby, "queues")
        assert (found.exit_code, found.stdout) == (4, "")
        remedy = "name the other members too, and the master is found"
        assert found.stderr == f"pybroker: {standby.url} is standby: {remedy}\n"
    with served(METHODS, has_users=True) as closed:
        found = run(closed, "queues")
        assert found.exit_code == 5
        assert found.stderr.endswith("(--user, and PYBROKER_PASSWORD or --password-file)\n")


def test_who_names_no_member_learns_how(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator_access, "DEFAULT_URL", "http://127.0.0.1:1")
    found = CliRunner().invoke(commands, ["queues"])
    assert found.exit_code == 3
    assert "Connection refused; name the members with --url" in found.stderr
    assert "name the members" not in run("http://127.0.0.1:1", "queues").stderr


def test_top_prints_one_look_in_json(node: ServedNode) -> None:
    overview, state = {"role": "MASTER", "totals": {"size": 11}}, {"state": "healthy", "name": "a"}
    with served({**METHODS, "overview": lambda _: overview, "ha": lambda _: state}) as master:
        found = json.loads(done(master, "top", "--json", "--sort", "-size"))
        assert ([each["name"] for each in found["queues"]], found["queue_count"]) == (["c", "b", "a"], 3)
        assert found["members"][master.url] | overview == found["members"][master.url]
        assert (found["ha"], found["problem"]) == (state, None)
        assert found["at_ms"] > 0
    assert json.loads(done(node, "top", "--json"))["problem"] == "there is no master now"
    assert "'nix' is no column of this" in str(run(node, "top", "--json", "--sort", "nix").exception)
    assert run("http://127.0.0.1:1", "top", "--json").exit_code == 3


def test_every_command_documents_its_exit_codes() -> None:
    for name in ("queues", "top", "messages", "purge", "stepdown", "commit", "cut-off"):
        assert "4    members answer, and none of them is the master" in done("", name, "--help")


# ---------------------------------------------------------------- login


def login(arguments: Mapping[str, Any]) -> Any:
    if arguments["password"] != "right":
        raise RequestFailed(HTTPStatus.UNAUTHORIZED, "wrong user or password")
    return {"user": arguments["user"], "role": "MONITOR"}


@pytest.fixture
def closed_node() -> Iterator[ServedNode]:
    with served({**METHODS, "login": login, "denied": lambda _: None}, has_users=True) as found:
        yield found


def test_the_password_is_in_the_environment_or_a_file(closed_node: ServedNode, tmp_path: Path) -> None:
    assert done(closed_node, "queues", "--user", "mara", env={"PYBROKER_PASSWORD": "right"})
    assert run(closed_node, "queues", "--user", "mara", env={"PYBROKER_PASSWORD": "wrong"}).exit_code == 5
    file = tmp_path / "password"
    file.write_text("right\r\nmore\n")
    variables = {"PYBROKER_USER": "mara", "PYBROKER_PASSWORD": "right"}
    assert done(closed_node, "queues", env=variables)
    assert done(closed_node, "queues", "--user", "mara", "--password-file", str(file))


def test_a_missing_right_has_an_exit_code(closed_node: ServedNode) -> None:
    found = run(closed_node, "pause", "b", "--user", "mara", env={"PYBROKER_PASSWORD": "right"})
    assert found.exit_code == 5
    assert "this needs the role operator, and mara has monitor" in found.stderr


def test_a_password_is_asked_for_on_a_terminal_only(closed_node: ServedNode) -> None:
    found = run(closed_node, "queues", "--user", "mara")
    assert isinstance(found.exception, ConfigError)
    assert "there is no password for mara" in str(found.exception)
    assert closed_node.asked("login") == []


@pytest.mark.parametrize("url", ["http://10.255.255.1:8161", "http://127.0.0.1:1,http://localhost.example:8161"])
def test_a_password_is_not_sent_in_the_clear(url: str) -> None:
    found = run(url, "queues", "--user", "mara", env={"PYBROKER_PASSWORD": "right"})
    assert isinstance(found.exception, ConfigError)
    assert "others can read it" in str(found.exception)


def test_insecure_http_sends_it_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pybroker.management_client.client.CHECK_SECONDS", 0.1)
    found = run("http://192.0.2.1:1", "queues", "--user", "mara", "--insecure-http", env={"PYBROKER_PASSWORD": "right"})
    assert found.exit_code == 3


def test_a_password_in_a_url_is_refused() -> None:
    found = run("http://mara:right@127.0.0.1:1", "queues")
    assert found.exit_code == 2
    assert "right" not in found.output


# ---------------------------------------------------------------- changes


def test_a_change_is_asked_for_with_its_count(node: ServedNode, terminal: None) -> None:
    found = run(node, "purge", "c", input="y\n")
    assert "purge 9 messages of c? [y/N]" in found.stderr
    assert found.stdout == "purged 2 messages of c; 1 at consumers stay\n"
    found = run(node, "purge", "c", input="n\n")
    assert (found.exit_code, found.stdout) == (1, "")
    assert "nothing was changed" in found.stderr
    assert len(node.asked("change")) == 1


def test_without_a_terminal_a_change_needs_yes(node: ServedNode) -> None:
    found = run(node, "purge", "c")
    assert isinstance(found.exception, ConfigError)
    assert "there is no terminal to confirm this: purge 9 messages of c; add --yes" in str(found.exception)
    assert node.asked("change") == []
    assert json.loads(done(node, "purge", "c", "--yes", "--json")) == RESULT


def test_a_dry_run_changes_nothing(node: ServedNode) -> None:
    assert done(node, "purge", "b", "--dry-run") == "would purge 1 message of b\n"
    assert done(node, "move", "b", "c", "--dry-run") == "would move 2 messages of b to queue://c\n"
    assert done(node, "retry", "a", "--dry-run") == "would retry 2 messages of a back to where they came from\n"
    assert json.loads(done(node, "copy", "b", "topic://t", "--dry-run", "--json")) == RESULT | {"dry_run": True}
    assert {each["operation"] for each in node.asked("change")} == {"count"}
    assert done(node, "cut-off", "ID:c:1", "--dry-run") == "would cut off app1, user anna, from 10.0.0.7:5\n"
    assert done(node, "delete", "b", "--dry-run") == "would delete queue://b with 2 messages\n"
    shown = "would roll back XID:1 of user anna, messages: 3 sent and 4 acknowledged\n"
    assert done(node, "rollback", "XID:1", "--dry-run") == shown
    assert not any(node.asked(method) for method in ("cut_off", "delete", "end_branch"))


def test_a_selection_reaches_the_member(node: ServedNode) -> None:
    selection = ("--selector", "n > 1", "--id", "ID:1", "--id", "ID:2", "--maximum", "5")
    assert done(node, "move", "/queue/b", "/topic/t", *selection, "--yes").startswith("moved 2 messages of b to topic:")
    *_, change = node.asked("change")
    assert (change["operation"], change["queue"], change["target"]) == ("move", "b", "topic://t")
    assert (change["selector"], change["message_ids"], change["maximum"]) == ("n > 1", ["ID:1", "ID:2"], 5)


def test_remove_needs_a_selection(node: ServedNode) -> None:
    assert run(node, "remove", "b", "--selector", " ", "--yes").exit_code == 2
    assert node.asked("change") == []


def test_an_empty_queue_is_left_as_it_is(node: ServedNode) -> None:
    assert done(node, "purge", "a") == "there is nothing to purge: no such message waits in a\n"
    assert node.asked("change") == []


def test_an_early_end_is_a_failure() -> None:
    early = RESULT | {"error": "this member is no longer the master"}
    with served({**METHODS, "change": lambda _: early}) as node:
        found = run(node, "purge", "c", "--yes")
    assert (found.exit_code, found.stdout) == (1, "purged 2 messages of c; 1 at consumers stay\n")
    assert found.stderr == "pybroker: it ended early: this member is no longer the master\n"


def test_changes_of_other_things(node: ServedNode) -> None:
    assert done(node, "pause", "queue://b") == "paused b\n"
    assert done(node, "create", "topic://new") == "created topic://new\n"
    assert done(node, "delete", "b", "--yes") == "deleted queue://b\n"
    assert done(node, "cut-off", "ID:c:1", "--yes", "--json") == "{}\n"
    assert done(node, "commit", "XID:1", "--yes") == "committed XID:1\n"
    assert node.asked("end_branch")[0]["commit"] is True
    assert run(node, "cut-off", "ID:none", "--dry-run").exit_code == 1


def test_a_topic_has_no_messages_to_purge(node: ServedNode) -> None:
    assert isinstance(run(node, "purge", "topic://t").exception, ConfigError)
    with pytest.raises(ConfigError, match="TARGET"):
        destination_of("", "TARGET")


def test_an_interrupt_ends_the_operation_and_counts() -> None:
    begun, ended = threading.Event(), threading.Event()

    async def change(arguments: Mapping[str, Any]) -> Any:
        begun.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.set()

    with served({**METHODS, "change": change}) as node:
        command = [sys.executable, "-m", "pybroker.broker.app.cli", "purge", "c", "--yes", "--url", node.url]
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=partial(
                signal.signal, signal.SIGINT, signal.SIG_DFL
            ),  # a shell may have begun this in background
        )
        assert begun.wait(20)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=20)
        assert ended.wait(10)
    assert (process.returncode, output) == (130, "")
    assert errors == "pybroker: interrupted: c had 9 messages and has 9 now; what was done stays done\n"


# ---------------------------------------------------------------- members


def test_one_way_to_name_the_members(node: ServedNode, tmp_path: Path) -> None:
    assert isinstance(run(node, "queues", "--store", str(tmp_path)).exception, ConfigError)


def test_members_are_named_by_the_environment(node: ServedNode) -> None:
    found = CliRunner().invoke(commands, ["queues"], env={"PYBROKER_MANAGEMENT_URL": f"http://127.0.0.1:1,{node.url}"})
    assert found.exit_code == 0
    assert f"asking {node.url}, which is" in found.stderr


def test_settings_name_the_member_of_this_machine(node: ServedNode, tmp_path: Path) -> None:
    port = node.url.rpartition(":")[2]
    file = tmp_path / "pybroker.toml"
    file.write_text(f'store = "memory:"\nmanagement = "127.0.0.1:{port}"\n')
    assert CliRunner().invoke(commands, ["queues", "--config", str(file)]).exit_code == 0
    file.write_text('store = "memory:"\n')
    found = CliRunner().invoke(commands, ["queues", "--config", str(file)])
    assert "management is not set" in str(found.exception)


@pytest.mark.parametrize("store", ["memory:", "postgresql://broker:secret@db/mq"])
def test_a_store_without_entries_is_refused(store: str) -> None:
    found = CliRunner().invoke(commands, ["queues", "--store", store])
    assert "name the members with --url" in str(found.exception)
    assert "secret" not in str(found.exception)


def test_top_without_a_terminal_prints_one_screen(node: ServedNode) -> None:
    text = done(node, "top", "--sort", "-size")
    assert text.startswith("pybroker ")
    assert f"members: {node.url} master" in text
    assert "\x1b" not in text
    assert isinstance(run(node, "top", "--sort", "colour").exception, ConfigError)
    assert run("http://127.0.0.1:1", "top").exit_code == 3


def test_the_default_is_the_port_of_the_documents() -> None:
    assert operator_access.DEFAULT_URL == "http://127.0.0.1:8161"


@pytest.mark.parametrize(
    ("management", "host", "expected"),
    [
        ("http://here:8161", "here", "http://127.0.0.1:8161"),
        ("https://here:8161", "here", "https://here:8161"),
        ("http://10.0.0.7:8161", "here", "http://10.0.0.7:8161"),
        ("http://127.0.0.1:8161", "here", "http://127.0.0.1:8161"),
        ("http://there:8161", "there", "http://there:8161"),
        ("http://127.0.0.1:8161", "there", None),
        ("", "here", None),
    ],
)
def test_an_entrys_address_as_this_machine_reaches_it(
    monkeypatch: pytest.MonkeyPatch, management: str, host: str, expected: str | None
) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "here")
    common: dict[str, Any] = {"since_ms": 0, "started_ms": 0, "updated_ms": 0}
    member = MemberRecord(name="a", role=Role.MASTER, pid=1, host=host, version="1", management=management, **common)
    found = operator_access.reachable(member)
    assert (None if found is None else found.url) == expected
