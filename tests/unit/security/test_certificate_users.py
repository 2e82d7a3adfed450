"""Users who are known by their certificates."""

import time
from pathlib import Path

import pytest

from pybroker.broker.domain.errors import ConfigError
from pybroker.broker.domain.security import Credentials, Decided, NotAuthenticated, User
from pybroker.security.certificate_users import CertificateLogins, CertificateUsers, read
from pybroker.security.files import Content

USERS = """
client1=CN=client one, OU=test, O=x, C=US
pattern=/CN=app[0-9]+, O=x/
lone=CN=lone
"""


def users(text: str = USERS, groups: str | None = "g=client1,pattern\nh=client1, lone\n") -> CertificateUsers:
    given = None if groups is None else Content(Path("groups"), groups.encode())
    return read(Content(Path("users"), text.encode()), given)


@pytest.mark.parametrize(
    ("subject", "user"),
    [
        ("CN=client one, OU=test, O=x, C=US", User("client1", frozenset("gh"))),
        ("CN=app7, O=x", User("pattern", frozenset("g"))),
        ("CN=app7, O=x, C=US", None),
        ("CN=lone", User("lone")),
        ("CN=Lone", None),
        ("CN=client one,OU=test,O=x,C=US", None),
        ("/CN=app[0-9]+, O=x/", None),
        ("", None),
    ],
)
def test_users_are_found_by_their_subject(subject: str, user: User | None) -> None:
    assert users().find(subject) == user


def test_the_first_of_two_users_with_one_subject_counts() -> None:
    found = users("a=CN=x\nb=CN=x\n", None)
    assert found.find("CN=x") == User("a")
    assert len(found) == 2


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "has no users"),
        ("# nothing\n", "has no users"),
        ("\na=\n", "users, line 2: user 'a' has no subject"),
        ("a=/(/\n", "line 1: user 'a': the regular expression is not valid"),
        ("a=\\u1\n", "line 1"),
    ],
)
def test_a_file_that_cannot_be_used(text: str, match: str) -> None:
    with pytest.raises(ConfigError, match=match) as refused:
        users(text)
    assert str(refused.value).startswith("certificate_users_file: users")


def test_an_expression_takes_no_subject_long() -> None:
    """The backtracking of `re` would take seconds for the first, and ages for the second."""
    found = users("a=/CN=([a-z]+ ?)+, O=x/\n", None)
    for length in (26, 900):
        begin = time.process_time()
        assert found.find("CN=" + "a" * length + ", O=y") is None
        assert time.process_time() - begin < 1
    assert found.find("CN=client one, O=x") == User("a")


class Others:
    """Knows the clients that are not judged by certificate."""

    def authenticate(self, credentials: Credentials, decided: Decided) -> None:
        decided(User("other"))


def login(logins: CertificateLogins, certificate: str | None) -> str:
    outcomes: list[User | NotAuthenticated] = []
    logins.authenticate(Credentials("u", "pw", "127.0.0.1", certificate), outcomes.append)
    return outcomes[0].name if isinstance(outcomes[0], User) else str(outcomes[0])


def test_a_listener_with_tls_looks_at_the_certificate_alone() -> None:
    logins = CertificateLogins(users(), Others())
    assert login(logins, "CN=lone") == "lone"
    assert login(logins, None) == "other"
    assert login(logins, "") == "Unable to authenticate transport without SSL certificate."
    assert (
        login(logins, "CN=other, O=x")
        == "User name [u] or password is invalid. No user for client certificate: CN=other, O=x"
    )


def test_users_who_are_not_the_same() -> None:
    logins = CertificateLogins(users(), Others())
    assert logins.replace(users()) == frozenset()
    assert logins.replace(users(groups=None)) == {"client1", "pattern"}
    assert logins.replace(users("lone=CN=lonely\nnew=CN=new\n", None)) == {"client1", "pattern", "lone"}
    assert login(logins, "CN=lonely") == "lone"
    assert users() == users()
    assert users() != users(groups=None)
    assert hash(users()) == hash(users())


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("a=this is rubbish\n", "line 1: user 'a': no subject is written like 'this is rubbish', but for example CN="),
        ("a=CN=client one,OU=test,O=x\n", "no subject is written like"),
        ("a=CN=x\n\nb=CN=x\n", "line 3: user 'b' has the subject of user 'a', who counts"),
    ],
)
def test_what_can_match_nothing_is_a_warning(text: str, match: str) -> None:
    (warning,) = users(text, None).warnings
    assert match in warning


@pytest.mark.parametrize(
    "subject", ["CN=a", 'CN="a, b", O=x', "CN=a + UID=b, O=x", "OID.1.2.3=v", 'CN="say \\\\"hi\\\\""', "CN=", "/CN=.*/"]
)
def test_subjects_of_java_are_no_warning(subject: str) -> None:
    assert not users(f"a={subject}\n", None).warnings
