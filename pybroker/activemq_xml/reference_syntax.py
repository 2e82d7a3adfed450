"""Tells attributes that refer to beans from texts, as XBean does before placeholders are filled in.

```text
"#ID"          the bean of that identity
"##text"       the text "#text"
" #text"       the text itself: a blank is before it
"${name}"      a text, whatever the value of the property begins with
"#"            ActiveMQ does not start
```

Source: ActiveMQ 5.17.2, tried.
"""

from pybroker.activemq_xml.elements import CORE, XmlElement
from pybroker.activemq_xml.findings import Findings


def find_references(element: XmlElement, findings: Findings | None = None) -> None:
    """Set the references of an element as it is written, and remove the escapes of texts.

    Args:
        element: gets the references; its placeholders are not filled in yet.
        findings: get what ActiveMQ refuses; None: they are not needed.
    """
    if element.namespace != CORE:
        return
    for name, value in element.attributes.items():
        if value.startswith("##"):
            element.attributes[name] = value[1:]
        elif value == "#" and findings is not None:
            findings.refuse(element, "ActiveMQ does not start with # alone, which names no bean: write ##", name)
        elif value.startswith("#") and not value.startswith("#{"):
            element.references[name] = value[1:]
