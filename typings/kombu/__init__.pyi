"""What pybroker uses of Kombu, whose own type information has gaps. Everything not named here is untyped."""

from typing import Any

def __getattr__(name: str) -> Any: ...
