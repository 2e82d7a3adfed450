"""SASL: the mechanisms PLAIN and ANONYMOUS, and what a client sends for them.

PLAIN has two forms, and an empty response stands for a client without a name:

```text
authorization id NUL user NUL password       RFC 4616; the authorization id is not used
user NUL password                            also read by ActiveMQ
```

Source: AMQP 1.0, 5.3; RFC 4616; RFC 4505; ActiveMQ 5.17 for the second form.
"""

from typing import Final, NamedTuple

from pybroker.broker.domain.amqp.errors import AmqpError
from pybroker.broker.domain.amqp.performatives import SaslInit
from pybroker.transports.amqp.refusals import UNAUTHORIZED

PLAIN: Final = "PLAIN"
ANONYMOUS: Final = "ANONYMOUS"
MECHANISMS: Final = (PLAIN, ANONYMOUS)
"""The mechanisms that are offered, in ActiveMQ's order."""

OK: Final = 0
AUTHENTICATION_FAILED: Final = 1
PERMANENT_FAILURE: Final = 3
"""The codes of outcomes."""


class SaslCredentials(NamedTuple):
    """The user name and password of a SASL response.

    Attributes:
        user: its name; None: it has none.
        password: its password; None: it has none.
    """

    user: str | None
    password: str | None


class InvalidSasl(AmqpError):
    """A response that no mechanism has.

    Attributes:
        code: the code of the outcome.
    """

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message, UNAUTHORIZED)
        self.code = code


_NO_CREDENTIALS: Final = SaslCredentials(None, None)


def credentials(init: SaslInit) -> SaslCredentials:
    """Return the credentials of a client's choice.

    Raises:
        InvalidSasl: the mechanism is not offered, or its response is malformed.
    """
    mechanism = str(init.mechanism)
    if mechanism == ANONYMOUS:
        return _NO_CREDENTIALS
    if mechanism != PLAIN:
        raise InvalidSasl(f"The SASL mechanism {mechanism[:100]!r}: PLAIN and ANONYMOUS are offered", PERMANENT_FAILURE)
    response = bytes(init.initial_response or b"")
    if not response:
        return _NO_CREDENTIALS
    parts = response.split(b"\0")
    if len(parts) not in (2, 3):
        raise InvalidSasl("The response of PLAIN is malformed", AUTHENTICATION_FAILED)
    try:
        user, password = (each.decode() for each in parts[-2:])
    except UnicodeDecodeError as error:
        raise InvalidSasl("The response of PLAIN is no UTF-8", AUTHENTICATION_FAILED) from error
    return SaslCredentials(user or None, password) if user or password else _NO_CREDENTIALS
