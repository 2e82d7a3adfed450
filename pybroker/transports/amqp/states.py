"""The states of an AMQP connection.

```text
          SASL header            sasl-init            outcome ok            AMQP header
 OPENED -------------> SASL ---------------> LOGIN -------------> SECURED -------------> OPENING
   |                     |                     | refused             |                      |
   | AMQP header (no SASL): OPENING            v                     v                      | open
   `------------------------------------->  CLOSED  <----------------+----- CONNECTING <----'
                                               ^                                |  the core has admitted the client
                                               +-------- CONNECTED <------------'
                                               | durable    | close
                                               `-------- CLOSING
```
"""

import enum


class AmqpState(enum.Enum):
    """The state of a connection."""

    OPENED = "waits for a protocol header"
    SASL = "waits for the client's choice of a SASL mechanism"
    LOGIN = "waits for the authenticator"
    SECURED = "waits for the AMQP header behind SASL"
    OPENING = "waits for open"
    CONNECTING = "waits for the core"
    CONNECTED = "open"
    CLOSING = "finishes what came before the client's close, discards what comes behind it"
    CLOSED = "closed"
