"""Writes rights as pybroker's file of rules.

Source: `pybroker.security.rules_toml`, which reads it.
"""

import json
from collections.abc import Iterator
from typing import Final

from pybroker.activemq_xml.protection import ConfiguredGrants, ConfiguredRights

HEADER: Final = "# Rights of groups, made from an ActiveMQ's authorizationMap.\n"


def written(rights: ConfiguredRights) -> str:
    """Return the text of the file."""
    lines = [HEADER]
    for rule in rights.rules:
        lines += ["", "[[rules]]", f"{rule.kind} = {_string(rule.pattern)}", *_lines(rule.grants)]
    if rights.default:
        lines += ["", "[default]", *_lines(rights.default)]
    if rights.temporary is not None:
        lines += ["", "[temporary]", *_lines(rights.temporary)]
    return "\n".join(lines) + "\n"


def _lines(grants: ConfiguredGrants) -> Iterator[str]:
    for right in ("read", "write", "admin"):
        groups: tuple[str, ...] = getattr(grants, right)
        if groups:
            yield f"{right} = [{', '.join(map(_string, groups))}]"


def _string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)  # whose escapes are TOML's too
