"""A second try measures anew: nothing that a module's fixtures measured before is kept."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: Any) -> None:
    """End the module's fixtures of a test that is run again (pytest-rerunfailures keeps them)."""
    if getattr(item, "execution_count", 1) < 2:
        return
    for definitions in item._fixtureinfo.name2fixturedefs.values():
        for one in definitions:
            if one.scope == "module":
                one.finish(item._request)
