"""Files of users and rules for brokers that are measured with logins."""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from pybroker.broker.domain.security import User
from pybroker.security import hashes, users_toml
from pybroker.security.accounts import Account

GROUP: Final = "clients"
RULES: Final = 100
_PATTERNS: Final = ('queue = "BENCH.>"', 'topic = "BENCH.>"', 'queue = "BYSTANDER.>"', 'topic = "ActiveMQ.Advisory.>"')
"""What measured clients use. Each of the other rules is for a queue of its own and another group."""


def write_users(file: Path, passwords: Mapping[str, str], hashed: Callable[[str], str] = hashes.hashed) -> None:
    """Write a file of users of the group `GROUP`, hashed as `pybroker user add` hashes."""
    with ThreadPoolExecutor() as threads:  # a hash takes tens of milliseconds
        made = threads.map(hashed, passwords.values())
    users = {
        name: Account(User(name, frozenset((GROUP,))), secret) for name, secret in zip(passwords, made, strict=True)
    }
    file.write_text(users_toml.written(users))


def write_rules(file: Path, count: int = RULES) -> None:
    """Write a file with so many rules, of which few are for what measured clients use."""
    rules = [_rule(pattern, GROUP) for pattern in _PATTERNS]
    rules += [_rule(f'queue = "APPLICATION.{number}.>"', f"group{number}") for number in range(count - len(rules))]
    file.write_text("\n".join(rules))


def security_arguments(
    directory: Path, passwords: Mapping[str, str], hashed: Callable[[str], str] = hashes.hashed
) -> list[str]:
    """Write both files into a directory; return the arguments of `pybroker start` for them."""
    users, rules = directory / "users.toml", directory / "rules.toml"
    write_users(users, passwords, hashed)
    write_rules(rules)
    return ["--users-file", str(users), "--rules-file", str(rules)]


def _rule(what: str, group: str) -> str:
    return f'[[rules]]\n{what}\nread = ["{group}"]\nwrite = ["{group}"]\nadmin = ["{group}"]\n'
