"""What ``-g`` of the running master gives counts as lines of its configuration."""

import contextlib
import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from free_ports import free_port
from started import running

from nginx_tune.conf.tree import COMMAND_LINE, parse_text, read_tree
from nginx_tune.host.live import LiveHost
from nginx_tune.nginx.binary import read_nginx

RUN_CLI = Callable[..., subprocess.CompletedProcess[str]]


class OneFile:
    def read_bytes(self, path: str) -> bytes:
        return b"events { }\n"

    def list_dir(self, path: str) -> list[str]:
        return []


def test_its_lines_come_first_and_stand_in_no_file() -> None:
    tree = read_tree("/n.conf", OneFile(), given="worker_processes 2; pid /run/a;")
    assert [one.name for one in tree.main] == ["worker_processes", "pid", "events"]
    assert {one.file for one in tree.main.directives[:2]} == {COMMAND_LINE}
    assert [one.source.file for one in tree.parsed] == ["/n.conf"]


def test_what_a_title_has_lost_is_left_alone() -> None:
    for given in ("", 'env A="b', "pid {"):
        tree = read_tree("/n.conf", OneFile(), given=given)
        assert [one.name for one in tree.main] == ["events"], given
    assert parse_text("events { }").given == ""


@contextlib.contextmanager
def serving(place: Path, given: str) -> Iterator[Path]:
    conf = place / "nginx.conf"
    port = free_port()
    conf.write_text(
        f"error_log {place}/error.log;\nevents {{ worker_connections 512; }}\n"
        f"http {{ access_log off; server {{ listen 127.0.0.1:{port}; return 204; }} }}\n"
    )
    always = f"daemon off; user root; pid {place}/nginx.pid; "
    with running(["/usr/sbin/nginx", "-c", conf, "-g", always + given]):
        yield conf


def asked(run_cli: RUN_CLI, *words: str | Path) -> Any:
    run = run_cli("-q", *words, "-f", "json")
    assert run.returncode in {0, 1}, run.stderr
    return json.loads(run.stdout)


def given_to_master(conf: Path) -> str:
    nginx, _ = read_nginx(LiveHost(), conf_path=str(conf))
    return nginx.running.given if nginx.running else ""


def kept(plan: Any) -> set[str]:
    return {one["after"].split()[0] for file in plan["files"] for one in file["hunks"]}


@pytest.mark.needs("root", "nginx")
def test_the_audit_and_the_plan_know_them(tmp_path: Path, run_cli: RUN_CLI) -> None:
    rule = ("--select", "lim-workers-one")
    with serving(tmp_path, "worker_processes 7;") as conf:
        assert asked(run_cli, "audit", conf, *rule)["findings"] == []
        plan = asked(run_cli, "plan", conf, "--test")
        assert plan["nginx_test"]["accepted"]
        assert "worker_processes" not in kept(plan)
        refusal = next(one for one in plan["refusals"] if one["decision"] == "workers")
        assert COMMAND_LINE in refusal["reason"]
        assert "worker_processes 7;" in given_to_master(conf)
    with serving(tmp_path, "env SECRET=abc;") as conf:
        plan = asked(run_cli, "plan", conf, "--test")
        assert "worker_processes" in kept(plan)
        assert "env SECRET;" in given_to_master(conf)


@pytest.mark.needs("root", "nginx")
def test_a_finding_names_the_command_line(tmp_path: Path, run_cli: RUN_CLI) -> None:
    with serving(tmp_path, "worker_processes 1; worker_rlimit_nofile 20;") as conf:
        found = asked(run_cli, "audit", conf)["findings"]
        assert COMMAND_LINE in {one["file"] for one in found}
        assert not any(e["file"] == COMMAND_LINE for one in found for e in one["edits"])
