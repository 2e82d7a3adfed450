"""Fuzzing of the broker's protocols: `python -m benchmarks.fuzz`, or `make fuzz`. See `docs/fuzzing.md`.

Real brokers get conversations that are nearly right, over sockets; and the decoders alone get frames, in this process.

```text
corpus          valid frames: of golden files, captured conversations, and by the schema
values          values of OpenWire's fields, in the roles that a conversation gives them
amqp_values     values and messages of AMQP, which its decoders get
bytes_mutations, stomp_frames, websocket_frames    frames that are wrong
mqtt_conversations, amqp_conversations    valid conversations of MQTT and AMQP, and packets that are out of place
conversations   a case: what one connection sends; a seed and a number make it again
sender          a process that plays cases, and counts the frames that the broker has carried out
victim          the broker under test, what it has stored, and its end
judgement       what counts as a finding: log, process, waits, messages lost or doubled, memory, descriptors
campaign        rounds of cases on one broker
reduction       the shortest conversation with the same finding
decoders        the decoders alone
```
"""
