"""Secrets of a test, and the search for them in whatever came out of it: as they are, and in the usual encodings."""

import base64
import re
import secrets
from collections.abc import Iterator, Mapping
from urllib.parse import quote

_ALPHABETS = {"base64": b"+/", "base64 for URLs": b"-_"}


class Secrets:
    """The secrets of one test."""

    def __init__(self) -> None:
        self._by_label: dict[str, str] = {}

    def new(self, label: str) -> str:
        """Return a secret that occurs nowhere else; it has characters that percent-encoding changes."""
        return self.add(label, f"{secrets.token_hex(8)}+{secrets.token_hex(4)}&")

    def add(self, label: str, secret: str) -> str:
        """Search for a secret of the test's own."""
        assert label not in self._by_label, label
        self._by_label[label] = secret
        return secret

    def found(self, material: Mapping[str, bytes | str], *, except_for: str = "") -> list[str]:
        """Return where secrets are: one line for each secret, encoding and place."""
        found: list[str] = []
        for place, content in material.items():
            data = content if isinstance(content, bytes) else content.encode(errors="surrogatepass")
            for label, secret in self._by_label.items():
                if label != except_for:
                    found += [f"{label}, {name}, in {place}" for name, form in _forms(secret) if form.search(data)]
        return found


def _forms(secret: str) -> Iterator[tuple[str, "re.Pattern[bytes]"]]:
    """Yield a name and a pattern for each form in which a secret may be written."""
    plain = secret.encode()
    yield "as it is", re.compile(re.escape(plain))
    yield "in hexadecimal", re.compile(plain.hex().encode(), re.IGNORECASE)
    yield "in hexadecimal with blanks", re.compile(re.escape(plain.hex(" ").encode()), re.IGNORECASE)
    yield "escaped", re.compile(re.escape("".join(f"\\x{each:02x}" for each in plain).encode()), re.IGNORECASE)
    yield "percent-encoded", re.compile(re.escape(quote(secret, safe="").encode()), re.IGNORECASE)
    for encoding in ("utf-16-le", "utf-16-be"):
        yield encoding, re.compile(re.escape(secret.encode(encoding)))
    for name, alternatives in _ALPHABETS.items():
        for shift in range(3):  # the place of the secret in what was encoded
            whole = base64.b64encode(b"\0" * shift + plain + b"\0" * (-(shift + len(plain)) % 3), alternatives)
            begin, end = -(-shift * 8 // 6), (shift + len(plain)) * 8 // 6
            yield f"in {name}", re.compile(re.escape(whole[begin:end]))
