"""The command line as a client: `pybroker produce | consume | browse`.

The commands are carried out by `client`, which is imported when one runs.
"""

import os
import sys
from collections.abc import Callable, Iterator
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pybroker.broker.domain.errors import BrokerError, ConfigError
from pybroker.counted import counted
from pybroker.units import parse_duration

if TYPE_CHECKING:
    from pybroker.broker.app.client import Access
    from pybroker.broker.app.message_json import Parcel
    from pybroker.broker.domain.destination import Destination
    from pybroker.client.messages import Message

_EXIT_FAILED = 1
_EXIT_INTERRUPTED = 130

_EXIT_CODES = """
\b
Exit codes:
  0    done, and everything that was counted is confirmed by the broker
  1    the broker, the connection, the input or the output failed; standard error has the counts
  2    an argument, the URL or a file that it names cannot be used; nothing was sent or consumed
  130  interrupted
"""


def _duration(_: click.Context, option: click.Parameter, text: str | None) -> float | None:
    """Return the seconds of a time such as `2s` or `500ms`."""
    try:
        return None if text is None else parse_duration(text)
    except ValueError as error:
        raise ConfigError(str(error), setting=option.opts[0]) from error


_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)

_ACCESS = (
    click.option(
        "--url",
        default="tcp://127.0.0.1:61616",
        envvar="PYBROKER_URL",
        show_default=True,
        help="The broker's URL: `tcp`, `ssl` and `auto` speak OpenWire, `stomp` and `stomp+ssl` STOMP; "
        "`failover:(tcp://a:61616,tcp://b:61616)`, with ActiveMQ's options, fails over to the next one.  "
        "[environment: PYBROKER_URL]",
    ),
    click.option("--user", envvar="PYBROKER_USER", help="The user to log in.  [environment: PYBROKER_USER]"),
    click.option(
        "--password-file",
        type=_FILE,
        help="File whose first line is the password. The default is the environment variable PYBROKER_PASSWORD.",
    ),
    click.option("--ask-password", is_flag=True, help="Ask for the password on the terminal."),
    click.option("--ca", "ca_file", type=_FILE, help="Trusted authorities instead of the system's, PEM."),
    click.option("--cert", "certificate_file", type=_FILE, help="A client certificate, PEM, perhaps with its key."),
    click.option(
        "--key",
        "key_file",
        type=_FILE,
        help="The certificate's key, PEM. PYBROKER_KEY_PASSWORD, or a prompt, has an encrypted key's password.",
    ),
    click.option(
        "--timeout",
        callback=_duration,
        metavar="DURATION",
        help="Give up when no broker answers for so long, to connect, to confirm, or while the next one takes over.  "
        "[default: the URL's, or 30s]",
    ),
)


