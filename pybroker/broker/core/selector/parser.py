"""Selector text to tree: lark's LALR parser over `grammar.lark`, and the rules that a grammar cannot express well.

Those are the ranges of numbers (Java's), the letters of identifiers (Java's), what an operator can be applied to, and
how deep a condition may nest.
"""

import math
import unicodedata
from functools import cache
from typing import Final, NamedTuple, cast

from lark import (
    Lark,
    Token,
    Transformer,
    UnexpectedCharacters,
    UnexpectedToken,
    v_args,  # pyright: ignore[reportUnknownVariableType]
)

from pybroker.broker.core.selector.diagnosis import refusal, unexpected
from pybroker.broker.core.selector.tree import (
    And,
    Arithmetic,
    Between,
    Comparison,
    Identifier,
    InList,
    Like,
    Literal,
    Node,
    Not,
    NullTest,
    Or,
    Signed,
    ValueKind,
)
from pybroker.broker.domain.big_endian import FLOAT
from pybroker.errors import PybrokerError

DEPTH_MAX: Final = 100
"""The maximum nesting of operators. Each level is a Python call per message; a chain of AND or OR is one level."""

_EXACT_MAX = 2**63
"""Largest exact number. One more than a Java long holds, because the minus of -9223372036854775808 is read apart."""

_JAVA_IDENTIFIER_START = frozenset(("Lu", "Ll", "Lt", "Lm", "Lo", "Nl", "Sc", "Pc"))
_JAVA_IDENTIFIER_PART = _JAVA_IDENTIFIER_START | {"Nd", "Mn", "Mc"}
_KIND_NAMES = {ValueKind.CONDITION: "a condition", ValueKind.NUMBER: "a number", ValueKind.STRING: "a string"}


def parse(text: str) -> Node:
    """Return the condition that is written in `text`.

    Raises:
        InvalidSelector: it is not a condition; the message points at the place.
    """
    try:
        # The builder's `start` returns a node; lark's own types know only trees.
        return cast("Node", _parser().parse(text))  # pyright: ignore[reportUnknownMemberType]
    except UnexpectedToken as error:
        token = cast("Token", error.token)  # pyright: ignore[reportUnknownMemberType]
        position = len(text) if token.type == "$END" else _position(token)
        raise unexpected(text, position, error.accepts) from None
    except UnexpectedCharacters as error:
        # The lexer does not use the grammar, so it cannot distinguish the two.
        raise unexpected(text, cast("int", error.pos_in_stream), ("a value or an operator",)) from None
    except _InvalidPart as error:
        raise refusal(text, error.position, error.problem) from None


class _InvalidPart(PybrokerError):
    """A part of a selector that the grammar allows and the rules do not."""

    def __init__(self, position: int, problem: str) -> None:
        super().__init__(problem)
        self.position = position
        self.problem = problem


class _Part(NamedTuple):
    """A piece of the tree on its way up, with where it begins in the text and how many levels it has."""

    node: Node
    position: int
    depth: int = 1


@cache
def _parser() -> Lark:
    """Return the parser; made when the first selector comes, because reading the grammar takes some milliseconds."""
    return Lark.open_from_package(  # pyright: ignore[reportUnknownMemberType]
        __name__, "grammar.lark", parser="lalr", lexer="basic", transformer=_Builder(), maybe_placeholders=False
    )


