"""The table of directives against the installed nginx, and where directives stand."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conf_readers import tree_of
from needs import lacks
from tiers import REPEAT, dice

from nginx_tune.conf.known_directives import (
    is_known,
    is_listed,
    is_named,
    known_modules,
    lacks_a_version,
    nearest,
    rows_of,
    seen_versions,
)
from nginx_tune.conf.scopes import placed

ROOT = Path(__file__).resolve().parent.parent.parent
TABLE = (ROOT / "nginx_tune/conf/directives.tsv").read_text()
VALUES = (ROOT / "nginx_tune/conf/directive-values.tsv").read_text()


@pytest.mark.needs("nginx", "x86-64")
def test_the_table_is_what_the_installed_nginx_has(tmp_path: Path) -> None:
    said = subprocess.run(["/usr/sbin/nginx", "-v"], capture_output=True, text=True, check=True)
    version = said.stderr.strip().rpartition("/")[2].split()[0]
    if version not in seen_versions():
        lacks("debian-build", f"nginx {version} is not one of those the table was read from")
    (tmp_path / "usr/sbin").mkdir(parents=True)
    shutil.copy("/usr/sbin/nginx", tmp_path / "usr/sbin/nginx")
    run = subprocess.run(
        [sys.executable, ROOT / "tools/read-directives", f"{version}={tmp_path}"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    rows = [line.split("\t") for line in run.stdout.splitlines() if not line.startswith("#")]
    assert len(rows) > 500
    number = tuple(map(int, version.split(".")))
    for name, module, contexts, arguments, *_ in rows:
        assert any(
            row.module == module
            and row.contexts == frozenset(contexts.split(","))
            and row.arguments == arguments.removesuffix("{")
            and row.is_block == arguments.endswith("{")
            and row.first <= number <= row.last
            for row in rows_of(name)
        ), name


def test_rows_tell_versions_contexts_and_arguments() -> None:
    (http2,) = rows_of("http2")
    assert http2.is_surely_absent((1, 22, 1))
    assert http2.is_surely_absent((1, 18, 0))
    assert http2.is_surely_absent((1, 25, 0)), "CHANGES tells the release between two versions seen"
    assert not http2.is_surely_absent((1, 25, 1))
    assert not http2.is_surely_absent((1, 31, 0))
    assert http2.may_stand("server")
    assert not http2.may_stand("location")
    assert [count for count in range(4) if http2.takes(count)] == [1]
    assert lacks_a_version("http2")
    assert not lacks_a_version("keepalive"), "its arguments changed, it was always there"
    (include,) = rows_of("include")
    assert include.may_stand("location-if")
    (add_header,) = rows_of("add_header")
    assert [count for count in range(5) if add_header.takes(count)] == [2, 3]


def test_unknown_means_unknown() -> None:
    assert {"sendfile", "aio", "lua_shared_dict", "nchan_publisher", "rtmp"} <= {
        name for name in ("sendfile", "aio", "lua_shared_dict", "nchan_publisher", "rtmp")
        if rows_of(name)
    }  # fmt: skip
    for name in ("zone_sync", "ModSecurityEnabled", "vhost_traffic_status_zone", "check", "acme"):
        assert is_known(name), name
        assert not rows_of(name)
    for name in ("sendfil", "proxy_pas", "wroker_processes", "Server", ""):
        assert not is_known(name), name
    assert nearest("sendfil") == "sendfile"
    assert nearest("qqqqqqqq") is None
    assert "ngx_http_core_module" in known_modules()
    assert not is_listed("proxy_pass")


def test_a_file_included_from_two_contexts_stands_in_both() -> None:
    tree = tree_of(
        {
            "/etc/nginx/nginx.conf": """
                events {}
                http {
                    include shared.conf;
                    server {
                        include shared.conf;
                        if ($a) { include inner.conf; }
                        location / {
                            include shared.conf; include shared.conf;
                            if ($a) { include inner.conf; }
                            limit_except GET { include inner.conf; }
                        }
                    }
                }
            """,
            "/etc/nginx/shared.conf": "sendfile on;",
            "/etc/nginx/inner.conf": "allow all;",
        }
    )
    assert tree.complete, tree.unparsed
    where = [(d.name, context) for d, context in placed(tree)]
    assert [context for name, context in where if name == "sendfile"] == [
        "http", "server", "location",
    ]  # fmt: skip
    assert [context for name, context in where if name == "allow"] == [
        "server-if", "location-if", "limit_except",
    ]  # fmt: skip


def test_lines_of_maps_and_foreign_blocks_are_no_directives() -> None:
    tree = tree_of(
        "events {} http { map $a $b { x y; } types { text/html html; } foreign { z; } }"
        "stream { server { listen 1; } upstream u { server a:1; } } mail { server { listen 2; } }"
    )
    assert {(d.name, context) for d, context in placed(tree)} >= {
        ("listen", "stream-server"), ("listen", "mail-server"), ("server", "stream-upstream"),
    }  # fmt: skip
    assert not {"x", "text/html", "z"} & {d.name for d, _ in placed(tree)}


def test_patterns_of_other_modules_hide_no_slip_of_a_name() -> None:
    """Two letters changed places in each name that a pattern of the list might cover."""
    draw = dice("slips of names")
    own = {line.split("\t")[1] for line in VALUES.splitlines() if not line.startswith("#")}
    rows = [line.split("\t") for line in TABLE.splitlines() if not line.startswith("#")]
    names = {row[0] for row in rows}
    missed = []
    for name in sorted({row[0] for row in rows if row[1] in own and len(row[0]) > 11}):
        at = draw.randrange(1, len(name) - 2)
        slip = name[:at] + name[at + 1] + name[at] + name[at + 2 :]
        if slip not in names and is_known(slip):
            missed.append(slip)
    assert missed == [], REPEAT


def test_nginx_names_are_not_masked_by_the_list_of_others() -> None:
    for name in ("timer_resolutoin", "php_x", "php_value", "echo_x", "proxy_conect_timeout"):
        assert not is_known(name), name
    for name in ("proxy_connect_timeout", "lingering_timeout", "worker_aio_requests"):
        assert not is_named(name), name
    assert is_known("vhost_traffic_status_zone")
