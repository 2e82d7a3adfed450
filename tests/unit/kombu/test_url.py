"""URLs of Kombu as URIs of the client, with every password hidden in logs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.client import UnusableURI
from pybroker.client.uri import parse as parse_uri
from pybroker.kombu.options import OPTION_NAMES, KombuOptions, parse_options
from pybroker.kombu.url import masked, parse, url_of


@pytest.mark.parametrize(
    ("urls", "uri"),
    [
        (["activemq://"], "failover:(tcp://localhost:61616)"),
        (["activemq://a"], "failover:(tcp://a:61616)"),
        (["activemq://a//"], "failover:(tcp://a:61616)"),
        (["activemq://u:p@a:1,b:2/"], "failover:(tcp://a:1,tcp://b:2)"),
        (["activemq://u:p@a:1", "activemq://u:p@b"], "failover:(tcp://a:1,tcp://b:61616)"),
        (["activemq://a:1,b:2,"], "failover:(tcp://a:1,tcp://b:2)"),
        (["activemq://a", "activemq://a"], "failover:(tcp://a:61616)"),
        (["activemq://[::1]:5,[::2]"], "failover:(tcp://[::1]:5,tcp://[::2]:61616)"),
        (["activemq+ssl://a"], "failover:(ssl://a:61617)"),
        (["ssl://a"], "failover:(ssl://a:61617)"),
        (["activemq://a/?randomize=false&timeout=9000"], "failover:(tcp://a:61616)?randomize=false&timeout=9000"),
        (["activemq://a/?prefetch=5&timeout=9"], "failover:(tcp://a:61616)?timeout=9"),
        (["failover:(tcp://a:1,tcp://b:2)?timeout=9"], "failover:(tcp://a:1,tcp://b:2)?timeout=9"),
        (["activemq+failover:(tcp://a:1)?prefetch=5"], "failover:(tcp://a:1)"),
        (["failover:(tcp://a:1?keepAlive=true)"], "failover:(tcp://a:1?keepAlive=true)"),
    ],
)
def test_a_url_becomes_a_uri(urls, uri):
    url = parse(urls, own_options=OPTION_NAMES)
    assert url.uri == uri
    parse_uri(uri)


def test_user_and_password_are_decoded():
    url = parse(["activemq://shop:p%40%2Fw@a"])
    assert (url.user, url.password) == ("shop", "p@/w")


def test_celerys_setting_turns_tls_on():
    assert parse(["activemq://a"], ssl=True).uri == "failover:(ssl://a:61617)"


@pytest.mark.parametrize(
    "urls",
    [
        ["redis://a"],
        ["activemq://a/vhost"],
        ["activemq://u:p@a", "activemq://v:p@b"],
        ["activemq://a", "failover:(tcp://b:1)"],
    ],
)
def test_an_impossible_url_is_refused(urls):
    with pytest.raises(UnusableURI):
        parse(urls)


@given(st.text(st.characters(codec="ascii"), min_size=1), st.text(st.characters(codec="ascii"), min_size=1))
def test_any_user_and_password_come_back(user, password):
    url = url_of("a", 1, user, password)
    parsed = parse([url])
    assert (parsed.user, parsed.password) == (user, password)
    assert masked(url).endswith(":**@a:1/")


def test_every_password_is_masked():
    text = "activemq://u:secret@a:1,b:2/;activemq://u:secret@c"
    assert masked(text) == "activemq://u:**@a:1,b:2/;activemq://u:**@c"
    assert masked("activemq://a:61616,b:61616/") == "activemq://a:61616,b:61616/"


def test_options_of_the_query_come_first():
    options = parse_options({"prefetch": 7, "scheduled_eta": True, "max_retries": 3}, {"prefetch": "9"})
    assert options == KombuOptions(prefetch=9, scheduled_eta=True)


@pytest.mark.parametrize(
    "query",
    [{"prefetch": "0"}, {"prefetch": "x"}, {"transient_ttl": "-1"}, {"transient_ttl": "inf"}, {"scheduled_eta": "yes"}],
)
def test_an_impossible_option_is_refused(query):
    with pytest.raises(UnusableURI, match=next(iter(query))):
        parse_options({}, query)


@pytest.mark.parametrize("name", ["schedule_eta", "scheduledETA", "prefech"])
def test_a_misspelt_option_is_refused_with_the_right_name(name):
    meant = "prefetch" if name == "prefech" else "scheduled_eta"
    with pytest.raises(UnusableURI, match=rf"no such option: {name} \(did you mean {meant}\?"):
        parse_options({name: "true", "visibility_timeout": 10}, {})


@pytest.mark.parametrize("url", ["activemq://a/?schedule_eta=true", "failover:(tcp://a:1)?schedule_eta=true"])
def test_a_misspelt_option_of_a_url_is_the_transports(url):
    parsed = parse([url], own_options=OPTION_NAMES)
    assert parsed.options == {"schedule_eta": "true"}
    assert "eta" not in parsed.uri


@pytest.mark.parametrize("password", ["p/w0rd", "p?w0rd", "p@/w0rd", "p#w0rd", "a;w0rd"])
def test_password_that_is_not_encoded_is_masked(password: str) -> None:
    assert "w0rd" not in masked(f"activemq://u:{password}@host")


@pytest.mark.parametrize("password", ["p/w0rd", "p?w0rd", "p@/w0rd"])
def test_error_of_a_password_that_is_not_encoded_does_not_show_it(password: str) -> None:
    with pytest.raises(UnusableURI) as caught:
        parse([f"activemq://u:{password}@host"])
    assert "w0rd" not in str(caught.value)
    assert "%2F" in str(caught.value)


@pytest.mark.parametrize("url", ["activemq://h:61616x", "activemq://a,b:port/", "activemq://user:w0rd"])
def test_a_port_is_a_number(url: str) -> None:
    with pytest.raises(UnusableURI, match="a port is no number") as caught:
        parse([url])
    assert "w0rd" not in str(caught.value)


def test_passwords_of_several_urls_are_masked() -> None:
    assert masked("activemq://u:secret@a;activemq+ssl://u:secret@b:1/?c=d") == (
        "activemq://u:**@a;activemq+ssl://u:**@b:1/?c=d"
    )
