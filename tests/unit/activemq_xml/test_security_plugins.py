"""The plugins that log clients in and check their rights."""

import pytest

from pybroker.activemq_xml import authorization, schema, security_plugins, tls_stores
from pybroker.activemq_xml.findings import FindingKind
from pybroker.activemq_xml.protection import ConfiguredGrants, ConfiguredRights, ConfiguredRule, ConfiguredUser
from pybroker.activemq_xml.reading import Reading, Rules
from tests.unit.activemq_xml.reading_bench import CONNECTORS, of_broker, places, reasons

ONE_USER = (
    '<simpleAuthenticationPlugin><users><authenticationUser username="u" password="p"/></users>'
    "</simpleAuthenticationPlugin>"
)


def plugins(content: str, connectors: str = CONNECTORS, **given: object) -> Reading:
    return of_broker("", f"<plugins>{content}</plugins>{connectors}", **given)


def users(*attributes: str, plugin: str = "") -> Reading:
    elements = "".join(f"<authenticationUser {each}/>" for each in attributes)
    return plugins(f"<simpleAuthenticationPlugin {plugin}><users>{elements}</users></simpleAuthenticationPlugin>")


def rights(content: str, attributes: str = "") -> Reading:
    return plugins(
        f"{ONE_USER}<authorizationPlugin><map><authorizationMap {attributes}>{content}</authorizationMap></map>"
        "</authorizationPlugin>"
    )


def entries(*attributes: str) -> Reading:
    elements = "".join(f"<authorizationEntry {each}/>" for each in attributes)
    return rights(f"<authorizationEntries>{elements}</authorizationEntries>")


class TestUsers:
    def test_users_have_groups_and_passwords_that_are_not_shown(self) -> None:
        reading = users('username="a" password="s3cret" groups=" x , y,,x"', 'username="b" password="p"')
        assert reading.protection.users == (
            ConfiguredUser(name="a", password="s3cret", groups=frozenset("xy")),
            ConfiguredUser(name="b", password="p", groups=frozenset()),
        )
        assert "s3cret" not in repr(reading.protection) + repr(reading)
        assert places(reading, FindingKind.WARNING) == ["authenticationUser@password"]
        assert reasons(reading) == []
        assert "anonymous" not in reading.settings

    def test_the_last_user_of_a_name_counts(self) -> None:
        reading = users('username="a" password="1"', 'username="a" password="2"')
        assert [each.password for each in reading.protection.users or ()] == ["2"]

    def test_a_user_who_cannot_log_in_is_left_out(self) -> None:
        reading = users('username="a"', 'password="p"')
        assert reading.protection.users == ()
        assert places(reading, FindingKind.WARNING) == ["authenticationUser"] * 2

    @pytest.mark.parametrize(
        ("attributes", "at"),
        [
            ('username="a" password=""', "authenticationUser@password"),
            ('username=" a" password="p"', "authenticationUser"),
            ('username="a" password="p" groups="a&#x85;b"', "authenticationUser"),
        ],
    )
    def test_a_user_that_pybroker_cannot_have_is_refused(self, attributes: str, at: str) -> None:
        assert places(users(attributes), FindingKind.REFUSED) == [at]

    def test_clients_without_a_login(self) -> None:
        reading = users(plugin='anonymousAccessAllowed="true"')
        names = ("anonymous", "anonymous_user", "anonymous_groups")
        assert [reading.settings[name] for name in names] == ["everywhere", "anonymous", "anonymous"]
        reading = users(plugin='anonymousAccessAllowed="true" anonymousUser="x" anonymousGroup="g"')
        assert [reading.settings[name] for name in names] == ["everywhere", "x", "g"]
        assert "anonymous" not in users(plugin='anonymousUser="x"').settings
        assert reasons(users(plugin='anonymousAccessAllowed="true" anonymousGroup="a,b"')) != []

    def test_a_second_plugin_that_logs_clients_in_is_refused(self) -> None:
        assert places(plugins(ONE_USER + "<jaasAuthenticationPlugin/>"), FindingKind.REFUSED) == [
            "jaasAuthenticationPlugin"
        ]

    def test_maps_of_java_are_refused(self) -> None:
        found = places(users(plugin='userPasswords="#a"'), FindingKind.REFUSED)
        assert found == ["simpleAuthenticationPlugin@userPasswords"]


