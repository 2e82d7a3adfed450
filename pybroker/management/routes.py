"""The routes of the HTTP server: each has a role that it needs, and what the OpenAPI document says of it."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import web

from pybroker.broker.domain.node_requests import ManagementRole
from pybroker.management.visitors import Visitor

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

VISITOR: Final = web.RequestKey("visitor", Visitor)
"""The user that a request comes from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A parameter in the query of a request.

    Attributes:
        name: its name.
        description: one sentence.
        type: its type in JSON Schema.
        values: the values that are allowed; empty: all.
        default: its value if it is not given.
    """

    name: str
    description: str
    type: str = "string"
    values: Sequence[str] = ()
    default: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One route.

    Attributes:
        method: GET, POST or DELETE.
        path: its path, with names in braces.
        handler: answers its requests.
        role: the role that it needs; None: everyone may, without a login.
        summary: one sentence on what it does.
        parameters: the parameters of the query.
        body: the schema of the JSON body; None: it has none.
        answer: the schema of the JSON that it answers; None: it is no JSON.
        seconds: the time in which the body of a request has come, and its answer is made.
        is_documented: True if the OpenAPI document has it.
        checks_origin: True if its handler checks itself where a request that changes something comes from.
    """

    method: str
    path: str
    handler: Handler
    role: ManagementRole | None = ManagementRole.MONITOR
    summary: str = ""
    parameters: Sequence[Parameter] = ()
    body: dict[str, Any] | None = None
    answer: dict[str, Any] | None = None
    seconds: float = 60.0
    is_documented: bool = True
    checks_origin: bool = False

    @property
    def changes(self) -> bool:
        """True if it may change something."""
        return self.method not in ("GET", "HEAD")
