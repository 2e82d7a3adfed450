"""Placeholders: filled in as Spring does."""

import pytest

from pybroker.activemq_xml.placeholders import COUNT_MAX, LENGTH_MAX, UnresolvedPlaceholder, filled_in

PROPERTIES = {
    "activemq.data": "${activemq.base}/data",
    "activemq.base": "/opt/amq",
    "kind": "ssl",
    "port.ssl": "61617",
    "a:b": "whole",
    "empty": "",
    "me": "x${me}",
    "one": "${two}",
    "two": "${one}",
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain $x $} {} #{x}", "plain $x $} {} #{x}"),
        ("${activemq.base}", "/opt/amq"),
        ("${activemq.data}/kahadb and ${kind}", "/opt/amq/data/kahadb and ssl"),
        ("${port.${kind}}", "61617"),
        ("${DB_HOST:db.example}:5432", "db.example:5432"),
        ("${kind:tcp}", "ssl"),
        ("${none:}", ""),
        ("${empty:x}", ""),
        ("${none:${kind}}", "ssl"),
        ("${none:a:b}", "a:b"),
        ("${a:b}", "whole"),
        ("${kind", "${kind"),
        ("${kind} ${kind", "ssl ${kind"),
        ("${kind}${kind}", "sslssl"),
    ],
)
def test_names_get_their_values(text: str, expected: str) -> None:
    assert filled_in(text, PROPERTIES) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("${nope}", r"placeholder \$\{nope\} has no value"),
        ("${port.${nope}}", r"\$\{nope\} has no value"),
        ("${}", r"\$\{\} has no value"),
        ("${me}", r"\$\{me\} has a value that contains it"),
        ("${one}", r"has a value that contains it"),
        ("${" * 30 + "x" + "}" * 30, "leads through more than 20 others"),
    ],
)
def test_what_has_no_value_is_named(text: str, message: str) -> None:
    with pytest.raises(UnresolvedPlaceholder, match=message):
        filled_in(text, PROPERTIES)


@pytest.mark.parametrize("text", ["${" * 3000 + "x" + "}" * 3000, "${" + 3000 * "x" + "}", "${kind}" * 20_000])
def test_message_about_a_long_value_is_short(text: str) -> None:
    with pytest.raises(UnresolvedPlaceholder) as caught:
        filled_in(text, PROPERTIES)
    assert len(str(caught.value)) < 200
    assert len(caught.value.name) < 200


def test_values_that_double_each_other_are_refused_soon() -> None:
    doubling = {"p0": "x" * 1000} | {f"p{n + 1}": f"${{p{n}}}${{p{n}}}" for n in range(18)}
    with pytest.raises(UnresolvedPlaceholder, match=f"more than {LENGTH_MAX} characters"):
        filled_in("${p18}", doubling)


@pytest.mark.parametrize("end", ["", "x"])
def test_values_that_lead_through_very_many_are_refused_soon(end: str) -> None:
    """Their texts stay short, or only the last one is long: each of these would be filled in 10**15 times."""
    wide = {"p0": end} | {f"p{n + 1}": f"${{p{n}}}" * 10 for n in range(15)}
    with pytest.raises(UnresolvedPlaceholder, match=f"leads through more than {COUNT_MAX} others"):
        filled_in("${p15}", wide)
    assert filled_in("${kind}" * COUNT_MAX, PROPERTIES) == "ssl" * COUNT_MAX
    with pytest.raises(UnresolvedPlaceholder, match=f"more than {COUNT_MAX} others"):
        filled_in("${kind}" * (COUNT_MAX + 1), PROPERTIES)
