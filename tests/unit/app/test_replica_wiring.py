"""The election store of a member's settings."""

import sys
from pathlib import Path
from typing import Any

import pytest

from pybroker.broker.app.config import Config
from pybroker.broker.app.replica_wiring import make_register
from pybroker.broker.domain.errors import ConfigError


def test_missing_driver_is_a_sentence_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in sys.modules if each.startswith(("psycopg2", "pybroker.locks.election.postgres"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "psycopg2", None)
    monkeypatch.delitem(sys.modules, "pybroker.locks.postgres.session", raising=False)
    with pytest.raises(ConfigError, match=r"replicate: .*needs psycopg2, which is not installed; pip install psycopg2"):
        make_register(Config(store="data", replicate="postgresql://db/orders"))


def password_file(path: Path, data: bytes, mode: int = 0o600) -> Path:
    path.write_bytes(data)
    path.chmod(mode)
    return path


def test_user_of_etcd_has_the_password_of_a_file(tmp_path: Path) -> None:
    file = password_file(tmp_path / "password", b"a s3cret \n")
    config = Config(store="data", replicate="etcd://h/orders", replicate_user="member", replicate_password_file=file)
    access = make_register(config).guardian_access()
    assert access["login"] == {"name": "member", "password": "a s3cret "}
    assert "login" not in make_register(Config(store="data", replicate="etcd://h/orders")).guardian_access()
    assert "s3cret" not in repr(config)


@pytest.mark.parametrize(
    ("data", "mode", "reason"),
    [
        (b"", 0o600, "has no password"),
        (b"\n", 0o600, "has no password"),
        (b"\xff\xfe", 0o600, "has no password"),
        (b"s3cret", 0o644, "others than its owner may read it"),
    ],
)
def test_password_that_cannot_be_used_is_refused(tmp_path: Path, data: bytes, mode: int, reason: str) -> None:
    file = password_file(tmp_path / "password", data, mode)
    config = Config(store="data", replicate="etcd://h/orders", replicate_user="member", replicate_password_file=file)
    with pytest.raises(ConfigError, match=rf"^replicate_password_file: .*{reason}"):
        make_register(config)


@pytest.mark.parametrize("given", [{"replicate_user": "member"}, {"replicate_password_file": Path("password")}])
def test_user_and_password_go_together(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="replicate_user and replicate_password_file go together"):
        Config(store="data", replicate="etcd://h/orders", **given)


def test_user_of_another_election_store_is_refused(tmp_path: Path) -> None:
    file = password_file(tmp_path / "password", b"s3cret")
    url = "postgresql://u@h/d"
    config = Config(store="data", replicate=url, replicate_user="u", replicate_password_file=file)
    with pytest.raises(ConfigError, match="replicate_user: it is for etcd alone"):
        make_register(config)


def test_url_of_no_election_store_is_refused() -> None:
    with pytest.raises(ConfigError, match="it names no election store: write etcd://"):
        make_register(Config(store="data", replicate="consul://h/orders"))
