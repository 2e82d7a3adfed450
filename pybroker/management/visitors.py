"""Decides who a request comes from, and what it may do.

A login (HTTP Basic) is verified by the node, which the users and their roles belong to, and remembered for
`REMEMBERED_SECONDS`: by a keyed hash, and until the users change. Without users every program of this host may do
everything, except pages of other sites in its browsers.

A browser sends its login with whatever a page of another site asks for. So a request that changes something must not
come from such a page, by `Sec-Fetch-Site` or `Origin`.

Source: management.md, section 2; security.md, section 8; RFC 7617.
"""

import asyncio
import base64
import binascii
import hashlib
import ipaddress
import secrets
import time
import urllib.parse
from collections import OrderedDict
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final, NamedTuple

from pybroker.broker.domain.node_requests import ManagementRole, RequestFailed
from pybroker.management.link import NodeLink

REMEMBERED_SECONDS: Final = 60.0
REMEMBERED_MAX: Final = 1000

LOGINS_MAX: Final = 20
"""Logins that the node verifies at a time."""

WAITING_MAX: Final = 100
"""Logins that wait for that; further ones are refused."""

_SAME_SITE: Final = ("same-origin", "none")


class Visitor(NamedTuple):
    """The user that a request comes from.

    Attributes:
        user: the user's name.
        role: its role.
        address: the address of the client.
    """

    user: str
    role: ManagementRole
    address: str


class Visitors:
    """Knows the users that have logged in lately."""

    def __init__(self, link: NodeLink, *, has_users: bool) -> None:
        """Begin with none."""
        self._link = link
        self._has_users = has_users
        self._key = secrets.token_bytes(32)
        self._remembered: OrderedDict[bytes, tuple[float, Visitor]] = OrderedDict()
        self._users_version = 0
        self._verifying = asyncio.Semaphore(LOGINS_MAX)
        self._waiting = 0

    async def visitor(self, headers: Mapping[str, str], address: str) -> Visitor:
        """Return the user of a request.

        Raises:
            RequestFailed: there is no login, it is wrong, or its user has no role.
        """
        if not self._has_users:
            _require_this_host(headers.get("Host", ""), address)
            return Visitor("anonymous", ManagementRole.ADMIN, address)
        authorization = headers.get("Authorization", "")
        version = 0 if self._link.state is None else self._link.state.users_version
        if version != self._users_version:
            self._users_version = version
            self._remembered.clear()
        key = hashlib.blake2b(f"{address} {authorization}".encode(), key=self._key).digest()
        until, visitor = self._remembered.get(key, (0.0, None))
        if visitor is not None and until > time.monotonic():
            return visitor
        name, password = _basic(authorization)
        visitor = await self._verify(name, password, address)
        if version == self._users_version:
            self._remembered[key] = time.monotonic() + REMEMBERED_SECONDS, visitor
            self._remembered.move_to_end(key)
            if len(self._remembered) > REMEMBERED_MAX:
                self._remembered.popitem(last=False)
        return visitor

    async def deny(self, visitor: Visitor, act: str, what: str) -> None:
        """Write a line of the audit log: the user may not do that."""
        await self._link.ask("denied", user=visitor.user, address=visitor.address, act=act, object=what)

    async def _verify(self, name: str, password: str, address: str) -> Visitor:
        if self._waiting >= WAITING_MAX:
            raise RequestFailed(HTTPStatus.SERVICE_UNAVAILABLE, "too many logins wait for their verification")
        self._waiting += 1
        try:
            async with self._verifying:
                answer = await self._link.ask("login", user=name, password=password, address=address)
        finally:
            self._waiting -= 1
        return Visitor(answer.result["user"], ManagementRole[answer.result["role"]], address)


def is_same_origin(headers: Mapping[str, str], scheme: str) -> bool:
    """Return True if a request comes from a page of this site, or from a program that is no browser."""
    site = headers.get("Sec-Fetch-Site")
    if site is not None and site not in _SAME_SITE:
        return False
    origin = headers.get("Origin")
    return origin is None or names_host(origin, headers, scheme)


def is_own_page(headers: Mapping[str, str], scheme: str, *, is_origin_needed: bool) -> bool:
    """Return True if a request comes from a page of this site, or from a program that names its address.

    Scripts for ActiveMQ leave the port of the origin out.

    Args:
        headers: the headers of the request.
        scheme: its scheme.
        is_origin_needed: True if it must have an `Origin` or `Referer`: an image of a page may come without both.
    """
    site = headers.get("Sec-Fetch-Site")
    if site is not None and site not in _SAME_SITE:
        return False
    origin = headers.get("Origin")
    if origin is None:
        referrer = urllib.parse.urlsplit(headers.get("Referer", ""))
        origin = f"{referrer.scheme}://{referrer.netloc}" if referrer.netloc else None
    if origin is None:
        return not is_origin_needed
    host = _without_port(headers.get("Host", ""))
    return names_host(origin, headers, scheme) or names_host(origin, {"Host": host}, scheme)


def _without_port(host: str) -> str:
    name, _, port = host.rpartition(":")
    return name if port.isdigit() else host


def names_host(origin: str, headers: Mapping[str, str], scheme: str) -> bool:
    """Return True if an `Origin` names the host that a request was sent to, in one of its schemes."""
    host = headers.get("Host", "")
    return bool(host) and origin.lower() in (f"{each}://{host}".lower() for each in {scheme, "http", "https"})


def _basic(authorization: str) -> tuple[str, str]:
    """Return the user name and password of a header.

    Raises:
        RequestFailed: it has none.
    """
    scheme, _, encoded = authorization.partition(" ")
    if not authorization:
        raise RequestFailed(HTTPStatus.UNAUTHORIZED, "log in with a user name and a password")
    try:
        name, colon, password = base64.b64decode(encoded, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        colon = ""
        name = password = ""
    if scheme.lower() != "basic" or not colon:
        raise RequestFailed(HTTPStatus.UNAUTHORIZED, "log in by HTTP Basic, with a user name and a password")
    return name, password


def _require_this_host(host: str, address: str) -> None:
    """Check that a request is one of a program of this host, and not of a page whose name has this host's address.

    Raises:
        RequestFailed: it is not.
    """
    name = _without_port(host)
    if not _is_loopback(address) or not (name.lower() == "localhost" or _is_loopback(name.strip("[]"))):
        text = "without users only programs of this host may use management, at localhost or 127.0.0.1: set users_file"
        raise RequestFailed(HTTPStatus.FORBIDDEN, text)


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
