"""The states of an MQTT connection.

```text
        CONNECT             CONNACK            DISCONNECT
OPENED --------> CONNECTING -------> CONNECTED ----------> CLOSED
   |                |                   |                    ^
   +----------------+-------------------+--------------------+
      malformed packet, refusal, silence, another connection of the client, peer gone
```
"""

import enum


class MqttState(enum.Enum):
    """The state of an MQTT connection."""

    OPENED = "waits for CONNECT"
    CONNECTING = "CONNECT is not answered yet"
    CONNECTED = "carries out packets"
    CLOSED = "sends nothing, ignores every packet"
