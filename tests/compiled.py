"""Tests of the compiled wheel: the same tests, except those that put something of their own into native code."""

import pytest

from pybroker.transports import connection

IS_COMPILED = not connection.__file__.endswith(".py")

interpreted = pytest.mark.skipif(
    IS_COMPILED, reason="a double that is no native object, or a method or constant replaced that is compiled in"
)
