"""The types of values of JSON, of which nothing is known before they are looked at."""

from collections.abc import Sequence
from typing import Any, cast


def as_object(value: object) -> dict[str, Any] | None:
    """Return an object; None if a value is another one."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def as_array(value: object) -> Sequence[Any] | None:
    """Return an array; None if a value is another one."""
    return cast("Sequence[Any]", value) if isinstance(value, list) else None
