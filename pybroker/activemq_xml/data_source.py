"""Reads a data source bean: the address of the database, and the options of its URL.

Source: activemq-xml.md, section 6; the beans of commons-dbcp, HikariCP and pgjdbc.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from pybroker.activemq_xml import jdbc_url, references
from pybroker.activemq_xml.elements import BEANS, XmlElement
from pybroker.activemq_xml.reading import Reading
from pybroker.activemq_xml.spring import properties_of, property_texts, simple_class

CLASSES: Final = ("BasicDataSource", "HikariDataSource", "HikariConfig", "PGSimpleDataSource", "PGPoolingDataSource")
"""The classes of beans that are read."""

PASSWORD: Final = "PGPASSWORD"  # noqa: S105 - the name of a variable
"""The environment variable from which libpq takes a password."""

OTHER_DATABASE: Final = (
    "pybroker stores messages in PostgreSQL, or in a directory: have the ActiveMQ pass its messages on to a broker "
    "with such a store, and start pybroker with that"
)
_POOL: Final = "pybroker sizes its own pool"
_TIMES: Final = "time-outs are fixed"
_DRIVER: Final = "how Java's driver works inside"
_UNFILLED: Final = "a placeholder in it has no value"


@dataclass(slots=True)
class _Target:
    """The values of a data source that have been read.

    Attributes:
        bean: the bean.
        url: the driver's URL; empty if it is put together from the other three.
        servers: the names of the servers, separated by commas.
        ports: their ports.
        database: its name.
        user: the user; that of the URL counts before that of the bean.
        password: the password; see `user`.
        options: libpq's options.
        is_refused: it cannot be used.
    """

    bean: XmlElement
    url: str = ""
    servers: str = ""
    ports: str = ""
    database: str = ""
    user: str = ""
    password: str = field(default="", repr=False)
    options: dict[str, str] = field(default_factory=dict[str, str])
    is_refused: bool = False


@dataclass(frozen=True, slots=True)
class DataSource:
    """A PostgreSQL database, as a data source names it.

    Attributes:
        url: its URL in libpq's form, without a password.
        password: the password; empty if there is none.
    """

    url: str
    password: str = field(repr=False)


_Part = Callable[[Reading, _Target, str, str], None]
"""Reads an option or a property, given its place and its value.

Raises:
    ValueError: the value is not valid; the text does not hold it.