class TestRights:
    def test_entries_are_rules(self) -> None:
        reading = entries(
            'queue="A.&gt;" read="r, s" write="w" admin="*"', 'topic="T" read="r"', 'destination="queue://Q" admin="a"'
        )
        assert reading.protection.rights == ConfiguredRights(
            rules=(
                ConfiguredRule(
                    kind="queue",
                    pattern="A.>",
                    grants=ConfiguredGrants(read=("r", "s"), write=("w",), admin=("*",)),
                ),
                ConfiguredRule(kind="topic", pattern="T", grants=ConfiguredGrants(read=("r",))),
                ConfiguredRule(kind="queue", pattern="Q", grants=ConfiguredGrants(admin=("a",))),
            )
        )
        assert reasons(reading) == []

    def test_a_composite_name_is_several_rules(self) -> None:
        reading = entries('queue="A, B" read="r"')
        assert reading.protection.rights is not None
        assert [each.pattern for each in reading.protection.rights.rules] == ["A", "B"]

    def test_a_nested_destination(self) -> None:
        reading = rights(
            '<authorizationEntries><authorizationEntry read="r"><destination><topic physicalName="N"/></destination>'
            "</authorizationEntry></authorizationEntries>"
        )
        assert reading.protection.rights is not None
        assert [(each.kind, each.pattern) for each in reading.protection.rights.rules] == [("topic", "N")]

    def test_default_and_temporary_entries(self) -> None:
        reading = rights(
            '<defaultEntry><authorizationEntry read="d"/></defaultEntry>'
            "<tempDestinationAuthorizationEntry><tempDestinationAuthorizationEntry/></tempDestinationAuthorizationEntry>"
        )
        assert reading.protection.rights == ConfiguredRights(
            default=ConfiguredGrants(read=("d",)), temporary=ConfiguredGrants()
        )
        assert reasons(reading) == []

    def test_an_entry_without_effect_adds_no_rule(self) -> None:
        reading = entries('queue="A" read="r"', 'queue="B" read=""', 'tempQueue="true" read="r"')
        assert reading.protection.rights is not None
        assert [each.pattern for each in reading.protection.rights.rules] == ["A"]
        assert places(reading, FindingKind.IGNORED) == ["authorizationEntry[B]"]
        assert places(reading, FindingKind.WARNING) == ["authenticationUser@password", "authorizationEntry@tempQueue"]

    @pytest.mark.parametrize(
        ("attributes", "at"),
        [
            ('queue="A&gt;" read="r"', "authorizationEntry[A>]@queue"),
            ('topic="A" read="r" groupClass="a.b.UserPrincipal"', "authorizationEntry[A]@groupClass"),
            ('destination="#bean" read="r"', "authorizationEntry@destination"),
        ],
    )
    def test_an_entry_that_cannot_be_a_rule_is_refused(self, attributes: str, at: str) -> None:
        assert at in places(entries('queue="OTHER" read="r"', attributes), FindingKind.REFUSED)

    def test_the_class_of_groups_is_the_same(self) -> None:
        content = '<authorizationEntries><authorizationEntry queue="A" read="r"/></authorizationEntries>'
        assert reasons(rights(content, 'groupClass="org.apache.activemq.jaas.GroupPrincipal"')) == []
        own = rights(content, 'groupClass="org.apache.activemq.jaas.UserPrincipal"')
        assert places(own, FindingKind.REFUSED) == ["authorizationMap@groupClass"]

    @pytest.mark.parametrize(
        "content",
        [
            "<map><authorizationMap/></map>",
            "<map/>",
            "",
            '<map><cachedLDAPAuthorizationMap connectionURL="ldap://x"/></map>',
            "<map><simpleAuthorizationMap/></map>",
        ],
    )
    def test_a_plugin_without_rights_is_refused(self, content: str) -> None:
        assert len(reasons(plugins(f"{ONE_USER}<authorizationPlugin>{content}</authorizationPlugin>"))) == 1

    def test_rights_without_logins_are_refused(self) -> None:
        reading = plugins(
            '<authorizationPlugin><map><authorizationMap><authorizationEntries><authorizationEntry queue="A" read="r"/>'
            "</authorizationEntries></authorizationMap></map></authorizationPlugin>"
        )
        assert places(reading, FindingKind.REFUSED) == ["authorizationPlugin"]


@pytest.mark.parametrize(
    ("bean", "rules"),
    [
        ("simpleAuthenticationPlugin", security_plugins.SIMPLE),
        ("authenticationUser", security_plugins.USER),
        ("jaasAuthenticationPlugin", security_plugins.JAAS),
        ("jaasCertificateAuthenticationPlugin", security_plugins.JAAS),
        ("jaasDualAuthenticationPlugin", security_plugins.DUAL),
        ("authorizationPlugin", authorization.PLUGIN),
        ("authorizationMap", authorization.MAP),
        ("authorizationEntry", authorization.ENTRY),
        ("tempDestinationAuthorizationEntry", authorization.TEMPORARY),
        ("sslContext", tls_stores.SSL_CONTEXT),
    ],
)
def test_each_attribute_of_the_schema_has_a_rule(bean: str, rules: Rules) -> None:
    assert rules.keys() == schema.beans()[bean]["attributes"].keys()


PROPERTIES = {
    "simpleAuthenticationPlugin": {"users", "userGroups", "userPasswords"},
    "authorizationPlugin": {"map"},
    "authorizationMap": {"authorizationEntries", "entries", "defaultEntry", "tempDestinationAuthorizationEntry"},
    "authorizationEntry": {"destination", "adminACLs", "readACLs", "writeACLs"},
    "tempDestinationAuthorizationEntry": {"destination", "adminACLs", "readACLs", "writeACLs"},
    "sslContext": {"SSLContext", "keyManagers", "secureRandom", "trustManagers"},
    "authenticationUser": set[str](),
    "jaasAuthenticationPlugin": set[str](),
    "jaasCertificateAuthenticationPlugin": set[str](),
    "jaasDualAuthenticationPlugin": set[str](),
}
"""The property elements that are read, ignored or refused."""


@pytest.mark.parametrize("bean", PROPERTIES)
def test_each_property_of_the_schema_is_read(bean: str) -> None:
    assert PROPERTIES[bean] == schema.beans()[bean]["properties"].keys()


@pytest.mark.parametrize(
    ("bean", "content"),
    [
        ("simpleAuthenticationPlugin", "<simpleAuthenticationPlugin>{}</simpleAuthenticationPlugin>"),
        (
            "authorizationEntry",
            "<authorizationPlugin><map><authorizationMap><authorizationEntries><authorizationEntry>{}"
            "</authorizationEntry></authorizationEntries></authorizationMap></map></authorizationPlugin>",
        ),
    ],
)
def test_no_property_is_without_a_handler(bean: str, content: str) -> None:
    for name in PROPERTIES[bean]:
        reading = plugins(content.format(f"<{name}/>"))
        assert "pybroker does not support it" not in "".join(reasons(reading, FindingKind.WARNING))
