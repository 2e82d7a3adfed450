"""The parser of JAAS's login.config."""

import pytest

from pybroker.activemq_xml.login_config import MalformedLoginConfig, ModuleFlag, parse

STOCK = """
/** Licensed to … */
activemq {
    org.apache.activemq.jaas.PropertiesLoginModule required
        // a comment
        reload=true org.apache.activemq.jaas.properties.user="users.properties" /* another */
        org.apache.activemq.jaas.properties.group='groups.properties';
};
"second section" { a.B SUFFICIENT debug=true; C Optional; };
empty { };
"""


def test_sections_modules_and_options() -> None:
    found = parse(STOCK.encode(), {})
    (module,) = found["activemq"]
    assert (module.class_name, module.simple_name, module.line) == (
        "org.apache.activemq.jaas.PropertiesLoginModule",
        "PropertiesLoginModule",
        4,
    )
    assert module.flag is ModuleFlag.REQUIRED
    assert module.options == {
        "reload": "true",
        "org.apache.activemq.jaas.properties.user": "users.properties",
        "org.apache.activemq.jaas.properties.group": "groups.properties",
    }
    assert [(each.simple_name, each.flag) for each in found["second section"]] == [
        ("B", ModuleFlag.SUFFICIENT),
        ("C", ModuleFlag.OPTIONAL),
    ]
    assert found["empty"] == ()


def test_escapes_and_properties_of_java() -> None:
    text = r'a { M required path="${activemq.conf}${/}users" quoted="a\"b\\c\n\101"; };'
    (module,) = parse(text.encode(), {"activemq.conf": "/etc/amq"})["a"]
    assert module.options == {"path": "/etc/amq/users", "quoted": 'a"b\\c\nA'}


def test_options_are_not_shown() -> None:
    (module,) = parse(b'a { M required password="secret"; };', {})["a"]
    assert "secret" not in repr(module)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a", "line 1: { is expected"),
        ("a {\n M needed; };", "line 2: a flag is one of required, requisite, sufficient, optional"),
        ("a { M required x; };", "line 1: = is expected"),
        ("a { M required x=; };", "line 1: the value of x is expected, and not ;"),
        ("a { M required x=1 };", "line 1: the name of an option, or a semicolon is expected, and not }"),
        ("a { M required; }", "line 1: ; is expected"),
        ("a { };\na { };", "line 2: the section a is there twice"),
        ('a { M required x="s3cret\n"; };', "line 1: '\"' is not expected here"),
        ("/* open", "line 1: '/' is not expected here"),
        ('a { M required x="${no.such}"; };', "line 1: x has the property 'no.such', which is not set"),
        ("a { M required", "line 1: the file ends before the name of an option, or a semicolon"),
    ],
)
def test_malformed_text_is_an_error_with_the_line(text: str, reason: str) -> None:
    with pytest.raises(MalformedLoginConfig) as caught:
        parse(text.encode(), {})
    assert str(caught.value) == reason


def test_a_long_or_foreign_file_is_an_error() -> None:
    with pytest.raises(MalformedLoginConfig, match="more than 1 MiB"):
        parse(b" " * ((1 << 20) + 1), {})
    with pytest.raises(MalformedLoginConfig, match="line 2: it is not in UTF-8"):
        parse(b"\n\xff", {})
