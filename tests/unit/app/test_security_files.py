"""The files of users and of rules, read again when they change."""

import asyncio
import errno
import os
from pathlib import Path
from typing import NoReturn

import pytest

from pybroker.broker.app import security_files
from pybroker.broker.app.config import Config
from pybroker.broker.app.security_files import SecurityFiles, WatchedFiles
from pybroker.broker.domain.errors import ConfigError
from pybroker.broker.domain.security import User
from pybroker.security import users_properties
from pybroker.security.accounts import Accounts
from pybroker.security.anonymous import AnonymousPolicy


def _too_many_files(*_: object, **__: object) -> NoReturn:
    raise OSError(errno.EMFILE, "Too many open files")


@pytest.fixture
def config(tmp_path: Path) -> Config:
    users, groups = tmp_path / "users.properties", tmp_path / "groups.properties"
    users.write_text("a=1\n")
    users.chmod(0o600)
    groups.write_text("g=a\n")
    return Config(users_file=str(users), groups_file=str(groups))


def users_of(config: Config) -> WatchedFiles[Accounts]:
    users = SecurityFiles(config).users
    assert users is not None
    return users


def test_a_change_of_either_file_is_seen_once(config: Config, tmp_path: Path) -> None:
    files = users_of(config)
    assert files.refresh() is None
    (tmp_path / "groups.properties").write_text("g=a\nother=a\n")
    assert files.refresh() is None, "it may be written still"
    accounts = files.refresh()
    assert accounts is not None
    assert sorted(accounts.by_name["a"].user.groups) == ["g", "other"]
    assert files.content is accounts
    assert files.refresh() is None
    (tmp_path / "users.properties").write_text("a=1\nbb=2\n")
    assert [files.refresh() is None for _ in range(3)] == [True, False, True]
    assert list(files.content.by_name) == ["a", "bb"]


def test_a_file_that_is_written_is_not_read_before_it_stays_the_same(config: Config, tmp_path: Path) -> None:
    files = users_of(config)
    for text in ("", "a=1", "a=123", "a=12345\nb=2\n"):
        (tmp_path / "users.properties").write_text(text)
        assert files.refresh() is None
        assert list(files.content.by_name) == ["a"]
    assert files.refresh() is not None


def test_a_file_that_cannot_be_used_leaves_the_former_users(
    config: Config, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = users_of(config)
    path = tmp_path / "users.properties"
    for break_it in (
        lambda: path.write_text("a=\n"),
        lambda: path.write_text(""),
        lambda: path.chmod(0o644),
        path.unlink,
    ):
        break_it()
        caplog.clear()
        for _ in range(4):
            assert files.refresh() is None
        assert [each.getMessage()[:29] for each in caplog.records] == ["the users stay as they were: "], "said once"
    assert list(files.content.by_name) == ["a"]


def test_what_cannot_be_read_for_a_while_is_read_later(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = users_of(config)
    (tmp_path / "users.properties").write_text("a=1\nbb=2\n")
    files.refresh()
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", _too_many_files)
        assert files.refresh() is None
    assert files.refresh() is not None, "though the file has not changed since"


def test_a_bug_in_a_reader_leaves_the_former_users(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    files = users_of(config)
    (tmp_path / "users.properties").write_text("a=1\nbb=2\n")
    monkeypatch.setattr(users_properties, "read", lambda *_: 1 // 0)
    assert [files.refresh() for _ in range(3)] == [None, None, None]
    assert "ZeroDivisionError" in caplog.text


def test_watching_reports_changes_on_the_event_loop(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(security_files, "POLL_SECONDS", 0.001)

    async def watch() -> list[str]:
        files, changed = users_of(config), asyncio.get_running_loop().create_future()
        files.changed = changed.set_result
        watching = asyncio.create_task(files.watch())
        (tmp_path / "users.properties").write_text("a=1\nbb=2\n")
        accounts = await asyncio.wait_for(changed, 10)
        watching.cancel()
        return list(accounts.by_name)

    assert asyncio.run(watch()) == ["a", "bb"]


def test_encrypted_passwords(config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "users.properties").write_text("system=ENC(mYRkg+4Q4hua1kvpCCI2hg==)\n")
    monkeypatch.delenv("ACTIVEMQ_ENCRYPTION_PASSWORD", raising=False)
    with pytest.raises(ConfigError, match=r"line 1: .*'system' does not decrypt: .* no ACTIVEMQ_ENCRYPTION_PASSWORD"):
        users_of(config)
    monkeypatch.setenv("ACTIVEMQ_ENCRYPTION_PASSWORD", "wrong")
    with pytest.raises(ConfigError, match="another master password"):
        users_of(config)
    monkeypatch.setenv("ACTIVEMQ_ENCRYPTION_PASSWORD", "activemq")
    assert isinstance(users_of(config).content.by_name["system"].verify("manager"), User)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"groups_file": "g.properties"}, "goes with a users_file"),
        ({"anonymous": "refused"}, "goes with a users_file"),
        ({"users_file": "users.txt"}, "must end in .toml or .properties"),
        ({"users_file": "users.toml", "groups_file": "g.properties"}, "has the groups itself"),
        ({"anonymous": "sometimes"}, "anonymous"),
    ],
)
def test_settings_that_do_not_fit(given: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        Config(**given)


def test_who_may_come_without_a_login_by_default() -> None:
    assert Config().anonymous_policy is AnonymousPolicy.LOOPBACK
    assert Config(users_file="users.toml").anonymous_policy is AnonymousPolicy.REFUSED
    assert Config(users_file="users.toml", anonymous="loopback").anonymous_policy is AnonymousPolicy.LOOPBACK


def test_a_user_who_is_called_as_clients_without_a_login_are_is_told(
    config: Config, caplog: pytest.LogCaptureFixture
) -> None:
    given = {"users_file": config.users_file, "anonymous_user": "a"}
    SecurityFiles(Config(**given))
    assert caplog.messages == [], "there are no such clients"
    SecurityFiles(Config(**given, anonymous="everywhere"))
    assert caplog.messages == [
        f"{config.users_file} has a user 'a', as clients without a login are called: set anonymous_user"
    ]


RULES = """
[[rules]]
queue = "A.>"
read = ["g", "misspelt"]
"""


def test_rules_are_read_again(config: Config, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(RULES)
    rules = SecurityFiles(Config(users_file=config.users_file, groups_file=config.groups_file, rules_file=path)).rules
    assert rules is not None
    assert [each.pattern.name for each in rules.content.rules] == ["A.>"]
    assert "gives rights to groups to which no user belongs: 'misspelt'" in caplog.text
    assert "'g'" not in caplog.text
    path.write_text("[[rules]]\nqueue = 1\n")
    assert [rules.refresh() for _ in range(3)] == [None, None, None]
    assert "the rules stay as they were" in caplog.text
    path.write_text('[default]\nread = ["g"]\n')
    assert rules.refresh() is None
    changed = rules.refresh()
    assert changed is not None
    assert changed.default.read == {"g"}


def test_a_file_that_is_as_before_can_be_used_again(
    config: Config, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    files = users_of(config)
    path = tmp_path / "users.properties"
    for text in ("a=\n", "a=1\n"):
        path.write_text(text)
        assert [files.refresh() for _ in range(3)] == [None, None, None]
    assert [each.getMessage() for each in caplog.records][-1] == f"{path} can be used again: the users are as they were"