@v_args(inline=True)
class _Builder(Transformer[Token, Node]):
    """Makes nodes of what the grammar finds; each method is named after a rule or alternative in `grammar.lark`."""

    def start(self, condition: _Part) -> Node:
        return _require(condition, ValueKind.CONDITION).node

    def disjunction(self, *children: _Part | Token) -> _Part:
        operands = _operands(children, ValueKind.CONDITION)
        return _join(Or(tuple(part.node for part in operands)), *operands)

    def conjunction(self, *children: _Part | Token) -> _Part:
        operands = _operands(children, ValueKind.CONDITION)
        return _join(And(tuple(part.node for part in operands)), *operands)

    def inversion(self, keyword: Token, operand: _Part) -> _Part:
        return _join(Not(_require(operand, ValueKind.CONDITION).node), operand)._replace(position=_position(keyword))

    def comparison(self, left: _Part, operator: Token, right: _Part) -> _Part:
        if operator.type == "ORDERING":
            _require(left, ValueKind.NUMBER)
            _require(right, ValueKind.NUMBER)
        return _join(Comparison(str(operator), left.node, right.node), left, right)

    def null_test(self, operand: _Part, *keywords: Token) -> _Part:
        return _join(NullTest(operand.node, _is_negated(keywords)), operand)

    def between(self, *children: _Part | Token) -> _Part:
        operand, low, high = _operands(children, ValueKind.NUMBER)
        return _join(Between(operand.node, low.node, high.node, _is_negated(children)), operand, low, high)

    def like(self, operand: _Part, *tokens: Token) -> _Part:
        identifier = _require_identifier(operand, "LIKE")
        pattern, *rest = (token for token in tokens if token.type == "STRING")
        escape = _unquote(rest[0]) if rest else ""
        if rest and len(escape) != 1:
            raise _InvalidPart(_position(rest[0]), "expected one character to escape with")
        return _join(Like(identifier, _unquote(pattern), escape, _is_negated(tokens)), operand)

    def membership(self, operand: _Part, *tokens: Token) -> _Part:
        identifier = _require_identifier(operand, "IN")
        choices = tuple(_unquote(token) for token in tokens if token.type == "STRING")
        return _join(InList(identifier, choices, _is_negated(tokens)), operand)

    def arithmetic(self, left: _Part, operator: Token, right: _Part) -> _Part:
        _require(left, ValueKind.NUMBER)
        _require(right, ValueKind.NUMBER)
        return _join(Arithmetic(str(operator), left.node, right.node), left, right)

    def signed(self, operator: Token, operand: _Part) -> _Part:
        _require(operand, ValueKind.NUMBER)
        return _join(Signed(str(operator), operand.node), operand)._replace(position=_position(operator))

    def approximate(self, token: Token) -> _Part:
        value = float(token.rstrip("fFdD"))
        if token[-1] in "fF":
            value = _single(value)
        if math.isinf(value):
            raise _InvalidPart(
                _position(token), "expected a number in the range of a Java double (or float, with an f)"
            )
        return _Part(Literal(value), _position(token))

    def exact(self, token: Token) -> _Part:
        value = _exact(token)
        if value > _EXACT_MAX:
            raise _InvalidPart(_position(token), "expected a number in the range of a Java long")
        return _Part(Literal(value), _position(token))

    def string(self, token: Token) -> _Part:
        return _Part(Literal(_unquote(token)), _position(token))

    def boolean(self, token: Token) -> _Part:
        return _Part(Literal(token.type == "TRUE"), _position(token))

    def identifier(self, token: Token) -> _Part:
        allowed = _JAVA_IDENTIFIER_START
        for offset, character in enumerate(token):
            # Java's digits are Unicode's; ASCII was sorted out by the lexer.
            if unicodedata.category(character) not in allowed:
                raise _InvalidPart(_position(token) + offset, "expected a letter, a digit, '_' or '$' in a name")
            allowed = _JAVA_IDENTIFIER_PART
        return _Part(Identifier(str(token)), _position(token))


def _require(part: _Part, kind: ValueKind) -> _Part:
    """Return the part if its value may be of that kind."""
    if not part.node.kind & kind:
        raise _InvalidPart(part.position, f"expected {_KIND_NAMES[kind]}, found {_KIND_NAMES[part.node.kind]}")
    return part


def _require_identifier(part: _Part, operator: str) -> Identifier:
    if not isinstance(part.node, Identifier):
        raise _InvalidPart(part.position, f"expected a name before {operator}, found {_KIND_NAMES[part.node.kind]}")
    return part.node


def _operands(children: tuple[_Part | Token, ...], kind: ValueKind) -> list[_Part]:
    return [_require(child, kind) for child in children if isinstance(child, _Part)]


def _join(node: Node, *children: _Part) -> _Part:
    """Return the part one level above its children."""
    depth = 1 + max(child.depth for child in children)
    position = children[0].position
    if depth > DEPTH_MAX:
        raise _InvalidPart(position, f"expected at most {DEPTH_MAX} operators inside one another")
    return _Part(node, position, depth)


def _position(token: Token) -> int:
    """Return where the token begins; lark leaves that open only for tokens it did not read from a text."""
    assert token.start_pos is not None
    return token.start_pos


def _is_negated(children: tuple[_Part | Token, ...]) -> bool:
    return any(isinstance(child, Token) and child.type == "NOT" for child in children)


def _unquote(token: Token) -> str:
    return token[1:-1].replace("''", "'")


def _exact(token: Token) -> int:
    """Return the value of a Java integer literal: decimal, or octal after a 0, or hexadecimal after 0x."""
    digits = token.rstrip("lL")
    if digits[:2] in ("0x", "0X"):
        return int(digits, 16)
    if len(digits) > 1 and digits[0] == "0":
        for offset, digit in enumerate(digits):
            if digit > "7":
                raise _InvalidPart(
                    _position(token) + offset, "expected a digit from 0 to 7, for a 0 begins an octal number"
                )
        return int(digits, 8)
    # Python refuses to convert thousands of decimal digits, which cannot be in range anyway.
    return int(digits) if len(digits) <= len(str(_EXACT_MAX)) else _EXACT_MAX + 1


def _single(value: float) -> float:
    """Return the number as a Java float holds it, infinity when it cannot."""
    try:
        rounded: float = FLOAT.unpack(FLOAT.pack(value))[0]
    except OverflowError:
        return math.inf
    return rounded
