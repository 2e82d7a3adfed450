"""The members of a pair as one: each request goes to the master, which is found by the health check `/master`.

```text
/master of each member, at once --> 200  it is the master: ask it
                                `-> else, or silent: the next; none: wait, or MasterMissing, MemberMissing
```

A request that has reached no master is made again while there is time. A change whose answer is lost is not: it may
have been made.
"""

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from pybroker.management_client.address import ApiAddress
from pybroker.management_client.errors import (
    AnswerLost,
    LoginNeeded,
    ManagementError,
    MasterMissing,
    MemberMissing,
    RequestRefused,
)
from pybroker.management_client.exchange import ANSWER_SECONDS, ApiAnswer, ApiExchange, ApiLogin, MemberSilent

API: Final = "/api/v1"

CHECK_SECONDS: Final = 5.0
"""The time of a health check, which is answered in milliseconds."""

REPORT_SECONDS: Final = 0.25
"""The time in which the member that was asked before is found to run or not, once another one is the master."""

AGAIN_SECONDS: Final = 0.25
"""The pause before members are asked again if they are the master."""


class MemberCheck(NamedTuple):
    """An answer to the health check `/master`.

    Attributes:
        address: the member that was asked.
        is_master: True if it is the master.
        text: its answer, or why there is none.
        has_answered: False if there is none.
    """

    address: ApiAddress
    is_master: bool
    text: str
    has_answered: bool


_MAY_BE_STANDBY: Final = (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.CONFLICT)
"""The statuses with which a member refuses what only a master does; a master too has reasons for them."""


