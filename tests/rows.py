"""A table of rows that one law holds for: one test, whose failure names each row that breaks it."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

import pytest


def rows(names: str | tuple[str, ...], table: Iterable[Any]) -> Callable[..., Callable[..., None]]:
    """As ``pytest.mark.parametrize``, in one test: all rows are tried, with the same fixtures."""
    words = tuple(names.split(",")) if isinstance(names, str) else names
    given = list(table)

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(test)

        @wraps(test)
        def run(**fixtures: object) -> None:
            failed = []
            for row in given:
                values = row if len(words) > 1 else (row,)
                try:
                    test(**dict(zip(words, values, strict=True)), **fixtures)
                except (Exception, pytest.fail.Exception):  # noqa: BLE001  # each row is judged
                    failed.append(f"{row!r}\n{traceback.format_exc(limit=-1)}")
            assert not failed, f"{len(failed)} of {len(given)} rows:\n" + "\n".join(failed)

        kept = [one for name, one in signature.parameters.items() if name not in words]
        run.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        return run

    return decorate
