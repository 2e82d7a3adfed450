"""Settings of an LDAP directory: URLs, and filters that no name can change."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.security.ldap_settings import LdapSettings, LdapUrl, checked_filter, filled, parse_urls


def test_urls_in_their_order() -> None:
    assert parse_urls("ldaps://a.example.org, ldap://[::1]:1389 LDAP://B") == (
        LdapUrl("ldaps", "a.example.org", 636),
        LdapUrl("ldap", "::1", 1389),
        LdapUrl("ldap", "b", 389),
    )
    assert [str(each) for each in parse_urls("ldap://[::1] ldaps://h:1")] == ["ldap://[::1]:389", "ldaps://h:1"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a.example.org",
        "http://a",
        "ldap://",
        "ldap://a/dc=x",
        "ldap://a?x",
        "ldap://u:p@a",
        "ldap://a:x",
        "ldap://[",
    ],
)
def test_what_is_no_url_of_a_server_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="ldaps://"):
        parse_urls(text)


def test_servers_without_tls() -> None:
    urls = parse_urls("ldap://a ldaps://b")
    settings = LdapSettings(connection_url=urls, connection_username="cn=x", user_base="dc=x")
    assert settings.clear_urls == []
    assert replace(settings, start_tls=False).clear_urls == [urls[0]]


@pytest.mark.parametrize("text", ["(uid=alice)", "uid={0}", "(uid={0}", "(uid={0})(x={2})", "(uid={1})", "(uid={0}{)"])
def test_what_is_no_filter_of_a_user_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a filter"):
        checked_filter(text)


def test_groups_may_be_found_by_name_alone() -> None:
    assert checked_filter("(memberUid={1})", needs="01") == "(memberUid={1})"


def test_each_placeholder_is_filled_once() -> None:
    assert (
        filled("(|(member={0})(memberUid={1}))", {"0": "cn={1}", "1": "*{0}"})
        == "(|(member=cn={1})(memberUid=\\2a{0}))"
    )


@given(st.text())
def test_a_name_cannot_change_a_filter(name: str) -> None:
    text = filled("(uid={0})", {"0": name, "1": name})
    assert text.startswith("(uid=")
    assert text.endswith(")")
    value = text[len("(uid=") : -1]
    assert not set(value) & set("*()\0")
    restored = value
    for code, character in (("\\2a", "*"), ("\\28", "("), ("\\29", ")"), ("\\00", "\0"), ("\\5c", "\\")):
        restored = restored.replace(code, character)
    assert restored == name
