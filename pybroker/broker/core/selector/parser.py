"""Selector text to tree: an operator-precedence parser, and the rules about what an operator may be applied to.

The language is that of JMS 1.1 (3.8.1.1). Where the specification leaves a choice the shape is that of ActiveMQ 5.17: a
condition may be an operand of = and <>, % is the remainder, comments are skipped. Loosest binding first:

```text
disjunction   conjunction (OR conjunction)*
conjunction   negation (AND negation)*
negation      NOT negation | equality
equality      relation | equality (= | <>) relation | equality IS [NOT] NULL
relation      sum | sum (< | <= | > | >=) sum | sum [NOT] BETWEEN sum AND sum
                  | sum [NOT] LIKE string [ESCAPE string] | sum [NOT] IN ( string (, string)* )
sum           product | sum (+ | -) product
product       sign | product (* | / | %) sign
sign          (+ | -) sign | primary
primary       number | string | TRUE | FALSE | name | ( disjunction )
```

Operators that wait for their last operand are on a stack of their own, so that thousands of parentheses need no
recursion. An operator completes those above it that bind no looser. Rules that are no grammar are checked then: what an
operator can be applied to, and how deep operators nest.

Source: the algorithm is E. W. Dijkstra's shunting yard (1961).
"""

import math
import unicodedata
from typing import Final, NamedTuple, NoReturn

from pybroker.broker.core.selector.diagnosis import refusal, unexpected
from pybroker.broker.core.selector.lexer import END, UNKNOWN, Token, tokenize
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

_EXACT_MAX: Final = 2**63
"""Largest exact number. One more than a Java long holds, because the minus of -9223372036854775808 is read apart."""

# How tightly an operator binds.
_PARENTHESIS, _OR, _AND, _NOT, _EQUALITY, _RELATION, _SUM, _PRODUCT, _SIGN = range(9)

_BINARY: Final = {
    "EQUALITY": _EQUALITY, "ORDERING": _RELATION, "PLUS": _SUM, "MINUS": _SUM, "PRODUCT": _PRODUCT,
}  # fmt: skip
_LITERALS: Final = frozenset(("APPROXIMATE", "EXACT", "FALSE", "NAME", "STRING", "TRUE"))
_NEVER_FOLLOW: Final = _LITERALS | {"COMMA", "ESCAPE", "LPAR", "NULL"}
"""Tokens that follow no operand, wherever it stands."""
_FOLLOW_RELATION: Final = frozenset(("AND", "EQUALITY", "IS", "OR", "RPAR", END))
"""Tokens that may follow LIKE, IN and IS NULL with their operands."""

_JAVA_IDENTIFIER_START: Final = frozenset(("Lu", "Ll", "Lt", "Lm", "Lo", "Nl", "Sc", "Pc"))
_JAVA_IDENTIFIER_PART: Final = _JAVA_IDENTIFIER_START | {"Nd", "Mn", "Mc"}
_KIND_NAMES: Final = {
    ValueKind.CONDITION: "a condition", ValueKind.NUMBER: "a number", ValueKind.STRING: "a string"
}  # fmt: skip


def parse(text: str) -> Node:
    """Return the condition that is written in `text`.

    Raises:
        InvalidSelector: it is not a condition; the message points at the place.
    """
    try:
        return _Parser(text).parse()
    except _InvalidPart as error:
        raise refusal(text, error.position, error.problem) from None


class _InvalidPart(PybrokerError):
    """A part of a selector that the grammar allows and the rules do not."""

    def __init__(self, position: int, problem: str) -> None:
        super().__init__(problem)
        self.position = position
        self.problem = problem


class _Part(NamedTuple):
    """A complete operand: its node, where it begins in the text, and how many levels it has."""

    node: Node
    position: int
    depth: int = 1


class _Operator:
    """An operator that waits for its last operand, or an opening parenthesis.

    Attributes:
        level: how tightly it binds.
        token: the operator; of BETWEEN, AND once that has been read.
        operands: those that are complete.
        negated: True for NOT BETWEEN.
    """

    __slots__ = ("level", "negated", "operands", "token")

    def __init__(self, level: int, token: Token, operands: list[_Part], negated: bool = False) -> None:
        self.level = level
        self.token = token
        self.operands = operands
        self.negated = negated


