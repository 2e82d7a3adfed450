"""The JSON gateway of etcd: calls with authentication, and the fields of a key.

Every answer is validated before anything of it is used. An answer that is none of etcd's means the same as no answer.
"""

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pybroker.broker.domain.errors import ConfigError, MalformedData
from pybroker.locks.election.http_calls import (
    CallFailed,
    HttpAnswer,
    HttpChannel,
    StoreRequest,
    object_or_none,
    parse_object,
)
from pybroker.locks.election.record import NUMBER_MAX, ElectionRecord
from pybroker.locks.election.register import ABSENT, RegisterMalformed, RegisterState, RegisterUnavailable

_UNAUTHENTICATED = 401
_FORBIDDEN = 403
_HTTP_TO_TLS = b"Client sent an HTTP request to an HTTPS server"
"""Beginning of the answer of a server in Go that expects TLS."""
_USER_EMPTY = "user name is empty"
"""Part of etcd's message, with status 400, to a request without a token where it demands one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdUser:
    """A user of an etcd with authentication."""

    name: str
    password: str

    def __repr__(self) -> str:
        """Leave out the password."""
        return f"EtcdUser({self.name!r})"


class EtcdGateway:
    """Calls of one thread to the gateway."""

    def __init__(self, channel: HttpChannel, *, key: str, name: str, user: EtcdUser | None, setting: str) -> None:
        """Call nothing yet.

        Args:
            channel: the connection.
            key: the key in etcd.
            name: the register's name, for errors.
            user: the user, where etcd demands one.
            setting: the setting that an error of the user's rights names.
        """
        self.channel = channel
        self.name = name
        self.key = base64.b64encode(key.encode()).decode()
        """The key, as the gateway wants it."""
        self._plain_key = key
        self._user = user
        self._setting = setting
        self._token = ""

    def call(self, path: str, request: Mapping[str, Any], deadline: float, *, may_repeat: bool) -> dict[str, Any]:
        """Call and return the answer's object.

        Raises:
            RegisterUnavailable: there was no answer in time, or one that is an error.
            ConfigError: etcd refuses the user.
        """
        sent = StoreRequest(path, json.dumps(request).encode(), may_repeat)
        try:
            answer = self.channel.call(sent._replace(headers=self.headers()), deadline)
            if self.is_refused(answer):  # a token ends with its node, and after some minutes; nothing was carried out
                self.log_in(deadline)
                answer = self.channel.call(sent._replace(headers=self.headers()), deadline)
        except CallFailed as error:
            raise RegisterUnavailable(self.name, str(error)) from error
        return self.object_of(answer)

    def headers(self) -> Mapping[str, str]:
        """Return the headers of a request."""
        return {"Authorization": self._token} if self._token else {}

    def is_refused(self, answer: HttpAnswer) -> bool:
        """Return True if a request was refused for its token, and there is a user to log in with."""
        if self._user is None or not (answer.status == _UNAUTHENTICATED or _USER_EMPTY in _message(answer)):
            return False
        self._token = ""
        return True

    def log_in(self, deadline: float) -> None:
        """Get a token.

        Raises:
            CallFailed: there was no answer in time.
            ConfigError: etcd refuses the user.
        """
        assert self._user is not None, "a caller has checked it"
        body = json.dumps({"name": self._user.name, "password": self._user.password}).encode()
        answer = self.channel.call(StoreRequest("/v3/auth/authenticate", body, may_repeat=True), deadline)
        token = self.object_of(answer).get("token")
        if not isinstance(token, str) or not token.isprintable():
            raise RegisterUnavailable(self.name, "a login without a token")
        self._token = token

    def object_of(self, answer: HttpAnswer) -> dict[str, Any]:
        """Return the JSON object of an answer without an error.

        Raises:
            RegisterUnavailable: it has none.
            ConfigError: etcd refuses the user.
        """
        if answer.status in (_UNAUTHENTICATED, _FORBIDDEN) or "authentication failed" in _message(answer):
            raise self._refused(_message(answer))
        if _USER_EMPTY in _message(answer):
            raise self._refused("it demands a user, and none is set")
        if answer.status != 200:
            # No leader, no quorum, a time-out of its own: what was asked may yet be carried out.
            raise RegisterUnavailable(self.name, f"HTTP {answer.status}: {_message(answer)}")
        found = parse_object(answer.body)
        if found is None:
            raise RegisterUnavailable(self.name, "an answer that is no JSON object: is this the address of an etcd?")
        return found

    def state_of(self, found: Mapping[str, Any]) -> RegisterState:
        """Return the content of the register from an answer to a range.

        Raises:
            RegisterUnavailable: the answer is none of etcd's.
            RegisterMalformed: the value is no record.
        """
        pairs = found.get("kvs", [])
        if not pairs and "header" in found:
            return ABSENT
        try:
            return self.pair(pairs[0])
        except (KeyError, IndexError, TypeError) as error:
            raise RegisterUnavailable(self.name, "an answer without the fields of a range") from error

    def revision_of(self, found: Mapping[str, Any]) -> int:
        """Return the revision of etcd as a whole from an answer.

        Raises:
            RegisterUnavailable: the answer is none of etcd's.
        """
        header = object_or_none(found.get("header"))
        return self.number((header or {}).get("revision"))

    def pair(self, pair: Mapping[str, Any]) -> RegisterState:
        """Return the content of the register from a key and its value.

        Raises:
            KeyError: a field is missing.
            TypeError: a field is no text.
            RegisterUnavailable: the number is none.
            RegisterMalformed: the value is no record.
        """
        revision = self.number(pair["mod_revision"])
        try:
            record = ElectionRecord.decode(base64.b64decode(pair.get("value", ""), validate=True))
        except (MalformedData, binascii.Error) as error:
            raise RegisterMalformed(f"{self.name}: the value of {self._plain_key} is no record: {error}") from error
        return RegisterState(revision, record)

    def number(self, text: object) -> int:
        """Return a 64-bit integer, which is a text.

        Raises:
            RegisterUnavailable: it is none.
        """
        if isinstance(text, str) and len(text) < 20 and text.isascii() and text.isdecimal() and int(text) <= NUMBER_MAX:
            return int(text)
        raise RegisterUnavailable(self.name, "an answer with a number that is none")

    def _refused(self, reason: str) -> ConfigError:
        return ConfigError(
            f"{self.name} refuses the user: {reason}",
            setting=self._setting,
            hint=f"give the user of etcd the right to read and write {self._plain_key}",
        )


def _message(answer: HttpAnswer) -> str:
    """Return the text of an error, which is bounded; empty if there is none."""
    if answer.status == 200:
        return ""
    found = parse_object(answer.body)
    if found is None:
        if answer.body.startswith(_HTTP_TO_TLS):
            return "it speaks TLS: write etcd+https://"
        return "an answer that is no JSON object: is this the address of an etcd?"
    text: object = found.get("message") or found.get("error")
    return text[:200] if isinstance(text, str) else "no description"
