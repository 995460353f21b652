"""The table of injected causes: what counts as right, and what is injected."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import get_args

from rows import each_row

from nginx_tune.documents.observation import Cause, CauseId, Observation

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from causes import judge
from causing.injections import INJECTIONS, Injection


def seen(*causes: str, summary: str = "") -> Observation:
    return Observation(
        causes=[Cause(id=one, summary=summary, confidence="high") for one in causes]  # type: ignore[arg-type]
    )


GZIP = Injection("gzip", lambda _: 1, ("loop-held-by-cpu",), ("zlib",), ("cpu-saturated",))


@each_row(
    ("causes", "summary", "outcome"),
    [
        (("loop-held-by-cpu",), "90 % zlib", "right"),
        (("loop-held-by-cpu", "cpu-saturated"), "90 % zlib", "right"),
        (("loop-held-by-cpu", "cpu-steal"), "90 % zlib", "right"),
        (("loop-held-by-cpu",), "90 % of it", "wrong"),
        (("loop-held-by-cpu", "slow-upstream"), "90 % zlib", "wrong"),
        (("cpu-saturated", "loop-held-by-cpu"), "90 % zlib", "wrong"),
        (("nothing-found",), "", "wrong"),
        (("cause-not-known",), "", "not known"),
        (("not-enough-evidence",), "", "not known"),
    ],
)
def test_what_is_right(causes: tuple[str, ...], summary: str, outcome: str) -> None:
    assert judge(GZIP, seen(*causes, summary=summary)) == outcome


def test_sixteen_causes_and_more_are_injected() -> None:
    assert len(INJECTIONS) >= 17  # "nothing" is none
    assert len({one.name for one in INJECTIONS}) == len(INJECTIONS)
    for one in INJECTIONS:
        assert one.causes
        assert {*one.causes, *one.beside} <= set(get_args(CauseId))
