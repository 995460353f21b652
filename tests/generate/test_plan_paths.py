"""The paths of a configuration stay as their operator wrote them, links and ``..`` among them."""

import os
import re
import subprocess
from pathlib import Path

import pytest
from rows import each_row
from test_plan_changes import contents, facts_of, planned, write

from nginx_tune.conf.edits import apply_edits, change_arguments
from nginx_tune.conf.tree import ConfTree, parse_text
from nginx_tune.host.paths import absolute_path

LINES = {
    "access_log FOLDER/x/access.log;": "access_log FOLDER/x/access.log ADDED;",
    "access_log x/access.log;": "access_log x/access.log ADDED;",
    "access_log 'x/access.log'  ;": "access_log 'x/access.log' ADDED  ;",
    'access_log "FOLDER/x/access.log"  # the log\n  combined ;': (
        'access_log "FOLDER/x/access.log"  # the log\n  combined buffer=64k flush=1s ;'
    ),
    "access_log x/access.log # the log\n ;": "access_log x/access.log ADDED # the log\n ;",
    "access_log x/access.log own if=$host;": "access_log x/access.log own if=$host OPTIONS;",
    # nginx has these for other files than the first.
    "access_log logs/../x/access.log;": "access_log logs/../x/access.log ADDED;",
    "access_log ./x/access.log combined;": "access_log ./x/access.log combined OPTIONS;",
    "access_log x//access.log combined buffer=4k;": (
        "access_log x//access.log combined buffer=4k flush=1s;"
    ),
    "access_log /var/log/$host.log;": "access_log /var/log/$host.log;",
    "access_log off;": "access_log off;",
}
"""Lines of servers, and what is to become of them."""


def site(folder: Path) -> ConfTree:
    """Its prefix has ``logs``, a link into another directory."""
    for directory in ("x", "other/logs", "other/x"):
        (folder / directory).mkdir(parents=True)
    (folder / "logs").symlink_to("other/logs")
    servers = "\n".join(
        f"server {{ listen 127.0.0.1:{18960 + number}; root /srv;\n{line}\n}}"
        for number, line in enumerate(LINES)
    ).replace("FOLDER", str(folder))
    text = (
        f"user root; pid {folder}/pid; error_log {folder}/error.log;\nevents {{}}\nhttp {{\n"
        "log_format own '$remote_addr';\n"
        f"access_log {folder}/x/access.log;\n{servers}\n}}\n"
    )
    return write(folder, {"nginx.conf": text})


def test_every_log_keeps_its_path(tmp_path: Path) -> None:
    tree = site(tmp_path)
    text = contents(planned(tree, facts_of("raid10-4hdd"), "static"))[tree.path].decode()
    for line in LINES.values():
        new = line.replace("ADDED", "combined OPTIONS").replace("OPTIONS", "buffer=64k flush=1s")
        assert f"\n{new.replace('FOLDER', str(tmp_path))}\n" in text
    before = re.findall(r"access_log ([^\s;]+)", Path(tree.path).read_text())
    assert re.findall(r"access_log ([^\s;]+)", text) == before


@pytest.mark.needs("nginx", "root")
def test_nginx_takes_it_and_opens_the_same_files(tmp_path: Path) -> None:
    tree = site(tmp_path)
    command = ["/usr/sbin/nginx", "-t", "-p", str(tmp_path), "-c", tree.path]

    def opened() -> set[Path]:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        found = {one for one in tmp_path.rglob("*.log") if one.name == "access.log"}
        for one in found:
            one.unlink()
        return found

    before = opened()
    assert len(before) == 2
    text = contents(planned(tree, facts_of("raid10-4hdd"), "static"))[tree.path].decode()
    Path(tree.path).write_text(text)
    assert opened() == before


@each_row(
    ("line", "args", "after"),
    [
        (
            "proxy_cache_path '/c/a b' levels=1:2 # two\n keys_zone=c:1m;",
            ["/c/a b", "levels=1:2", "keys_zone=c:10m", "max_size=1g"],
            "proxy_cache_path '/c/a b' levels=1:2 # two\n keys_zone=c:10m max_size=1g;",
        ),
        ("root  /a/../b$x 1 2;", ["/a/../b$x", "3"], "root  /a/../b$x 3;"),
        ("sendfile;", ["on"], "sendfile on;"),
    ],
)
def test_a_word_that_stays_is_not_written_anew(line: str, args: list[str], after: str) -> None:
    tree = parse_text(line)
    [directive] = tree.main.directives
    edit = change_arguments(directive, args, str)
    assert apply_edits(directive.source, [edit]).decode() == after


def test_a_path_goes_up_from_where_a_link_leads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = site(tmp_path)
    real = os.path.realpath(tmp_path)
    assert tree.full_path("logs/../x/a") == f"{real}/other/x/a"
    assert tree.full_path("logs/a") == f"{tmp_path}/logs/a"
    assert tree.full_path("x//./a") == f"{tmp_path}/x/a"
    assert tree.full_path("gone/../x") == f"{tmp_path}/x"
    assert parse_text("").full_path("/a/../b") == "/b"  # no link is known
    monkeypatch.chdir(tmp_path)
    assert absolute_path("logs/../x") == f"{real}/other/x"
    assert absolute_path("logs/..") == f"{real}/other"
    assert absolute_path("logs/x") == f"{tmp_path}/logs/x"