class _Parser:
    """Reads one text."""

    __slots__ = ("_operators", "_parentheses", "_text", "_token", "_tokens")

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = tokenize(text)
        self._token = next(self._tokens)
        self._operators: list[_Operator] = []
        self._parentheses = 0

    def parse(self) -> Node:
        """Return the condition. Raises `InvalidSelector` and `_InvalidPart`."""
        while True:
            part = self._read_operators(self._read_primary())
            if part is not None:
                return _require(part, ValueKind.CONDITION).node

    # ------------------------------------------------------------ tokens

    @property
    def _kind(self) -> str:
        """The kind of the next token."""
        if self._token.kind == UNKNOWN:
            raise unexpected(self._text, self._token.position, ("a value or an operator",))
        return self._token.kind

    def _read(self) -> Token:
        """Read the next token, which is not the end."""
        token = self._token
        self._token = next(self._tokens)
        return token

    def _expect(self, *kinds: str) -> Token:
        if self._kind not in kinds:
            self._refuse(*kinds)
        return self._read()

    def _read_if(self, kind: str) -> bool:
        """Read a token if it is of that kind; return True if it was."""
        if self._kind != kind:
            return False
        self._read()
        return True

    def _refuse(self, *kinds: str) -> NoReturn:
        """Refuse the next token where one of `kinds` is expected."""
        raise unexpected(self._text, self._token.position, kinds)

    def _refuse_after_operand(self, *more: str) -> NoReturn:
        """Refuse the next token, which follows an operand that it cannot follow there; `more` could follow it too."""
        if self._expects_and():
            self._refuse("AND")
        self._refuse("OR", "RPAR" if self._parentheses else END, *more)

    # ------------------------------------------------------------ operands

    def _read_primary(self) -> _Part:
        """Read a literal or name, and the signs, NOTs and parentheses before it."""
        operators = self._operators
        while (kind := self._kind) not in _LITERALS:
            match kind:
                case "LPAR":
                    operators.append(_Operator(_PARENTHESIS, self._read(), []))
                    self._parentheses += 1
                case "PLUS" | "MINUS":
                    operators.append(_Operator(_SIGN, self._read(), []))
                case "NOT" if not operators or operators[-1].level <= _NOT:
                    operators.append(_Operator(_NOT, self._read(), []))
                case _:
                    self._refuse("NAME")
        token = self._read()
        if self._kind in _NEVER_FOLLOW:
            self._refuse_after_operand()
        return _literal(token)

    def _read_operators(self, part: _Part) -> _Part | None:
        """Read what follows an operand, up to an operator that wants another one; return the whole part at the end."""
        while True:
            match kind := self._kind:
                case "PLUS" | "MINUS" | "PRODUCT" | "ORDERING" | "EQUALITY":
                    binding = _BINARY[kind]
                    part = self._complete_operators(part, _SUM if binding == _RELATION else binding)
                    if binding == _RELATION and self._is_in_relation():
                        self._refuse_after_operand()
                    self._operators.append(_Operator(binding, self._read(), [part]))
                    return None
                case "AND" | "OR":
                    self._read_logical(part)
                    return None
                case "IS":
                    part = self._read_null_test(self._complete_operators(part, _EQUALITY))
                case "NOT" | "BETWEEN" | "LIKE" | "IN":
                    relation = self._read_relation(self._complete_operators(part, _SUM))
                    if relation is None:
                        return None
                    part = relation
                case "RPAR":
                    part = self._close_parenthesis(part)
                case "$END":
                    part = self._complete_operators(part, _OR)
                    if self._parentheses:
                        self._refuse("RPAR")
                    return part
                case _:
                    self._refuse_after_operand()

    def _read_logical(self, part: _Part) -> None:
        """Read AND or OR, or the AND of BETWEEN, after its operand."""
        part = self._complete_operators(part, _SUM)
        binding = _AND if self._kind == "AND" else _OR
        if binding == _AND and self._is_in_relation() and self._operators[-1].token.kind == "BETWEEN":
            between = self._operators[-1]
            between.operands.append(part)
            between.token = self._read()
            return
        part = self._complete_operators(part, binding + 1)
        token = self._read()
        if self._operators and self._operators[-1].level == binding:
            self._operators[-1].operands.append(part)
        else:
            self._operators.append(_Operator(binding, token, [part]))

    def _read_null_test(self, operand: _Part) -> _Part:
        self._read()
        negated = self._expect("NOT", "NULL").kind == "NOT"
        if negated:
            self._expect("NULL")
        self._check_follows_relation()
        return _join(NullTest(operand.node, negated), operand)

    def _read_relation(self, operand: _Part) -> _Part | None:
        """Read [NOT] LIKE and [NOT] IN with what they want, or [NOT] BETWEEN, which then waits and returns None."""
        if self._is_in_relation():
            self._refuse_after_operand()
        negated = self._read_if("NOT")
        token = self._expect("BETWEEN", "IN", "LIKE")
        if token.kind == "LIKE":
            return self._read_like(operand, negated)
        if token.kind == "IN":
            return self._read_in(operand, negated)
        self._operators.append(_Operator(_RELATION, token, [operand], negated))
        return None

    def _read_like(self, operand: _Part, negated: bool) -> _Part:
        pattern = self._expect("STRING")
        escaping = self._expect("STRING") if self._read_if("ESCAPE") else None
        escape = "" if escaping is None else _unquote(escaping)
        self._check_follows_relation(*(("ESCAPE",) if escaping is None else ()))
        identifier = _require_identifier(operand, "LIKE")
        if escaping is not None and len(escape) != 1:
            raise _InvalidPart(escaping.position, "expected one character to escape with")
        return _join(Like(identifier, _unquote(pattern), escape, negated), operand)

    def _read_in(self, operand: _Part, negated: bool) -> _Part:
        self._expect("LPAR")
        choices = [_unquote(self._expect("STRING"))]
        while self._expect("COMMA", "RPAR").kind == "COMMA":
            choices.append(_unquote(self._expect("STRING")))
        self._check_follows_relation()
        return _join(InList(_require_identifier(operand, "IN"), tuple(choices), negated), operand)

    def _check_follows_relation(self, *more: str) -> None:
        if self._kind not in _FOLLOW_RELATION:
            self._refuse_after_operand(*more)

    def _close_parenthesis(self, part: _Part) -> _Part:
        part = self._complete_operators(part, _OR)
        if not self._parentheses:
            self._refuse(END)
        self._operators.pop()
        self._parentheses -= 1
        self._read()
        return part

    # ------------------------------------------------------------ operators

    def _expects_and(self) -> bool:
        """Return True if the operand that is being read is the lower bound of a BETWEEN."""
        for operator in reversed(self._operators):
            if operator.level < _SUM:
                return operator.token.kind == "BETWEEN"
        return False

    def _is_in_relation(self) -> bool:
        return bool(self._operators) and self._operators[-1].level == _RELATION

    def _complete_operators(self, part: _Part, level: int) -> _Part:
        """Return the part with all operators before it that bind as tightly as `level` or tighter."""
        operators = self._operators
        while operators and operators[-1].level >= level:
            if operators[-1].token.kind == "BETWEEN":
                self._refuse("AND")
            part = _complete(operators.pop(), part)
        return part


