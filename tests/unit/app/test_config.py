"""Settings: where they come from, and the errors."""

import pytest

from pybroker.broker.app import wiring
from pybroker.broker.app.config import SETTINGS, Config, load
from pybroker.broker.app.variables import unknown_variables
from pybroker.broker.domain.errors import ConfigError


def test_defaults_are_activemqs():
    config = load(None, {}, {})
    assert (config.bind, config.stomp, config.sync, config.lock) == ("127.0.0.1", 61613, "always", "file")
    assert config.journal_file_max == 32 << 20


def test_flags_win_over_the_environment_and_that_over_the_file(tmp_path):
    file = tmp_path / "pybroker.toml"
    file.write_text('stomp = 1\nname = "from-file"\njournal_file_max = "64mb"\nstop_timeout = 1.5\n')
    config = load(file, {"stomp": "3", "name": None}, {"PYBROKER_STOMP": "2", "PYBROKER_SYNC": "never"})
    assert (config.stomp, config.name, config.sync) == (3, "from-file", "never")
    assert (config.journal_file_max, config.stop_timeout) == (64 << 20, 1.5)


def test_unknown_variable_is_logged_with_the_closest_setting():
    names = (
        "PYBROKER_STOR",
        "PYBROKER_POLICIES",
        "PYBROKER_SERVICE_HOST",
        "PYBROKER_USER_FILE",
        "PYBROKER_STORE",
        "HOME",
    )
    others = ("PYBROKER_URL", "PYBROKER_USER", "PYBROKER_PASSWORD", "PYBROKER_LDAP_PASSWORD", "PYBROKER_TEST_SEED")
    assert unknown_variables(dict.fromkeys((*names, *others), "secret")) == [
        "PYBROKER_POLICIES: only a file can have it, see --config",
        "PYBROKER_SERVICE_HOST: there is no such setting",
        "PYBROKER_STOR: did you mean PYBROKER_STORE?",
        "PYBROKER_USER_FILE: did you mean PYBROKER_USERS_FILE?",
    ]


def test_create_store_is_no_setting_of_a_database():
    with pytest.raises(ConfigError, match="create_store goes with a store in a directory"):
        load(None, {"store": "postgresql://u@h/d", "create_store": "no"}, {})


def test_settings_are_frozen():
    with pytest.raises(AttributeError):
        load(None, {}, {}).stomp = 1


@pytest.mark.parametrize(("text", "port"), [("off", None), ("OFF", None), ("0", 0), ("65535", 65535), (1883, 1883)])
def test_ports(text, port):
    assert load(None, {"stomp": text}, {}).stomp == port


