"""``validate`` learns what answers before it measures, on a real nginx."""

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

RunCli = Callable[..., "subprocess.CompletedProcess[str]"]

pytestmark = pytest.mark.needs("root", "nginx", "probe")

SHORT = ("--pairs", "1", "--warmup", "100ms", "--accept-inconclusive", "--no-store", "-f", "json")
PHP = """
root TOP/www; index index.php; location / { try_files $uri $uri/ /index.php?$args; }
location ~ [.]php$ { fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
    try_files $uri =404; fastcgi_pass unix:TOP/php.sock; }
location ~* [.](js|css|jpg)$ { expires max; }
location = /setup.txt { deny all; }
location ^~ /old/ { return 301 /; }
location ~ [.]html$ { ssi on; sub_filter_once off; sub_filter x yy; }
"""


@pytest.fixture
def top(tmp_path: Path) -> Path:
    for name in ("index.php", "a.php", "b.php", "i.jpg", "s.js", "t.css", "setup.txt", "old/o.js",
                 "p.html", "q.html"):  # fmt: skip
        file = tmp_path / "www" / name
        file.parent.mkdir(exist_ok=True, parents=True)
        file.write_bytes(b"x" * 3000)
    return tmp_path


def validated(
    run_cli: RunCli, top: Path, body: str, *more: str, around: str = "", duration: str = "1s"
) -> subprocess.CompletedProcess[str]:
    for name, sendfile in (("old", "off"), ("new", "on")):
        text = (
            f"user root; error_log {top}/e.log; events {{}} http {{ access_log off; {around} "
            f"server {{ listen 18195; server_name a.test; sendfile {sendfile}; {body} }} }}"
        )
        (top / f"{name}.conf").write_text(text.replace("TOP", str(top)))
    files = (top / "new.conf", "--against", top / "old.conf")
    return run_cli("-q", "validate", *files, *SHORT, "--duration", duration, *more)


def is_discarded(verdict: dict[str, Any]) -> bool:
    """On a busy machine the one pair may be discarded, for the probe and for no answer."""
    unmeasured = any(gate["measured"] is None for gate in verdict["gates"])
    said = " ".join([verdict["reason"], *verdict["warnings"]])
    assert not unmeasured or not re.search("another length|by a stub", said), said
    return unmeasured


def check_status(run: subprocess.CompletedProcess[str], verdict: dict[str, Any]) -> None:
    allowed = {1, 4} if is_discarded(verdict) else {0}
    assert run.returncode in allowed, run.stderr + run.stdout


def test_a_php_site_is_measured_by_its_files_and_its_application(
    run_cli: RunCli, top: Path
) -> None:
    gates = ("--require", "total.errors == 0", "--require", "cold.requests > 0")
    run = validated(run_cli, top, PHP, *gates)
    verdict: dict[str, Any] = json.loads(run.stdout)
    check_status(run, verdict)
    measured = {one["name"].partition(".")[0] for one in verdict["metrics"]}
    assert is_discarded(verdict) or {"hot", "cold", "a-test-php"} <= measured
    said = "; ".join(verdict["environment"]["differences"])
    assert "2 more: answered by an application instead of the file" in said
    assert re.search("not loaded: a.test /setup.txt[^;]*: answers 403", said)
    assert re.search("not loaded: a.test /old/o.js[^;]*: answers 301", said)


def test_a_limit_s_refusals_are_no_failures_and_the_load_stays_below_it(
    run_cli: RunCli, top: Path
) -> None:
    """Without a burst, two requests of one moment are one too many, so one class has the zone."""
    limit = "limit_req zone=r; limit_req_status 429;"
    zone = "limit_req_zone $binary_remote_addr zone=r:1m rate=100r/s;"
    gates = ("--require", "total.errors == 0", "--require", "hot.requests > 20")
    run = validated(run_cli, top, f"root TOP/www; {limit}", *gates, around=zone)
    verdict: dict[str, Any] = json.loads(run.stdout)
    check_status(run, verdict)
    assert verdict["primary_metric"] == "hot.mean"
    (said,) = [one for one in verdict["environment"]["differences"] if one.startswith("limits")]
    assert "rate" not in said
    assert "loaded below them: hot 50/s" in said


def test_what_the_sample_missed_ends_the_run_with_its_url(run_cli: RunCli, top: Path) -> None:
    """One file of many is another server's answer, which no location tells apart."""
    for number in range(40):
        (top / f"www/f{number}.css").write_bytes(b"x" * 3000)
    around = "map $uri $other { default 0; ~f37.css 1; } upstream app { server 127.0.0.1:19193; }"
    body = "root TOP/www; location / { if ($other) { proxy_pass http://app; } }"
    run = validated(run_cli, top, body, around=around)
    assert run.returncode == 4
    assert run.stdout == ""
    (line,) = run.stderr.splitlines()
    assert "cold: " in line
    assert "a.test /f37.css is answered with 2048 bytes by a stub instead of 3000" in line
    assert "edit the load that --dry-run prints" in line


def test_a_limit_that_refuses_the_questions_hides_no_file(run_cli: RunCli, top: Path) -> None:
    """One request at a time passes: of each new nginx the first."""
    zone = "limit_req_zone $server_name zone=r:1m rate=2r/s;"
    run = validated(run_cli, top, "root TOP/www; limit_req zone=r;", "--dry-run", around=zone)
    assert run.returncode == 0, run.stderr
    found: list[str] = json.loads(run.stdout)["found"]
    assert [one for one in found if "answers 503" in one] == []
    (said,) = [one for one in found if one.startswith("not loaded: cold (/")]
    assert "(2r/s for each $server_name): without a larger burst, no further class fits" in said
    assert [one for one in found if "loaded below them: hot 1/s" in one]
