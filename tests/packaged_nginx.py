"""Which nginx is meant: the packaged one, whatever else runs on this machine meanwhile."""

import shutil
from collections.abc import Callable

import pytest
from needs import SYSTEM_PATH


def packaged_for(command: str) -> Callable[[pytest.MonkeyPatch], None]:
    """A fixture that names it to a command.

    Without ``--nginx`` the running one is taken, and that may be of another test.
    """

    @pytest.fixture(autouse=True)
    def packaged_nginx(monkeypatch: pytest.MonkeyPatch) -> None:
        if found := shutil.which("nginx", path=SYSTEM_PATH):
            monkeypatch.setenv(f"NGINX_TUNE_{command}_NGINX", found)

    return packaged_nginx