def _complete(operator: _Operator, part: _Part) -> _Part:
    """Return what an operator makes of its operands, the last of which is `part`."""
    token, operands = operator.token, operator.operands
    match operator.level:
        case level if level in (_OR, _AND):
            operands.append(part)
            nodes = tuple([_require(operand, ValueKind.CONDITION).node for operand in operands])
            return _join(Or(nodes) if level == _OR else And(nodes), *operands)
        case level if level == _NOT:
            whole = _join(Not(_require(part, ValueKind.CONDITION).node), part)
            return whole._replace(position=token.position)
        case level if level == _SIGN:
            whole = _join(Signed(token.text, _require(part, ValueKind.NUMBER).node), part)
            return whole._replace(position=token.position)
        case _:
            pass

    left, *middle = operands
    if operator.level != _EQUALITY:
        for operand in (left, *middle, part):
            _require(operand, ValueKind.NUMBER)
    if middle:
        low = middle[0]
        return _join(Between(left.node, low.node, part.node, operator.negated), left, low, part)
    make = Comparison if operator.level in (_EQUALITY, _RELATION) else Arithmetic
    return _join(make(token.text, left.node, part.node), left, part)


def _literal(token: Token) -> _Part:
    """Return the part that is a single token."""
    text, position = token.text, token.position
    match token.kind:
        case "NAME":
            _check_name(token)
            return _Part(Identifier(text), position)
        case "STRING":
            return _Part(Literal(_unquote(token)), position)
        case "EXACT":
            value = _exact(token)
            if value > _EXACT_MAX:
                raise _InvalidPart(position, "expected a number in the range of a Java long")
            return _Part(Literal(value), position)
        case "APPROXIMATE":
            return _Part(Literal(_approximate(token)), position)
        case _:
            return _Part(Literal(token.kind == "TRUE"), position)


