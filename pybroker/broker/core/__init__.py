"""The broker core: routing, dispatch, acknowledgement, redelivery, transactions, mastership.

Every module imports only from lines below its own; `pyproject.toml` has the same lines as a contract.

```text
broker                                                the parts put together; connections; where messages go
  administration  inactive  subscribing  takeover     list, remove, subscribe to and recover destinations
    destinations                                      the queues and topics
      advisory  browser  connection  durables         what uses destinations
        host  queue  topic                            `host`: the broker as its connections see it
          consumer_set  durable_fan_out  scheduling_queue  transaction
            durable
            flow_control_log  groups  overflow  runtime  scheduler  stored  subscription_groups  uncommitted
              counting_consumer  recalls
                consumer  deadletter  gate  observers  pending  retained_history  scheduled  virtual
                  piecewise  usage
                    delivered  matcher  retained_messages
                     record_queue
                      cron  job_queue  log_aggregator  mastership  paged_out_index  paging  policy  reference
                      search  selector  transaction_states
                        containment  object_memory  user_connections
```

Three pairs of classes use each other. To keep the imports free of cycles, the lower module of each pair defines a base
class or protocol for what it needs, and the upper module implements it:

* A `reference` belongs to an `Origin`, which decides what happens to it. Consumers get deliveries from a
  `DeliverySource`: an `Origin` that also delivers. Queues, subscriptions and browsers are sources.
* A `consumer` and a `transaction` belong to an `Owner`: the connection. A connection calls its `Host`: the broker. A
  `durable` subscription covers a `CoveredTopic`: the topic. These are native base classes, for the message path.
* An `Observer` is notified of events, and reads the broker's state through `Admin` (both in `domain`). The core
  announces each event once, to `observers`. Advisory messages are the first observer.
"""