def _with_access(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of the connection to a command."""
    for option in reversed(_ACCESS):
        command = option(command)
    return command


def _access(options: dict[str, Any]) -> "Access":
    from pybroker.broker.app.client import Access

    file, ask = options.pop("password_file"), options.pop("ask_password")
    if file is not None and ask:
        raise ConfigError("either --password-file or --ask-password", setting="--password-file")
    if file is not None:
        password = file.read_text(encoding="utf-8").partition("\n")[0].removesuffix("\r")
    elif ask:
        password = click.prompt("Password", hide_input=True, err=True)
    else:
        password = os.environ.get("PYBROKER_PASSWORD")
    if options["key_file"] is not None and options["certificate_file"] is None:
        raise ConfigError("a key needs its certificate", setting="--key", hint="add --cert FILE")
    return Access(password=password, key_password=os.environ.get("PYBROKER_KEY_PASSWORD"), **options)


def _destination(text: str) -> "Destination":
    from pybroker.broker.app.message_json import InvalidInput, read_destination

    try:
        return read_destination("it is no destination", text)
    except InvalidInput as error:
        raise ConfigError(str(error), setting="DESTINATION") from error


def _fail(failure: BrokerError) -> None:
    click.echo(f"pybroker: {failure}", err=True)
    sys.exit(_EXIT_FAILED)


_selector = click.option("--selector", help="Only messages that match this SQL-92 condition.")
_json_out = click.option(
    "--json", "as_json", is_flag=True, help="Print each message as one line of JSON, whole and with its types."
)


# ---------------------------------------------------------------- produce

_PRODUCE_EXAMPLES = f"""
\b
Examples:
  pybroker produce ORDERS 'order 1' 'order 2' --header region=eu --header weight:=4.5
  pybroker produce queue://ORDERS --count 1000 hello
  pybroker produce ORDERS < orders.txt
  pybroker produce --json < saved.jsonl                  to the destinations they came from
  pybroker consume OLD --json > saved.jsonl && pybroker produce NEW --json < saved.jsonl
{_EXIT_CODES}"""


@click.command(epilog=_PRODUCE_EXAMPLES)
@_with_access
@click.argument("destination", required=False)
@click.argument("texts", nargs=-1)
@click.option("--count", type=click.IntRange(min=1), default=1, show_default=True, help="Send each text so many times.")
@click.option(
    "--header",
    "headers",
    multiple=True,
    metavar="NAME=TEXT",
    help="A header of JMS, such as JMSPriority or JMSCorrelationID, otherwise a property; NAME:=JSON gives a property "
    "that is no text. May be repeated.",
)
@click.option(
    "--persistent/--non-persistent", default=None, help="Messages survive a crash of the broker.  [default: persistent]"
)
@click.option(
    "--bytes", "as_bytes", is_flag=True, help="Send BytesMessages; otherwise a text that is no UTF-8 is refused."
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Read messages in the form of `consume --json`, one a line, and print the counts as JSON.",
)
def produce(
    destination: str | None,
    texts: tuple[str, ...],
    count: int,
    headers: tuple[str, ...],
    persistent: bool | None,
    as_bytes: bool,
    as_json: bool,
    **access: Any,
) -> None:
    """Send texts to a destination, or the lines of standard input when there are none.

    With --json and no destination, each message goes to its own JMSDestination.
    """
    from pybroker.broker.app.client import produce as run

    if destination is None and not as_json:
        raise click.UsageError("Missing argument 'DESTINATION'.")
    if as_bytes and as_json:
        raise ConfigError("a message in JSON has its own type", setting="--bytes")
    extra = _headers(headers) | ({} if persistent is None else {"persistent": persistent})
    lines: Iterator[bytes] = (
        map(os.fsencode, texts) if texts else (line.removesuffix(b"\n") for line in sys.stdin.buffer)
    )
    parcels = _parcels(lines, extra, as_bytes=as_bytes, as_json=as_json)
    done = run(
        _access(access),
        None if destination is None else _destination(destination),
        (parcel for each in parcels for parcel in repeat(each, count)),
    )
    if as_json:
        from pybroker.broker.app.message_json import dumps

        click.echo(dumps({"sent": done.sent, "confirmed": done.confirmed}))
    elif done.failure is None:
        click.echo(f"sent {done.sent}, {_confirmed(done.sent, done.confirmed)}")
    if done.failure is not None:
        click.echo(f"pybroker: sent {done.sent}, {_confirmed(done.sent, done.confirmed)}", err=True)
        _fail(done.failure)


def _confirmed(sent: int, confirmed: int) -> str:
    return "each confirmed by the broker" if confirmed == sent else f"{confirmed} of them confirmed by the broker"


def _headers(texts: tuple[str, ...]) -> dict[str, Any]:
    from pybroker.broker.app.message_json import InvalidInput, read_header

    found: dict[str, Any] = {}
    for text in texts:
        try:
            read_header(text, found)
        except InvalidInput as error:
            raise ConfigError(str(error), setting="--header") from error
    return found


def _parcels(lines: Iterator[bytes], extra: dict[str, Any], *, as_bytes: bool, as_json: bool) -> Iterator["Parcel"]:
    """Yield a message for each line; options for all messages override those of a line."""
    from pybroker.broker.app.message_json import InvalidInput, Parcel, from_json

    for number, line in enumerate(lines, 1):
        try:
            if not as_json:
                found = Parcel(destination=None, body=line if as_bytes else line.decode(), headers={})
            elif line.strip():
                found = from_json(line)
            else:
                continue
        except UnicodeDecodeError as error:
            raise InvalidInput(f"text {number} is no UTF-8: send it with --bytes ({error.reason})") from error
        except InvalidInput as error:
            raise InvalidInput(f"line {number}: {error}") from error
        properties = {**found.headers.get("properties", {}), **extra.get("properties", {})}
        headers: Any = {**found.headers, **extra, "properties": properties}
        yield Parcel(destination=found.destination, body=found.body, headers=headers)


# ---------------------------------------------------------------- consume

_CONSUME_EXAMPLES = f"""
\b
Examples:
  pybroker consume ORDERS --count 10
  pybroker consume '/topic/PRICES.>' --follow --json
  pybroker consume ORDERS --json --url 'failover:(ssl://a:61617,ssl://b:61617)' --ca ca.pem --user ops
{_EXIT_CODES}"""


@click.command(epilog=_CONSUME_EXAMPLES)
@_with_access
@click.argument("destination")
@click.option("--count", type=click.IntRange(min=1), help="Stop after so many messages.")
@click.option(
    "--idle",
    callback=_duration,
    metavar="DURATION",
    default="2s",
    show_default=True,
    help="Stop after so long without a message.",
)
@click.option("--follow", is_flag=True, help="Wait for ever.")
@_selector
@_json_out
def consume(
    destination: str,
    count: int | None,
    idle: float,
    follow: bool,
    selector: str | None,
    as_json: bool,
    **access: Any,
) -> None:
    """Receive messages, and acknowledge each once it is written to standard output, in a file also synced.

    To read messages without consuming them, use `pybroker browse`. A message that cannot be shown whole stays
    with the broker. Output in a pipe counts as written, so stop at a number by --count, not by `head`. Ctrl-C ends it
    once all written messages are acknowledged, a second one at once.
    """
    from pybroker.broker.app.client import as_text, shown_whole
    from pybroker.broker.app.client import consume as run
    from pybroker.broker.app.message_json import as_json as in_json
    from pybroker.broker.app.message_json import dumps
    from pybroker.broker.app.output import BufferedOutput

    if "stdout" in (click.get_current_context().obj or ()):
        problem = "it is closed, so messages would be acknowledged and not shown"
        raise ConfigError(problem, setting="standard output", hint="redirect it, to /dev/null if that is meant")

    def render(message: "Message") -> bytes:
        whole = shown_whole(message)
        return dumps(in_json(whole)) if as_json else as_text(whole)

    done = run(
        _access(access),
        _destination(destination),
        BufferedOutput(),
        render,
        selector=selector,
        count=count,
        idle=None if follow else idle,
    )
    for why in done.left.values():
        click.echo(f"pybroker: left with the broker: {why}", err=True)
    if done.failure is not None or done.left or done.is_interrupted:
        click.echo(f"pybroker: wrote {counted(done.written, 'message')}, acknowledged {done.acknowledged}", err=True)
    if done.failure is not None:
        _fail(done.failure)
    if done.is_interrupted:
        sys.exit(_EXIT_INTERRUPTED)
    if done.left:
        sys.exit(_EXIT_FAILED)


# ---------------------------------------------------------------- browse

_BROWSE_EXAMPLES = f"""
\b
Examples:
  pybroker browse ActiveMQ.DLQ --json
  pybroker browse ORDERS --selector "region = 'eu'"
{_EXIT_CODES}"""


@click.command(epilog=_BROWSE_EXAMPLES)
@_with_access
@click.argument("destination")
@_selector
@_json_out
def browse(destination: str, selector: str | None, as_json: bool, **access: Any) -> None:
    """Show the messages of a queue, without consuming them."""
    from pybroker.broker.app.client import as_text
    from pybroker.broker.app.client import browse as run
    from pybroker.broker.app.message_json import as_json as in_json
    from pybroker.broker.app.message_json import dumps, headers
    from pybroker.broker.app.output import BufferedOutput
    from pybroker.client.errors import UnreadableMessage

    def render(message: "Message") -> bytes:
        try:
            return dumps(in_json(message)) if as_json else f"{message.id}  ".encode() + as_text(message)
        except UnreadableMessage as error:
            problem = str(error)
        if as_json:
            return dumps({"type": message.kind, "headers": headers(message), "problem": problem})
        return f"{message.id}  (damaged: {problem})".encode()

    run(_access(access), _destination(destination), BufferedOutput(), render, selector)
