"""`pybroker top`: looks at the pair again and again, and shows it on the terminal until a key ends it.

Without a terminal, and with `--once`, it prints one screen. See `operator_screen` for the screen. With `--json` it
prints what a screen shows as one object: `at_ms`; `members`, the overview of each by its URL, or why there is none;
`ha`, the state of the pair; `queues`, the first rows, and `queue_count`, the number of all; `problem`, why there are no
queues, or null. The fields are those of the API; `ha` is null if the members do not have it.
"""

import json
import os
import select
import sys
import termios
import threading
import time
import tty
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from pybroker.broker.app.operator_lists import now_ms
from pybroker.broker.app.operator_screen import SORTABLE, Line, TopState, TopView, row_count, screen
from pybroker.broker.domain.errors import ConfigError

if TYPE_CHECKING:
    from pybroker.management_client.address import ApiAddress
    from pybroker.management_client.client import ManagementClient

_MEMBER_SECONDS: Final = 2.0
"""The time that a member has to answer: one that hangs must not stop the screen."""

_JSON_ROWS: Final = 20
"""The number of queues with `--json`."""

_WIDTH, _HEIGHT = 80, 24
"""The size of a screen without a terminal."""

_LOOK_SECONDS: Final = 0.25
"""The interval at which the size of the terminal is looked at."""

_KEYS: Final[Mapping[bytes, str]] = {
    b"\x1b[A": "up",
    b"\x1b[B": "down",
    b"\x1b[C": "right",
    b"\x1b[D": "left",
    b"\x1bOA": "up",
    b"\x1bOB": "down",
    b"\x1bOC": "right",
    b"\x1bOD": "left",
    b"\x1b[5~": "page up",
    b"\x1b[6~": "page down",
    b"\x1b[H": "home",
    b"k": "up",
    b"j": "down",
    b" ": "page down",
    b"q": "q",
    b"Q": "q",
    b"r": "r",
}


def run(client: "ManagementClient", *, name: str, sort: str, interval: float, once: bool) -> None:
    """Show the pair until a key ends it.

    Raises:
        ConfigError: there is no such column.
        ManagementError: without a terminal: there is no master.
    """
    view = _view(name, sort)
    is_terminal = sys.stdout.isatty() and sys.stdin.isatty()
    if once or not is_terminal:
        client.get("overview")  # raises, with its exit code, what the screen would show
        width, height = os.get_terminal_size(sys.stdout.fileno()) if sys.stdout.isatty() else (_WIDTH, _HEIGHT)
        for line in screen(look(client, view, row_count(height)), view, width, height)[:-1]:
            sys.stdout.write(line.text.rstrip() + "\n")
        return
    with _raw_keys(), _screen() as draw:
        _watch(client, view, interval, draw)


def print_json(client: "ManagementClient", *, name: str, sort: str) -> None:
    """Print one look at the pair as a JSON object.

    Raises:
        ConfigError: there is no such column.
        ManagementError: there is no master.
    """
    view = _view(name, sort)
    client.get("overview")  # raises, with its exit code
    found = look(client, view, _JSON_ROWS)
    answer = {
        "at_ms": found.now_ms,
        "members": found.members,
        "ha": found.pair or None,
        "queues": found.queues,
        "queue_count": found.count,
        "problem": found.problem or None,
    }
    sys.stdout.write(json.dumps(answer) + "\n")


def _view(name: str, sort: str) -> TopView:
    column = sort.removeprefix("-")
    if column not in SORTABLE:
        raise ConfigError(f"{column!r} is no column of this", setting="--sort", hint=f"there are {', '.join(SORTABLE)}")
    return TopView(sort=column, is_descending=sort.startswith("-"), name=name)


def look(client: "ManagementClient", view: TopView, rows: int) -> TopState:
    """Return the state of the pair now, with so many rows of queues; what cannot be had is a problem in it."""
    from pybroker.management_client.errors import ManagementError

    now = datetime.now().astimezone()
    members = _overviews(client)
    serving = [each for each in members.values() if not isinstance(each, str) and "totals" in each]
    overview: Mapping[str, Any] = serving[0] if serving else {}
    common: dict[str, Any] = {
        "at": f"{now:%Y-%m-%d %H:%M:%S}",
        "now_ms": now_ms(),
        "members": members,
        "overview": overview,
        "pair": _pair(client, members),
    }
    if not overview:
        answers = [each for each in members.values() if isinstance(each, str)]
        problem = "there is no master now" if len(answers) < len(members) else answers[0]
        return TopState(**common, problem=problem)
    try:
        queues, count = _queues(client, view, rows)
    except ManagementError as error:
        return TopState(**common, problem=str(error))
    return TopState(**common, queues=queues, count=count)


