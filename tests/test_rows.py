"""A table as one test names each row that fails, and tries all of them."""

from pathlib import Path

import pytest
from rows import each_row

TRIED: list[object] = []


@each_row("number", [1, 2, 3, 4], ids=lambda number: f"row of {number}")
def _odd(number: int) -> None:
    TRIED.append(number)
    assert number % 2


@each_row(("left", "right"), [(1, 1), (2, 3)])
@each_row("more", [0, 5])
def _same(left: int, right: int, more: int) -> None:
    TRIED.append((left, right, more))
    assert left + more == right + more


@each_row("name", ["fails", "skips", "passes"])
def _outcomes(name: str) -> None:
    TRIED.append(name)
    if name == "fails":
        pytest.fail("it does")
    if name == "skips":
        pytest.skip("it does")


def _passes(number: int) -> None:
    TRIED.append(number)


def test_every_row_is_tried_and_those_that_fail_are_named() -> None:
    TRIED.clear()
    with pytest.raises(AssertionError, match=r"2 of 4 rows fail: 1: row of 2; 3: row of 4\n"):
        _odd()
    assert TRIED == [1, 2, 3, 4]


def test_tables_lie_in_one_another() -> None:
    TRIED.clear()
    with pytest.raises(AssertionError, match=r"1 of 2 rows fail: 1: 2, 3\n(.|\n)*2 of 2 rows"):
        _same()
    assert TRIED == [(1, 1, 0), (1, 1, 5), (2, 3, 0), (2, 3, 5)]


def test_a_failure_is_told_before_a_skip() -> None:
    TRIED.clear()
    with pytest.raises(AssertionError, match="1 of 3 rows fail: 0: 'fails'"):
        _outcomes()
    assert TRIED == ["fails", "skips", "passes"]


def test_an_empty_table_and_a_wrong_name_fail() -> None:
    with pytest.raises(AssertionError, match="an empty table"):
        each_row("number", list)(_passes)()
    with pytest.raises(AssertionError, match="no parameters"):
        each_row("nobody", [1])(_passes)


def test_each_row_has_its_own_folder_and_patches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[Path] = []

    @each_row("name", ["a", "b"])
    def two(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        assert not hasattr(pytest, "of_a_row")
        monkeypatch.setattr(pytest, "of_a_row", name, raising=False)
        assert list(tmp_path.iterdir()) == []
        (tmp_path / name).touch()
        found.append(tmp_path)

    two(tmp_path=tmp_path, monkeypatch=monkeypatch)
    assert found == [tmp_path / "0", tmp_path / "1"]
