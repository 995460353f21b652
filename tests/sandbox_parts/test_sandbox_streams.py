"""``stream`` and ``mail`` with traffic: what they log, ask and pass on stays inside too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from nginx_versions import stream_modules
from sandbox_attack import SYSTEM_NGINX, attack
from test_sandbox_mutations import NO_COVER, NO_SEAL, changed

pytestmark = pytest.mark.needs("root", "nginx", "loop", "nobody", "stream-modules")
UNANSWERED = 3
"""Datagrams that are sent on to where nothing may answer."""
LEAST = 90
NO_NETWORK = ("nginx/lab/sandbox.py", '"--net", ', "")


def serve(package: Path, user: str) -> dict[str, Any]:
    modules = stream_modules()
    return attack(package, kind="streams", user=user, nginx=SYSTEM_NGINX, modules=modules)


@pytest.mark.parametrize("user", ["root", pytest.param("nobody", marks=pytest.mark.thorough)])
def test_streams_and_mail_reach_nothing(package: Path, user: str) -> None:
    answer = serve(package, user)
    assert not answer["changes"], answer["changes"][:30]
    assert answer["asked"] > LEAST, answer["error"]
    assert answer["answered"] == answer["asked"] - UNANSWERED, answer
    assert all(" udp:" in url for url, told in answer["statuses"].items() if told != 200)


@pytest.mark.thorough
def test_without_the_network_they_would_reach_the_host(package: Path) -> None:
    with changed(package, NO_NETWORK) as copy:
        changes = serve(copy, "root")["changes"]
    assert any(change.startswith("heard") and "port" in change for change in changes), changes
    assert any(change.startswith("packet: ") for change in changes), changes


@pytest.mark.thorough
def test_without_covers_they_would_write_to_the_host(package: Path) -> None:
    with changed(package, NO_COVER, NO_SEAL) as copy:
        changes = serve(copy, "root")["changes"]
    for name in ("stream-127.0.0.1.log", "stream-error.log", "mail-pop3-far", "/old"):
        assert any(name in change for change in changes), (name, changes)