def _queues(client: "ManagementClient", view: TopView, rows: int) -> tuple[Sequence[Mapping[str, Any]], int]:
    """Return the rows from the first one on, and the number of all."""
    order = "desc" if view.is_descending else "asc"
    query = {"sort": view.sort, "order": order, "name": view.name or None, "page_size": rows}
    number, beyond = divmod(view.first, rows)
    page = client.get("queues", page=number + 1, **query)
    if view.first >= page["count"]:
        view.first = max(0, page["count"] - rows)
        number, beyond = divmod(view.first, rows)
        page = client.get("queues", page=number + 1, **query)
    found = page["items"][beyond:]
    if beyond and page["count"] > (number + 1) * rows:
        found = [*found, *client.get("queues", page=number + 2, **query)["items"][:beyond]]
    return found, page["count"]


def _overviews(client: "ManagementClient") -> Mapping[str, Mapping[str, Any] | str]:
    """Return the overview of each member, or why there is none; all are asked at once."""
    from pybroker.management_client.errors import ManagementError

    found: dict[str, Mapping[str, Any] | str] = {each.url: "it does not answer" for each in client.members}

    def ask(member: "ApiAddress") -> None:
        try:
            found[member.url] = client.ask_member(member, "overview", seconds=_MEMBER_SECONDS)
        except ManagementError as error:
            found[member.url] = str(error)

    threads = [threading.Thread(target=ask, args=(member,), daemon=True) for member in client.members]
    for each in threads:
        each.start()
    for each in threads:
        each.join(2 * _MEMBER_SECONDS)
    return dict(found)


def _pair(client: "ManagementClient", members: Mapping[str, Mapping[str, Any] | str]) -> Mapping[str, Any]:
    """Return the state of high availability, of the first member that answers; empty if it is not known."""
    from pybroker.management_client.errors import ManagementError

    for member in client.members:
        if not isinstance(members[member.url], str):
            try:
                state: Mapping[str, Any] = client.ask_member(member, "ha", seconds=_MEMBER_SECONDS)
            except ManagementError:  # an earlier version, or it has just ended: the roles are shown instead
                return {}
            return state
    return {}


# ---------------------------------------------------------------- the terminal


def _watch(client: "ManagementClient", view: TopView, interval: float, draw: Any) -> None:
    """Look and draw until a key ends it. A key and a new size of the terminal draw at once."""
    size = os.get_terminal_size()
    while True:
        state = look(client, view, row_count(size.lines))
        draw(screen(state, view, size.columns, size.lines))
        due = time.monotonic() + interval
        while time.monotonic() < due:
            keys = _read_keys(min(_LOOK_SECONDS, max(0.0, due - time.monotonic())))
            if not all(view.press(key, row_count(size.lines)) for key in keys):
                return
            size, former = os.get_terminal_size(), size
            if keys:
                break
            if size != former:
                draw(screen(state, view, size.columns, size.lines))


def _read_keys(seconds: float) -> Sequence[str]:
    """Return the names of the keys that were pressed within a time; none that has no meaning."""
    if not select.select([sys.stdin], [], [], seconds)[0]:
        return ()
    return keys_in(os.read(sys.stdin.fileno(), 1024))


def keys_in(data: bytes) -> Sequence[str]:
    """Return the names of the keys in what a terminal has sent. An end of the input is `q`."""
    if not data:
        return ["q"]
    found: list[str] = []
    while data:
        code = next((each for each in _KEYS if data.startswith(each)), data[:1])
        if code in _KEYS:
            found.append(_KEYS[code])
        data = data[len(code) :]
    return found


@contextmanager
def _raw_keys() -> Generator[None]:
    """Read keys as they are pressed, without an echo; Ctrl-C still interrupts."""
    descriptor = sys.stdin.fileno()
    former = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, former)


@contextmanager
def _screen() -> Generator[Any]:
    """Show screens of lines on the terminal, and what was there before at the end."""
    from rich.console import Console
    from rich.text import Text

    console = Console()  # which obeys NO_COLOR

    def draw(lines: Sequence[Line]) -> None:
        text = Text("\n").join([Text(line.text, line.style, no_wrap=True) for line in lines])
        with console.capture() as captured:
            console.print(text, end="", crop=False, overflow="ignore", soft_wrap=True)
        rows = captured.get().split("\n")
        sys.stdout.write("\x1b[H" + "\x1b[K\r\n".join(rows) + "\x1b[J")
        sys.stdout.flush()

    sys.stdout.write("\x1b[?1049h\x1b[?25l")
    try:
        yield draw
    finally:
        sys.stdout.write("\x1b[?25h\x1b[?1049l")
        sys.stdout.flush()