class ManagementClient:
    """The client of a pair."""

    def __init__(
        self,
        members: Sequence[ApiAddress],
        login: ApiLogin,
        *,
        wait_seconds: float = 0.0,
        report: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Create it, without connecting.

        Args:
            members: the addresses of the members.
            login: the login at all of them.
            wait_seconds: the time to wait for a master.
            report: is called with a sentence when another member than the first one is asked.
        """
        assert members, "a pair has members"
        self.members = members
        self._login = login
        self._wait_seconds = wait_seconds
        self._report = report
        self._master: ApiAddress | None = None
        self._reported = members[0]

    def get(self, *names: str, **query: Any) -> Any:
        """Return the JSON at a path of the API, whose parts are names as they are.

        Raises:
            ManagementError: there is none.
        """

        def ask(master: ApiAddress) -> ApiAnswer:
            return ApiExchange(master, self._login).ask("GET", path(*names), query=query)

        return self._until_answered(ask)

    def change(
        self,
        method: str,
        *names: str,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, Any] | None = None,
        seconds: float = ANSWER_SECONDS,
        begin: Callable[[ApiExchange], None] = lambda exchange: None,
    ) -> Any:
        """Have the master make a change, and return the JSON of its answer.

        Args:
            method: POST or DELETE.
            names: the parts of the path.
            body: the fields of the body; None: it has none.
            query: the parameters.
            seconds: the time for the answer.
            begin: is called with each exchange before it begins, which may be ended.

        Raises:
            ManagementError: it was not made, or, with `AnswerLost`, it may not have been made.
        """

        def ask(master: ApiAddress) -> ApiAnswer:
            exchange = ApiExchange(master, self._login)
            begin(exchange)
            return exchange.ask(method, path(*names), query=query, body=body, seconds=seconds)

        return self._until_answered(ask, is_change=True)

    def ask_member(self, member: ApiAddress, *names: str, seconds: float) -> Any:
        """Return the JSON at a path of the API of one member, master or standby.

        Raises:
            ManagementError: there is none.
        """
        exchange = ApiExchange(member, self._login)
        answer = exchange.ask("GET", path(*names), connect_seconds=seconds, seconds=seconds)
        if answer.status != HTTPStatus.OK:
            raise _refused(answer)
        return answer.value

    def master(self) -> ApiAddress:
        """Return the address of the master.

        Raises:
            ManagementError: there is none.
        """
        if self._master is None:
            self._master = self._find()
        return self._master

    def _until_answered(self, ask: Callable[[ApiAddress], ApiAnswer], *, is_change: bool = False) -> Any:
        """Return the JSON of the master's answer; members are asked again while there is time to wait."""
        deadline = time.monotonic() + self._wait_seconds
        while True:
            is_former = self._master is not None
            try:
                return self._answer_of(self.master(), ask)
            except (MemberMissing, MasterMissing, MemberSilent, AnswerLost) as error:
                self._master = None
                may_be_made = is_change and isinstance(error, AnswerLost)
                if is_former and not may_be_made:
                    continue  # it was the master at an earlier request: look once who is now
                if may_be_made or time.monotonic() >= deadline:
                    if isinstance(error, MemberSilent):
                        raise MemberMissing(f"no member answers: {error}") from error
                    raise
            time.sleep(AGAIN_SECONDS)

    def _answer_of(self, master: ApiAddress, ask: Callable[[ApiAddress], ApiAnswer]) -> Any:
        answer = ask(master)
        if answer.status == HTTPStatus.OK:
            return answer.value
        if answer.status in _MAY_BE_STANDBY and not check(master, self._login).is_master:
            raise MasterMissing(f"{master.url}: {answer.error}")
        raise _refused(answer)

    def _find(self) -> ApiAddress:
        """Return the first member that says that it is the master; report it if it is another one than before."""
        found: queue.SimpleQueue[MemberCheck] = queue.SimpleQueue()

        def ask(member: ApiAddress) -> None:
            found.put(check(member, self._login))

        for member in self.members:
            threading.Thread(target=ask, args=(member,), daemon=True).start()
        checks: dict[ApiAddress, MemberCheck] = {}
        for _ in self.members:
            each = found.get()
            checks[each.address] = each
            if each.is_master:
                if each.address != self._reported:
                    former = f"{self._reported.url} {self._former(found, checks)}"
                    self._report(f"{former}: asking {each.address.url}, which is the master")
                    self._reported = each.address
                return each.address
        words = "; ".join(checks[member].text for member in self.members)
        if any(each.has_answered for each in checks.values()):
            if len(self.members) == 1:
                raise MasterMissing(f"{words}: name the other members too, and the master is found")
            raise MasterMissing(f"there is no master now: {words}")
        raise MemberMissing(f"no member answers: {words}")

    def _former(self, found: "queue.SimpleQueue[MemberCheck]", checks: dict[ApiAddress, MemberCheck]) -> str:
        """Return the state of the member that was asked before."""
        deadline = time.monotonic() + REPORT_SECONDS
        with contextlib.suppress(queue.Empty):
            while self._reported not in checks:
                each = found.get(timeout=max(0.0, deadline - time.monotonic()))
                checks[each.address] = each
        former = checks.get(self._reported)
        if former is None or former.is_master:
            return "has not answered yet"
        return "is not the master" if former.has_answered else "does not run, or cannot be reached"


def check(member: ApiAddress, login: ApiLogin) -> MemberCheck:
    """Return what a member answers to the health check `/master`, which needs no login: `login` has the trust."""
    exchange = ApiExchange(member, ApiLogin(tls=login.tls))
    try:
        answer = exchange.ask("GET", "/master", connect_seconds=CHECK_SECONDS, seconds=CHECK_SECONDS)
    except ManagementError as error:
        return MemberCheck(member, False, str(error), False)
    text = f"{member.url} is {answer.error}"
    if answer.status not in (HTTPStatus.OK, HTTPStatus.SERVICE_UNAVAILABLE):
        text = f"{member.url} answers {answer.status} at /master: is this the port of management?"
    return MemberCheck(member, answer.status == HTTPStatus.OK, text, True)


def path(*names: str) -> str:
    """Return a path of the API."""
    return "/".join((API, *[quote(name, safe="") for name in names]))


def _refused(answer: ApiAnswer) -> ManagementError:
    if answer.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return LoginNeeded(answer.error)
    return RequestRefused(answer.status, answer.error)
