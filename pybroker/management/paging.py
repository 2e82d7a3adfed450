"""Pages of rows: filtered by name, sorted by a column, so many at a time."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, Generic, TypeVar

from pybroker.broker.domain.node_requests import RequestFailed
from pybroker.management.routes import Parameter

PAGE_SIZE: Final = 100
PAGE_SIZE_MAX: Final = 1000

_DIGITS_MAX: Final = 19
"""The digits of the largest number of 64 bits."""

ItemT = TypeVar("ItemT")

ValueOf = Callable[[ItemT, str], Any]
"""Returns the value of a column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPage(Generic[ItemT]):
    """A page.

    Attributes:
        items: its items.
        count: the number of the items of all pages.
        number: its number, from 1 on.
        size: the number of items that a page has at most.
    """

    items: Sequence[ItemT]
    count: int
    number: int
    size: int

    def as_json(self, json_of: Callable[[ItemT], Any]) -> dict[str, Any]:
        """Return the page with its items as JSON."""
        items = [json_of(each) for each in self.items]
        return {"items": items, "count": self.count, "page": self.number, "page_size": self.size}


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRequest:
    """A page as it is asked for.

    Attributes:
        number: the number of the page, from 1 on.
        size: the number of its items.
        sort: the column to sort by; empty: the order that the rows have.
        is_descending: True for the largest first.
        text: a part of the name, in capitals or not; empty: all.
    """

    number: int = 1
    size: int = PAGE_SIZE
    sort: str = ""
    is_descending: bool = False
    text: str = ""

    @classmethod
    def of(cls, query: Mapping[str, str], columns: Sequence[str]) -> "PageRequest":
        """Return the page that a query asks for.

        Raises:
            RequestFailed: a parameter is not valid.
        """
        sort, order = query.get("sort", ""), query.get("order", "asc")
        if sort and sort not in columns:
            raise RequestFailed(HTTPStatus.BAD_REQUEST, f"sort: there is no column {sort!r}, but {', '.join(columns)}")
        if order not in ("asc", "desc"):
            raise RequestFailed(HTTPStatus.BAD_REQUEST, f"order is asc or desc, not {order!r}")
        return cls(
            number=whole(query, "page", 1, 1, 1 << 31),
            size=whole(query, "page_size", PAGE_SIZE, 1, PAGE_SIZE_MAX),
            sort=sort,
            is_descending=order == "desc",
            text=query.get("name", "").casefold(),
        )

    def cut(self, items: Sequence[ItemT], name_of: Callable[[ItemT], str], value_of: ValueOf[ItemT]) -> RowPage[ItemT]:
        """Return the page of items, with `name_of` for the filter, and `value_of` for the order."""
        if self.text:
            items = [each for each in items if self.text in name_of(each).casefold()]
        if self.sort:
            column = self.sort
            items = sorted(items, key=lambda each: value_of(each, column), reverse=self.is_descending)
        first = (self.number - 1) * self.size
        return RowPage(items=items[first : first + self.size], count=len(items), number=self.number, size=self.size)


def parameters(columns: Sequence[str]) -> Sequence[Parameter]:
    """Return the parameters of a page, for the OpenAPI document."""
    return [
        Parameter(name="page", description="The number of the page.", type="integer", default=1),
        Parameter(
            name="page_size",
            description=f"The number of its items, at most {PAGE_SIZE_MAX}.",
            type="integer",
            default=PAGE_SIZE,
        ),
        Parameter(name="sort", description="The column to sort by.", values=columns),
        Parameter(name="order", description="The order of the column.", values=("asc", "desc"), default="asc"),
        Parameter(name="name", description="A part of the name; all others are left out."),
    ]


def object_schema(columns: Sequence[str]) -> dict[str, Any]:
    """Return the JSON Schema of an object with these fields, for the OpenAPI document."""
    return {"type": "object", "properties": {each: {} for each in columns}}


def page_schema(columns: Sequence[str]) -> dict[str, Any]:
    """Return the JSON Schema of a page, for the OpenAPI document."""
    return {
        "type": "object",
        "properties": {
            "items": {"type": "array", "items": object_schema(columns)},
            "count": {"type": "integer", "description": "The number of the items of all pages."},
            "page": {"type": "integer"},
            "page_size": {"type": "integer"},
        },
    }


def cursor_page_schema(columns: Sequence[str]) -> dict[str, Any]:
    """Return the JSON Schema of a page that is asked for by the cursor of the page before, for the OpenAPI document."""
    schema = page_schema(columns)
    del schema["properties"]["page"]
    cursor = {"type": ["string", "null"], "description": "The parameter `after` of the next page; null: there is none."}
    schema["properties"]["cursor"] = cursor
    return schema


def whole(query: Mapping[str, str], name: str, default: int, least: int, most: int) -> int:
    """Return a number of a query.

    Raises:
        RequestFailed: it is none, or out of its bounds.
    """
    text = query.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX and least <= int(text) <= most):
        raise RequestFailed(HTTPStatus.BAD_REQUEST, f"{name} is a number from {least} to {most}, not {text[:20]!r}")
    return int(text)
