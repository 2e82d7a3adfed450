"""`pybroker user`."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pybroker.broker.app.cli import commands
from pybroker.broker.domain.errors import ConfigError
from pybroker.broker.domain.security import User
from pybroker.security import files, hashes, users_toml
from pybroker.security.accounts import Account


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "users.toml"


def run(path: Path, *arguments: str, stdin: str = "") -> Result:
    return CliRunner().invoke(commands, ["user", *arguments, "--file", str(path)], input=stdin)


def accounts(path: Path) -> dict[str, Account]:
    return dict(users_toml.read(files.read(path, setting="users_file", has_passwords=False)).by_name)


def test_add_passwd_list_and_del(path: Path) -> None:
    added = run(path, "add", "alice", "--group", "b", "--group", "a", stdin="sesame\n")
    assert added.exit_code == 0, added.output
    assert added.output == f"{path}: added alice\n"
    assert path.stat().st_mode & 0o777 == 0o600
    alice = accounts(path)["alice"]
    assert alice.user == User("alice", frozenset("ab"))
    assert alice.verify("sesame") == alice.user
    assert run(path, "add", "anonymous", stdin="x\n").exit_code == 1
    assert run(path.with_suffix(".txt"), "add", "bob", stdin="x\n").exit_code == 1
    run(path, "add", "bob", stdin="x\n")
    path.chmod(0o640)
    assert run(path, "passwd", "alice", stdin="öffne dich\n").exit_code == 0
    assert path.stat().st_mode & 0o777 == 0o640, "the permissions stay"
    assert isinstance(accounts(path)["alice"].verify("öffne dich"), User)
    assert accounts(path)["alice"].user == alice.user
    listed = json.loads(run(path, "list", "--json").output)
    assert listed == [
        {"name": "alice", "groups": ["a", "b"], "weak_hash": False},
        {"name": "bob", "groups": [], "weak_hash": False},
    ]
    assert run(path, "list").output.split() == ["alice", "a,", "b", "bob"]
    assert run(path, "del", "bob").exit_code == 0
    assert list(accounts(path)) == ["alice"]
    assert run(path, "del", "alice").exit_code == 0
    assert accounts(path) == {}, "a file for no users, which the broker accepts"


def test_a_generated_password_is_printed_once(path: Path) -> None:
    added = run(path, "add", "shop", "--group", "a", "--generate")
    assert added.exit_code == 0, added.output
    shop = accounts(path)["shop"]
    assert shop.verify(added.stdout.removesuffix("\n")) == shop.user == User("shop", frozenset("a"))
    assert added.stderr == f"{path}: added shop\n", "the standard output has the password alone"
    changed = run(path, "passwd", "shop", "--generate")
    assert changed.stderr == f"{path}: changed the password of shop\n"
    assert accounts(path)["shop"].verify(changed.stdout.removesuffix("\n")) == shop.user
    assert not isinstance(accounts(path)["shop"].verify(added.stdout.removesuffix("\n")), User)
    assert run(path, "list").output.split() == ["shop", "a"], "its hash is not an old one"


@pytest.mark.parametrize(
    ("arguments", "stdin", "message"),
    [
        (("add", "alice"), "x\n", "has user alice already"),
        (("add", "bob"), "\n", "a password has at least one character"),
        (("add", "bob"), "", "a password has at least one character"),
        (("add", "bob", "--group", "g,h"), "x\n", "g,h: a group has no comma in its name; write --group for each"),
        (("passwd", "bob"), "x\n", "has no user bob"),
        (("del", "bob"), "", "has no user bob"),
    ],
)
def test_what_cannot_be_done_changes_nothing(path: Path, arguments: tuple[str, ...], stdin: str, message: str) -> None:
    run(path, "add", "alice", stdin="sesame\n")
    before = path.read_bytes()
    done = run(path, *arguments, stdin=stdin)
    assert done.exit_code != 0
    assert message in done.output
    assert path.read_bytes() == before
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_a_name_that_cannot_be_one(path: Path) -> None:
    done = run(path, "add", " alice", stdin="x\n")
    assert isinstance(done.exception, ConfigError)
    assert not path.exists()


def test_users_of_an_activemq_are_imported_with_hashes(path: Path, tmp_path: Path) -> None:
    users, groups = tmp_path / "users.properties", tmp_path / "groups.properties"
    users.write_text("system=manager\nguest=password\n")
    users.chmod(0o600)
    groups.write_text("admins=system\nusers=system, guest\n")
    run(path, "add", "alice", stdin="sesame\n")
    done = run(path, "import", "--users", str(users), "--groups", str(groups))
    assert done.exit_code == 0, done.output
    assert "'guest' is no member of users, because of the blank beside it" in done.output
    found = accounts(path)
    assert {name: sorted(each.user.groups) for name, each in found.items()} == {
        "alice": [], "guest": [], "system": ["admins", "users"],
    }  # fmt: skip
    assert isinstance(found["system"].verify("manager"), User)
    assert not hashes.is_weak(found["system"].secret)
    assert "manager" not in path.read_text()
    users.write_text("system=manager\nguest=other\n")
    done = run(path, "import", "--users", str(users), "--groups", str(groups))
    assert done.output.endswith("users.toml: imported 2 users, unchanged: 1\n")
    again = accounts(path)
    assert again["system"] == found["system"], "its clients stay connected"
    assert isinstance(again["guest"].verify("other"), User)
