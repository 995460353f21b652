"""A planned limit of descriptors on a real nginx that has a log for each of many virtual hosts."""

import contextlib
import http.client
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
from made_decisions import decide
from real_nginx import check
from rows import each_row
from situations import host, load, nginx, site
from started import serving
from test_plan_changes import contents, write
from tiers import draws

from nginx_tune.change.generate.changes import plan_changes
from nginx_tune.change.plan.changing import as_changes
from nginx_tune.change.plan.solver import site_in
from nginx_tune.documents.facts import Limits

VHOSTS, LOGS = 950, 10
"""In all more logs than the 9216 descriptors that 4096 connections get."""
HAS = 20_000


@pytest.fixture
def roomy() -> Iterator[None]:
    """What nginx is started with, by a shell whose limit somebody raised."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (HAS, max(HAS, before[1])))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def conf(folder: Path, port: int, main: str = "") -> str:
    servers = "\n".join(
        f"server {{ listen 127.0.0.1:{port}; server_name v{n}; return 204; "
        f"error_log {folder}/logs/{n}.err; "
        f"{' '.join(f'access_log {folder}/logs/{n}-{m}.log;' for m in range(LOGS - 1))} }}"
        for n in range(VHOSTS)
    )
    return (
        f"daemon off; pid {folder}/pid; error_log {folder}/error.log; user root; {main}\n"
        f"worker_processes 1;\nevents {{ worker_connections 64; }}\n"
        f"http {{ server_names_hash_max_size 65536;\n{servers}\n}}\n"
    )


def status(port: int) -> int:
    with contextlib.closing(
        http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    ) as connection:
        connection.request("GET", "/", headers={"Host": f"v{VHOSTS - 1}"})
        return connection.getresponse().status


@pytest.mark.thorough
@pytest.mark.needs("nginx", "root")
@each_row("whose", ["nginx", "reader"][: draws(1, 2)])
def test_workers_have_room_for_the_logs_of_all_hosts(
    tmp_path: Path, free_port: int, roomy: None, whose: str
) -> None:
    (tmp_path / "logs").mkdir()
    tree = write(tmp_path, {"nginx.conf": conf(tmp_path, free_port)})
    soft = HAS if whose == "reader" else 1024
    limits = Limits(nofile_of=whose, nofile_soft=soft, nofile_hard=HAS, nr_open=1 << 20)  # type: ignore[arg-type]
    facts = host(nginx=nginx("1.22.1"), limits=limits)
    made = decide(facts, load("proxy"), site=site_in(tree, site()))
    few = [one for one in made.decisions if one.id in ("connections", "file-limits")]
    held = as_changes(type(made)(kind="proxy", decisions=few), tree)
    changes = plan_changes(held, tree, lambda _: set(), annotates=False)
    text = contents(changes)[tree.path].decode()
    assert "worker_rlimit_nofile" in text
    (tmp_path / "nginx.conf").write_text(text, encoding="utf-8")
    assert check(tree.path).returncode == 0
    with serving(["nginx", "-c", tree.path], free_port):
        assert status(free_port) == 204
    assert "Too many open files" not in (tmp_path / "error.log").read_text()


@pytest.mark.thorough
@pytest.mark.needs("nginx", "root")
def test_a_limit_below_the_logs_that_are_open_leaves_nobody_to_serve(
    tmp_path: Path, free_port: int, roomy: None
) -> None:
    """What the count is for; ``nginx -t`` is content."""
    (tmp_path / "logs").mkdir()
    main = "worker_rlimit_nofile 9216;"
    tree = write(tmp_path, {"nginx.conf": conf(tmp_path, free_port, main)})
    assert check(tree.path).returncode == 0
    with serving(["nginx", "-c", tree.path], free_port), pytest.raises(OSError):
        status(free_port)
    assert "epoll_create() failed (24: Too many open files)" in (tmp_path / "error.log").read_text()