def test_other_listeners_are_off_without_a_port():
    def ports(flags):
        return {each.name: each.port for each in load(None, flags, {}).listeners}

    assert ports({}) == {"stomp": 61613, "openwire": 61616}
    none = {"stomp": "off", "openwire": "off"}
    assert ports(none) == {}
    tls = {"stomp_ssl": "0", "auto_ssl": 0, "tls_certificate": "c.pem"}
    assert ports(none | tls) == {"stomp_ssl": 0, "auto_ssl": 0}
    assert ports(none | {"ws": 61614, "ws_ssl": 0, "tls_certificate": "c.pem"}) == {"ws": 61614, "ws_ssl": 0}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"stomp": "65536"}, "--stomp: .*65535"),
        ({"stomp": "http"}, "--stomp: 'http' is neither a port number nor `off`"),
        ({"openwire": "tcp"}, "--openwire: 'tcp' is neither a port number nor `off`"),
        ({"auto": "http"}, "--auto: 'http' is neither a port number nor `off`"),
        ({"auto": "61613"}, "stomp and auto cannot both have port 61613"),
        ({"health": "61616"}, "openwire and health cannot both have port 61616"),
        ({"stomp_ssl": "61612"}, "stomp_ssl needs a certificate: set tls_certificate"),
        ({"auto_ssl": "0"}, "auto_ssl needs a certificate: set tls_certificate"),
        ({"ws_ssl": "0"}, "ws_ssl needs a certificate: set tls_certificate"),
        ({"websocket_origins": "app.example"}, "--websocket-origins: 'app.example' is no origin; write a comma list"),
        ({"tls_key": "k.pem"}, "tls_key, .* go with a tls_certificate"),
        ({"tls_client_ca": "a.pem"}, "tls_client_ca goes with a tls_certificate"),
        ({"tls_ciphers": "HIGH"}, "tls_ciphers goes with a tls_certificate"),
        ({"tls_client_auth": "want", "tls_certificate": "c.pem"}, "tls_client_auth = want goes with a tls_client_ca"),
        (
            {"tls_ciphers": "HIGH", "tls_certificate": "c.pem", "tls_version_min": "1.3"},
            "tls_ciphers goes with .* tls_version_min = 1.2",
        ),
        ({"tls_version_min": "1.1"}, "it must be '1.2' or '1.3'"),
        ({"connections_reserved": 1000}, "connections_reserved must be less than connections_max"),
        ({"connections_per_user": 5}, "connections_per_user goes with a users_file"),
        ({"proxy_protocol": "stomp"}, "proxy_protocol and proxy_networks go together"),
        ({"proxy_networks": "10.0.0.1"}, "proxy_protocol and proxy_networks go together"),
        ({"proxy_protocol": "stomp, mqtt", "proxy_networks": "10.0.0.1"}, "proxy_protocol: 'mqtt' is not an open port"),
        ({"proxy_protocol": "auto", "proxy_networks": "10.0.0.1"}, "'auto' is not an open port; open are stomp, openw"),
        ({"proxy_protocol": "stomp", "proxy_networks": "balancer"}, "proxy_networks: 'balancer' .* write for example"),
        ({"event_loop": "trio"}, "--event-loop: .*'auto', 'asyncio' or 'uvloop'"),
        ({"openwire_max_inactivity": "-1s"}, "--openwire-max-inactivity: '-1s' is not a duration"),
        ({"sync": "sometimes"}, "--sync: .*'always', 'periodic' or 'never'"),
        ({"journal_file_max": "64xb"}, "--journal-file-max: '64xb' is not a size"),
        ({"journal_file_max": "1kb"}, "--journal-file-max: it must be at least 1mb and at most 1gb"),
        ({"lock_check": "1y"}, "--lock-check: '1y' is not a duration"),
        ({"name": "../x"}, "--name: a name has"),
        ({"store": "redis://x"}, "--store: redis:// is not a store of this version"),
        ({"store": ""}, "--store: write a directory"),
        ({"max_redeliveries": "-2"}, "--max-redeliveries: it must be at least -1 and at most 1000000; given was '-2'"),
        ({"destination_purge_interval": "50ms"}, "destination_purge_interval must be 0, or at least 100ms"),
        ({"journal_batch_max": "2mb", "journal_file_max": "1mb"}, "journal_batch_max must not be larger"),
    ],
)
def test_an_error_names_the_flag_and_the_remedy(flags, message):
    with pytest.raises(ConfigError, match=message):
        load(None, flags, {})


def test_an_error_names_the_environment_variable():
    with pytest.raises(ConfigError, match=r"^PYBROKER_STOMP: "):
        load(None, {}, {"PYBROKER_STOMP": "x"})


def test_an_error_names_file_and_setting(tmp_path):
    file = tmp_path / "p.toml"
    file.write_text("stomp_port = 1")
    with pytest.raises(
        ConfigError, match=r"stomp_port \(in .*p.toml\): there is no such setting; did you mean stomp\?"
    ):
        load(file, {}, {})


@pytest.mark.parametrize("content", [b"stomp = ", b"\xff\xfe"])
def test_a_file_that_is_not_toml(tmp_path, content):
    file = tmp_path / "p.toml"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=r"--config: .*p.toml is not TOML"):
        load(file, {}, {})


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ConfigError, match="cannot read"):
        load(tmp_path / "missing.toml", {}, {})


def test_every_setting_has_a_description_and_a_valid_default():
    for name, setting in SETTINGS.items():
        assert setting.description, name
        assert setting.value(setting.default) == setting.default, name


# ---------------------------------------------------------------- a store in a database

DATABASE = "postgresql://u:s3cret@h:5432/d"