"""


def _ignored(why: str) -> _Part:
    return lambda reading, target, at, _value: reading.findings.ignore(target.bean, why, at=at)


def _refused(why: str) -> _Part:
    def read(_reading: Reading, _target: _Target, _at: str, _value: str) -> None:
        raise ValueError(why)

    return read


def _into(name: str) -> _Part:
    """Return the reader of what is an attribute of `_Target`."""
    return lambda _reading, target, _at, value: setattr(target, name, value)


def _option(name: str) -> _Part:
    """Return the reader of what has another name in libpq."""
    return lambda _reading, target, _at, value: target.options.__setitem__(name, value)


def _ssl(reading: Reading, target: _Target, at: str, value: str) -> None:
    if value.lower() not in ("", "true"):
        reading.findings.ignore(target.bean, "TLS is used if the server has it", at=at)
    else:
        target.options.setdefault("sslmode", "verify-full")  # as the driver takes it, since 42.2.5


def _ssl_mode(_reading: Reading, target: _Target, _at: str, value: str) -> None:
    mode = value.lower()
    if mode not in ("disable", "allow", "prefer", "require", "verify-ca", "verify-full"):
        raise ValueError("it must be disable, allow, prefer, require, verify-ca or verify-full")
    target.options["sslmode"] = mode


def _ssl_key(_reading: Reading, target: _Target, _at: str, value: str) -> None:
    if value.lower().endswith((".pk8", ".p12", ".pfx", ".der")):
        raise ValueError("libpq reads a key in PEM: convert it with openssl pkey or openssl pkcs12, and name that file")
    target.options["sslkey"] = value


def _ssl_factory(reading: Reading, target: _Target, at: str, value: str) -> None:
    if value.endswith(".NonValidatingFactory"):
        target.options["sslmode"] = "require"
        reading.findings.ignore(target.bean, "sslmode=require verifies no certificate either", at=at)
    else:
        reading.findings.warn(target.bean, "Java's trust store is not read: write sslmode and sslrootcert", at=at)


def _seconds(_reading: Reading, target: _Target, _at: str, value: str) -> None:
    if not (value.isascii() and value.isdigit()):
        raise ValueError("it must be a number of seconds")
    target.options["connect_timeout"] = value


def _server_type(reading: Reading, target: _Target, at: str, value: str) -> None:
    kind = value.lower()
    if kind in ("master", "primary", "preferprimary"):
        target.options["target_session_attrs"] = "read-write"
    elif kind == "any":
        reading.findings.ignore(target.bean, "this is libpq's default", at=at)
    else:
        raise ValueError("messages are written: it must be primary, or any")


def _schema(_reading: Reading, target: _Target, _at: str, value: str) -> None:
    path = ",".join(each.strip() for each in value.split(","))
    _add_server_option(target, "-c search_path=" + path.replace("\\", "\\\\").replace(" ", "\\ "))


def _server_options(_reading: Reading, target: _Target, _at: str, value: str) -> None:
    _add_server_option(target, value)


def _add_server_option(target: _Target, text: str) -> None:
    target.options["options"] = f"{target.options.get('options', '')} {text}".strip()


def _read_only(reading: Reading, target: _Target, at: str, value: str) -> None:
    if value.lower() == "true":
        raise ValueError("messages are written")
    reading.findings.ignore(target.bean, "messages are written", at=at)


OPTIONS: Final[dict[str, _Part]] = {
    "user": _into("user"),
    "password": _into("password"),
    "ssl": _ssl,
    "sslmode": _ssl_mode,
    "sslkey": _ssl_key,
    "sslfactory": _ssl_factory,
    "sslpassword": _refused(
        "the key's password cannot be set: store the key without one, readable by the broker alone"
    ),
    "sslrootcert": _option("sslrootcert"),
    "sslcert": _option("sslcert"),
    "connecttimeout": _seconds,
    "applicationname": _option("application_name"),
    "targetservertype": _server_type,
    "currentschema": _schema,
    "options": _server_options,
    "gssencmode": lambda _reading, target, _at, value: target.options.__setitem__("gssencmode", value.lower()),
    "kerberosservername": _option("krbsrvname"),
    "service": _refused("a service is not looked up: write host, port and database"),
    "readonly": _read_only,
    **dict.fromkeys(
        (
            *("sockettimeout", "logintimeout", "cancelsignaltimeout", "sslresponsetimeout", "gssresponsetimeout"),
            *("tcpkeepalive", "tcpnodelay", "hostrecheckseconds", "loadbalancehosts"),
        ),
        _ignored(_TIMES),
    ),
    **dict.fromkeys(
        (
            *("adaptivefetch", "adaptivefetchmaximum", "adaptivefetchminimum", "allowencodingchanges"),
            *("assumeminserverversion", "autosave", "binarytransfer", "binarytransferdisable", "binarytransferenable"),
            *("cleanupsavepoints", "databasemetadatacachefields", "databasemetadatacachefieldsmib"),
            *("defaultrowfetchsize", "disablecolumnsanitiser", "escapesyntaxcallmode", "groupstartupparameters"),
            *("hideunprivilegedobjects", "localsocketaddress", "loggerfile", "loggerlevel", "logservererrordetail"),
            *("logunclosedconnections", "maxresultbuffer", "preferquerymode", "preparedstatementcachequeries"),
            *("preparedstatementcachesizemib", "preparethreshold", "protocolversion", "quotereturningidentifiers"),
            *("readonlymode", "receivebuffersize", "rewritebatchedinserts", "sendbuffersize", "stringtype"),
            *("unknownlength", "xmlfactoryfactory", "compatible", "loglevel", "charset"),
        ),
        _ignored(_DRIVER),
    ),
}
"""The options of a URL, by their names in lower case."""

_POOL_PROPERTIES: Final = frozenset(
    (
        *("maxtotal", "maxactive", "maxidle", "minidle", "initialsize", "maxwait", "maxwaitmillis", "maxwaitduration"),
        *("validationquery", "validationquerytimeout", "testonborrow", "testonreturn", "testwhileidle", "testoncreate"),
        *("poolpreparedstatements", "maxopenpreparedstatements", "removeabandoned", "removeabandonedonborrow"),
        *("removeabandonedonmaintenance", "removeabandonedtimeout", "logabandoned", "timebetweenevictionrunsmillis"),
        *("numtestsperevictionrun", "minevictableidletimemillis", "softminevictableidletimemillis"),
        *("maxconnlifetimemillis", "logexpiredconnections", "lifo", "accesstounderlyingconnectionallowed"),
        *("defaultautocommit", "defaulttransactionisolation", "defaultquerytimeout", "enableautocommitonreturn"),
        *("rollbackonreturn", "cachestate", "fastfailvalidation", "jmxname", "registerconnectionmbean"),
        *("maximumpoolsize", "minimumidle", "connectiontimeout", "idletimeout", "maxlifetime", "keepalivetime"),
        *("poolname", "registermbeans", "leakdetectionthreshold", "connectiontestquery", "validationtimeout"),
        *("autocommit", "transactionisolation", "allowpoolsuspension", "initializationfailtimeout"),
        *("initializationfailfast", "isolateinternalqueries", "datasourcename", "initialconnections", "maxconnections"),
    )
)

PROPERTIES: Final[Mapping[str, _Part]] = {
    **dict.fromkeys(("url", "jdbcurl"), _into("url")),
    **dict.fromkeys(("user", "username"), _into("user")),
    "password": _into("password"),
    **dict.fromkeys(("driverclassname", "driverclassloader", "datasourceclassname"), _ignored("PostgreSQL is implied")),
    **dict.fromkeys(("schema", "defaultschema"), _schema),
    **dict.fromkeys(
        ("connectioninitsql", "connectioninitsqls"),
        _refused("statements of its own are not run: put them into the database's settings of the user"),
    ),
    **dict.fromkeys(("readonly", "defaultreadonly"), _read_only),
    **dict.fromkeys(_POOL_PROPERTIES, _ignored(_POOL)),
}
"""The properties of all beans, by their names in lower case."""

_OF_DRIVER: Final[dict[str, _Part]] = {
    **dict.fromkeys(("servername", "servernames"), _into("servers")),
    **dict.fromkeys(("portnumber", "portnumbers"), _into("ports")),
    "databasename": _into("database"),
    "url": _into("url"),
}
"""The properties of the driver's own beans, which have its options as properties too."""


