"""Message selectors: the SQL-92 conditions of JMS 1.1 (3.8.1), compiled once and evaluated once per message.

| module | idea |
| --- | --- |
| `selector` | the door: `compile_selector`, `Selector`, limits, and where ActiveMQ and JMS part ways |
| `lexer` | text to tokens |
| `parser` | tokens to tree; its docstring has the grammar |
| `diagnosis` | describes the error in a text that is not a selector |
| `tree` | the condition as values |
| `compiler` | tree to nested functions |
| `comparison` | what `=`, `<` and their kin make of two values |
| `arithmetic` | what `+` and its kin make of two values |
| `subject` | the message of an evaluation |
| `fields` | names to header fields and properties |
| `like` | LIKE patterns |
| `quota` | what the selectors of one connection may take |
"""

from pybroker.broker.core.selector.quota import SelectorQuota
from pybroker.broker.core.selector.selector import Selector, compile_selector, forget_message

__all__ = ["Selector", "SelectorQuota", "compile_selector", "forget_message"]
