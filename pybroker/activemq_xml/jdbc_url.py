"""The URL of a PostgreSQL database as Java's driver reads it, and its options in the words of libpq.

Source: pgjdbc 42.5, `Driver.parseURL` and `PGProperty`; libpq, "Parameter Key Words".
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote_plus

PREFIX: Final = "jdbc:postgresql:"
_HOST: Final = re.compile(r"(?P<host>\[[0-9A-Fa-f:.%]+\]|[^\[\]:@\s]*)(:(?P<port>\d{1,5}))?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class JdbcUrl:
    """The parts of a JDBC URL.

    Attributes:
        hosts: `HOST:PORT`, separated by commas; each port may be missing, and means 5432 then.
        database: the name of the database; empty for that of the user.
        options: by name, as they are written.
    """

    hosts: str
    database: str
    options: Mapping[str, str]


def kind_of(text: str) -> str:
    """Return the kind of database of a URL: `mysql` of `jdbc:mysql://…`; empty if it is no such URL."""
    scheme, _, rest = text.strip().partition(":")
    kind, separator, _ = rest.partition(":")
    return kind.lower() if scheme == "jdbc" and separator else ""


def parse(text: str) -> JdbcUrl:
    """Return the parts of a URL of a PostgreSQL database.

    Raises:
        ValueError: the driver would not read it; the text does not hold it, since it may have a password.
    """
    if not text.startswith(PREFIX):
        raise ValueError(f"it must begin with {PREFIX}//")
    place, _, query = text[len(PREFIX) :].partition("?")
    authority, database = "localhost:5432", place
    if place.startswith("//"):
        authority, separator, database = place[2:].partition("/")
        if not separator:
            raise ValueError("a / must end its host and port")
    return JdbcUrl(
        hosts=",".join(map(_host, authority.split(","))), database=unquote_plus(database), options=_options(query)
    )


def libpq_url(hosts: str, database: str, user: str, options: Mapping[str, str]) -> str:
    """Return the URL of a database in libpq's form."""
    before = f"{quote(user, safe='')}@" if user else ""
    given = "&".join(f"{name}={quote(value, safe='/')}" for name, value in options.items())
    return f"postgresql://{before}{hosts}/{quote(database, safe='')}" + (f"?{given}" if given else "")


def _host(text: str) -> str:
    match = _HOST.fullmatch(text)
    if match is None or int(match["port"] or 0) > 0xFFFF:
        raise ValueError("its hosts must be HOST or HOST:PORT, separated by commas")
    host = match["host"] or "localhost"  # which is no socket in a directory, as an empty one is for libpq
    return f"{host}:{match['port']}" if match["port"] else host


def _options(query: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in filter(None, query.split("&")):
        name, _, value = each.partition("=")
        found[name] = unquote_plus(value)
    return found
