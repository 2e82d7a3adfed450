"""The broker core: routing, dispatch, acknowledgement, redelivery, transactions, mastership.

Every module imports only from lines below its own; `pyproject.toml` has the same lines as a contract.

```text
broker                                                parts put together; connections, and where messages go
  administration  inactive  subscribing  takeover     ask, sweep, subscribe to and bring back destinations
    destinations                                      which queues and topics there are
      advisory  browser  connection  durables         what stands in front of them: listeners, clients, subscriptions
        host  queue  topic                            `host`: the broker as connections ask it
          contenders  durable  handover  transaction
            groups  overflow  runtime  scheduler  stored  uncommitted  waits
              consumer  deadletter  gate  observers  pending  recovery  scheduled  usage  virtual
                agenda  cron  mastership  occurrences  paging  policy  reference  search  selector  tail
                transaction_states
                  containment
```

Three arrows would close a circle if each side named the other's class, so the lower side names what it needs:

* A `reference` belongs to an `Origin`, which decides what becomes of it. Consumers take from a `Source`: it is an
  `Origin` that also delivers. Queues, durable subscriptions, topic subscriptions and browsers are sources.
* A `consumer` and a `transaction` belong to an `Owner`: the connection. A connection asks its `Host`: the broker. A
  `durable` subscription covers a `CoveredTopic`: the topic. These are native base classes, for the message path.
* An `Observer` is notified of events, and reads the broker's state through `Admin` (both in `domain`). The core
  announces an event once, to `observers`, and knows no listener by name; advisory messages are the first listener.
"""