def read(reading: Reading, bean: XmlElement) -> DataSource | None:
    """Read the bean of a data source; None: it cannot be used, which is refused."""
    kind = simple_class(bean)
    if bean.namespace != BEANS or bean.name != "bean" or kind not in CLASSES or "parent" in bean.attributes:
        is_of_derby = "derby" in bean.attributes.get("class", "").lower()
        why = f"only data sources of these classes are read, without a parent: {', '.join(CLASSES)}"
        reading.findings.refuse(bean, OTHER_DATABASE if is_of_derby else why, at=_name(bean))
        return None
    for name in (references.name_of(each) or each.attributes.get("ref", "") for each in _arguments(bean)):
        held = references.bean(reading, name) if name else None
        if held is not None:  # HikariDataSource with its HikariConfig
            return read(reading, held)
    target = _Target(bean)
    for name in properties_of(bean):
        _read_property(reading, target, name)
    if target.is_refused:
        return None
    return _source(reading, target)


def _name(bean: XmlElement) -> str:
    return simple_class(bean) or bean.name


def _arguments(bean: XmlElement) -> Iterator[XmlElement]:
    for each in bean.children:
        if each.name == "constructor-arg":
            yield each
            yield from each.children


def _read_property(reading: Reading, target: _Target, name: str) -> None:
    lower = name.lower()
    at = f"{_name(target.bean)}.{name}"
    texts = property_texts(target.bean, name)
    if lower in ("connectionproperties", "datasourceproperties"):
        for option, value in _pairs(target.bean, name, texts):
            known = _OF_DRIVER | OPTIONS if lower == "datasourceproperties" else OPTIONS
            _read_part(reading, target, f"{at} {option}", known.get(option.lower()), value)
        return
    part = PROPERTIES.get(lower)
    if part is None and _name(target.bean).startswith("PG"):
        part = _OF_DRIVER.get(lower, OPTIONS.get(lower))
    _read_part(reading, target, at, part, ",".join(texts))


