"""Harnesses: tests of what strangers write, which `make test-all` runs for a minute each.

``@fuzzed`` stands above ``@given``. In the gate such a test is what hypothesis makes of it, the
same small draw each time. In `make test-all` it draws from one seed after another until
NGINX_TUNE_FUZZ_SECONDS are over, the first of them this run's; `pytest -s` shows how many it drew.
"""

import copy
import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import seed
from hypothesis import strategies as st
from tiers import ALL, FUZZ_SECONDS, SEED

ODD = (
    None, True, -1, 0, 1, 2**31, 2**53, 2**63, -(2**63), 1e308, 5e-324, -0.5, "", "x" * 300,
    "\x1b[31m", "\0", "../../etc/passwd", "\u202e", "a\nb", "\ud800", "1e999", [], {}, [[]],
    {"": {}},
)  # fmt: skip
"""Values that are rarely meant where they stand."""
WORDS = (
    b"\0", b"\xff", b"\r\n", b"\n", b" ", b"\x1b[31m", b"-1", b"18446744073709551616", b"1e999",
    b"{", b"}", b"[", b'"', b"\\", b"%", b"=", b";", b"\xef\xbb\xbf", b"NaN", b"[" * 2000,
)  # fmt: skip


def fuzzed(test: Callable[..., None]) -> Callable[..., None]:
    """Draw on until the time is over; a failure comes with what repeats it."""
    drawn = 0
    drawn_by: Any = test.hypothesis  # type: ignore[attr-defined]  # hypothesis's own handle
    inner = drawn_by.inner_test

    @functools.wraps(inner)
    def counted(*args: Any, **named: Any) -> None:
        nonlocal drawn
        drawn += 1
        inner(*args, **named)

    @functools.wraps(test)
    def repeated(*args: Any, **named: Any) -> None:
        drawn_by.inner_test = counted
        begun = time.monotonic()
        number = SEED
        while number == SEED or time.monotonic() < begun + FUZZ_SECONDS:
            if ALL:
                seed(number)(test)
            test(*args, **named)
            number += 1
        print(f"{test.__name__}: {drawn} draws in {time.monotonic() - begun:.0f} s")  # noqa: T201

    return repeated


@st.composite
def changed(draw: st.DrawFn, seeds: Sequence[bytes], words: Sequence[bytes] = WORDS) -> bytes:
    """One of the seeds with one to four places cut out, written over, repeated or put elsewhere."""
    data = draw(st.sampled_from(seeds))
    for _ in range(draw(st.integers(1, 4))):
        at, other = (draw(st.integers(0, len(data))) for _ in range(2))
        start, end = sorted((at, min(other, at + 40)))
        part = data[start:end]
        new = draw(
            st.sampled_from(words) | st.binary(max_size=4) | st.sampled_from([b"", part * 2])
        )
        data = data[:start] + new + data[end:]
    return data


@st.composite
def changed_tables(draw: st.DrawFn, seeds: Sequence[Any]) -> Any:
    """JSON's values: one of the seeds with one to four of its parts replaced, moved or left out."""
    tables = copy.deepcopy(draw(st.sampled_from(seeds)))
    for _ in range(draw(st.integers(1, 4))):
        places = list(_places(tables))
        if not places:
            return tables
        holder, key = draw(st.sampled_from(places))
        how = draw(st.integers(0, 5))
        if how == 0:
            del holder[key]
        elif how == 1:
            other, name = draw(st.sampled_from(places))
            holder[key] = copy.deepcopy(other[name]) if name in _keys(other) else None
        elif how == 2 and isinstance(holder[key], int | float):
            holder[key] = draw(st.sampled_from([-holder[key], holder[key] * 1e18, 1 / 3]))
        else:
            # A copy: the next change may be within it.
            holder[key] = copy.deepcopy(draw(st.sampled_from(ODD)))
    return tables


def _keys(holder: Any) -> Any:
    return range(len(holder)) if isinstance(holder, list) else holder


def _places(tables: Any) -> Any:
    """Every part, by what holds it and its key there."""
    if isinstance(tables, dict | list):
        for key in list(_keys(tables)):
            yield tables, key
            yield from _places(tables[key])
