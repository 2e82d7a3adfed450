"""The file of rules."""

from pathlib import Path

import pytest

from pybroker.broker.domain.destination import queue, topic
from pybroker.broker.domain.errors import ConfigError
from pybroker.broker.domain.rules import Grants, Rule, Rules
from pybroker.security import rules_toml
from pybroker.security.files import Content

PATH = Path("rules.toml")


def read(text: str) -> Rules:
    return rules_toml.read(Content(PATH, text.encode()))


def test_all_that_a_file_may_have() -> None:
    rules = read(
        """
        [[rules]]
        queue = "ORDERS.>"
        read = ["billing", "audit"]
        write = ["shop"]

        [[rules]]
        topic = "NEWS.*.x"
        admin = ["admins"]

        [default]
        read = ["admins"]

        [temporary]
        write = ["*"]
        """
    )
    assert rules == Rules(
        (
            Rule(queue("ORDERS.>"), Grants(read=frozenset(("billing", "audit")), write=frozenset(("shop",)))),
            Rule(topic("NEWS.*.x"), Grants(admin=frozenset(("admins",)))),
        ),
        Grants(read=frozenset(("admins",))),
        Grants(write=frozenset(("*",))),
    )
    assert rules_toml.unknown_groups(rules, {"shop", "admins"}) == ["audit", "billing"]


def test_no_one_may_use_temporary_destinations() -> None:
    assert read("[default]\nread = ['g']\n[temporary]\n").temporary == Grants()


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("x", "no TOML"),
        ("", "it has no rules"),
        ("[temporary]", "it has no rules"),
        ('[[rules]]\nqueue = "A"\nread = ["g"]\n' * 2001, "more than 2,000 rules"),
        ("x = 1", "nothing else, but here is 'x'"),
        ('[rules]\nqueue = "A"', "with two brackets"),
        ('\n\n[[rules]]\nread = ["g"]', r"rules.toml, line 3: rule 1: write either `queue"),
        ('[[rules]]\nqueue = "A"\ntopic = "A"\nread = ["g"]', "a rule for both is two rules"),
        ('[[rules]]\nqueue = 1\nread = ["g"]', "`queue` is a name"),
        (
            '[[rules]]\nqueue = "A"\nread = ["g"]\n\n[[rules]]\nqueue = "B"',
            r"line 5: rule 2, queue 'B': it gives no right",
        ),
        ('[[rules]]\nqueue = "A"\nread = "g"', r"`read` is a list of groups"),
        ('[[rules]]\nqueue = "A"\nread = [1]', r"`read` is a list of groups"),
        ('[[rules]]\nqueue = "A"\nread = ["a, b"]', "each group as a string of its own"),
        ('[[rules]]\nqueue = "A"\nread = [""]', "each group as a string of its own"),
        ('[[rules]]\nqueue = "A"\nread = ["g"]\nrights = 1', "nothing else, but here is 'rights'"),
        ('[[rules]]\nqueue = "A,B"\nread = ["g"]', "a rule for each part"),
        ('[[rules]]\nqueue = ""\nread = ["g"]', "a name is not empty"),
        ('[[rules]]\nqueue = "A*"\nread = ["g"]', "one whole level"),
        ('[[rules]]\nqueue = "A.>.B"\nread = ["g"]', "one whole level"),
        ('[[rules]]\nqueue = "queue://A"\nread = ["g"]', "neither a prefix"),
        ('[[rules]]\nqueue = "A?x=1"\nread = ["g"]', "nor options"),
        ("rules = [1]", "rule 1: it has `queue`"),
        ("\n[default]\n", r"line 2: \[default\]: it gives no right"),
        (
            '[default]\nread = ["g"]\n[temporary]\nqueue = "A"',
            r"line 3: \[temporary\]: it has `read`, `write`, `admin`, and nothing else",
        ),
        ("default = 1", r"\[default\]: it has"),
    ],
)
def test_a_file_that_cannot_be_used(text: str, match: str) -> None:
    with pytest.raises(ConfigError, match=match) as refused:
        read(text)
    assert str(refused.value).startswith("rules_file: rules.toml")


def test_rules_in_a_form_without_headers() -> None:
    with pytest.raises(ConfigError, match=r"rules.toml: rule 2, queue 'B'"):
        read('rules = [{queue = "A", read = ["g"]}, {queue = "B"}]')


def test_warnings_about_the_file_are_kept() -> None:
    assert rules_toml.read(Content(PATH, b"[default]\nread = ['g']\n", ("careful",))).warnings == ("careful",)
