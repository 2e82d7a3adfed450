"""Values of settings: how they are read, from text and TOML's own types, and the errors for those that cannot be."""

from datetime import date
from pathlib import Path
from typing import Any

import pytest

from pybroker.broker.app.config import SETTINGS, Config, load
from pybroker.broker.app.setting import (
    Setting,
    choice,
    milliseconds,
    number,
    path,
    port,
    text,
    whole,
    yes_or_no,
)
from pybroker.broker.domain.errors import ConfigError
from pybroker.units import parse_duration as duration
from pybroker.units import parse_size as size


@pytest.mark.parametrize(
    ("read", "given", "value"),
    [
        (text, "a b", "a b"),
        (path, "a/b", Path("a/b")),
        (path, Path("a"), Path("a")),
        *((yes_or_no, word, True) for word in (True, 1, "true", "YES", "on", "1", "y", "t")),
        *((yes_or_no, word, False) for word in (False, 0, "false", "No", "off", "0", "n", "f")),
        (whole, 7, 7),
        (whole, "-7", -7),
        (whole, " 12 ", 12),
        (port, "0", 0),
        (port, 65535, 65535),
        (port, " Off ", None),
        (size, 1024, 1024),
        (size, "2kb", 2048),
        (duration, 1.5, 1.5),
        (duration, "250ms", 0.25),
        (choice("a", "b"), "b", "b"),
        (number, 2, 2.0),
        (number, "2.5", 2.5),
        (milliseconds, 1.5, 1500),
    ],
)
def test_what_can_be_read(read: Any, given: object, value: object) -> None:
    assert read(given) == value
    assert type(read(given)) is type(value) or isinstance(value, Path)


@pytest.mark.parametrize(
    ("read", "given", "message"),
    [
        (text, 1, "^1 is not text"),
        (text, None, "^None is not text"),
        (path, 1, "^1 is not text"),
        (yes_or_no, "maybe", "^'maybe' is neither true nor false$"),
        (yes_or_no, 2, "^2 is neither true nor false$"),
        (yes_or_no, None, "^None is neither"),
        (whole, "1.5", "^'1.5' is not a whole number$"),
        (whole, 1.5, "^1.5 is not a whole number$"),
        (whole, True, "^True is not a whole number$"),
        (whole, "9" * 5000, "is not a whole number$"),
        (whole, "\u0663", "is not a whole number$"),
        (whole, "", "^'' is not a whole number$"),
        (port, "x", "^'x' is neither a port number nor `off`$"),
        (port, -1, "^-1 is no port: the highest is 65535$"),
        (port, "65536", "^'65536' is no port"),
        (size, date(2026, 1, 1), "is not a size"),
        (size, True, "is not a size"),
        (duration, [1], "is not a duration"),
        (number, True, "^True is not a number$"),
        (number, [1], r"^\[1\] is not a number$"),
        (milliseconds, [1], r"^\[1\] is not a duration"),
        (choice("a", "b", "c"), "d", "^it must be 'a', 'b' or 'c'; given was 'd'$"),
        (choice("a", "b"), ["a"], "^it must be 'a' or 'b'; given was "),
    ],
)
def test_what_cannot_be_read(read: Any, given: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read(given)


def test_bounds_belong_to_what_is_allowed_or_not() -> None:
    setting = Setting(whole, 5, least=1, most=9)
    assert [setting.value(number) for number in (1, 9)] == [1, 9]
    for given in (0, 10):
        with pytest.raises(ValueError, match=f"^it must be at least 1 and at most 9; given was {given}$"):
            setting.value(given)
    with pytest.raises(ValueError, match=r"^it must be above 0s and at most 1h; given was '0s'$"):
        Setting(duration, 1.0, above=0, most=3600).value("0s")
    with pytest.raises(ValueError, match=r"^it must be at least 1mb; given was '1kb'$"):
        Setting(size, 2 << 20, least=1 << 20).value("1kb")


@pytest.mark.parametrize("given", [float("nan"), float("inf"), float("-inf"), "nan", "1e400"])
def test_number_that_is_not_finite_is_outside_the_range(given: object) -> None:
    with pytest.raises(ValueError, match=f"^it must be at least 0 and at most 1000; given was {given!r}$"):
        Setting(number, least=0, most=1000).value(given)


def test_none_is_for_those_that_have_no_value_of_their_own() -> None:
    assert Setting(whole).value(None) is None
    with pytest.raises(ValueError, match="None is not a whole number"):
        Setting(whole, 5).value(None)


def test_a_file_has_types(tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    file.write_text('archive = true\nstomp = 1\nconnections_max = 9\nlock_check = 2\nframe_max = 4096\nbind = "::"\n')
    config = load(file, {}, {})
    assert (config.archive, config.stomp, config.connections_max) == (True, 1, 9)
    assert (config.lock_check, config.frame_max, config.bind) == (2.0, 4096, "::")
    file.write_text("bind = 1")
    with pytest.raises(ConfigError, match=r"^bind \(in .*p.toml\): 1 is not text: write it in quotes$"):
        load(file, {}, {})


def test_what_was_set_is_known_and_a_copy_has_it_too() -> None:
    config = Config(stomp="7", sync="never")
    assert config.given == {"stomp": "7", "sync": "never"}
    copy = config.replace(stomp="8")
    assert (config.stomp, copy.stomp, copy.sync, set(copy.given)) == (7, 8, "never", {"stomp", "sync"})
    with pytest.raises(ConfigError, match=r"^port: there is no such setting; see `pybroker start --help`"):
        Config(port=1)
    different = {name for name in SETTINGS if getattr(Config(), name) != SETTINGS[name].default}
    assert different == {"listeners"}, "those that are open, not their tables"


def test_a_list_where_the_entries_are_one_text(tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    file.write_text('anonymous_groups = ["a", "b"]\n')
    with pytest.raises(ConfigError, match=r"\['a', 'b'\] is not text: write the entries in one text, with commas"):
        load(file, {}, {})
