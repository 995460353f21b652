"""How many processes serve, by a configuration's own lines."""

from pathlib import Path

import pytest
from rows import each_row
from started import children, number_in, running

from nginx_tune.conf.tree import parse_text
from nginx_tune.conf.workers import connections_in, descriptors_in, workers_in


@each_row(
    ("text", "workers", "connections", "descriptors"),
    [
        ("", 1, 512, None),
        ("worker_processes 3; worker_rlimit_nofile 900;", 3, 512, 900),
        ("worker_processes auto;", 24, 512, None),
        ("worker_processes 0;", 1, 512, None),
        ("worker_processes 9999;", 1024, 512, None),
        ("worker_processes ${N};", None, 512, None),
        ("worker_processes 3; master_process off; worker_rlimit_nofile 9;", 1, 512, None),
        ("master_process on; worker_processes 3;", 3, 512, None),
    ],
)
def test_lines_that_say_it(
    text: str, workers: int | None, connections: int, descriptors: int | None
) -> None:
    tree = parse_text(f"{text} events {{ }} http {{ }}", file="/n.conf")
    assert workers_in(tree, 24) == workers
    assert connections_in(tree, 512) == connections
    assert descriptors_in(tree) == descriptors


def test_a_part_of_a_configuration_says_nothing() -> None:
    part = parse_text("server { listen 80; }", file="/n.conf")
    assert workers_in(part, 24) is None
    assert connections_in(part, 512) is None
    own = parse_text("events { worker_connections 70; } http { }", file="/n.conf")
    assert connections_in(own, 512) == 70


@pytest.mark.needs("nginx", "root")
@each_row(("line", "workers"), [("master_process off;", 0), ("", 3)])
def test_nginx_starts_as_many_and_limits_none_without_a_master(
    line: str, workers: int, tmp_path: Path
) -> None:
    conf = tmp_path / "nginx.conf"
    conf.write_text(
        f"user root; daemon off; {line} worker_processes 3; worker_rlimit_nofile 77;\n"
        f"pid {tmp_path}/pid; error_log {tmp_path}/log; events {{ worker_connections 20; }}\n"
        f"http {{ access_log off; server {{ listen unix:{tmp_path}/s; }} }}\n"
    )
    with running(["/usr/sbin/nginx", "-c", conf, "-p", tmp_path], workers) as master:
        # The single process has its pid file last of all.
        assert number_in(tmp_path / "pid") == master
        assert len(children(master)) == workers
        limits = Path(f"/proc/{next(iter(children(master)), master)}/limits").read_text()
        [files] = [one.split()[3] for one in limits.splitlines() if "open files" in one]
        assert (files == "77") is bool(workers)
