"""The rolling deploy by the real ansible-core, on hosts that are an nginx of this machine each."""

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from free_ports import free_port
from recorded_hosts import facts_file
from started import until

ROOT = Path(__file__).resolve().parents[2]
FACTS = facts_file("raid10-4hdd")
BIN = Path(sys.executable).parent
CONF = """
user root; worker_processes 1;
pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ worker_connections 64; }}
http {{
    access_log off;
    client_body_temp_path {folder}/t1; proxy_temp_path {folder}/t2; fastcgi_temp_path {folder}/t3;
    uwsgi_temp_path {folder}/t4; scgi_temp_path {folder}/t5;
    include conf.d/*.conf;
}}
"""
pytestmark = pytest.mark.needs("root", "nginx")


class Host:
    """One host: a tree, a port and a journal of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.name = folder, folder.name
        self.conf = folder / "etc" / "nginx.conf"
        self.site = folder / "etc" / "conf.d" / "site.conf"
        self.site.parent.mkdir(parents=True)
        self.port = free_port()
        self.conf.write_text(CONF.format(folder=folder))
        self.site.write_text(self.server("old"))

    def server(self, word: str) -> str:
        return f'server {{ listen 127.0.0.1:{self.port}; return 200 "{word}"; }}\n'

    def ask(self) -> str:
        with socket.create_connection(("127.0.0.1", self.port), timeout=3) as one:
            one.sendall(b"GET / HTTP/1.0\r\n\r\n")
            return one.makefile("rb").read().partition(b"\r\n\r\n")[2].decode()

    def start(self) -> None:
        subprocess.run(["nginx", "-c", self.conf], check=True, capture_output=True)

        def answers() -> bool:
            with contextlib.suppress(OSError):
                return bool(self.ask())
            return False

        until(answers)


class Fleet:
    """Three hosts and what a play did with them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "ansible"
        shutil.copytree(ROOT / "examples" / "ansible", self.folder)
        self.hosts = [Host(folder / f"web{number}") for number in (1, 2, 3)]
        self.recap: dict[str, dict[str, int]] = {}
        self.said = ""
        self.ask_at: dict[str, str] = {}

    def play(
        self,
        files: list[dict[str, str]] | None,
        *more: str,
        how: str = "--diff",
        **variables: object,
    ) -> int:
        """Exit code of the playbook with the files for each host."""
        listed = {
            host.name: {
                "nginx_conf": str(host.conf),
                "apply_with": {"watch": "200ms", "state_dir": str(host.folder / "state")},
                **({} if files is None else {"files": files[number]}),
                **({"ask": self.ask_at[host.name]} if host.name in self.ask_at else {}),
            }
            for number, host in enumerate(self.hosts)
        }
        common = {
            "ansible_connection": "local",
            "ansible_python_interpreter": sys.executable,
            "nginx_tune": str(BIN / "nginx-tune"),
        }
        inventory = self.folder / "hosts.json"
        inventory.write_text(
            json.dumps({"all": {"vars": common, "children": {"nginx": {"hosts": listed}}}})
        )
        run = subprocess.run(
            [str(BIN / "ansible-playbook"), "-i", str(inventory), "rolling-deploy.yml", how,
             *more, "-e", json.dumps(variables)],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "NO_COLOR": "1"},
        )  # fmt: skip
        self.recap = {
            name: {key: int(number) for key, number in re.findall(r"(\w+)=(\d+)", counts)}
            for name, counts in re.findall(r"^(\S+)\s+: (ok=.*)$", run.stdout, re.MULTILINE)
        }
        self.said = run.stdout + run.stderr
        return run.returncode

    def edit(self, word: str) -> list[dict[str, str]]:
        return [{str(host.site): host.server(word)} for host in self.hosts]

    def answers(self) -> list[str]:
        return [host.ask() for host in self.hosts]

    def states(self, number: int) -> list[str]:
        """The states of the changes to a host, newest first."""
        run = subprocess.run(
            [str(BIN / "nginx-tune"), "history", "-f", "json", "--state-dir",
             str(self.hosts[number].folder / "state")],
            capture_output=True,
            check=True,
        )  # fmt: skip
        return [one["state"] for one in json.loads(run.stdout)["changes"]]


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    # Not below pytest's own directory: apply, as root, believes no tree that others may write.
    folder = Path(tempfile.mkdtemp(dir="/root", prefix="nt-rolling-"))
    made = Fleet(folder)
    try:
        for host in made.hosts:
            host.start()
        yield made
    finally:
        for host in made.hosts:
            subprocess.run(
                ["nginx", "-c", host.conf, "-s", "stop"], check=False, capture_output=True
            )
        shutil.rmtree(folder, ignore_errors=True)  # nginx removes its pid file at the same time


