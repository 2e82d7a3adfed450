"""Sources as trees: to parse the whole project takes seconds, and several tests look at it."""

import ast
from functools import cache


@cache
def tree(source: str) -> ast.Module:
    """Parse a source, once in a process; no one may change the tree."""
    return ast.parse(source)
