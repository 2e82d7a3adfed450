"""Distinguished names of certificates, as text in the form in which Java prints them.

```text
CN=client one, OU=test, O=x, C=US        the last part of the certificate first; RFC 2253 has no blank behind a comma
```

ActiveMQ's files have them in this form. Source: RFC 2253; `sun.security.x509.X500Name.toString` of Java 17.
"""

import re
from collections.abc import Sequence
from typing import Final

_KEYWORDS: Final = {
    "commonName": "CN",
    "countryName": "C",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "title": "T",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "dnQualifier": "DNQ",
    "surname": "SURNAME",
    "givenName": "GIVENNAME",
    "initials": "INITIALS",
    "generationQualifier": "GENERATION",
    "emailAddress": "EMAILADDRESS",
    "userId": "UID",
    "serialNumber": "SERIALNUMBER",
}
"""Java's keywords by OpenSSL's names."""

_QUOTED: Final = re.compile(r'[,+=\n<>#;\\"]|^ | $|  ')
"""Characters that require quotes around an attribute value."""

Name = Sequence[Sequence[tuple[str, str]]]
"""A subject as `ssl` returns it: its parts, in the order of the certificate, each of one or more attributes."""


def written(subject: Name) -> str:
    """Return a subject as text."""
    return ", ".join([" + ".join([_attribute(*each) for each in part]) for part in reversed(subject)])


def _attribute(name: str, value: str) -> str:
    keyword = _KEYWORDS.get(name) or (f"OID.{name}" if name[:1].isdigit() else name)
    if _QUOTED.search(value):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        value = f'"{escaped}"'
    return f"{keyword}={value}"
