"""The page on apply names the test of each incident: each of them is there."""

import re
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
PAGE = TESTS.parent / "docs" / "apply.md"


def test_every_test_that_the_page_names_is_there() -> None:
    files = [*TESTS.glob("apply/test_*.py"), *TESTS.glob("examples/test_*.py")]
    there = set(
        re.findall(r"^def (test_\w+)", "".join(one.read_text() for one in files), re.MULTILINE)
    )
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("|")]
    named = {name for row in rows for name in re.findall(r"`(test_\w+)`", row)}
    assert len(named) > 15
    assert named <= there
