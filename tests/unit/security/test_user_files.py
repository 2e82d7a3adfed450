"""Files of users: pybroker's own, and ActiveMQ's."""

import os
import pwd
from pathlib import Path

import pytest

from pybroker.broker.domain.errors import ConfigError
from pybroker.broker.domain.security import User
from pybroker.security import files, hashes, users_properties, users_toml
from pybroker.security.accounts import Account, Accounts, Refusal

_HASH = "$argon2id$v=19$m=8,t=1,p=1$c2FsdHNhbHQ$bmMTsjxEFqRQzCsmKGWL2GIWIuj5W2tsrzhk2hOVGHU"


def toml(tmp_path: Path, text: str) -> Accounts:
    path = tmp_path / "users.toml"
    path.write_text(text)
    return users_toml.read(files.read(path, setting="users_file", has_passwords=False))


def properties(tmp_path: Path, users: str, groups: str | None = None) -> Accounts:
    contents = []
    for name, text in (("users", users), ("groups", groups)):
        path = tmp_path / f"{name}.properties"
        if text is not None:
            path.write_text(text)
            path.chmod(0o600)
        contents.append(None if text is None else files.read(path, setting="x", has_passwords=True))
    assert contents[0] is not None
    return users_properties.read(contents[0], contents[1], lambda text: {"c2VjcmV0": "secret"}[text])


class TestToml:
    def test_users_and_groups(self, tmp_path: Path) -> None:
        text = f'[users.a]\npassword = "{_HASH}"\ngroups = ["x", "y"]\n[users."b c"]\npassword = "{_HASH}"\n'
        accounts = toml(tmp_path, text).by_name
        assert {name: account.user for name, account in accounts.items()} == {
            "a": User("a", frozenset("xy")), "b c": User("b c"),
        }  # fmt: skip

    def test_what_was_written_is_read(self, tmp_path: Path) -> None:
        names = ("a", 'quo"te', "back\\slash", "ünï", "a.b")
        written = {name: Account(User(name, frozenset((name, "g"))), _HASH) for name in names}
        assert toml(tmp_path, users_toml.written(written)).by_name == written

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ("users = 1", "tables"),
            ("", "tables"),
            ("[other]", "tables"),
            ("[users.a", "no TOML"),
            ("x = " + "[" * 5000, "no TOML"),
            ("x = " + "1" * 5000, "no TOML"),
            ("[users.a]", "has no `password`"),
            ('[users.a]\npassword = "secret"', "is no hash"),
            (f'[users.a]\npassword = "{_HASH}"\ngroups = "x"', "list of names"),
            (f'[users.a]\npassword = "{_HASH}"\ngroup = ["x"]', "nothing else"),
            (f'[users." a"]\npassword = "{_HASH}"', "a name has"),
            (f'[users.a]\npassword = "{_HASH}"\ngroups = [""]', "a name has"),
        ],
    )
    def test_a_file_that_cannot_be_used(self, tmp_path: Path, text: str, reason: str) -> None:
        with pytest.raises(ConfigError, match=reason) as refused:
            toml(tmp_path, text)
        assert str(tmp_path / "users.toml") in str(refused.value)
        assert "secret" not in str(refused.value)


