"""Which nginx is meant: the packaged one, whatever else runs on this machine meanwhile."""

from __future__ import annotations

import shutil

import pytest
from needs import SYSTEM_PATH


@pytest.fixture(autouse=True)
def _packaged_nginx(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without ``--nginx`` the running one is taken, and that may be of another test."""
    if found := shutil.which("nginx", path=SYSTEM_PATH):
        monkeypatch.setenv("NGINX_TUNE_SCENARIO_RUN_NGINX", found)
