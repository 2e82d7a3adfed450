"""The file of rules: which groups may read, write and administer which destinations.

```toml
[[rules]]
queue = "ORDERS.>"          # or `topic`
read = ["billing"]
write = ["shop"]
admin = ["admins"]

[default]                   # in addition, for every queue and topic
admin = ["admins"]

[temporary]                 # for temporary destinations; without this table every user may use them, empty: none
read = ["*"]
write = ["*"]
admin = ["*"]
```

It has the meaning of ActiveMQ's `authorizationMap`. Source: security.md, section 4.1.
"""

import re
from collections.abc import Collection
from pathlib import Path
from typing import Final, cast

from pybroker.broker.domain.destination import Destination, DestinationType
from pybroker.broker.domain.errors import ConfigError
from pybroker.broker.domain.rules import EVERY_USER, NO_GRANTS, Grants, Rule, Rules
from pybroker.security.files import Content

RULES_MAX: Final = 2_000
"""The limit to the rules of a file, so that other rules take effect in some milliseconds."""

_RIGHTS: Final = ("read", "write", "admin")
_KINDS: Final = {"queue": DestinationType.QUEUE, "topic": DestinationType.TOPIC}
_TABLES: Final = frozenset(("rules", "default", "temporary"))
_HEADER: Final = re.compile(rb"^[ \t]*\[\[[ \t]*rules[ \t]*\]\]", re.MULTILINE)


def read(content: Content) -> Rules:
    """Return the rules of a file.

    Raises:
        ConfigError: the file has no such rules; the error names file, line and remedy.
    """
    import tomllib  # which a broker without rules does not need

    try:
        tables = tomllib.loads(content.data.decode())
    except (ValueError, RecursionError) as error:  # TOML that is none, and what the parser of Python cannot take
        raise _error(str(content.path), f"it is no TOML: {error}") from error
    if unknown := tables.keys() - _TABLES:
        raise _error(
            str(content.path),
            f"it has tables [[rules]], [default] and [temporary], and nothing else, but here is {min(unknown)!r}",
        )
    if not tables.keys() & {"rules", "default"}:  # a file that is being written, rather than one that forbids all
        raise _error(str(content.path), "it has no rules: write [[rules]], or [default]")
    listed = tables.get("rules", [])
    if not isinstance(listed, list):
        raise _error(str(content.path), "write each rule below a line [[rules]], with two brackets")
    if len(cast("list[object]", listed)) > RULES_MAX:
        raise _error(str(content.path), f"it has more than {RULES_MAX:,} rules: give names that patterns can cover")
    places = _Places(content)
    rules = tuple(
        [_rule(places.rule(number), each) for number, each in enumerate(cast("list[object]", listed), start=1)]
    )
    default = _grants(places.table("default"), tables["default"]) if "default" in tables else NO_GRANTS
    temporary = None
    if "temporary" in tables:
        temporary = _grants(places.table("temporary"), tables["temporary"], may_be_empty=True)
    return Rules(rules, default, temporary, content.warnings)


def unknown_groups(rules: Rules, known: Collection[str]) -> list[str]:
    """Return the groups of rules to which no user belongs, in alphabetical order."""
    every = [rule.grants for rule in rules.rules] + [rules.default, rules.temporary or NO_GRANTS]
    named = {group for grants in every for group in grants.read | grants.write | grants.admin}
    return sorted(named - {EVERY_USER} - set(known))


class _Places:
    """The line numbers of the tables of a file, for errors: the TOML parser reports none."""

    def __init__(self, content: Content) -> None:
        self._path = content.path
        self._data = content.data
        self._headers = [content.data.count(b"\n", 0, each.end()) + 1 for each in _HEADER.finditer(content.data)]

    def rule(self, number: int) -> str:
        """Return the place of a rule; its number alone if the file has them in a form without headers."""
        line = f", line {self._headers[number - 1]}" if len(self._headers) >= number else ""
        return f"{self._path}{line}: rule {number}"

    def table(self, name: str) -> str:
        """Return the place of a table."""
        found = re.search(rb"^[ \t]*\[[ \t]*" + name.encode() + rb"[ \t]*\]", self._data, re.MULTILINE)
        line = f", line {self._data.count(bytes((10,)), 0, found.end()) + 1}" if found else ""
        return f"{self._path}{line}: [{name}]"


def _rule(where: str, value: object) -> Rule:
    fields = _table(where, value, ("queue", "topic", *_RIGHTS))
    kinds = [kind for kind in _KINDS if kind in fields]
    if len(kinds) != 1:
        raise _error(where, 'write either `queue = "NAME"` or `topic = "NAME"`; a rule for both is two rules')
    name = fields[kinds[0]]
    if not isinstance(name, str):
        raise _error(where, f'`{kinds[0]}` is a name, such as "ORDERS" or "ORDERS.>"')
    _check_name(f"{where}, {kinds[0]} {name!r}", name)
    where = f"{where}, {kinds[0]} {name!r}"
    grants = _grants(where, {right: fields[right] for right in _RIGHTS if right in fields})
    return Rule(Destination(_KINDS[kinds[0]], name), grants)


def _grants(where: str, value: object, *, may_be_empty: bool = False) -> Grants:
    fields = _table(where, value, _RIGHTS)
    read, write, admin = (_groups(where, right, fields.get(right, [])) for right in _RIGHTS)
    if not may_be_empty and not read and not write and not admin:
        raise _error(where, 'it gives no right to any group: write for example read = ["GROUP"], or delete it')
    return Grants(read, write, admin)


def _groups(where: str, right: str, value: object) -> frozenset[str]:
    names = cast("list[object]", value) if isinstance(value, list) else [value]
    found = frozenset([each for each in names if isinstance(each, str)])
    if names is not value or len(found) != len(set(map(repr, names))):
        raise _error(where, f'`{right}` is a list of groups, such as ["admins", "billing"], or ["*"] for every user')
    for each in found:
        if not each or each != each.strip() or "," in each:
            raise _error(where, f"`{right}` has {each!r}: write each group as a string of its own, without blanks")
    return found


def _check_name(where: str, name: str) -> None:
    """Check that a pattern can cover a destination as it was meant."""
    levels = name.split(".")
    if not name or name != name.strip() or not name.isprintable():
        raise _error(where, "a name is not empty, and has no control characters and no blanks around it")
    if "," in name:
        raise _error(where, "a rule is for one name or pattern: write a rule for each part")
    if name.startswith(("queue://", "topic://")) or "?" in name:
        raise _error(where, "a name has neither a prefix, such as queue://, nor options behind a `?`")
    if any([each not in ("*", ">") and ("*" in each or ">" in each) for each in levels]) or ">" in levels[:-1]:
        raise _error(
            where,
            "`*` stands for one whole level, and `>` as the last level for all that follow: write A.* or A.>",
        )


def _table(where: str, value: object, keys: Collection[str]) -> dict[str, object]:
    fields = cast("dict[str, object]", value) if isinstance(value, dict) else None
    if fields is None or fields.keys() - set(keys):
        wrong = "" if fields is None else f", but here is {min(fields.keys() - set(keys))!r}"
        raise _error(where, f"it has {', '.join([f'`{key}`' for key in keys])}, and nothing else{wrong}")
    return fields


def _error(where: str | Path, message: str) -> ConfigError:
    return ConfigError(f"{where}: {message}", setting="rules_file")
