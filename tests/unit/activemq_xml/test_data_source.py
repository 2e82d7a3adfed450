"""The data source of an `activemq.xml`: its bean, and the URL that Java's driver reads."""

import pytest

from pybroker.activemq_xml import jdbc_url
from pybroker.activemq_xml.database import with_password
from pybroker.activemq_xml.elements import BEANS, CORE
from pybroker.activemq_xml.findings import FindingKind
from pybroker.activemq_xml.reading import Reading
from pybroker.locks.postgres.session import DatabaseTarget
from tests.unit.activemq_xml.reading_bench import distinct_places, imported, read, read_files, text_of, why_at

REFUSED, WARNING, IGNORED = FindingKind.REFUSED, FindingKind.WARNING, FindingKind.IGNORED
ADAPTER = '<persistenceAdapter><jdbcPersistenceAdapter dataSource="#pg"/></persistenceAdapter>'


def bean(kind: str = "org.apache.commons.dbcp2.BasicDataSource", **properties: str) -> str:
    given = "".join(f'<property name="{name}" value="{value}"/>' for name, value in properties.items())
    return f'<bean id="pg" class="{kind}">{given}</bean>'


def read_bean(kind: str = "org.apache.commons.dbcp2.BasicDataSource", **properties: str) -> Reading:
    return read(ADAPTER, beside=bean(kind, **properties))


# The left sides were given to pgjdbc 42.5.5's `Driver.parseURL`.
@pytest.mark.parametrize(
    ("url", "hosts", "database", "options"),
    [
        ("jdbc:postgresql:db", "localhost:5432", "db", {}),
        ("jdbc:postgresql:db?x=1", "localhost:5432", "db", {"x": "1"}),
        ("jdbc:postgresql://h/", "h", "", {}),
        ("jdbc:postgresql:///d", "localhost", "d", {}),
        ("jdbc:postgresql://:7/d?", "localhost:7", "d", {}),
        ("jdbc:postgresql://h:5/d%20b?ssl&user=a%26b", "h:5", "d b", {"ssl": "", "user": "a&b"}),
        ("jdbc:postgresql://a,b:6,[::1]:7/d", "a,b:6,[::1]:7", "d", {}),
        ("jdbc:postgresql://h/d;user=x", "h", "d;user=x", {}),
    ],
)
def test_url_is_read_as_the_driver_does(url: str, hosts: str, database: str, options: dict[str, str]) -> None:
    assert jdbc_url.parse(url) == jdbc_url.JdbcUrl(hosts=hosts, database=database, options=options)


@pytest.mark.parametrize(
    "url",
    [
        "jdbc:postgresql://h",
        "jdbc:postgresql://u:p@h/d",
        "jdbc:postgresql://h?user=u",
        "jdbc:postgresql://h:x/d",
        "h/d",
    ],
)
def test_url_that_the_driver_refuses_is_refused(url: str) -> None:
    with pytest.raises(ValueError) as caught:
        jdbc_url.parse(url)
    assert "u:p" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("ssl=true", "sslmode=verify-full"),
        ("ssl", "sslmode=verify-full"),
        ("ssl=false", ""),
        ("ssl=true&amp;sslfactory=org.postgresql.ssl.NonValidatingFactory", "sslmode=require"),
        ("sslfactory=org.postgresql.ssl.NonValidatingFactory&amp;ssl=true", "sslmode=require"),
        ("ssl=true&amp;sslmode=verify-full", "sslmode=verify-full"),
        ("sslmode=VERIFY-CA&amp;sslrootcert=/etc/ca.pem", "sslmode=verify-ca&sslrootcert=/etc/ca.pem"),
        ("sslcert=/c.pem&amp;sslkey=/k.pem", "sslcert=/c.pem&sslkey=/k.pem"),
        ("connectTimeout=5&amp;ApplicationName=a b", "connect_timeout=5&application_name=a%20b"),
        ("targetServerType=primary", "target_session_attrs=read-write"),
        ("targetServerType=master", "target_session_attrs=read-write"),
        ("targetServerType=any", ""),
        ("currentSchema=a, b", "options=-c%20search_path%3Da%2Cb"),
        ("options=-c x=1&amp;currentSchema=s", "options=-c%20x%3D1%20-c%20search_path%3Ds"),
        ("socketTimeout=30&amp;tcpKeepAlive=true&amp;prepareThreshold=0", ""),
        ("gssEncMode=disable&amp;kerberosServerName=pg", "gssencmode=disable&krbsrvname=pg"),
    ],
)
def test_options_get_the_words_of_libpq(options: str, expected: str) -> None:
    reading = read_bean(url=f"jdbc:postgresql://h:5/d?{options}", username="u")
    assert reading.settings["store"] == "postgresql://u@h:5/d" + (f"?{expected}" if expected else "")
    assert not distinct_places(reading, REFUSED)


