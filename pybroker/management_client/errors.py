"""The errors of the client of management, each with the exit code of a command that ends with it.

```text
ManagementError        1
├── UnusableAddress    2   correct the URL
├── MemberMissing      3   no member answers
├── MasterMissing      4   members answer, and none of them is the master
├── LoginNeeded        5   there is no login, or it is wrong, or the user may not do that
├── RequestRefused     1   the master has refused, and changed nothing
└── AnswerLost         1   the connection broke before the answer: a change may have been made
```
"""

from typing import ClassVar

from pybroker.errors import PybrokerError


class ManagementError(PybrokerError):
    """The base class of the errors of the client of management."""

    exit_code: ClassVar[int] = 1


class UnusableAddress(ManagementError):
    """A URL that names no member."""

    exit_code = 2


class MemberMissing(ManagementError):
    """No member answers."""

    exit_code = 3


class MasterMissing(ManagementError):
    """Members answer, and none of them is the master."""

    exit_code = 4


class LoginNeeded(ManagementError):
    """The login is missing or wrong, or its user may not do what was asked."""

    exit_code = 5


class RequestRefused(ManagementError):
    """The master has refused a request.

    Attributes:
        status: the status of HTTP that says why.
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class AnswerLost(ManagementError):
    """The connection broke before an answer came."""
