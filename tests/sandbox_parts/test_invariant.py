"""The invariant of the sandbox, traced over whole runs.

After nginx has run, nothing outside the sandbox executes, imports or opens a path that nginx could
have written. A configuration here writes to the directories of the programs that the lab runs: the
probe's, Python's, the system's and the linker's. Every open on a file system that nginx can write
to is seen with the process that asks for it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from twins import twin
from unprivileged import let_all_see

import nginx_tune

HERE = Path(__file__).parent
PACKAGE = Path(nginx_tune.__file__).parent
RUN = """
import sys
from nginx_tune.experiment import operations
operations.MODULE_INSIDE = "traced_inside"
from nginx_tune.cli.main import main
sys.exit(main())
"""
PLACES = [
    f"{PACKAGE}/_bin", str(PACKAGE), f"{PACKAGE}/nginx/lab", sysconfig.get_path("stdlib"),
    "/usr/bin", "/usr/sbin", "/bin", "/sbin", "/etc", str(Path(sys.executable).parent),
]  # fmt: skip

LAB = """
name = "small"
[[disks]]
name = "d"
class_name = "memory"
mount = "{}/www"
[[data]]
disk = "d"
files = 20
file_bytes = 16384
"""

pytestmark = pytest.mark.needs("root", "nginx", "probe", "fanotify")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Path]:
    let_all_see(tmp_path)
    (tmp_path / "www").mkdir()
    for name in "abc":
        (tmp_path / "www" / name).write_bytes(bytes(100_000))
    logs = "".join(f"access_log {place}/nginx-tune-planted.log;\n" for place in PLACES)
    # Without any module: each request has a line of this text in the file that the linker reads.
    logs += "log_format preload '/nginx-tune-planted.so'; access_log /etc/ld.so.preload preload;\n"
    conf = tmp_path / "nginx.conf"
    conf.write_text(
        f"user root; worker_processes 1; pid {PACKAGE}/nginx.pid;\n"
        f"error_log {PACKAGE}/_bin/nginx-tune-planted-error.log info; events {{}}\n"
        f"http {{\n{logs} client_body_temp_path {PACKAGE}/experiment/temp;\n"
        f"server {{ listen 127.0.0.1:18080; root {tmp_path}/www; dav_methods PUT COPY;\n"
        "location = /memory { return 200 ok; }\n"
        "location /up/ { proxy_pass http://10.9.8.7:8000; }\n"
        "location /socket/ { proxy_pass http://unix:/run/nginx-tune-test.sock; } } }\n"
    )
    yield conf
    assert not Path("/etc/ld.so.preload").exists()
    assert not list(PACKAGE.rglob("nginx-tune-planted*"))


def trace(tmp_path: Path, *words: str | Path, outside: bool = False) -> list[dict[str, Any]]:
    """Every open on a file system that nginx can write to."""
    report = tmp_path / "report"
    os.mkfifo(report)
    variables = {
        **os.environ,
        "NGINX_TUNE_TEST_REPORT": str(report),
        "PYTHONPATH": f"{PACKAGE.parent}:{HERE}",
        "NGINX_TUNE_TEST_OUTSIDE": "/usr/bin" if outside else "",
    }
    with (
        subprocess.Popen(["cat", report], stdout=subprocess.PIPE, text=True) as reader,
        ThreadPoolExecutor(1) as threads,
    ):
        lines = threads.submit(reader.communicate)
        run = subprocess.run(
            [sys.executable, "-c", RUN, *words],
            env=variables, capture_output=True, text=True, check=False, timeout=200,
        )  # fmt: skip
        said = lines.result(20)[0]
    assert run.returncode in {0, 1, 4}, run.stdout + run.stderr
    assert "cannot be made" not in run.stderr, run.stderr
    return [json.loads(line) for line in said.splitlines()]


def planted(event: dict[str, Any]) -> bool:
    """Whether it is a file of nginx's that the configuration names."""
    name = Path(event["path"]).name
    return name.startswith("nginx-tune-planted") or name == "ld.so.preload"


def may_open(event: dict[str, Any]) -> bool:
    """Whether it is the process inside that looks at what nginx wrote."""
    # An overlay that is mounted tries a file without a name (ovl_check_tmpfile() in fs/overlayfs).
    is_tried = event["path"] == "/ (deleted)"
    is_data = "/covers/disk-" in event["path"]
    return event["pid"] == 1 and not event["runs"] and (planted(event) or is_tried or is_data)


def commands(site: Path) -> dict[str, list[str | Path]]:
    short: list[str | Path] = ["--pairs", "1", "--duration", "1s", "--warmup", "200ms"]
    compared = ["validate", site, "--against", twin(site), *short, "--no-store"]
    lab = site.with_name("lab.toml")
    lab.write_text(LAB.format(site.parent))
    return {
        "audit --test": ["audit", site, "--test", "--facts", "none"],
        "validate": compared,
        "validate --lab": [*compared, "--lab", lab],
        "rehearse": ["rehearse", twin(site), site, "--before", "400ms", "--after", "300ms",
                     "--drain", "1s", "--no-back"],
    }  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [
        "validate --lab",
        *(
            pytest.param(one, marks=pytest.mark.thorough)
            for one in ("audit --test", "validate", "rehearse")
        ),
    ],
)
def test_nothing_outside_opens_what_nginx_could_have_written(
    site: Path, tmp_path: Path, name: str
) -> None:
    events = trace(tmp_path, *commands(site)[name])
    assert any(planted(one) and not one["outside"] for one in events), "nginx wrote nothing there"
    # The process inside alone reads logs: below a descriptor, without following a link.
    wrong = [one for one in events if one["outside"] and not may_open(one)]
    assert not wrong, wrong[:5]


@pytest.mark.thorough
def test_a_cover_outside_is_seen(site: Path, tmp_path: Path) -> None:
    events = trace(tmp_path, *commands(site)["validate"], outside=True)
    runs = {Path(one["path"]).name for one in events if one["outside"] and one["runs"]}
    assert "ip" in runs, "what the lab makes its network with"
