"""Quantities as people read them have one style."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rows import each_row

import nginx_tune
from nginx_tune.documents.units import percent_text, plural

PACKAGE = Path(nginx_tune.__file__).parent
OWN_STYLE = re.compile(r":[+.,]?[0-9.]*%\}|\}\s?%[^(%\w]|[0-9]%\"")
"""A format of its own: ``:.2%}``, ``:.0f} %``."""
ELSEWHERE = {
    "documents/units.py": "the one place",
    "measure/proof/statistics.py": "how much more, with its sign",
    "audit/rules/io_split_no_default.py": "words of a configuration",
    "conf/table_lines.py": "words of a configuration",
    "decide/cache_layout.py": "words of a configuration",
}


@each_row(
    ("ratio", "digits", "text"),
    [
        (0.0, 3, "0 %"),
        (0.97234, 3, "97.2 %"),
        (0.97234, 2, "97 %"),
        (1.0, 3, "100 %"),
        (1.0, 2, "100 %"),
        (0.9999, 3, "> 99.9 %"),
        (0.9999, 2, "> 99 %"),
        (0.9994, 3, "99.9 %"),
        (0.094, 2, "9.4 %"),
        (0.0996, 2, "10 %"),
        (0.00004, 3, "< 0.01 %"),
        (0.0001, 3, "0.01 %"),
        (12.346, 3, "1,235 %"),
        (None, 3, "?"),
    ],
)
def test_a_share_is_said_in_one_way(ratio: float | None, digits: int, text: str) -> None:
    assert percent_text(ratio, digits) == text


def test_a_share_with_its_error() -> None:
    assert percent_text(0.125, error=0.0031) == "12.5 ± 0.3 %"
    assert percent_text(0.125, error=0.0) == "12.5 %"
    assert percent_text(0.125, error=1e-12) == "12.5 %"
    assert percent_text(0.578, error=0.2) == "58 ± 20 %"
    assert percent_text(0.0, error=1.0) == "0 ± 100 %"
    assert percent_text(0.5, error=0.0096) == "50 ± 1 %"
    assert percent_text(0.5, error=0.96) == "50 ± 100 %"
    assert percent_text(0.97246, error=0.00031) == "97.25 ± 0.03 %"


@given(st.floats(0, 1), st.sampled_from([2, 3]))
def test_what_is_not_all_is_never_all_and_what_is_something_never_nothing(
    ratio: float, digits: int
) -> None:
    text = percent_text(ratio, digits)
    assert (text == "100 %") == (ratio == 1)
    assert (text == "0 %") == (ratio == 0)
    said = float(text.removesuffix(" %").lstrip("<> "))
    assert said == pytest.approx(100 * ratio, rel=0.06, abs=0.01)


def test_no_other_file_says_percentages_in_a_style_of_its_own() -> None:
    found = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if OWN_STYLE.search(path.read_text())
    }
    assert found == set(ELSEWHERE)


def test_a_count_has_its_noun() -> None:
    assert [plural(n, "disk") for n in (0, 1, 2, 1000)] == [
        "0 disks", "1 disk", "2 disks", "1,000 disks",
    ]  # fmt: skip
