r"""Java's properties files, by the rules of `java.util.Properties.load`."""

import pytest

from pybroker.security.java_properties import MalformedProperties, parse


def values(text: str) -> dict[str, str]:
    return {name: value for name, (value, _) in parse(text.encode("iso-8859-1")).items()}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a=b", {"a": "b"}),
        ("a:b", {"a": "b"}),
        ("a b", {"a": "b"}),
        ("  a  =  b", {"a": "b"}),
        ("a = b  ", {"a": "b  "}),
        ("a==b", {"a": "=b"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("=b", {"": "b"}),
        ("# a=b\n! c=d\n\n \t\ne=f", {"e": "f"}),
        ("a=# b", {"a": "# b"}),
        ("a=1\na=2", {"a": "2"}),
        (r"a\=b\:c=d", {"a=b:c": "d"}),
        (r"a\ b=c", {"a b": "c"}),
        (r"a=b\=c\d\\", {"a": "b=cd\\"}),
        (r"a=\t\n\f\r", {"a": "\t\n\f\r"}),
        (r"a=\u00e9\u20AC", {"a": "é€"}),
        ("a=é", {"a": "é"}),
        ("a=b\\\n   c", {"a": "bc"}),
        ("a=b\\\r\n\tc", {"a": "bc"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=b\\\n# c", {"a": "b# c"}),
        ("# b\\\na=c", {"a": "c"}),
        ("a=b\\", {"a": "b"}),
        ("a=1\rb=2\r\nc=3", {"a": "1", "b": "2", "c": "3"}),
        ("", {}),
    ],
)
def test_values(text: str, found: dict[str, str]) -> None:
    assert values(text) == found


def test_lines_are_counted_from_the_beginning_of_each_value() -> None:
    assert parse(b"# x\na=1\\\n 2\n\nb=3") == {"a": ("12", 2), "b": ("3", 5)}


@pytest.mark.parametrize("text", [r"a=\u12", r"a=\u12g4", "a=1\n" + r"b=\u"])
def test_an_incomplete_unicode_escape_is_refused_with_its_line(text: str) -> None:
    with pytest.raises(MalformedProperties) as refused:
        parse(text.encode())
    assert refused.value.line == text.count("\n") + 1
