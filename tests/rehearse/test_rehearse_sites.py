"""Sites of which not every place answers who asks from outside, rehearsed on a real nginx."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import RunCli
from needs import SYSTEM_PATH

pytestmark = pytest.mark.needs("root", "nginx", "probe", "ip")

SITE = """user root; worker_processes 1; pid {top}/pid; events {{}} http {{ access_log off;
server {{ listen 18331 default_server; return 444; }}
server {{ listen 18331; server_name ~^[abc]\\.x$;
  location /.well-known/acme-challenge/ {{ root {top}/none; }}
  location = /e {{ internal; add_header grpc-status 14; return 204; }}
  {more} location / {{ root {top}/www; }} }} }}"""


@pytest.fixture
def rehearsed(run_cli: RunCli, tmp_path: Path) -> Callable[[str], dict[str, Any]]:
    """What comes of a reload of a site with these lines to the same one."""
    (tmp_path / "www").mkdir()
    for name in ("a.html", "b.html"):
        (tmp_path / "www" / name).write_bytes(bytes(3000))
    nginx = shutil.which("nginx", path=SYSTEM_PATH)
    assert nginx is not None

    def run(more: str) -> dict[str, Any]:
        for name in ("old", "new"):
            (tmp_path / f"{name}.conf").write_text(SITE.format(top=tmp_path, more=more))
        done = run_cli(
            *("-q", "rehearse", "old.conf", "new.conf", "--nginx", nginx, "--no-store"),
            *("--no-back", "--before", "1s", "--after", "1s", "--drain", "1s", "--rate", "60"),
            *("--idle", "1", "--active", "0", "-f", "json"),
            cwd=tmp_path,
        )
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    return run


def test_only_what_answers_is_asked_of_the_server_that_is_meant(
    rehearsed: Callable[[str], dict[str, Any]],
) -> None:
    found = rehearsed("location = /f { limit_except POST { deny all; } return 200 ok; }")
    (reload,) = found["turnovers"]
    assert reload["outcome"] == "taken"
    assert not reload.get("failed")
    assert sorted(found["asked"]) == ["cold", "fresh", "hot"]
    assert all(url.endswith(".html") for url in found["asked"].values())
    assert [one for one in found["notes"] if "/f: answers 403 (it may come from deny" in one]
    assert not [one for one in found["notes"] if "fail before any change" in one]


def test_files_that_are_refused_to_who_asks_are_told_of(
    rehearsed: Callable[[str], dict[str, Any]],
) -> None:
    found = rehearsed("satisfy all; auth_basic x; auth_basic_user_file /dev/null;")
    (said,) = [one for one in found["notes"] if "fail before any change" in one]
    assert "answers 401 (it may come from auth_basic" in said


def test_a_pattern_is_asked_for_a_file_that_it_matches_as_validate_does(
    rehearsed: Callable[[str], dict[str, Any]], tmp_path: Path
) -> None:
    (tmp_path / "www" / "index.php").write_bytes(bytes(3000))
    found = rehearsed(
        "location ~ \\.php$ { fastcgi_pass 127.0.0.1:9; }"
        f" location ~ \\.html$ {{ root {tmp_path}/www; expires 1d; }}"
    )
    notes = "\n".join(found["notes"])
    assert " ~ \\.html$: its files belong to the first root" in notes
    assert " ~ \\.php$: /index.php, 200" in notes
    assert "/index.php: answered by an application instead of the file" in notes
