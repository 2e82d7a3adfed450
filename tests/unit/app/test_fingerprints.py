"""Digests by which members agree: which settings count, and that no password can be found by them."""

from pathlib import Path
from typing import Any

import pytest

from pybroker.broker.app.config import SETTINGS, Config
from pybroker.broker.app.fingerprints import SecurityDigests, differing, must_agree, settings_digests
from pybroker.broker.app.security_files import SecurityFiles

FILES = {
    "users.properties": "shop=secret\nclerk=other\n",
    "groups.properties": "clerks=clerk\nshops=shop\n",
    "rules.toml": '[[rules]]\nqueue = "A"\nread = ["clerks", "shops"]\nwrite = ["clerks"]\nadmin = ["clerks"]\n',
}


def digests(tmp_path: Path, **files: str) -> dict[str, str]:
    """Return the digests of users and rules, with other contents of some files."""
    for name, content in (FILES | {name.replace("_", "."): text for name, text in files.items()}).items():
        (tmp_path / name).write_text(content)
        (tmp_path / name).chmod(0o600)
    config = Config(
        users_file=tmp_path / "users.properties",
        groups_file=tmp_path / "groups.properties",
        rules_file=tmp_path / "rules.toml",
    )
    return SecurityDigests(SecurityFiles(config)).digests()


def test_members_with_the_same_settings_agree_whatever_is_their_own() -> None:
    own = settings_digests(Config(name="a", bind="10.0.0.1", stomp=1, log_level="debug", tls_key=None, jobs_max="7"))
    assert own.keys() == {"jobs_max"}
    assert differing(own, settings_digests(Config(store="/other", openwire="off", jobs_max=7))) == []


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("max_redeliveries", 3),
        ("policies", [{"queue": "A", "prioritized_messages": True}]),
        ("sync", "never"),
        ("broker_name", "other"),
        ("store_limit", "1GB"),
        ("composite_queues", [{"name": "A", "forward_to": [{"queue": "B"}]}]),
        ("scheduler", False),
    ],
)
def test_a_setting_that_differs_is_named(setting: str, value: Any) -> None:
    assert differing(settings_digests(Config(**{setting: value})), settings_digests(Config())) == [setting]


def test_a_default_that_is_written_down_is_no_difference() -> None:
    assert settings_digests(Config(max_redeliveries="6", sync="always")) == {}


def test_secrets_paths_and_ports_have_no_digest() -> None:
    left_out = {name for name in SETTINGS if not must_agree(name)}
    assert {name for name, each in SETTINGS.items() if each.is_secret} <= left_out
    assert {"store", "name", "bind", "stomp", "health", "tls_key_password_file", "users_file", "lock_url"} <= left_out


def test_ldap_counts_without_the_place_of_its_password() -> None:
    ldap = {"connection_url": "ldaps://ldap", "connection_username": "cn=x", "user_base": "ou=u",
            "user_search_matching": "(uid={0})", "role_base": "ou=g"}  # fmt: skip
    one = settings_digests(Config(ldap=ldap | {"connection_password_file": "/etc/one"}))
    assert one == settings_digests(Config(ldap=ldap | {"connection_password_file": "/etc/two"}))
    assert differing(one, settings_digests(Config(ldap=ldap | {"user_base": "ou=other"}))) == ["ldap"]


def test_networks_count_without_passwords_and_places_of_files() -> None:
    uri = "ssl://other:61617"
    own = settings_digests(Config(network=[{"uri": uri, "password": "one", "tls_ca": "/a/ca.pem"}]))
    same = settings_digests(Config(network=[{"uri": uri, "password": "two", "tls_ca": "/b/ca.pem"}]))
    assert own.keys() == {"network"}
    assert differing(own, same) == []
    assert differing(own, settings_digests(Config(network=[{"uri": uri, "network_ttl": 2}]))) == ["network"]


def test_users_and_rules_count_by_their_meaning(tmp_path: Path) -> None:
    before = digests(tmp_path)
    assert before.keys() == {"users", "rules"}
    assert digests(tmp_path, users_properties="# in another order\nclerk=other\nshop=secret\n") == before
    assert differing(before, digests(tmp_path, users_properties="shop=secret\nclerk=other\nnew=x\n")) == ["users"]
    assert differing(before, digests(tmp_path, groups_properties="clerks=clerk,shop\n")) == ["users"]
    wider = FILES["rules.toml"].replace('read = ["clerks", "shops"]', 'read = ["*"]')
    assert differing(before, digests(tmp_path, rules_toml=wider)) == ["rules"]


def test_a_password_in_clear_does_not_count(tmp_path: Path) -> None:
    """Else it could be guessed from the digest."""
    before = digests(tmp_path)
    assert digests(tmp_path, users_properties="shop=another\nclerk=other\n") == before


def test_digests_are_the_same_in_each_process(tmp_path: Path) -> None:
    """Sets have another order in each."""
    assert digests(tmp_path)["rules"] == "95590b88"


def test_digests_follow_what_is_read_again(tmp_path: Path) -> None:
    digests(tmp_path)
    config = Config(users_file=tmp_path / "users.properties", groups_file=tmp_path / "groups.properties")
    security = SecurityFiles(config)
    made = SecurityDigests(security)
    before = made.digests()
    assert made.digests() == before
    (tmp_path / "groups.properties").write_text("others=shop\n")
    assert security.users is not None
    security.users.refresh()
    security.users.refresh()
    assert differing(before, made.digests()) == ["users"]
