"""What is not seen is absent only where all around it was read; --map says where files are."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from conf_files import Files
from rows import each_row

from nginx_tune.audit.engine import audit
from nginx_tune.audit.examples import linux
from nginx_tune.audit.needs import WHOLE_TREE
from nginx_tune.audit.registry import ALL
from nginx_tune.conf.globs import MOST_DIRECTORIES
from nginx_tune.conf.tree import read_tree

Run = Callable[..., "CompletedProcess[str]"]

HOST = linux(version="1.22.1", flags=("--with-http_gzip_static_module",))
BARE = {
    "up-keepalive-missing": (
        "upstream u { server 10.0.0.1; %s } server { location / { proxy_pass http://u; } }"
    ),
    "up-keepalive-http10": (
        "upstream u { server 10.0.0.1; keepalive 9; } server { location / { proxy_pass http://u; "
        "%s } }"
    ),
    "ca-stampede": (
        "proxy_cache_path /c keys_zone=c:1m max_size=1g; "
        "server { location / { proxy_pass http://10.0.0.1; proxy_cache c; %s } }"
    ),
    "gz-dynamic-static-files": (
        "server { root /srv; location / { gzip on; gzip_types text/css; %s } }"
    ),
    "ca-bg-update-inert": (
        "proxy_cache_path /c keys_zone=c:1m max_size=1g; server { location / { proxy_cache c; "
        "proxy_pass http://10.0.0.1; proxy_cache_background_update on; %s } }"
    ),
}


def _fires(rule: str, text: str) -> tuple[bool, bool]:
    """Whether a rule fires, and whether it wants the whole configuration."""
    files = Files({"nginx.conf": f"events {{}} http {{ {text} }}".encode()})
    (one,) = (known for known in ALL if known.id == rule)
    found = audit(read_tree("nginx.conf", files), HOST, [one])
    wants = any(WHOLE_TREE in need.facts for need in found.needs_facts)
    return bool(found.findings), wants


@each_row("rule", BARE)
def test_a_rule_is_silent_where_an_include_around_its_place_was_not_read(rule: str) -> None:
    conf = BARE[rule]
    assert _fires(rule, conf % "") == (True, False)
    assert _fires(rule, conf % "include lost.conf;") == (False, True), "in the block itself"
    matters_around = rule != "up-keepalive-missing"  # an upstream takes nothing from http
    assert _fires(rule, "include lost.conf;" + conf % "") == (
        (False, True) if matters_around else (True, False)
    ), "around it"
    beside = "server { server_name b; include lost.conf; }"
    assert _fires(rule, conf % "" + beside) == (True, False), "beside it"
    assert _fires(rule, "include mime.types;" + conf % "") == (True, False), "nginx's own file"


def test_every_default_is_an_absence() -> None:
    conf = "events {} http { server { location / { root /srv; sendfile on; %s } } }"
    (rule,) = (one for one in ALL if one.id == "io-chunk-unlimited")
    for inner, count in (("", 1), ("include lost;", 0)):
        tree = read_tree("c", Files({"c": (conf % inner).encode()}))
        assert len(audit(tree, linux(version="1.18.0"), [rule]).findings) == count


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "nginx" / "conf.d"
    folder.mkdir(parents=True)
    (folder.parent / "nginx.conf").write_text(
        "events {}\nhttp {\n include /etc/nt/mime.types;\n include /etc/nt/gone.conf;\n"
        " include /etc/nt/conf.d/*.conf;\n}\n"
    )
    (folder / "site.conf").write_text("server { listen 80; sendfile yes; }\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_map_says_where_files_are_and_a_missing_include_is_a_note(
    run_cli: Run, checkout: Path
) -> None:
    plain = run_cli("audit", "nginx/nginx.conf")
    assert plain.returncode == 3
    run = run_cli("audit", "nginx/nginx.conf", "--map", "/etc/nt=nginx")
    assert run.returncode == 1
    assert "nginx/conf.d/site.conf:1: error[cf-value-invalid]" in run.stdout
    assert "not here, and so not judged: include nginx/mime.types" in run.stdout
    document = json.loads(run_cli("audit", "nginx/nginx.conf", "--map", "/etc/nt/=nginx/",
                                  "-f", "json").stdout)  # fmt: skip
    assert document["files_unparsed"] == []
    assert [one["line"] for one in document["files_missing"]] == [3, 4]
    (checkout / "nginx/conf.d/site.conf").write_text("server { listen 80; }}\n")
    broken = run_cli("audit", "nginx/nginx.conf", "--map", "/etc/nt=nginx")
    assert broken.returncode == 3, "what is here and cannot be parsed is a fault all the same"


@each_row("value", ["nginx", "etc=nginx", "/etc=nowhere", "/etc="])
def test_a_map_that_is_none(run_cli: Run, checkout: Path, value: str) -> None:
    run = run_cli("audit", "nginx/nginx.conf", "--map", value)
    assert run.returncode == 2
    assert run.stderr.count("\n") <= 4
    assert f"--map {value}" in run.stderr


class Deep:
    """A file system in which every directory holds others without end."""

    def __init__(self) -> None:
        self.listed = 0

    def read_bytes(self, path: str) -> bytes:
        return b"events {} http { include /*/*/*/*/*/*; }"

    def list_dir(self, path: str) -> list[str]:
        self.listed += 1
        return [str(number) for number in range(50)]


def test_a_pattern_that_looks_through_the_file_system_is_given_up() -> None:
    deep = Deep()
    tree = read_tree("/c", deep)
    assert "matches too many" in tree.unparsed[0].reason
    assert deep.listed <= MOST_DIRECTORIES + 1
    assert not tree.is_whole


def test_a_dump_has_no_map(run_cli: Run, checkout: Path) -> None:
    run = run_cli("audit", "-", "--map", "/etc/nt=nginx")
    assert run.returncode == 2
    assert "no --map" in run.stderr