def test_a_host_whose_change_is_taken_back_stops_the_deploy(fleet: Fleet) -> None:
    before = [host.site.read_bytes() for host in fleet.hosts]
    # nginx -t is content with it, and the workers die of it.
    files = fleet.edit("new")
    files[1][str(fleet.hosts[1].conf)] = "working_directory /nowhere;" + CONF.format(
        folder=fleet.hosts[1].folder
    )
    assert fleet.play(files) != 0
    assert "rolled back: " in fleet.said
    assert "exited with fatal code 2" in fleet.said
    assert set(fleet.recap) == {"web1", "web2"}, "the third was not touched"
    assert fleet.answers() == ["new", "old", "old"]
    assert [host.site.read_bytes() for host in fleet.hosts[1:]] == before[1:]
    assert fleet.states(0) == ["kept"]
    assert fleet.states(1) == ["rolled_back"]


@pytest.mark.thorough
def test_a_plan_is_shown_taken_back_where_nothing_answers_and_made_once(fleet: Fleet) -> None:
    old = [host.conf.read_bytes() for host in fleet.hosts]
    given = {"plan_with": {"only": ["workers"], "facts": json.loads(FACTS.read_text())}}
    assert fleet.play(None, "--check", "--limit", "web1", **given) == 0, fleet.said
    assert re.search(r"\+.*worker_processes auto;", fleet.said), fleet.said
    assert fleet.recap["web1"]["changed"] == 1
    assert [host.conf.read_bytes() for host in fleet.hosts] == old
    # From this machine the second one cannot be asked, so it has its old files again at once.
    fleet.ask_at["web2"] = "http://127.0.0.1:9/"
    assert fleet.play(None, **given) != 0
    assert set(fleet.recap) == {"web1", "web2"}
    assert fleet.states(0)[0] == "kept"
    assert fleet.states(1)[0] == "rolled_back"
    assert b"worker_processes auto;" in fleet.hosts[0].conf.read_bytes()
    assert [host.conf.read_bytes() for host in fleet.hosts[1:]] == old[1:]
    # Put right it goes on where it stopped.
    fleet.ask_at.clear()
    assert fleet.play(None, "--limit", "web1,web2", **given) == 0, fleet.said
    assert [fleet.recap[name]["changed"] > 0 for name in ("web1", "web2")] == [False, True]
    assert fleet.states(1)[0] == "kept"


@pytest.mark.thorough
def test_no_result_shows_what_is_in_a_file(fleet: Fleet) -> None:
    """Neither on the screen, as verbose as it gets, nor where modules log their parameters."""
    secret = "s3cret-of-this-test"  # noqa: S105  # no password of anything
    asked = {host.name: host.site.read_text() for host in fleet.hosts}
    files = [
        {str(host.site): f"# {secret}\n{asked[host.name]}# {number}\n"}
        for number, host in enumerate(fleet.hosts)
    ]
    assert fleet.play(files, "--limit", "web1", how="-vvv") == 0, fleet.said
    assert secret in fleet.hosts[0].site.read_text()
    assert secret not in fleet.said
    files[0][str(fleet.hosts[0].site)] += f"{secret};\n"
    assert fleet.play(files, "--limit", "web1", how="-vvv") != 0, "nginx -t refuses that"
    assert "web1: " in fleet.said
    given = {"plan_with": {"only": ["workers"], "facts": json.loads(FACTS.read_text())}}
    assert fleet.play(None, "--limit", "web1,web3", how="-vvv", **given) == 0, fleet.said
    assert secret not in fleet.said.replace(f"{secret};", "")
    for host in fleet.hosts:
        host.site.write_text(asked[host.name])