@pytest.mark.parametrize("scheme", ["postgresql", "postgres"])
def test_a_store_in_a_database_has_its_lock_there(scheme):
    url = f"{scheme}://u:s3cret@h/d"
    config = load(None, {"store": url}, {})
    assert (config.lock, config.lock_url) == ("postgres-row", url)
    assert "s3cret" not in repr(config)
    assert load(None, {"store": url}, {"PYBROKER_LOCK_URL": ""}).lock_url == url
    lease = load(None, {"store": url, "lock": "postgres-lease"}, {"PYBROKER_LOCK_URL": "postgresql://other@h/d?a=b"})
    assert (lease.lock, lease.lock_url) == ("postgres-lease", "postgresql://other@h/d?a=b")


@pytest.mark.parametrize("store", ["memori:", "Memory:", "postgresql:/u:s3cret@h/d", "file:/data"])
def test_store_with_an_unknown_scheme_is_refused(store):
    with pytest.raises(ConfigError, match=f"cannot begin with `{store.partition(':')[0]}:`") as caught:
        load(None, {"store": store}, {})
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("store", ["./memori:", "data:1", "/mnt/a:/b", "memory"])
def test_path_with_a_colon_is_a_store(store):
    assert load(None, {"store": store}, {}).store == store


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lock": "file"}, "leave it out, or write postgres-row"),
        ({"lock": "flock"}, "does not guard a store in a database"),
        ({"lock_url": "postgresql://u@h:5432/e"}, "two databases"),
        ({"lock_url": "postgresql://u@i:5432/d"}, "two databases"),
        ({"database_grace": "4600ms"}, "database_grace must be at most 4.5s"),
        ({"database_grace": "2s", "lock_lease": "3s"}, "database_grace must be at most 1.5s"),
        ({"store": "oracle://u:s3cret@h/d"}, "oracle:// is not a store"),
        ({"store": "dir", "database_grace": "1s"}, "goes with a store in a database"),
    ],
)
def test_what_does_not_go_with_a_database_is_refused(settings, message):
    with pytest.raises(ConfigError, match=message) as caught:
        load(None, {"store": DATABASE} | settings, {})
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "seconds"),
    [
        ({}, 4.5),
        ({"lock_lease": "30s"}, 15.0),
        ({"lock_lease": "6s", "lock_renew": "1s"}, 4.0),
        ({"database_grace": "0"}, 0.0),
        ({"database_grace": "2s"}, 2.0),
    ],
)
def test_the_grace_ends_before_another_may_have_the_lock(settings, seconds):
    config = load(None, {"store": DATABASE} | settings, {})
    assert wiring.grace_seconds(config) == pytest.approx(seconds)


def test_listeners_for_proxies_are_a_list():
    def proxied(**flags):
        return {each.name for each in load(None, {"auto": 0} | flags, {}).listeners if each.is_for_proxies}

    assert proxied(proxy_protocol="stomp , openwire,", proxy_networks="10.0.0.0/24") == {"stomp", "openwire"}
    assert proxied() == set()


@pytest.mark.parametrize(("name", "value"), [("anonymous_user", " x"), ("anonymous_groups", "a,b\a")])
def test_names_of_guests_are_checked(name, value):
    with pytest.raises(ConfigError, match=f"{name}: a name has 1 to 256 characters"):
        Config(**{name: value})


def test_the_groups_of_guests():
    assert Config(anonymous_groups="a, b,").guest.groups == {"a", "b"}
    assert Config(anonymous_groups="").guest.groups == frozenset()


@pytest.mark.parametrize("settings", [{}, {"users_file": "u.toml"}, {"users_file": "u.toml", "anonymous": "refused"}])
def test_refused_clients_may_be_guests_only_where_guests_may_be(settings):
    with pytest.raises(ConfigError, match="anonymous_if_refused goes with"):
        Config(anonymous_if_refused=True, **settings)
    assert Config(anonymous_if_refused=True, users_file="u.toml", anonymous="loopback").anonymous_if_refused


@pytest.mark.parametrize(("given", "expected"), [({}, 7.0), ({"destination_purge_interval": 0}, 0.0)])
def test_unused_destinations_are_looked_for_at_the_interval(given: dict[str, object], expected: float) -> None:
    assert Config(expire_interval="7s", **given).purge_interval == expected
    assert Config(expire_interval="7s", destination_purge_interval="2min").purge_interval == 120