def _pairs(bean: XmlElement, name: str, texts: list[str]) -> Iterator[tuple[str, str]]:
    """Return the options in a property: `a=b;c=d`, lines `a=b`, or `<props><prop key="a">b</prop></props>`."""
    for text in (*texts, properties_of(bean)[name].text):
        for each in text.replace("\n", ";").split(";"):
            option, separator, value = each.partition("=")
            if separator:
                yield option.strip(), value.strip()
    for held in properties_of(bean)[name]:
        if held.name == "prop":
            yield held.attributes.get("key", ""), held.text


def _read_part(reading: Reading, target: _Target, at: str, part: _Part | None, value: str) -> None:
    try:
        if part is None:
            reading.findings.warn(target.bean, "pybroker does not support it", at=at)
        elif "${" in value:
            raise ValueError(_UNFILLED)
        elif "#{" in value:
            raise ValueError(
                "pybroker does not evaluate #{…}: write the value, or ${NAME} for a property or a variable"
            )
        else:
            part(reading, target, at, value)
    except ValueError as error:
        reading.findings.refuse(target.bean, str(error), at=at)
        target.is_refused = True


def _source(reading: Reading, target: _Target) -> DataSource | None:
    """Return the database of a bean whose properties are read."""
    at = next((each for each in properties_of(target.bean) if each.lower() in ("url", "jdbcurl")), "url")
    text = target.url or _put_together(target)
    kind = jdbc_url.kind_of(text)
    try:
        if not text:
            raise ValueError("it names no database")
        if kind and kind != "postgresql":
            raise ValueError(OTHER_DATABASE)
        url = jdbc_url.parse(text)
    except ValueError as error:
        reading.findings.refuse(target.bean, str(error), at=f"{_name(target.bean)}.{at}")
        return None
    names = sorted(url.options, key=lambda name: name.lower() == "ssl")  # which is a default of sslmode
    for name in names:
        _read_part(reading, target, f"jdbc url {name}", OPTIONS.get(name.lower()), url.options[name])
    if target.is_refused:
        return None
    return DataSource(jdbc_url.libpq_url(url.hosts, url.database, target.user, target.options), target.password)


def _put_together(target: _Target) -> str:
    """Return the URL of a driver's bean that has servers and a database by themselves."""
    if not _name(target.bean).startswith("PG") and not target.database:
        return ""
    servers = [each.strip() for each in (target.servers or "localhost").split(",")]
    ports = [each.strip() for each in target.ports.split(",")]
    ports += ["0"] * (len(servers) - len(ports))
    hosts = ",".join(
        f"{each}:{port}" if port not in ("", "0") else each for each, port in zip(servers, ports, strict=False)
    )
    return f"{jdbc_url.PREFIX}//{hosts}/{target.database}"
