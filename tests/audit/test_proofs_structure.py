"""What nginx refuses of a configuration as a whole: where ours speaks, every version refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
from nginx_versions import Nginx, every_version
from proving import fires
from scratch_nginx import config_test

pytestmark = pytest.mark.needs("nginx", "root")


@every_version
@pytest.mark.parametrize(
    ("conf", "is_whole"),
    [
        ("", False),
        (" \n# a comment\n", False),
        ("http { server { listen 127.0.0.1:1; } }", False),
        ("events {}", True),
        ("http { } events { }", True),
    ],
)
def test_cf_events_missing_is_refused(
    tmp_path: Path, nginx: Nginx, conf: str, is_whole: bool
) -> None:
    path = tmp_path / "nginx.conf"
    path.write_text(conf)
    said = config_test(path, nginx.program, under=("unshare", "--net"))
    assert ('no "events" section' not in said.stderr) is is_whole
    assert fires("cf-events-missing", path) is not is_whole


@every_version
@pytest.mark.parametrize("is_included", [False, True])
@pytest.mark.parametrize("text", ["events {}", "# a comment\nevents {}"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_cf_byte_order_mark_is_refused(
    tmp_path: Path, nginx: Nginx, mark: str, text: str, is_included: bool
) -> None:
    path, part = tmp_path / "nginx.conf", tmp_path / "part.conf"
    path.write_text("include part.conf;" if is_included else mark + text)
    part.write_text(mark + text)
    said = config_test(path, nginx.program, under=("unshare", "--net"))
    assert ('unknown directive "\ufeff' in said.stderr) is bool(mark), said.stderr
    assert fires("cf-byte-order-mark", path) is bool(mark)
