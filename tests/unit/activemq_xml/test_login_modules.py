"""Sections of login.config, as settings."""

from collections.abc import Mapping

import pytest

from pybroker.activemq_xml.findings import FindingKind
from pybroker.activemq_xml.reading import Reading
from pybroker.broker.app.config import Config
from tests.unit.activemq_xml.reading_bench import CONNECTORS, of_broker, places, reasons

CONF = "/opt/amq/conf"
PACKAGE = "org.apache.activemq.jaas."
PROPERTIES = (
    f'{PACKAGE}PropertiesLoginModule {{}} {PACKAGE}properties.user="users.properties" '
    f'{PACKAGE}properties.group="groups.properties" {{}};'
)
GUEST = f'{PACKAGE}GuestLoginModule sufficient {{}} {PACKAGE}guest.user="g" {PACKAGE}guest.group="gs";'
CERTIFICATES = (
    f'{PACKAGE}TextFileCertificateLoginModule required {PACKAGE}textfiledn.user="u" {PACKAGE}textfiledn.group="g";'
)
FILES = {
    f"{CONF}/users.properties": "u=right\n",
    f"{CONF}/groups.properties": "apps=u\n",
    f"{CONF}/u": "c=CN=c\n",
    f"{CONF}/g": "apps=c\n",
}


def jaas(
    sections: str,
    *,
    plugin: str = '<jaasAuthenticationPlugin configuration="a"/>',
    content: str = CONNECTORS,
    files: Mapping[str, str] | None = None,
    properties: Mapping[str, str] | None = None,
    place: str = f"{CONF}/login.config",
) -> Reading:
    known = {place: sections, **FILES, **(files or {})}
    return of_broker("", f"<plugins>{plugin}</plugins>{content}", files=known, properties=properties)


def ldap(url: str) -> str:
    return (
        f'{PACKAGE}LDAPLoginModule required initialContextFactory="x" connectionURL="{url}" connectionUsername="cn=a" '
        'connectionPassword="s3cret" userBase="ou=p" userSearchMatching="(uid={0})" userSearchSubtree=true;'
    )


def section(*modules: str) -> str:
    return f"a {{ {' '.join(modules)} }};"


class TestLocation:
    def test_the_property_of_java_names_the_file(self) -> None:
        reading = jaas(
            section(PROPERTIES.format("required", "")),
            place="/etc/login",
            properties={"java.security.auth.login.config": "/etc/login"},
            files={"/etc/users.properties": "u=p", "/etc/groups.properties": ""},
        )
        assert reading.settings["users_file"] == "/etc/users.properties"
        assert reasons(reading) == []

    def test_no_file_no_section_or_no_syntax_is_refused(self) -> None:
        (text,) = reasons(jaas("", place="/elsewhere"))
        assert f"{CONF}/login.config cannot be read" in text
        assert "has no section a" in reasons(jaas("b { };"))[0]
        assert "login.config, line 1: { is expected" in reasons(jaas("a"))[0]


class TestProperties:
    def test_the_files_are_used_as_they_are(self) -> None:
        reading = jaas(section(PROPERTIES.format("required", "reload=true debug=true")))
        assert reading.settings["users_file"] == f"{CONF}/users.properties"
        assert reading.settings["groups_file"] == f"{CONF}/groups.properties"
        assert (reasons(reading), reasons(reading, FindingKind.WARNING)) == ([], [])
        Config(**reading.settings)

    def test_a_base_directory_and_a_leading_slash(self) -> None:
        module = (
            f'{PACKAGE}PropertiesLoginModule required baseDir="/base" {PACKAGE}properties.user="/sub/users.properties";'
        )
        reading = jaas(section(module), files={"/base/sub/users.properties": "u=p", "/base/group": ""})
        assert [reading.settings[each] for each in ("users_file", "groups_file")] == [
            "/base/sub/users.properties",
            "/base/group",
        ]

    def test_encrypted_passwords(self) -> None:
        files = {f"{CONF}/users.properties": "u=ENC(abcd)\n"}
        module = PROPERTIES.format("required", 'decrypt=true algorithm="PBEWITHHMACSHA256ANDAES_256"')
        reading = jaas(section(module), files=files)
        assert reading.settings["encryption_algorithm"] == "PBEWITHHMACSHA256ANDAES_256"
        assert reasons(reading) == []
        assert "decrypt=true" in reasons(jaas(section(PROPERTIES.format("required", "")), files=files))[0]
        unknown = PROPERTIES.format("required", 'decrypt=true algorithm="ROT13"')
        assert "ROT13 is not supported" in reasons(jaas(section(unknown), files=files))[0]

    @pytest.mark.parametrize("text", ["", "u=\n", r"u=\u12"])
    def test_a_file_that_cannot_be_used_is_refused(self, text: str) -> None:
        found = jaas(section(PROPERTIES.format("required", "")), files={f"{CONF}/users.properties": text})
        assert places(found, FindingKind.REFUSED) == ["jaasAuthenticationPlugin"]
        assert "users_file" not in found.settings

    def test_a_missing_file_is_refused(self) -> None:
        module = f"{PACKAGE}PropertiesLoginModule required;"
        assert [text.rpartition("Module: ")[2] for text in reasons(jaas(section(module)))] == [
            f"{CONF}/user cannot be read: No such file or directory",
            f"{CONF}/group cannot be read: No such file or directory",
        ]