@pytest.mark.parametrize(
    "option",
    [
        "sslmode=on",
        "sslkey=/k.pk8",
        "sslpassword=secret-word",
        "connectTimeout=soon",
        "targetServerType=secondary",
        "service=pg",
        "readOnly=true",
        "ApplicationName=${none}",
        "ApplicationName=#{none}",
    ],
)
def test_option_that_means_nothing_here_is_refused(option: str) -> None:
    reading = read_bean(url=f"jdbc:postgresql://h:5/d?{option}")
    assert any(at.endswith(option.partition("=")[0]) or "url" in at for at in distinct_places(reading, REFUSED))
    assert "store" not in reading.settings
    assert "secret-word" not in "".join(map(str, reading.findings))


@pytest.mark.parametrize(
    ("option", "kind"),
    [
        ("sslfactory=org.postgresql.ssl.DefaultJavaSSLFactory", WARNING),
        ("sslfactory=org.postgresql.ssl.NonValidatingFactory", IGNORED),
        ("nothing=1", WARNING),
        ("socketTimeout=3", IGNORED),
        ("loadBalanceHosts=true", IGNORED),
    ],
)
def test_option_is_a_finding(option: str, kind: FindingKind) -> None:
    reading = read_bean(url=f"jdbc:postgresql://h:5/d?{option}")
    assert f"jdbc url {option.partition('=')[0]}" in distinct_places(reading, kind)


def test_url_is_one_that_libpq_reads() -> None:
    options = {"options": "-c search_path=a\\ b", "sslrootcert": "/a b.pem"}
    url = jdbc_url.parse("jdbc:postgresql://a,b:6,[::1]:7/d%2Fx")
    text = jdbc_url.libpq_url(url.hosts, url.database, "u@x/y", options)
    assert (
        DatabaseTarget(text).parameters
        == {"user": "u@x/y", "dbname": "d/x", "host": "a,b,::1", "port": ",6,7"} | options
    )
    secret = with_password({"store": text}, "p:@/w %")["store"]
    assert DatabaseTarget(secret).parameters == {"password": "p:@/w %"} | DatabaseTarget(text).parameters


def test_password_is_a_secret_and_in_no_setting() -> None:
    for given in (
        read_bean(url="jdbc:postgresql://h/d", username="u", password="pass word"),
        read_bean(url="jdbc:postgresql://h/d?password=pass+word&amp;user=u", username="other", password="other"),
        read_bean(url="jdbc:postgresql://h/d", connectionProperties="user=u;password=pass word"),
    ):
        assert given.secrets == {"PGPASSWORD": "pass word"}
        assert given.settings["store"] == "postgresql://u@h/d"
        assert "pass" not in "".join(map(str, given.findings))


@pytest.mark.parametrize(
    ("name", "kind"),
    [("maxTotal", IGNORED), ("driverClassName", IGNORED), ("validationQuery", IGNORED), ("other", WARNING)],
)
def test_property_of_a_pool_is_a_finding(name: str, kind: FindingKind) -> None:
    reading = read_bean(**{"url": "jdbc:postgresql://h/d", name: "5"})
    assert f"BasicDataSource.{name}" in distinct_places(reading, kind)


def test_statements_of_a_connection_are_refused() -> None:
    reading = read_bean(url="jdbc:postgresql://h/d", connectionInitSqls="SET search_path TO x")
    assert "BasicDataSource.connectionInitSqls" in distinct_places(reading, REFUSED)


@pytest.mark.parametrize(
    ("kind", "properties", "store"),
    [
        ("org.apache.commons.dbcp.BasicDataSource", {"url": "jdbc:postgresql:d", "maxActive": "5"}, "localhost:5432/d"),
        ("com.zaxxer.hikari.HikariDataSource", {"jdbcUrl": "jdbc:postgresql://h/d", "username": "u"}, "u@h/d"),
        ("com.zaxxer.hikari.HikariDataSource", {"jdbcUrl": "jdbc:postgresql://h/d", "maximumPoolSize": "5"}, "h/d"),
        (
            "org.postgresql.ds.PGSimpleDataSource",
            {"serverName": "h", "portNumber": "5433", "databaseName": "d", "user": "u", "sslMode": "require"},
            "u@h:5433/d?sslmode=require",
        ),
        ("org.postgresql.ds.PGSimpleDataSource", {"serverNames": "a,b", "portNumbers": "1,2"}, "a:1,b:2/"),
        (
            "org.postgresql.ds.PGPoolingDataSource",
            {"databaseName": "d", "dataSourceName": "x", "initialConnections": "1", "maxConnections": "9"},
            "localhost/d",
        ),
        ("org.postgresql.ds.PGSimpleDataSource", {"url": "jdbc:postgresql://h/d?user=u"}, "u@h/d"),
    ],
)
def test_data_source_of_a_known_class_is_read(kind: str, properties: dict[str, str], store: str) -> None:
    reading = read_bean(kind, **properties)
    assert reading.settings["store"] == f"postgresql://{store}"
    assert not distinct_places(reading, REFUSED) | distinct_places(reading, WARNING)


