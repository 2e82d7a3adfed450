"""The options of the commands for operators by which they find the members of a pair and log in; and their exit codes.

The members are those that `--url` names; or those whose entries in the store, by `--store` or the settings of
`--config`, have an address of management.
"""

import os
import socket
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from pybroker.broker.domain.errors import ConfigError
from pybroker.units import parse_duration

if TYPE_CHECKING:
    from pybroker.broker.app.status import Status
    from pybroker.management_client.address import ApiAddress
    from pybroker.management_client.client import ManagementClient
    from pybroker.management_client.exchange import ApiLogin
    from pybroker.store.members import MemberRecord

DEFAULT_URL: Final = "http://127.0.0.1:8161"
URL_VARIABLE: Final = "PYBROKER_MANAGEMENT_URL"
STORE_VARIABLE: Final = "PYBROKER_STORE"
PASSWORD_VARIABLE: Final = "PYBROKER_PASSWORD"  # noqa: S105 - the name of a variable

EXIT_CODES: Final = """
\b
Exit codes:
  0    done
  1    the master has refused or failed, or the question was not answered with yes
  2    an argument or a setting cannot be used; nothing was asked
  3    no member answers
  4    members answer, and none of them is the master (yet)
  5    not logged in, or without the right to do that
  130  interrupted
"""

_ANY: Final = ("", "0.0.0.0", "::")  # noqa: S104 - compared with
"""Hosts that stand for all addresses of a machine."""


class OperatorCommand(click.Command):
    """A command whose errors of management are one line and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run it."""
        from pybroker.management_client.errors import ManagementError

        try:
            return super().invoke(ctx)
        except ManagementError as error:
            sys.stdout.flush()
            click.echo(f"pybroker: {error}{_hint(error, ctx)}", err=True)
            sys.exit(error.exit_code)


def _hint(error: Exception, ctx: click.Context) -> str:
    from pybroker.management_client.errors import LoginNeeded, MemberMissing

    is_named = any(ctx.params.get(each) for each in ("urls", "directory", "config_file"))
    if isinstance(error, MemberMissing) and not (is_named or os.environ.get(URL_VARIABLE)):
        return f"; name the members with --url, {URL_VARIABLE}, --store or --config; they need the setting `management`"
    needs_login = isinstance(error, LoginNeeded) and "log in" in str(error)
    return f" (--user, and {PASSWORD_VARIABLE} or --password-file)" if needs_login else ""


def _duration(_: click.Context, option: click.Parameter, text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise ConfigError(str(error), setting=option.opts[0]) from error


_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)

_OPTIONS = (
    click.option(
        "--url",
        "urls",
        multiple=True,
        metavar="URL",
        help="A member's address of management, `http://HOST:PORT` or `https://HOST:PORT`; of a pair both, repeated or "
        f"with a comma: the master is found.  [environment: {URL_VARIABLE}]  [default: {DEFAULT_URL}]",
    ),
    click.option(
        "--store",
        "directory",
        metavar="DIR",
        help=f"The data directory of the pair, whose members are found there.  [environment: {STORE_VARIABLE}]",
    ),
    click.option(
        "--config",
        "config_file",
        type=click.Path(path_type=Path),
        help="TOML file with the settings of a member, instead of --store.",
    ),
    click.option("--user", envvar="PYBROKER_USER", help="The user to log in.  [environment: PYBROKER_USER]"),
    click.option(
        "--password-file",
        type=_FILE,
        help="File whose first line is the password. The default is the environment variable PYBROKER_PASSWORD, and "
        "then a question on the terminal.",
    ),
    click.option("--ca", "ca_file", type=_FILE, help="Trusted authorities instead of the system's, PEM."),
    click.option(
        "--insecure-http", is_flag=True, help="Send the password to another host without TLS, where others can read it."
    ),
    click.option(
        "--wait",
        "wait_seconds",
        callback=_duration,
        metavar="DURATION",
        default="0s",
        show_default=True,
        help="Wait for a master for so long, such as during a failover.",
    ),
)


