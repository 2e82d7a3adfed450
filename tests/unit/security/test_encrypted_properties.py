"""Properties files with encrypted values."""

import pytest

from pybroker.activemq_xml.placeholders import filled_in
from pybroker.security.encrypted_properties import EncryptedProperties
from pybroker.security.jasypt import decrypt, encrypted_part
from pybroker.security.java_properties import MalformedProperties

FILE = rb"""
activemq.username=system
activemq.password=ENC(mYRkg+4Q4hua1kvpCCI2hg==)
guest.password = ENC(Cf3Jf3tM+UrSOoaKU50od5CuBa8rxjoL)\u0020
broken=ENC(mYRkg+4Q4hs=)
plain=ENC(x
"""


def credentials(master: str = "activemq") -> EncryptedProperties:
    return EncryptedProperties(FILE, lambda text: decrypt(text, master))


def test_values_are_decrypted() -> None:
    found = credentials()
    names = ("activemq.username", "activemq.password", "guest.password", "plain")
    assert [found[name] for name in names] == ["system", "manager", "password", "ENC(x"]
    assert list(found) == ["activemq.username", "activemq.password", "guest.password", "broken", "plain"]
    assert len(found) == 5
    assert "manager" not in repr(found)


def test_placeholders_are_filled_in_with_them() -> None:
    assert filled_in("${activemq.username}:${activemq.password}", credentials()) == "system:manager"


def test_what_is_not_asked_for_is_not_decrypted() -> None:
    found = credentials("wrong")
    assert "activemq.password" in found
    assert found.get("activemq.username") == "system"
    assert found.get("missing") is None
    with pytest.raises(KeyError):
        found["missing"]


@pytest.mark.parametrize(
    ("master", "name", "line", "reason"),
    [("wrong", "activemq.password", 3, "another master password"), ("activemq", "broken", 5, "cut off")],
)
def test_a_value_that_does_not_decrypt_is_named(master: str, name: str, line: int, reason: str) -> None:
    with pytest.raises(MalformedProperties, match=f"^{name} does not decrypt: .*{reason}") as refused:
        credentials(master)[name]
    assert refused.value.line == line


@pytest.mark.parametrize(
    ("value", "part"),
    [("ENC(a)", "a"), (" ENC(a) ", "a"), ("ENC()", ""), ("ENC(", None), ("a", None), ("enc(a)", None)],
)
def test_encrypted_values_are_recognised(value: str, part: str | None) -> None:
    assert encrypted_part(value) == part
