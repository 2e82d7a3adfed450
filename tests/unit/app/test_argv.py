"""Detection of passwords among a process's arguments."""

import pytest

from pybroker.broker.app.argv import secrets


@pytest.mark.parametrize(
    ("argument", "hidden"),
    [
        ("postgresql://u:pa%20ss@h:5432/d", "pa%20ss"),
        ("--lock-url=postgres://u:pw@a,b/d?target_session_attrs=any", "pw"),
        ("postgresql://u:p@w@h/d", "p@w"),
        ("postgresql://h/d?user=u&password=pw&sslmode=require", "pw"),
        ("postgresql://h/d?sslpassword=pw", "pw"),
        ("--property\0javax.net.ssl.keyStorePassword=p=w, 1", "p=w, 1"),
        ("--property=database.PASSWORD=pw", "pw"),
    ],
)
def test_a_password_and_nothing_else(argument: str, hidden: str) -> None:
    arguments = b"\0".join([b"pybroker", b"start", b"--store", argument.encode(), b"--name", b"a"]) + b"\0"
    ((begin, length),) = secrets(arguments)
    assert arguments[begin : begin + length] == hidden.encode()


@pytest.mark.parametrize(
    "argument",
    [
        "postgresql://u@h:5432/d",
        "failover:(tcp://a:1,tcp://b:2)",
        "memory:",
        "a:b@c",
        "--property\0password.file=",
        "--property\0a=password=b",
    ],
)
def test_where_there_is_none_nothing_is_hidden(argument: str) -> None:
    assert secrets(argument.encode() + b"\0x:y@z") == []


def test_each_argument_has_its_own() -> None:
    assert len(secrets(b"postgresql://u:one@h/d\0postgresql://u:two@h/d\0")) == 2
