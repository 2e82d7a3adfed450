"""Writes settings as TOML, with a comment on each that says where it came from.

Python reads TOML and does not write it; what settings have is text, numbers, yes or no, lists, and tables.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast


def toml_lines(settings: Mapping[str, Any], comments: Mapping[str, str]) -> Iterator[str]:
    """Return the lines of a file.

    Args:
        settings: values of TOML's types, by the names of settings; tables are written last, as TOML needs it.
        comments: a comment for some of them.
    """
    plain = {name: value for name, value in settings.items() if not _is_table(value)}
    for name, value in plain.items():
        yield f"{_key(name)} = {_value(value)}{_comment(comments.get(name))}"
    for name, value in settings.items():
        if name not in plain:
            yield ""
            if name in comments:
                yield _comment(comments[name]).lstrip()
            yield from _table(_key(name), value)


def comment(text: str) -> str:
    """Return a comment in one line, without the control characters and half surrogate pairs that TOML forbids."""
    return f"# {''.join(each if each.isprintable() else ' ' for each in ' '.join(text.split()))}"


def _comment(text: str | None) -> str:
    """Return a comment behind a value."""
    return "" if text is None else f"  {comment(text)}"


def _is_table(value: object) -> bool:
    """Return True for a table, or a list of tables and nothing else."""
    return isinstance(value, Mapping) or _is_list_of_tables(value)


def _is_list_of_tables(value: object) -> bool:
    if not isinstance(value, list) or not value:
        return False
    return all(isinstance(each, Mapping) for each in cast("list[object]", value))


def _table(name: str, value: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if not isinstance(value, Mapping):
        for number, each in enumerate(value):
            if number:
                yield ""
            yield f"[[{name}]]"
            yield from (f"{_key(key)} = {_value(inner)}" for key, inner in each.items())
        return
    yield f"[{name}]"
    lists = {key: inner for key, inner in value.items() if _is_list_of_tables(inner)}
    yield from (f"{_key(key)} = {_value(inner)}" for key, inner in value.items() if key not in lists)
    for key, inner in lists.items():
        yield ""
        yield from _table(f"{name}.{_key(key)}", inner)


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Mapping):
        inner = ", ".join(
            f"{_key(str(key))} = {_value(each)}" for key, each in cast("Mapping[str, object]", value).items()
        )
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, cast('Sequence[object]', value)))}]"
    return repr(value)  # a number


def _key(name: str) -> str:
    """Return a key, in quotes unless it needs none."""
    is_bare = name.isascii() and name.replace("_", "").replace("-", "").isalnum()
    return name if is_bare else _text(name)


def _text(value: str) -> str:
    """Return a basic string; JSON's escapes are TOML's, but for DEL, which JSON leaves as it is."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
