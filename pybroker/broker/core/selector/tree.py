"""A selector as a tree of values: what was written, without parentheses, blanks and the case of keywords.

Nothing is evaluated here. A node knows its `kind`, what it can be used for, so that the parser can refuse `5 AND 'x'`.
"""

import enum
from dataclasses import dataclass
from typing import ClassVar


class ValueKind(enum.Flag):
    """The types that the value of a node may have; a property may have any type."""

    CONDITION = enum.auto()
    NUMBER = enum.auto()
    STRING = enum.auto()
    ANY = CONDITION | NUMBER | STRING


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant; exact numbers are `int`, approximate ones `float`."""

    value: bool | int | float | str

    @property
    def kind(self) -> ValueKind:
        """The constant's own kind."""
        if isinstance(self.value, bool):
            return ValueKind.CONDITION
        return ValueKind.STRING if isinstance(self.value, str) else ValueKind.NUMBER


@dataclass(frozen=True, slots=True)
class Identifier:
    """A property or header field by its name, which is case-sensitive."""

    kind: ClassVar[ValueKind] = ValueKind.ANY
    name: str


@dataclass(frozen=True, slots=True)
class Signed:
    """Unary `+` or `-`."""

    kind: ClassVar[ValueKind] = ValueKind.NUMBER
    operator: str
    operand: "Node"


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """`+`, `-`, `*`, `/` or `%` between two numbers."""

    kind: ClassVar[ValueKind] = ValueKind.NUMBER
    operator: str
    left: "Node"
    right: "Node"


@dataclass(frozen=True, slots=True)
class Comparison:
    """`=`, `<>`, `<`, `<=`, `>` or `>=` between two values."""

    kind: ClassVar[ValueKind] = ValueKind.CONDITION
    operator: str
    left: "Node"
    right: "Node"


@dataclass(frozen=True, slots=True)
class Between:
    """`operand [NOT] BETWEEN low AND high`, both ends included."""

    kind: ClassVar[ValueKind] = ValueKind.CONDITION
    operand: "Node"
    low: "Node"
    high: "Node"
    negated: bool


@dataclass(frozen=True, slots=True)
class InList:
    """`identifier [NOT] IN ('a', 'b')`."""

    kind: ClassVar[ValueKind] = ValueKind.CONDITION
    identifier: Identifier
    choices: tuple[str, ...]
    negated: bool


@dataclass(frozen=True, slots=True)
class Like:
    """`identifier [NOT] LIKE 'pattern' [ESCAPE 'c']`; `escape` is one character or none."""

    kind: ClassVar[ValueKind] = ValueKind.CONDITION
    identifier: Identifier
    pattern: str
    escape: str
    negated: bool


@dataclass(frozen=True, slots=True)
class NullTest:
    """`operand IS [NOT] NULL`."""

    kind: ClassVar[ValueKind] = ValueKind.CONDITION
    operand: "Node"
    negated: bool


@dataclass(frozen=True, slots=True)
class Not:
    """`NOT operand`."""

    kind: ClassVar[ValueKind] = ValueKind.CONDITION
    operand: "Node"


@dataclass(frozen=True, slots=True)
class And:
    """Two or more conditions joined by AND; flat, so that a long chain is not a deep tree."""

    kind: ClassVar[ValueKind] = ValueKind.CONDITION
    operands: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Two or more conditions joined by OR; flat like `And`."""

    kind: ClassVar[ValueKind] = ValueKind.CONDITION
    operands: tuple["Node", ...]


Node = Literal | Identifier | Signed | Arithmetic | Comparison | Between | InList | Like | NullTest | Not | And | Or
