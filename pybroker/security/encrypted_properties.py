"""Values of a properties file such as ActiveMQ's `credentials-enc.properties`, some of them `ENC(…)`.

A value is decrypted when it is asked for: a file may have values that nothing refers to, and no master password is
needed for them.

Source: security.md, section 5; the files of jasypt's `EncryptablePropertyPlaceholderConfigurer`.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Self

from pybroker.security.jasypt import encrypted_part
from pybroker.security.java_properties import MalformedProperties, parse


class EncryptedProperties(Mapping[str, str]):
    """Values by their names, decrypted. Its `repr` shows none."""

    def __init__(self, data: bytes, decrypt: Callable[[str], str]) -> None:
        r"""Read a file.

        Args:
            data: its content.
            decrypt: decrypts what is within `ENC(…)`; raises `ValueError`.

        Raises:
            MalformedProperties: a `\u` without four hexadecimal digits.
        """
        self._entries: Mapping[str, tuple[str, int]] = parse(data)
        self._decrypt = decrypt

    @classmethod
    def of(cls, entries: Mapping[str, tuple[str, int]], decrypt: Callable[[str], str]) -> Self:
        """Return values that are in no file.

        Args:
            entries: the values and the numbers of their lines, by name.
            decrypt: decrypts what is within `ENC(…)`; raises `ValueError`.
        """
        made = cls(b"", decrypt)
        made._entries = entries
        return made

    def __getitem__(self, name: str) -> str:
        """Return a value.

        Raises:
            KeyError: the file has no such name.
            MalformedProperties: it does not decrypt.
        """
        value, line = self._entries[name]
        encrypted = encrypted_part(value)
        if encrypted is None:
            return value
        try:
            return self._decrypt(encrypted)
        except ValueError as error:
            raise MalformedProperties(f"{name} does not decrypt: {error}", line) from error

    def __iter__(self) -> Iterator[str]:
        """Return the names."""
        return iter(self._entries)

    def __len__(self) -> int:
        """Return their number."""
        return len(self._entries)

    def __contains__(self, name: object) -> bool:
        """Return True for a name of the file, whether its value decrypts or not."""
        return name in self._entries