class TestGuests:
    NAMES = ("anonymous", "anonymous_user", "anonymous_groups", "anonymous_if_refused")

    def given(self, *modules: str) -> tuple[Reading, list[object]]:
        reading = jaas(section(*modules))
        return reading, [reading.settings.get(name) for name in self.NAMES]

    def test_whoever_the_others_refuse(self) -> None:
        reading, settings = self.given(PROPERTIES.format("sufficient", ""), GUEST.format(""))
        assert settings == ["everywhere", "g", "gs", True]
        assert places(reading, FindingKind.WARNING) == ["jaasAuthenticationPlugin"]
        Config(**reading.settings)

    def test_clients_without_a_password_alone(self) -> None:
        for modules in (
            (PROPERTIES.format("sufficient", ""), GUEST.format("credentialsInvalidate=true")),
            (GUEST.format("credentialsInvalidate=true"), PROPERTIES.format("requisite", "")),
        ):
            reading, settings = self.given(*modules)
            assert settings == ["everywhere", "g", "gs", None]
            assert (reasons(reading), reasons(reading, FindingKind.WARNING)) == ([], [])
            Config(**reading.settings)

    def test_guests_before_others_are_refused(self) -> None:
        reading, _ = self.given(GUEST.format(""), PROPERTIES.format("required", ""))
        assert "takes all" in reasons(reading)[0]

    def test_guests_alone(self) -> None:
        reading, settings = self.given(GUEST.format(""))
        assert settings == ["everywhere", "g", "gs", None]
        assert reasons(reading) == []
        Config(**reading.settings)


class TestLdap:
    def test_options_are_the_table(self) -> None:
        reading = jaas(section(ldap("ldaps://a,ldaps://b")))
        assert reading.settings["ldap"] == {
            "connection_url": "ldaps://a,ldaps://b",
            "connection_username": "cn=a",
            "user_base": "ou=p",
            "user_search_matching": "(uid={0})",
            "user_search_subtree": True,
        }
        assert (reasons(reading), reasons(reading, FindingKind.WARNING)) == ([], [])
        assert reading.protection.ldap_password == "s3cret"
        assert "s3cret" not in repr(reading)
        Config(**reading.settings)

    def test_a_server_without_tls_is_a_warning(self) -> None:
        reading = jaas(section(ldap("ldap://a:389")))
        assert reading.settings["ldap"]["start_tls"] is False
        assert "in clear" in reasons(reading, FindingKind.WARNING)[0]

    @pytest.mark.parametrize(
        ("old", "new"),
        [
            ('connectionPassword="s3cret"', ""),
            ('connectionPassword="s3cret"', 'connectionPassword="ENC(s3cret)"'),
            ("userSearchSubtree=true", 'authentication="GSSAPI"'),
            ("userSearchSubtree=true", 'roleSearchMatching="(x)"'),
            ("ldaps://a", "http://a"),
        ],
    )
    def test_what_pybroker_cannot_do_is_refused(self, old: str, new: str) -> None:
        reading = jaas(section(ldap("ldaps://a").replace(old, new)))
        assert places(reading, FindingKind.REFUSED) == ["jaasAuthenticationPlugin"]
        assert "s3cret" not in "".join(reasons(reading))


class TestSections:
    def test_modules_that_must_all_pass_are_refused(self) -> None:
        reading = jaas(section(PROPERTIES.format("required", ""), ldap("ldaps://a")))
        assert "all but the last must be sufficient" in reasons(reading)[0]
        assert "users_file" not in reading.settings

    @pytest.mark.parametrize("name", ["org.apache.karaf.jaas.modules.properties.PropertiesLogin", "a.Krb5LoginModule"])
    def test_other_modules_are_refused(self, name: str) -> None:
        assert "is not supported" in reasons(jaas(section(f"{name} required;")))[0]

    def test_unknown_options_are_warnings(self) -> None:
        reading = jaas(section(PROPERTIES.format("required", "x=1")))
        assert "has the option x, which has no effect" in reasons(reading, FindingKind.WARNING)[0]


class TestCertificates:
    TLS = (
        '<sslContext><sslContext keyStore="k" keyStorePassword="s3cret" trustStore="t"/></sslContext>'
        '<transportConnectors><transportConnector uri="ssl://h:1?needClientAuth=true"/></transportConnectors>'
    )

    def test_users_by_certificate(self) -> None:
        plugin = '<jaasCertificateAuthenticationPlugin configuration="a"/>'
        reading = jaas(section(CERTIFICATES), plugin=plugin, content=self.TLS)
        assert reading.settings["certificate_users_file"] == f"{CONF}/u"
        assert reading.settings["certificate_groups_file"] == f"{CONF}/g"
        assert reading.protection.has_certificate_users
        assert reasons(reading) == []

    def test_both_kinds_of_users(self) -> None:
        plugin = '<jaasDualAuthenticationPlugin configuration="a" sslConfiguration="s"/>'
        text = f"{section(PROPERTIES.format('required', ''))} s {{ {CERTIFICATES} }};"
        reading = jaas(text, plugin=plugin, content=self.TLS)
        assert {"users_file", "certificate_users_file"} <= reading.settings.keys()
        assert reasons(reading) == []

    def test_listeners_that_ask_for_none_are_refused(self) -> None:
        plugin = '<jaasCertificateAuthenticationPlugin configuration="a"/>'
        assert "no listener asks" in reasons(jaas(section(CERTIFICATES), plugin=plugin))[0]

    def test_a_module_of_the_other_kind_is_refused(self) -> None:
        plugin = '<jaasCertificateAuthenticationPlugin configuration="a"/>'
        reading = jaas(section(PROPERTIES.format("required", "")), plugin=plugin, content=self.TLS)
        assert any("where clients show certificates" in each for each in reasons(reading))
