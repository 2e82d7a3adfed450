from collections.abc import Mapping
from typing import Any, ClassVar

class Message:
    def __init__(self, payload: Mapping[str, Any], channel: Any = None, **options: Any) -> None: ...
    def __getattr__(self, name: str) -> Any: ...

class Channel:
    Message: type[Message]
    closed: bool
    connection: Any
    _consumers: set[str]
    def __init__(self, connection: Any, **options: Any) -> None: ...

class Implements(dict[str, Any]):
    def extend(self, **changes: Any) -> Implements: ...

class Transport:
    client: Any
    channels: list[Any]
    implements: ClassVar[Implements]
    def __init__(self, client: Any, **options: Any) -> None: ...
    def close_channel(self, channel: Any) -> None: ...