class TestProperties:
    def test_users_and_groups(self, tmp_path: Path) -> None:
        accounts = properties(tmp_path, "a=secret\nb=ENC(c2VjcmV0)\nc=x ", "g=a,b\nh=b")
        assert [account.user for account in accounts.by_name.values()] == [
            User("a", frozenset("g")), User("b", frozenset("gh")), User("c"),
        ]  # fmt: skip
        assert accounts.by_name["a"].verify("secret") == User("a", frozenset("g"))
        assert accounts.by_name["b"].verify("secret") == User("b", frozenset("gh"))
        assert accounts.by_name["c"].verify("x ") == User("c")
        assert accounts.by_name["c"].verify("x") == Refusal("wrong password")
        assert accounts.by_name["c"].verify("") == Refusal("wrong password")
        assert "secret" not in repr(accounts)

    def test_a_byte_order_mark_is_no_part_of_a_name(self, tmp_path: Path) -> None:
        (tmp_path / "u.properties").write_bytes(b"\xef\xbb\xbfa=secret")
        content = files.read(tmp_path / "u.properties", setting="x", has_passwords=False)
        assert list(users_properties.read(content, None, str).by_name) == ["a"]

    def test_members_are_not_trimmed_and_that_is_told(self, tmp_path: Path) -> None:
        accounts = properties(tmp_path, "u=1\nsystem=2", "trim=system, u")
        assert accounts.by_name["u"].user.groups == frozenset()
        assert accounts.warnings == (
            f"{tmp_path}/groups.properties, line 1: 'u' is no member of trim, because of the blank beside it",
        )

    def test_what_is_most_likely_a_slip_is_told(self, tmp_path: Path) -> None:
        accounts = properties(tmp_path, "u=1 \nv=ENC(c2VjcmV0) ", "g=u,bobb,\nh=v,anna,bobb")
        assert accounts.warnings == (
            f"{tmp_path}/groups.properties has members who are no users of {tmp_path}/users.properties: 'anna', 'bobb'",
            f"{tmp_path}/users.properties, line 1: the password of 'u' ends with a blank, which belongs to it",
        )
        assert accounts.by_name["v"].verify("secret") == User("v", frozenset("h"))
        members = ",".join(f"m{number}" for number in range(30))
        assert properties(tmp_path, "u=1", f"g={members}").warnings[0].endswith("'m25', 'm26', …")

    @pytest.mark.parametrize(
        ("users", "reason"),
        [
            ("", "has no users"),
            ("a=\n", "line 1: user 'a' has no password"),
            ("a=b\nc=\\u1", "line 2"),
            ("a=ENC(x)", "does not decrypt"),
        ],
    )
    def test_a_file_that_cannot_be_used(self, tmp_path: Path, users: str, reason: str) -> None:
        def fail(text: str) -> str:
            raise ValueError("cut off")

        path = tmp_path / "users.properties"
        path.write_text(users)
        path.chmod(0o600)
        with pytest.raises(ConfigError, match=reason):
            users_properties.read(files.read(path, setting="users_file", has_passwords=True), None, fail)


class TestPermissions:
    def test_passwords_in_clear_are_for_their_owner_alone(self, tmp_path: Path) -> None:
        path = tmp_path / "users.properties"
        path.write_text("a=b")
        for mode in (0o640, 0o604):
            path.chmod(mode)
            with pytest.raises(ConfigError, match="chmod 600"):
                files.read(path, setting="users_file", has_passwords=True)
        path.chmod(0o600)
        assert files.read(path, setting="users_file", has_passwords=True).data == b"a=b"

    def test_owner_of_passwords_in_clear_is_named(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A file of root that root alone may read would keep an ActiveMQ out that runs as another user."""
        path = tmp_path / "users.properties"
        path.write_text("a=b")
        path.chmod(0o644)
        owner = pwd.getpwuid(path.stat().st_uid).pw_name
        belongs = "once it belongs to the user that the brokers run as: its owner is"
        with pytest.raises(ConfigError, match=f"chmod 600 {path}, {belongs} {owner}$"):
            files.read(path, setting="users_file", has_passwords=True)

        def unknown(_user: int) -> None:
            raise KeyError

        monkeypatch.setattr(pwd, "getpwuid", unknown)
        with pytest.raises(ConfigError, match=f"{belongs} user {path.stat().st_uid}$"):
            files.read(path, setting="users_file", has_passwords=True)

    def test_a_file_that_others_may_change_gets_a_warning(self, tmp_path: Path) -> None:
        path = tmp_path / "users.toml"
        path.write_text("")
        path.chmod(0o666)
        assert "chmod go-w" in files.read(path, setting="users_file", has_passwords=False).warnings[0]
        path.chmod(0o644)
        assert not files.read(path, setting="users_file", has_passwords=False).warnings

    def test_a_file_that_is_missing(self, tmp_path: Path) -> None:
        with pytest.raises(
            ConfigError,
            match=r"users\.toml cannot be read: No such file .*; create it with `pybroker user add NAME --file ",
        ):
            files.read(tmp_path / "users.toml", setting="users_file", has_passwords=False)

    @pytest.mark.timeout(20)  # instead of waiting for ever
    def test_a_fifo_is_refused(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "users.toml")
        with pytest.raises(ConfigError, match=r"users\.toml cannot be read: it is no regular file"):
            files.read(tmp_path / "users.toml", setting="users_file", has_passwords=False)

    def test_a_change_changes_the_stamp(self, tmp_path: Path) -> None:
        path = tmp_path / "users.toml"
        assert files.stamp(path) is None
        path.write_text("a")
        before = files.stamp(path)
        other = tmp_path / "other"
        other.write_text("b")
        os.utime(other, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
        other.replace(path)
        assert files.stamp(path) not in (None, before), "of the same size and time"


def test_hashes_of_the_file_are_those_that_are_verified() -> None:
    assert Account(User("a"), hashes.DUMMY).verify("x") == Refusal("wrong password")
