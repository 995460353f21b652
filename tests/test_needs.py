"""Every skip is one that the list of what was not tested names."""

import re
from pathlib import Path

import pytest
from needs import FOUND_WHILE_RUNNING, HAS, lacks, untested
from nginx_versions import SERIES, need

TESTS = Path(__file__).parent


def test_every_skip_says_what_the_host_lacks() -> None:
    """By ``needs`` or `lacks`: what skips in another way stands in no list of what is untested."""
    ways = re.compile(r"pytest\.(skip|importorskip|xfail)\b|mark\.(skip|skipif|xfail)\b|SkipTest")
    found = {str(p.relative_to(TESTS)) for p in TESTS.rglob("*.py") if ways.search(p.read_text())}
    assert found == {"conftest.py", "needs.py", "rows.py", "test_needs.py", "test_rows.py"}


def test_every_need_of_a_test_is_known() -> None:
    text = "\n".join(path.read_text() for path in TESTS.rglob("*.py"))
    marks = re.findall(r"mark\.needs\(([^)]*)\)", text)
    asked = {name for mark in marks for name in re.findall(r'"([a-z0-9-]+)"', mark)}
    found = set(re.findall(r'\blacks\("([a-z0-9-]+)"', text))
    asked |= set(map(need, SERIES))
    assert asked == set(HAS), "what no test needs goes, what one needs is looked for"
    assert found - set(HAS) == FOUND_WHILE_RUNNING


def test_what_was_not_tested_is_counted_by_what_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    reasons = ["Skipped: disk: in memory", "root: not on this host", "root: not on this host"]
    lines = [line.strip() for line in untested(reasons)]
    assert lines == ["1 without disk: in memory", "2 without root: not on this host"]
    monkeypatch.setenv("NGINX_TUNE_REQUIRE", "")
    with pytest.raises(pytest.skip.Exception, match=r"^cachestat: none here$"):
        lacks("cachestat", "none here")
    monkeypatch.setenv("NGINX_TUNE_REQUIRE", "root,cachestat")
    with pytest.raises(pytest.fail.Exception, match="names cachestat, but: none here"):
        lacks("cachestat", "none here")
