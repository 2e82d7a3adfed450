"""Distinguished names, written as Java writes them; `tests/java/test_certificate_names.py` compares with Java."""

import pytest

from pybroker.transports.distinguished_name import Name, written


@pytest.mark.parametrize(
    ("subject", "text"),
    [
        ((), ""),
        (((("countryName", "US"),), (("organizationName", "x"),)), "O=x, C=US"),
        (((("commonName", "a"), ("userId", "b")),), "CN=a + UID=b"),
        (((("commonName", "a, b"),),), 'CN="a, b"'),
        (((("commonName", ' say "hi"\\'),),), 'CN=" say \\"hi\\"\\\\"'),
        (((("1.2.3.4", "v"),),), "OID.1.2.3.4=v"),
    ],
)
def test_names(subject: Name, text: str) -> None:
    assert written(subject) == text
