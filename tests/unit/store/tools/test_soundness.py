"""The check at the end of every store test can fail."""

from pathlib import Path

import pytest

from tests.soundness import SET_ASIDE, assert_all_sound, assert_sound
from tests.unit.store.states import add, batch, write_file


def damage(path: Path) -> None:
    """Change one byte of the first message's body; the other batches stay."""
    content = bytearray(path.read_bytes())
    content[content.index(b"xxxxxxxxxx")] ^= 1
    path.write_bytes(content)


def journal(directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    return write_file(directory, 1, [batch(add(1)), batch(add(2))])


def test_damage_fails_it_wherever_the_journal_is(tmp_path: Path) -> None:
    journal(tmp_path / "one")
    path = journal(tmp_path / "two" / "kahadb")
    assert_all_sound(tmp_path, but="damaged record")  # these bodies are no messages
    damage(path)
    with pytest.raises(AssertionError, match=r"db-1\.log, offset 0: a batch's checksum does not fit"):
        assert_all_sound(tmp_path, but="damaged record")
    with pytest.raises(AssertionError, match="checksum"):
        assert_sound(tmp_path / "two", but="damaged record")


@pytest.mark.parametrize("name", SET_ASIDE)
def test_what_was_set_aside_is_no_journal(tmp_path: Path, name: str) -> None:
    journal(tmp_path)
    damage(journal(tmp_path / name))
    assert_all_sound(tmp_path, but="damaged record")


def test_a_missing_journal_fails_the_soundness_check(tmp_path: Path) -> None:
    assert_all_sound(tmp_path)
    with pytest.raises(AssertionError, match="no journal"):
        assert_sound(tmp_path)