def with_access(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options to a command, which gets them as `access`."""
    names = ("urls", "directory", "config_file", "user", "password_file", "ca_file", "insecure_http", "wait_seconds")

    @wraps(command)
    def with_options(**given: Any) -> None:
        access = OperatorAccess(**{name: given.pop(name) for name in names})
        command(access=access, **given)

    wrapped: Callable[..., None] = with_options
    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped


class OperatorAccess(NamedTuple):
    """The options as they are given."""

    urls: tuple[str, ...]
    directory: str | None
    config_file: Path | None
    user: str | None
    password_file: Path | None
    ca_file: Path | None
    insecure_http: bool
    wait_seconds: float

    def client(self, *, is_quiet: bool = False) -> "ManagementClient":
        """Return a client of the members, which reports which of them it asks unless it is to be quiet.

        Raises:
            ConfigError: an option cannot be used.
            ManagementError: no member can be asked.
        """
        found = self.client_or_store(is_quiet=is_quiet)
        if isinstance(found, StoppedStore):
            from pybroker.management_client.errors import MemberMissing

            raise MemberMissing(
                f"no member of {found.store} runs{found.locked_by}: its journal can be read, by `pybroker queues` and "
                "`pybroker messages`, and for all else a member has to run"
            )
        return found

    def client_or_store(self, *, is_quiet: bool = False) -> "ManagementClient | StoppedStore":
        """Return a client of the members, or their store if no member of it runs.

        Raises:
            ConfigError: an option cannot be used.
            ManagementError: no member can be asked.
        """
        from pybroker.management_client.client import ManagementClient

        members = self._members()
        if isinstance(members, StoppedStore):
            return members
        login = self._login(members)
        return ManagementClient(
            members, login, wait_seconds=self.wait_seconds, report=_unreported if is_quiet else report
        )

    # ------------------------------------------------------------ members

    def _members(self) -> "Sequence[ApiAddress] | StoppedStore":
        from pybroker.broker.app import argv
        from pybroker.management_client.address import addresses

        argv.hide_passwords()
        if sum(map(bool, (self.urls, self.directory, self.config_file))) > 1:
            raise ConfigError("name the members by one of --url, --store and --config", setting="--url")
        if self.config_file is not None:
            return _of_settings(self.config_file)
        variables = os.environ
        store = self.directory or (not self.urls and not variables.get(URL_VARIABLE) and variables.get(STORE_VARIABLE))
        if store:
            return _of_store(store)
        found = addresses(self.urls or [variables.get(URL_VARIABLE) or DEFAULT_URL])
        if not found:
            raise ConfigError("it names no member", setting="--url")
        return found

    # ------------------------------------------------------------ login

    def _login(self, members: "Sequence[ApiAddress]") -> "ApiLogin":
        import ssl

        from pybroker.management_client.exchange import ApiLogin

        tls = None
        if any(each.is_tls for each in members):
            try:
                tls = ssl.create_default_context(cafile=None if self.ca_file is None else str(self.ca_file))
            except OSError as error:  # ssl.SSLError is one
                text = f"{self.ca_file}: {error.strerror or error}"
                raise ConfigError(
                    text, setting="--ca", hint="it must hold PEM, text between BEGIN and END lines"
                ) from error
        if not self.user:
            return ApiLogin(tls=tls)
        if ":" in self.user:
            raise ConfigError("a user name with a colon cannot log in over HTTP", setting="--user")
        open_members = [each.url for each in members if not each.is_confidential]
        if open_members and not self.insecure_http:
            # Refused rather than warned of: the warning of a job that runs by night is read by no one, and who reads
            # the password may then do everything that its user may.
            raise ConfigError(
                f"the password would go to {open_members[0]} where others can read it",
                setting="--user",
                hint="set management_tls on the members and use https, or send it all the same with --insecure-http",
            )
        return ApiLogin(user=self.user, password=self._password(), tls=tls)

    def _password(self) -> str:
        if self.password_file is not None:
            try:
                return self.password_file.read_text(encoding="utf-8").partition("\n")[0].removesuffix("\r")
            except (OSError, UnicodeDecodeError) as error:
                raise ConfigError(f"{self.password_file}: {error}", setting="--password-file") from error
        if (password := os.environ.get(PASSWORD_VARIABLE)) is not None:
            return password
        if not sys.stdin.isatty():
            raise ConfigError(
                f"there is no password for {self.user}",
                setting="--user",
                hint=f"set {PASSWORD_VARIABLE}, or name a file with --password-file",
            )
        asked: str = click.prompt(f"Password of {self.user}", hide_input=True, err=True)
        return asked


def report(text: str) -> None:
    """Print a sentence to standard error."""
    click.echo(f"pybroker: {text}", err=True)


def _unreported(text: str) -> None:
    """Leave a sentence out, where a screen shows the same."""


# ---------------------------------------------------------------- members of a store


class StoppedStore(NamedTuple):
    """A store without a running member.

    Attributes:
        store: its directory.
        locked_by: the other process that has its lock, in words, after a comma; empty for none.
    """

    store: str
    locked_by: str


def _of_settings(file: Path) -> "Sequence[ApiAddress] | StoppedStore":
    """Return the members of the store of a settings file; the one of this machine alone if its store has no entries."""
    from pybroker.broker.app.config import load
    from pybroker.management_client.address import ApiAddress

    config = load(file, {})
    found: Sequence[ApiAddress] | StoppedStore = ()
    if config.is_in_directory and Path(config.store).is_dir():
        found = _of_store(config.store)
    if found or config.management is None:
        if not found:
            raise ConfigError("management is not set", setting="--config", hint="set it, or name a member with --url")
        return found
    host = config.management.host or config.bind
    where = "127.0.0.1" if host in _ANY else host
    return [ApiAddress(host=where, port=config.management.port, is_tls=config.management_tls)]


def _of_store(store: str) -> "Sequence[ApiAddress] | StoppedStore":
    """Return the addresses of the members that run, the master's first.

    Raises:
        ConfigError: the store cannot be used for this.
        MemberMissing: members run, without management.
    """
    from pybroker.broker.app.status import read
    from pybroker.broker.app.stores import MEMORY_STORE, is_database
    from pybroker.management_client.errors import MemberMissing

    if is_database(store) or store == MEMORY_STORE:
        what = "a store in memory" if store == MEMORY_STORE else "a store in a database"
        raise ConfigError(f"{what} has no entries of members", setting="--store", hint="name the members with --url")
    status = read(store)
    running = [each.member for each in status.members if each.alive and each.member is not None]
    if not running:
        return StoppedStore(store, _locked_by(status))
    running.sort(key=lambda member: member.role.value != "MASTER")
    found = [address for member in running if (address := reachable(member)) is not None]
    if not found:
        names = ", ".join(f"{member.name} on {member.host}" for member in running)
        raise MemberMissing(
            f"the members of {store} have no management that can be reached from here ({names}): set `management`, or "
            "name a member with --url"
        )
    return found


def reachable(member: "MemberRecord") -> "ApiAddress | None":
    """Return the address of a member's management as this machine reaches it; None if it cannot."""
    from dataclasses import replace

    from pybroker.broker.domain.addresses import is_loopback
    from pybroker.management_client.address import ApiAddress

    if not member.management:
        return None
    address, is_here = ApiAddress.of(member.management), member.host == socket.gethostname()
    if address.host == member.host and is_here and not address.is_tls:  # it serves all addresses of this machine
        return replace(address, host="127.0.0.1")
    return None if is_loopback(address.host) and not is_here else address


def _locked_by(status: "Status") -> str:
    if not status.locked:
        return ""
    who = f"process {status.holder_pid}" if status.holder_pid and status.holder_pid > 0 else "another process"
    return f", though {who} has its lock (an ActiveMQ?)"
