"""Arrow's functions over whole columns; which of them there are is decided when pyarrow is loaded."""

from typing import Any

def __getattr__(name: str) -> Any: ...
