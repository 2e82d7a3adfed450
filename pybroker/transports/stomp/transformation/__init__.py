"""Bodies of maps, objects and advisories as XML or JSON, in the form that ActiveMQ's STOMP transport writes.

- `tree`: elements, between both kinds of text and all kinds of values
- `xml_text`, `json_text`: trees written and read as text
- `map_values`: trees of the values that a MapMessage has
- `java_object`: the serialised form of strings, numbers and plain collections
- `advisory`: trees of the commands that advisories carry
- `bodies`: the body and header of one message, in both directions
"""