def test_hikari_with_its_configuration_is_read() -> None:
    config = '<bean id="c" class="com.zaxxer.hikari.HikariConfig"><property name="jdbcUrl" value="jdbc:postgresql://h/d"/></bean>'
    source = '<bean id="pg" class="com.zaxxer.hikari.HikariDataSource"><constructor-arg {}</bean>'
    for argument in ('ref="c"/>', '><ref bean="c"/></constructor-arg>'):
        reading = read(ADAPTER, beside=config + source.format(argument))
        assert reading.settings["store"] == "postgresql://h/d"
        assert not distinct_places(reading, WARNING)


def test_properties_of_a_data_source_in_a_list_are_read() -> None:
    props = '<property name="dataSourceProperties"><props><prop key="sslmode">require</prop></props></property>'
    url = '<property name="jdbcUrl"><value>jdbc:postgresql://h/d</value></property>'
    source = f'<bean id="pg" class="com.zaxxer.hikari.HikariDataSource">{url}{props}</bean>'
    assert read(ADAPTER, beside=source).settings["store"] == "postgresql://h/d?sslmode=require"


def test_properties_of_the_drivers_data_source_are_read() -> None:
    given = "serverName=h\nportNumber=5433\ndatabaseName=d\nuser=u\npassword=p"
    kind = '<property name="dataSourceClassName" value="org.postgresql.ds.PGSimpleDataSource"/>'
    lines = f'<property name="dataSourceProperties"><value>{given}</value></property>'
    reading = read(ADAPTER, beside=f'<bean id="pg" class="com.zaxxer.hikari.HikariDataSource">{kind}{lines}</bean>')
    assert reading.settings["store"] == "postgresql://u@h:5433/d"
    assert reading.secrets == {"PGPASSWORD": "p"}


@pytest.mark.parametrize(
    "url", ["jdbc:mysql://h/d", "jdbc:oracle:thin:@h:1521:d", "jdbc:sqlserver://h", "jdbc:derby:d"]
)
def test_other_database_is_refused_with_the_way_out(url: str) -> None:
    reading = read_bean(url=url)
    assert "BasicDataSource.url" in distinct_places(reading, REFUSED)
    assert "PostgreSQL" in why_at(reading, "BasicDataSource.url")
    assert "store" not in reading.settings


@pytest.mark.parametrize("kind", ["org.apache.derby.jdbc.EmbeddedDataSource", "own.DataSource"])
def test_other_class_is_refused(kind: str) -> None:
    assert kind.rpartition(".")[2] in distinct_places(read_bean(kind), REFUSED)


def test_data_source_without_a_url_is_refused() -> None:
    assert "BasicDataSource.url" in distinct_places(read_bean(username="u"), REFUSED)


def test_data_source_in_an_imported_file_is_read() -> None:
    text = text_of(ADAPTER, beside='<import resource="data/source.xml"/>')
    location = '<property name="location" value="classpath:db.properties"/>'
    placeholders = f'<bean class="x.PropertyPlaceholderConfigurer">{location}</bean>'
    source = imported(placeholders, bean(url="jdbc:postgresql://${db.host}/d", password="${DB_PASSWORD}"))
    files = {"activemq.xml": text, "data/source.xml": source, "db.properties": "db.host=h\n"}
    reading = read_files(files, DB_PASSWORD="pw")
    assert reading.settings["store"] == "postgresql://h/d"
    assert reading.secrets == {"PGPASSWORD": "pw"}
    assert "import source.xml" in distinct_places(reading, IGNORED)
    assert not distinct_places(reading, REFUSED)


def test_data_source_in_a_file_of_a_file_is_read() -> None:
    text = text_of(ADAPTER, beside='<import resource="one.xml"/>')
    files = {
        "activemq.xml": text,
        "one.xml": imported('<import resource="sub/two.xml"/>'),
        "sub/two.xml": imported('<import resource="../one.xml"/>', '<import resource="three.xml"/>'),
        "sub/three.xml": imported(bean(url="jdbc:postgresql://h/d")),
    }
    reading = read_files(files)
    assert reading.settings["store"] == "postgresql://h/d"
    assert distinct_places(reading, IGNORED) >= {"import one.xml", "import two.xml", "import three.xml"}


def test_data_source_in_a_file_that_is_not_there_is_refused() -> None:
    reading = read_files({"activemq.xml": text_of(ADAPTER, beside='<import resource="source.xml"/>')})
    assert {"import source.xml", "jdbcPersistenceAdapter@dataSource"} <= distinct_places(reading, REFUSED)


def test_data_source_within_the_adapter_is_read() -> None:
    inner = (
        f'<bean xmlns="{BEANS}" class="x.BasicDataSource"><property name="url" value="jdbc:postgresql://h/d"/></bean>'
    )
    body = f"<persistenceAdapter><jdbcPersistenceAdapter><dataSource>{inner}</dataSource></jdbcPersistenceAdapter>"
    reading = read(f"{body}</persistenceAdapter>")
    assert reading.settings["store"] == "postgresql://h/d"


def test_data_source_of_the_core_namespace_is_refused() -> None:
    other = f'<connectionFactory xmlns="{CORE}" id="pg"/>'
    assert "connectionFactory" in distinct_places(read(ADAPTER, beside=other), REFUSED)
