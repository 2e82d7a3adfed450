"""`pybroker user`: adds, changes, removes, lists and imports the users of a `users.toml`."""

import json
import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import click

from pybroker.broker.app import config as settings
from pybroker.broker.app import security_files
from pybroker.broker.domain.errors import ConfigError
from pybroker.broker.domain.security import ANONYMOUS, User
from pybroker.security import files, hashes, users_toml
from pybroker.security.accounts import Account

_EXAMPLES = """
\b
Examples:
  pybroker user add alice --group orders --group admins     asks for a password
  pass show alice | pybroker user passwd alice              reads it from the standard input
  pybroker user add shop --generate > shop.password         generates one, for a program
  pybroker user list --json
  pybroker user import --users users.properties --groups groups.properties

The file is --file, or PYBROKER_USERS_FILE, or users.toml in this directory. A broker that uses it reads it again
within two seconds; clients of users that were changed or removed are disconnected.
"""


@click.group(epilog=_EXAMPLES)
def user() -> None:
    """Manage the users in a file of a broker's users."""


_file = click.option(
    "--file",
    "path",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar="PYBROKER_USERS_FILE",
    default="users.toml",
    show_default=True,
    help="The file of users.",
)
_generate = click.option(
    "--generate", is_flag=True, help="Generate the password, and print it: for a program, which logs in faster with it."
)
_groups = click.option("--group", "groups", multiple=True, help="A group that the user belongs to; may be repeated.")


@user.command()
@click.argument("name")
@_groups
@_generate
@_file
def add(name: str, groups: tuple[str, ...], generate: bool, path: Path) -> None:
    """Add a user, whose password comes from the terminal or the standard input."""
    if path.suffix != ".toml":
        raise click.ClickException(f"{path}: the name of a file of pybroker's users ends in .toml")
    if name == ANONYMOUS.name:
        raise click.ClickException(f"{name} is the user of clients without a login: choose another name")
    accounts = _read(path, may_be_missing=True)
    if name in accounts:
        raise click.ClickException(f"{path} has user {name} already: change it with `pybroker user passwd {name}`")
    for group in groups:
        if "," in group:
            raise click.ClickException(f"{group}: a group has no comma in its name; write --group for each group")
    for each in (name, *groups):
        users_toml.check_name(each, path, repr(each))
    _store(path, accounts, Account(User(name, frozenset(groups)), ""), generate=generate)
    click.echo(f"{path}: added {name}", err=generate)


@user.command()
@click.argument("name")
@_generate
@_file
def passwd(name: str, generate: bool, path: Path) -> None:
    """Give a user another password."""
    accounts = _read(path)
    _store(path, accounts, _existing(path, accounts, name), generate=generate)
    click.echo(f"{path}: changed the password of {name}", err=generate)


@user.command("del")
@click.argument("name")
@_file
def delete(name: str, path: Path) -> None:
    """Remove a user."""
    accounts = _read(path)
    _existing(path, accounts, name)
    del accounts[name]
    _write(path, accounts)
    click.echo(f"{path}: removed {name}")


@user.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@_file
def list_users(as_json: bool, path: Path) -> None:
    """List users and their groups."""
    accounts = sorted(_read(path).items())
    if as_json:
        rows = [
            {"name": name, "groups": sorted(account.user.groups), "weak_hash": hashes.is_weak(account.secret)}
            for name, account in accounts
        ]
        click.echo(json.dumps(rows, indent=1))
        return
    for name, account in accounts:
        weak = "  (a weak hash: pybroker user passwd)" if hashes.is_weak(account.secret) else ""
        click.echo(f"{name:24} {', '.join(sorted(account.user.groups))}{weak}")


@user.command("import")
@click.option("--users", required=True, type=click.Path(path_type=Path), help="ActiveMQ's users.properties.")
@click.option("--groups", type=click.Path(path_type=Path), help="ActiveMQ's groups.properties.")
@_file
def import_users(users: Path, groups: Path | None, path: Path) -> None:
    """Hash the passwords of an ActiveMQ's users into a users.toml; users that it has already are replaced.

    One whose password is the same keeps its hash, so that its clients stay connected. Others of the file stay.
    """
    given = {"users_file": users} | ({} if groups is None else {"groups_file": groups})
    found = security_files.read_users(settings.Config(**given))
    for warning in found.warnings:
        click.echo(f"pybroker: {warning}", err=True)
    accounts = _read(path, may_be_missing=True)
    for name, account in found.by_name.items():
        users_toml.check_name(name, users, repr(name))
        accounts[name] = Account(account.user, _imported_secret(account, accounts.get(name)))
    _write(path, accounts)
    others = len(accounts) - len(found.by_name)
    click.echo(f"{path}: imported {len(found.by_name)} users" + (f", unchanged: {others}" if others else ""))


def _imported_secret(account: Account, former: Account | None) -> str:
    """Return the hash of an account's password: that of the former account if it is of the same password."""
    if not account.is_plain:
        return account.secret
    if former is not None and not hashes.is_weak(former.secret) and hashes.verify(former.secret, account.secret):
        return former.secret
    return hashes.hashed(account.secret)


def _read(path: Path, *, may_be_missing: bool = False) -> dict[str, Account]:
    if may_be_missing and not path.exists():
        return {}
    return dict(users_toml.read(files.read(path, setting="users_file", has_passwords=False)).by_name)


def _existing(path: Path, accounts: Mapping[str, Account], name: str) -> Account:
    account = accounts.get(name)
    if account is None:
        raise click.ClickException(f"{path} has no user {name}")
    return account


def _store(path: Path, accounts: dict[str, Account], account: Account, *, generate: bool) -> None:
    """Write an account with a new password; print it on the standard output if it is generated."""
    name, password = account.user.name, hashes.generated() if generate else None
    secret = _hashed(name) if password is None else hashes.hashed_generated(password)
    accounts[name] = replace(account, secret=secret)
    _write(path, accounts)
    if password is not None:
        click.echo(password)


def _hashed(name: str) -> str:
    """Read a password, and return its hash."""
    if sys.stdin.isatty():
        password: str = click.prompt(f"Password of {name}", hide_input=True, confirmation_prompt=True)
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    try:
        return hashes.hashed(password)
    except ValueError as error:
        raise click.ClickException(str(error)) from error


def _write(path: Path, accounts: Mapping[str, Account]) -> None:
    """Replace the file in one step, with its owner and permissions; a new one only its owner may read."""
    path = path.resolve()
    try:
        former = path.stat() if path.exists() else None
        descriptor, copy = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(users_toml.written(accounts))
                file.flush()
                if former is not None:
                    os.fchmod(descriptor, former.st_mode & 0o777)
                    if (former.st_uid, former.st_gid) != (os.geteuid(), os.getegid()):
                        os.fchown(descriptor, former.st_uid, former.st_gid)
                os.fsync(descriptor)
            Path(copy).replace(path)
        except BaseException:
            Path(copy).unlink()
            raise
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}", setting="users_file") from error
