"""The table `[ldap]`, and the password as which the broker searches."""

import sys
from pathlib import Path

import pytest

from pybroker.broker.app import preflight, wiring
from pybroker.broker.app.config import Config, load
from pybroker.broker.app.directory import PASSWORD_VARIABLE, read_password
from pybroker.broker.app.variables import unknown_variables
from pybroker.broker.domain.errors import ConfigError
from pybroker.security.anonymous import AnonymousPolicy
from pybroker.security.ldap_settings import LdapSettings, LdapUrl

TABLE = {
    "connection_url": "ldaps://ldap.example.org",
    "connection_username": "cn=pybroker,dc=example,dc=org",
    "user_base": "ou=people,dc=example,dc=org",
}


def test_settings_have_the_defaults_of_activemq() -> None:
    assert Config(ldap=TABLE).ldap == LdapSettings(
        connection_url=(LdapUrl("ldaps", "ldap.example.org", 636),),
        connection_username="cn=pybroker,dc=example,dc=org",
        user_base="ou=people,dc=example,dc=org",
        user_search_matching="(uid={0})",
        user_search_subtree=False,
        role_search_subtree=False,
        expand_roles=False,
    )


def test_a_directory_has_users() -> None:
    assert Config(ldap=TABLE).anonymous_policy is AnonymousPolicy.REFUSED
    assert Config(ldap=TABLE, anonymous="refused").has_passwords


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"user_base": 1}, "ldap.user_base: 1 is not text"),
        ({"connection_username": ""}, "ldap.connection_username: .*empty"),
        ({"connection_url": "http://x"}, "ldap.connection_url: 'http://x' is no URL"),
        ({"user_search_matching": "(uid=x)"}, r"ldap.user_search_matching: a filter has \{0\}"),
        ({"userSearchMatching": "(uid={0})"}, "ldap.userSearchMatching: .*did you mean user_search_matching"),
        ({"connection_password": "hidden"}, "ldap.connection_password: .*did you mean connection_password_file"),
        ({"authentication": "simple"}, "ldap.authentication: .*leave it out"),
        ({"timeout": "0s"}, "ldap.timeout: it must be at least"),
    ],
)
def test_an_error_names_the_attribute_and_the_remedy(table: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        Config(ldap=TABLE | table)
    assert "hidden" not in str(error.value)


def test_a_table_that_lacks_an_attribute(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text('[ldap]\nconnection_url = "ldaps://x"\n')
    with pytest.raises(ConfigError, match=r"ldap.connection_username: it must be set"):
        load(file, {}, {})


class TestPassword:
    def test_from_a_file_without_its_line_end(self, tmp_path: Path) -> None:
        file = tmp_path / "password"
        file.write_text("open sesame \n")
        file.chmod(0o600)
        assert read_password(file) == "open sesame "

    def test_from_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(PASSWORD_VARIABLE, "sesame")
        assert read_password(None) == "sesame"
        assert unknown_variables({PASSWORD_VARIABLE: "x"}) == []

    def test_none(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.delenv(PASSWORD_VARIABLE, raising=False)
        with pytest.raises(ConfigError, match=f"ldap.connection_password_file: .*{PASSWORD_VARIABLE}"):
            read_password(None)
        with pytest.raises(ConfigError, match="cannot be read"):
            read_password(tmp_path / "missing")

    @pytest.mark.parametrize(
        ("content", "mode", "message"),
        [(b"x", 0o644, "chmod 600"), (b"\n", 0o600, "is empty"), (b"\xff", 0o600, "UTF-8")],
    )
    def test_a_file_that_cannot_be_used(self, tmp_path: Path, content: bytes, mode: int, message: str) -> None:
        file = tmp_path / "password"
        file.write_bytes(content)
        file.chmod(mode)
        with pytest.raises(ConfigError, match=message):
            read_password(file)


class TestPreflight:
    @pytest.fixture(autouse=True)
    def password(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(PASSWORD_VARIABLE, "sesame")

    def check(self, **table: object) -> None:
        preflight.check(Config(store="memory:", stomp="off", openwire="off", ldap=TABLE | table))

    def test_a_filter_that_does_not_parse(self) -> None:
        with pytest.raises(ConfigError, match=r"ldap\.role_search_matching: .* is no filter"):
            self.check(role_search_matching="(&)(member={0})")

    @pytest.mark.parametrize("content", [None, "no PEM"])
    def test_authorities_that_cannot_be_used(self, tmp_path: Path, content: str | None) -> None:
        file = tmp_path / "authorities.pem"
        if content is not None:
            file.write_text(content)
        with pytest.raises(ConfigError, match=r"ldap.tls_ca: .*authorities.pem cannot be used: .*; name a PEM file"):
            self.check(tls_ca=str(file))

    def test_servers_that_are_away_end_no_start(self) -> None:
        self.check(connection_url="ldap://127.0.0.1:1")

    def test_passwords_in_clear_are_warned_of(self, caplog: pytest.LogCaptureFixture) -> None:
        self.check(connection_url="ldap://127.0.0.1", start_tls=False)
        self.check(connection_url="ldap://ldap.example.org")
        assert not caplog.records
        self.check(connection_url="ldap://ldap.example.org", start_tls=False)
        assert "passwords cross the network in clear to ldap://ldap.example.org:389: set start_tls" in caplog.text

    def test_without_ldap3_the_error_names_the_extra(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in [name for name in sys.modules if name.startswith("pybroker.security.ldap")]:
            if not name.endswith("settings"):
                monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, "ldap3", None)
        with pytest.raises(
            ConfigError, match=r"ldap: .*needs ldap3, which is not installed; pip install ldap3.*`ldap`"
        ):
            wiring.make_directory(Config(ldap=TABLE).ldap)  # type: ignore[arg-type]
