"""Errors of Jolokia: each is named by a class of Java, because its clients tell errors apart by that.

Source: management.md, section 2; Jolokia 1.7, `HttpRequestHandler`.
"""

from http import HTTPStatus
from typing import Any, Final, NamedTuple

from pybroker.broker.domain.errors import BrokerError
from pybroker.broker.domain.node_requests import RequestFailed

ILLEGAL_ARGUMENT: Final = "java.lang.IllegalArgumentException"


class JolokiaError(BrokerError):
    """A request of Jolokia that fails, inside an answer with status 200 of HTTP.

    Attributes:
        error_type: the class of Java.
        status: the status inside the answer.
    """

    def __init__(self, error_type: str, text: str, status: int = HTTPStatus.BAD_REQUEST) -> None:
        super().__init__(text)
        self.error_type = error_type
        self.status = int(status)

    def as_json(self) -> dict[str, Any]:
        """Return the fields of the answer."""
        return {"error_type": self.error_type, "error": f"{self.error_type} : {self}", "status": self.status}


def no_instance(name: str) -> JolokiaError:
    """Return the error about an MBean that does not exist."""
    return JolokiaError("javax.management.InstanceNotFoundException", name, HTTPStatus.NOT_FOUND)


def no_attribute(name: str) -> JolokiaError:
    """Return the error about an attribute that does not exist."""
    text = f"No such attribute: {name}"
    return JolokiaError("javax.management.AttributeNotFoundException", text, HTTPStatus.NOT_FOUND)


def illegal(text: str) -> JolokiaError:
    """Return the error about a request that makes no sense."""
    return JolokiaError(ILLEGAL_ARGUMENT, text)


def forbidden(text: str) -> JolokiaError:
    """Return the error about a request that is not allowed; Jolokia names no other class than this."""
    return JolokiaError("java.lang.Exception", text, HTTPStatus.FORBIDDEN)


class _Translation(NamedTuple):
    error_type: str
    status: int


_TRANSLATIONS: Final = {
    HTTPStatus.BAD_REQUEST: _Translation(ILLEGAL_ARGUMENT, 400),
    HTTPStatus.FORBIDDEN: _Translation("java.lang.Exception", 403),
    HTTPStatus.NOT_FOUND: _Translation("javax.management.InstanceNotFoundException", 404),
    HTTPStatus.CONFLICT: _Translation("java.lang.IllegalStateException", 500),
    HTTPStatus.NOT_IMPLEMENTED: _Translation("java.lang.UnsupportedOperationException", 500),
}


def of_node(error: RequestFailed) -> JolokiaError:
    """Return the error of the node as one of Jolokia."""
    found = _TRANSLATIONS.get(error.status, _Translation("java.io.IOException", 500))
    return JolokiaError(found.error_type, error.text, found.status)
