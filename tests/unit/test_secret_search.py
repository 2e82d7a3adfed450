"""The search for secrets finds what it is for."""

import base64
from urllib.parse import quote

import pytest

from tests.secret_search import Secrets


@pytest.mark.parametrize("before", ["", "a", "ab", "abc"])
def test_each_encoding_is_found(before: str) -> None:
    secrets = Secrets()
    secret = secrets.new("x")
    text = f"{before}{secret} and more"
    for written in (
        text, text.encode("utf-16"), text.encode("utf-16-be"), text.encode().hex(), text.encode().hex().upper(),
        text.encode().hex(" "), base64.b64encode(text.encode()), base64.urlsafe_b64encode(text.encode()),
        base64.b64encode(f"{before}{secret}".encode()), quote(text), quote(text, safe="").lower(),
    ):  # fmt: skip
        (found, *_) = secrets.found({"log": b"before " + (written if isinstance(written, bytes) else written.encode())})
        assert found.startswith("x, ")
        assert found.endswith(", in log")
    assert secrets.found({"log": f"{secret[:-1]} {secret[1:]}"}) == []
    assert secrets.found({"log": secret}, except_for="x") == []
