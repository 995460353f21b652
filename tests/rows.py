"""A table as one test: each row is tried, and every row that fails is named.

``@each_row`` reads as ``@pytest.mark.parametrize`` does, and makes one case of all rows.
Parametrized are tests whose rows need different things of the host, or take so long that they run
side by side.
"""

import functools
import inspect
import traceback
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

SHOWN_ROWS, SHOWN_CHARACTERS = 5, 3000

Ids = Callable[[Any], object] | list[str] | None
FAILURES = (Exception, pytest.fail.Exception)


def each_row(
    names: str | Sequence[str],
    rows: Iterable[Any] | Callable[[], Iterable[Any]],
    ids: Callable[[Any], object] | Iterable[str] | None = None,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test for every row; rows that are costly come from a function.

    Each row has a `tmp_path` and a `monkeypatch` of its own. Other fixtures are those of the test,
    and so the same for all rows.
    """
    keys = [one.strip() for one in names.split(",")] if isinstance(names, str) else list(names)

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(test)
        kept = [one for name, one in signature.parameters.items() if name not in keys]
        assert len(kept) == len(signature.parameters) - len(keys), f"{keys} are no parameters"
        table = rows if callable(rows) else list(rows)
        named = ids if callable(ids) or ids is None else list(ids)

        @functools.wraps(test)
        def whole_table(**fixtures: Any) -> None:
            __tracebackhide__ = True
            failures: dict[str, BaseException] = {}
            skipped: list[BaseException] = []
            count = 0
            for number, row in enumerate(table() if callable(table) else table):
                values = _values(row, len(keys))
                name = f"{number}: {_name(row, values, number, named)}"
                count += 1
                try:
                    _run(test, dict(zip(keys, values, strict=True)), fixtures, number)
                except pytest.skip.Exception as why:
                    skipped.append(why)
                except FAILURES as why:
                    failures[name] = why
            assert count, "an empty table"
            if failures:
                first = next(iter(failures.values()))
                raise AssertionError(_told(test, failures, count)) from first
            if skipped:
                raise skipped[0]

        whole_table.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        return whole_table

    return decorate


def _run(
    test: Callable[..., None], row: dict[str, Any], fixtures: dict[str, Any], number: int
) -> None:
    __tracebackhide__ = True
    own = dict(fixtures)
    if "tmp_path" in own:
        own["tmp_path"] = own["tmp_path"] / f"{number}"
        own["tmp_path"].mkdir()
    with pytest.MonkeyPatch.context() as patch:
        if "monkeypatch" in own:
            own["monkeypatch"] = patch
        test(**own, **row)


def _values(row: Any, count: int) -> tuple[Any, ...]:
    if hasattr(row, "marks"):  # of pytest.param
        assert not row.marks, "a row with marks of its own is a case of its own"
        return tuple(row.values)
    return (row,) if count == 1 else tuple(row)


def _name(row: Any, values: tuple[Any, ...], number: int, ids: Ids) -> str:
    if hasattr(row, "marks") and row.id is not None:
        return str(row.id)
    if callable(ids):
        return "-".join(str(ids(value)) for value in values)
    return ids[number] if ids is not None else ", ".join(map(repr, values))[:200]


def _told(test: Callable[..., None], failures: dict[str, BaseException], count: int) -> str:
    """Every row that failed, and what was wrong in the first of them."""
    lines = [f"{len(failures)} of {count} rows fail: {'; '.join(failures)}"]
    for name, why in list(failures.items())[:SHOWN_ROWS]:
        here = Path(inspect.getfile(inspect.unwrap(test))).name
        frames = [
            one for one in traceback.extract_tb(why.__traceback__) if one.filename.endswith(here)
        ]
        place = f"{here}:{frames[-1].lineno}" if frames else here
        lines += ["", f"row {name}", f"{place}: {type(why).__name__}: {why}"[:SHOWN_CHARACTERS]]
    return "\n".join(lines)