def _check_name(token: Token) -> None:
    if token.text.isascii():
        return  # the lexer has checked it
    allowed = _JAVA_IDENTIFIER_START
    for offset, character in enumerate(token.text):
        if unicodedata.category(character) not in allowed:
            raise _InvalidPart(token.position + offset, "expected a letter, a digit, '_' or '$' in a name")
        allowed = _JAVA_IDENTIFIER_PART


def _require(part: _Part, kind: ValueKind) -> _Part:
    """Return the part if its value may be of that kind."""
    if not part.node.kind & kind:
        raise _InvalidPart(part.position, f"expected {_KIND_NAMES[kind]}, found {_KIND_NAMES[part.node.kind]}")
    return part


def _require_identifier(part: _Part, operator: str) -> Identifier:
    if not isinstance(part.node, Identifier):
        raise _InvalidPart(part.position, f"expected a name before {operator}, found {_KIND_NAMES[part.node.kind]}")
    return part.node


def _join(node: Node, *children: _Part) -> _Part:
    """Return the part one level above its children."""
    depth = 1 + max(child.depth for child in children)
    position = children[0].position
    if depth > DEPTH_MAX:
        raise _InvalidPart(position, f"expected at most {DEPTH_MAX} operators inside one another")
    return _Part(node, position, depth)


def _unquote(token: Token) -> str:
    return token.text[1:-1].replace("''", "'")


def _exact(token: Token) -> int:
    """Return the value of a Java integer literal: decimal, or octal after a 0, or hexadecimal after 0x."""
    digits = token.text.rstrip("lL")
    if digits[:2] in ("0x", "0X"):
        return int(digits, 16)
    if len(digits) > 1 and digits[0] == "0":
        for offset, digit in enumerate(digits):
            if digit > "7":
                raise _InvalidPart(
                    token.position + offset, "expected a digit from 0 to 7, for a 0 begins an octal number"
                )
        return int(digits, 8)
    # Python refuses to convert thousands of decimal digits, which cannot be in range anyway.
    return int(digits) if len(digits) <= len(str(_EXACT_MAX)) else _EXACT_MAX + 1


def _approximate(token: Token) -> float:
    """Return the value of a Java floating-point literal."""
    value = float(token.text.rstrip("fFdD"))
    if token.text[-1] in "fF":
        value = _single(value)
    if math.isinf(value):
        raise _InvalidPart(token.position, "expected a number in the range of a Java double (or float, with an f)")
    return value


def _single(value: float) -> float:
    """Return the number as a Java float holds it, infinity when it cannot."""
    try:
        rounded: float = FLOAT.unpack(FLOAT.pack(value))[0]
    except OverflowError:
        return math.inf
    return rounded
