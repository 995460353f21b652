"""The playbooks by the real ansible-core, on four hosts with sshd and nginx of their own."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from checkouts import MODULES, debian_tree
from fleet import Fleet, adds_up, fleet_of, load_plan
from made_up_fleet import DAYS, change, write_fleet
from markdown_it import MarkdownIt
from rows import each_row

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "ansible"
COLLECTION = EXAMPLE / "collections/ansible_collections/nginx_tune/nginx"
BIN = Path(sys.executable).parent
HOSTS = 4

needs_fleet = pytest.mark.needs("root", "nginx", "ip", "sshd", "cargo")


# Installs packages, which takes this host's network and a minute.
pytestmark = [pytest.mark.thorough, pytest.mark.alone]


def ansible(
    program: str, *arguments: str, cwd: Path, path: Path = BIN
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(BIN / program), *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PATH": f"{path}:{BIN}:{os.environ['PATH']}", "NO_COLOR": "1"},
    )


def local_hosts(folder: Path, hosts: dict[str, dict[str, str]]) -> Path:
    """An inventory whose hosts are all this one, with variables of their own."""
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    inventory = folder / "hosts.json"
    inventory.write_text(
        json.dumps({"all": {"vars": local, "children": {"nginx": {"hosts": hosts}}}})
    )
    return inventory


@pytest.fixture(scope="module")
def playbooks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the example to run in: it writes reports beside itself."""
    folder = tmp_path_factory.mktemp("ansible") / "ansible"
    shutil.copytree(EXAMPLE, folder)
    return folder


def test_ansible_lint_finds_nothing(playbooks: Path) -> None:
    lint = ansible(
        "ansible-lint", "--offline", "--nocolor", "--profile", "production", cwd=playbooks
    )
    assert lint.returncode == 0, lint.stdout + lint.stderr


def test_each_role_has_the_page_without_which_galaxy_refuses_the_collection() -> None:
    roles = [path for path in (COLLECTION / "roles").iterdir() if path.is_dir()]
    assert roles
    assert [role.name for role in roles if not (role / "README.md").is_file()] == []


@pytest.mark.parametrize("test", ["validate-modules", "pep8", "yamllint", "runtime-metadata"])
def test_ansible_test_finds_nothing(tmp_path: Path, test: str) -> None:
    """Its own script fetches pip from a host; Python brings one along."""
    pip = tmp_path / ".ansible/test/cache/get_pip_24_2.py"
    pip.parent.mkdir(parents=True)
    pip.write_text("import ensurepip; ensurepip.bootstrap(upgrade=True)\n")
    copy = tmp_path / "ansible_collections/nginx_tune/nginx"
    shutil.copytree(COLLECTION, copy)
    subprocess.run(["git", "init", "--quiet", copy], check=True)
    subprocess.run(["git", "-C", copy, "add", "--all"], check=True)
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    run = subprocess.run(
        [BIN / "ansible-test", "sanity", "--test", test, "--python", version],
        cwd=copy,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "HOME": str(tmp_path)},
    )
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("module", sorted(p.stem for p in COLLECTION.glob("plugins/modules/*.py")))
def test_each_module_has_its_documentation(playbooks: Path, module: str) -> None:
    shown = ansible("ansible-doc", "-j", f"nginx_tune.nginx.{module}", cwd=playbooks)
    assert (shown.returncode, shown.stderr) == (0, ""), "Galaxy's own tests take no warning"
    (found,) = json.loads(shown.stdout).values()
    source = (COLLECTION / "plugins/modules" / f"{module}.py").read_text()
    accepted = set(re.findall(r"^            (\w+)=dict\(", source, re.MULTILINE))
    accepted |= {"executable"} if "COMMON" in source else set()
    common = {"mode", "owner", "group", "attributes", "unsafe_writes", "selevel", "serole",
              "setype", "seuser"}  # fmt: skip
    assert set(found["doc"]["options"]) - common == accepted
    assert found["examples"]
    assert found["return"]


@each_row(("line", "given", "said"), [
    ("return 204;", {"accept_missing": [MODULES]}, ""),
    ("return 204;", {}, "modules-enabled/*.conf: not here, 1 not read in all"),
    ("proxy_passs http://127.0.0.1:1;", {"accept_missing": [MODULES]}, "proxy_passs"),
    ("proxy_passs http://127.0.0.1:1;", {"accept_missing": [MODULES], "map": {}},
     "likely --map /etc/nginx="),
])  # fmt: skip
def test_a_checkout_of_debians_layout_is_read_whole_or_fails(
    tmp_path: Path, playbooks: Path, line: str, given: dict[str, Any], said: str
) -> None:
    conf = debian_tree(tmp_path, line)
    given = {"map": {"/etc/nginx": str(conf.parent)}, "conf": str(conf), "facts": "none", **given}
    run = ansible(
        "ansible", "localhost", "-c", "local", "-m", "nginx_tune.nginx.audit",
        "-e", f"ansible_python_interpreter={sys.executable}",
        "-a", json.dumps({"executable": str(BIN / "nginx-tune"), **given}), cwd=playbooks,
    )  # fmt: skip
    assert (run.returncode == 0) is (said == ""), run.stdout
    assert said in run.stdout


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with fleet_of(tmp_path_factory.mktemp("fleet"), HOSTS) as running:
        yield running


Recap = dict[str, dict[str, int]]


def play(
    fleet: Fleet, playbooks: Path, book: str, *, limit: str = "", forks: int = 50, **variables: Any
) -> tuple[int, Recap, str]:
    """Exit code, what ansible counted for each host, and what it said."""
    only = ["--limit", limit] if limit else []
    run = fleet.run(
        str(BIN / "ansible-playbook"), "-i", str(fleet.inventory), book, "--diff", *only,
        "--forks", str(forks),
        "-e", json.dumps(variables),
        cwd=playbooks,
        PATH=f"{BIN}:{os.environ['PATH']}",
        NO_COLOR="1",
    )  # fmt: skip
    recap = {
        name: {key: int(number) for key, number in re.findall(r"(\w+)=(\d+)", counts)}
        for name, counts in re.findall(r"^(\S+)\s+: (ok=.*)$", run.stdout, re.MULTILINE)
    }
    return run.returncode, recap, run.stdout + run.stderr


@pytest.fixture(scope="module")
def installed(fleet: Fleet, playbooks: Path, native_wheel: Path, wheelhouse: Path) -> Fleet:
    """The fleet with the tool, put there by the role; the hosts share one /opt."""
    given = {
        "install_wheel": str(native_wheel),
        "install_wheelhouse": str(wheelhouse),
        "install_packages": [],
        "install_python": sys.executable,
    }
    status, recap, said = play(fleet, playbooks, "install.yml", limit="web1", **given)
    assert status == 0, said
    assert recap["web1"]["changed"] > 0
    status, recap, said = play(fleet, playbooks, "install.yml", limit="web1", **given)
    assert (status, recap["web1"]["changed"]) == (0, 0), said
    return fleet


@needs_fleet
def test_facts_come_without_anything_installed(fleet: Fleet, playbooks: Path) -> None:
    (playbooks / "collect.yml").write_text(
        "- hosts: nginx[1]\n  gather_facts: false\n  tasks:\n"
        "    - nginx_tune.nginx.facts: {collector: always, paths: [/etc/nginx]}\n"
        "    - ansible.builtin.copy: {content: '{{ ansible_facts.nginx_tune | to_json }}',"
        f" dest: {playbooks}/collected.json}}\n      delegate_to: localhost\n"
    )
    status, _, said = play(fleet, playbooks, "collect.yml")
    assert status == 0, said
    facts = json.loads((playbooks / "collected.json").read_text())
    assert facts["schema"] == "nginx-tune/facts/1"
    assert facts["nginx"]["version"]
    assert facts["nginx"]["running"], "that of the host, in its own namespaces"
    assert not list(fleet.folder.glob("**/collect.py"))


@needs_fleet
def test_one_report_of_the_whole_fleet(installed: Fleet, playbooks: Path) -> None:
    status, _, said = play(installed, playbooks, "fleet-audit.yml", day="1")
    assert status == 0, said
    report = (playbooks / "fleet-audit.md").read_text()
    alike = r"^\| 4 \| nginx [\d.]+ \| \d.* \| web1, web2, web3 \|$"
    assert re.search(alike, report, re.MULTILINE), report
    for host in installed.hosts:
        kept = sorted((playbooks / "fleet/1" / host.name).iterdir())
        assert [one.name for one in kept] == ["facts.json", "findings.json", "plan.json"]
        assert {one.stat().st_mode & 0o777 for one in kept} == {0o600}
        plan = json.loads(kept[2].read_text())
        before = hashlib.sha256(host.conf.read_bytes()).hexdigest()
        assert before in {one["sha256_before"] for one in plan["files"]}
    faulty = installed.hosts[3]
    sound = faulty.conf.read_text()
    faulty.conf.write_text(sound.replace("root /etc", "aio threads=absent; root /etc"))
    try:
        status, recap, said = play(installed, playbooks, "fleet-audit.yml", day="1")
        assert status == 0, "what has its documents of the day is not asked again"
        assert set(recap) == {"localhost"}
        shutil.rmtree(playbooks / "fleet/1" / faulty.name)
        status, recap, said = play(installed, playbooks, "fleet-audit.yml", day="1")
    finally:
        faulty.conf.write_text(sound)
    assert status != 0, "a fault fails the run"
    assert set(recap) == {"localhost", faulty.name}, "it goes on where it stopped"
    report = (playbooks / "fleet-audit.md").read_text()
    assert "### error: io-pool-literal-unknown" in report
    assert re.search(r"^- `/etc/nginx/nginx\.conf:.*\(1 host: web4\)$", report, re.MULTILINE)


MARK = "<img src=x onerror=alert(1)>|a*b_c_`d`\u202e@team"
STUB = """#!/bin/sh
case "$*" in *inspect*) cat "$0.facts" ;; *) cat "$0.findings" ;; esac
"""


def test_names_from_hosts_are_text_in_the_report(playbooks: Path, tmp_path: Path) -> None:
    """A host that is not believed says what it likes of itself; its operator reads a table."""
    tool = tmp_path / "nginx-tune"
    tool.write_text(STUB)
    tool.chmod(0o755)
    facts = {"nginx": {"product": MARK, "version": "1\n| forged | row"}, "cpu": {"effective": MARK}}
    finding = {
        "severity": "error",
        "rule": MARK,
        "why": MARK,
        "fix": f"{MARK}\n\n# forged",
        "file": f"/a{MARK}\n- forged",
        "line": 3,
        "message": f"{MARK}\n\n<b>forged</b>",
    }
    tool.with_name("nginx-tune.facts").write_text(json.dumps(facts))
    tool.with_name("nginx-tune.findings").write_text(
        json.dumps({"findings": [finding, {**finding, "file": "/etc/b.conf"}]})
    )
    inventory = local_hosts(tmp_path, {"a|b<i>": {}})
    report = tmp_path / "report.md"
    given = {"report": str(report), "fleet": str(tmp_path / "fleet")}
    run = ansible("ansible-playbook", "-i", str(inventory), "fleet-audit.yml", "-e",
                  json.dumps(given), cwd=playbooks, path=tmp_path)  # fmt: skip
    assert report.exists(), run.stdout + run.stderr
    text = report.read_text()
    assert not re.search("[\u202e\x00-\x09]", text)
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    inline = [one for token in tokens for one in token.children or []]
    assert not {one.type for one in (*tokens, *inline)} & {
        "html_block", "html_inline", "image", "link_open", "em_open", "strong_open",
    }  # fmt: skip
    assert [one.tag for one in tokens if one.type == "heading_open"] == ["h1", "h2", "h3"]
    cells = [tokens[at + 1].children for at, one in enumerate(tokens) if one.type == "td_open"]
    shown = ["".join(part.content for part in one or []) for one in cells]
    assert (shown[0], shown[-1]) == ("1", "a|b<i>")
    assert len(shown) == 9, "one row"
    assert shown[1] == f"{MARK} 1 | forged | row".replace("\u202e", " ").replace("@", "@\u2060")
    assert [one.content for one in inline if one.type == "code_inline"] == ["/etc/b.conf:3"]


def test_the_report_does_not_grow_with_the_fleet(playbooks: Path, tmp_path: Path) -> None:
    """Sixty hosts that differ in all that a report counts, and one that was never reached."""
    fleet = tmp_path / "fleet"
    fleet.mkdir()
    names = write_fleet(fleet, 60)
    for number, name in enumerate(names):
        finding = {
            "rule": f"io-{number % 7}", "severity": "advice", "file": f"/etc/{number}", "line": 1,
            "message": "m", "why": "w", "fix": "f", "fingerprint": str(number),
        }  # fmt: skip
        change(fleet, name, "findings", "findings", to=[finding])
        change(fleet, name, "facts", "cpu", "effective", to=number % 30)
    report = tmp_path / "report.md"
    given = {"report": str(report), "fleet": str(fleet), "day": DAYS[1], "fail_on": "never"}
    hosts = {"down": {"ansible_python_interpreter": "/no/python"}, **{name: {} for name in names}}
    run = ansible("ansible-playbook", "-i", str(local_hosts(tmp_path, hosts)), "fleet-audit.yml",
                  "-e", json.dumps(given), cwd=playbooks)  # fmt: skip
    assert run.returncode != 0
    assert not re.search("^(?:ok|changed): .(?:edge|blog|mirror)", run.stdout, re.MULTILINE)
    lines = report.read_text().splitlines()
    assert "Not audited, 1: down" in lines
    assert sum(line.startswith("| 2 |") for line in lines) == 20
    assert "20 other hosts are of 10 kinds that have no row." in lines
    assert "### advice: io-0" in lines
    assert "- 6 more, on 6 hosts" in lines, "of nine places three are shown"
    assert len(lines) < 100


def version(fleet: Fleet, number: int) -> str:
    run = fleet.run("curl", "-s", f"http://{fleet.hosts[number].address}/version")
    return run.stdout


QUICK = {"pairs": 1, "duration": "1s", "warmup": "1s"}


@needs_fleet
def test_a_faulty_candidate_stops_on_the_canary(
    installed: Fleet, playbooks: Path, tmp_path: Path
) -> None:
    before = [host.conf.read_bytes() for host in installed.hosts]
    candidate = tmp_path / "bad.conf"
    candidate.write_text(before[0].decode().replace("root /etc", "aio threads=absent; root /etc"))
    status, recap, said = play(
        installed, playbooks, "pre-deploy.yml", candidate=str(candidate), validate=QUICK
    )
    assert status != 0
    assert "io-pool-literal-unknown" in said or "nginx -t rejects it" in said
    assert set(recap) == {"web1"}, "no other host was touched"
    assert [host.conf.read_bytes() for host in installed.hosts] == before


@needs_fleet
def test_a_failing_gate_stops_on_the_canary(
    installed: Fleet, playbooks: Path, tmp_path: Path
) -> None:
    before = [host.conf.read_bytes() for host in installed.hosts]
    candidate = tmp_path / "slow.conf"
    candidate.write_text(before[0].decode().replace('"first"', '"slow"'))
    status, recap, said = play(
        installed, playbooks, "pre-deploy.yml", candidate=str(candidate), validate=QUICK,
        require=["hot.mean <= 1us"],
    )  # fmt: skip
    assert status != 0
    assert "gates failed: hot.mean <= 1us" in said
    assert set(recap) == {"web1"}
    assert [host.conf.read_bytes() for host in installed.hosts] == before


@needs_fleet
def test_a_good_candidate_reaches_every_host_once(
    installed: Fleet, playbooks: Path, tmp_path: Path
) -> None:
    candidate = tmp_path / "good.conf"
    candidate.write_text(installed.hosts[0].conf.read_text().replace('"first"', '"second"'))
    modes = [0o600, 0o640, 0o644, 0o444]
    for host, mode in zip(installed.hosts, modes, strict=True):
        host.conf.chmod(mode)
    given = {"candidate": str(candidate), "validate": QUICK, "require": ["hot.mean <= 10s"]}
    status, recap, said = play(installed, playbooks, "pre-deploy.yml", **given)
    assert status == 0, said
    assert set(recap) == {host.name for host in installed.hosts}
    assert all(host.conf.read_bytes() == candidate.read_bytes() for host in installed.hosts)
    assert [version(installed, number) for number in range(HOSTS)] == ["second"] * HOSTS
    assert [host.conf.stat().st_mode & 0o777 for host in installed.hosts] == modes
    staged = installed.hosts[0].conf.with_name("nginx.conf.candidate")
    assert staged.stat().st_mode & 0o777 == modes[0], "a candidate tells nobody more"
    status, recap, said = play(installed, playbooks, "pre-deploy.yml", **given)
    assert status == 0, said
    assert {counts["changed"] for counts in recap.values()} == {0}, said


@needs_fleet
def test_a_generated_configuration_changes_nothing_the_second_time(
    installed: Fleet, playbooks: Path
) -> None:
    before = [host.conf.read_bytes() for host in installed.hosts]
    given = {
        "generate": {
            "kind": "static",
            "roots": ["/etc/nginx/html"],
            "site": {"listen": ["80"], "roots": ["/etc/nginx/html"], "user": "root"},
        },
        "validate": {**QUICK, "accept_lost": True},  # it has no /version
    }
    try:
        status, recap, said = play(installed, playbooks, "pre-deploy.yml", **given)
        assert status == 0, said
        made = {host.conf.read_bytes() for host in installed.hosts}
        assert len(made) == 1
        assert b"nginx-tune" in next(iter(made))
        status, recap, said = play(installed, playbooks, "pre-deploy.yml", **given)
        assert status == 0, said
        assert {counts["changed"] for counts in recap.values()} == {0}, said
    finally:
        for host, text in zip(installed.hosts, before, strict=True):
            host.conf.write_bytes(text)


@needs_fleet
def test_three_load_hosts_measure_one_of_them_and_their_results_add_up(
    installed: Fleet, playbooks: Path, tmp_path: Path
) -> None:
    """More hosts than forks, and the server on a load host, where the operator allows it."""
    target = installed.hosts[0].address
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps(load_plan(target)))
    given = {"plan": str(plan), "allow_target": target, "nginx_tune": str(BIN / "nginx-tune")}
    status, _, said = play(
        installed, playbooks, "distributed-load.yml", results=str(tmp_path / "part"), **given
    )
    assert status != 0
    assert "--allow-live" in said, "a server of its own host is not loaded unasked"
    assert "not measured: web1" in said

    status, _, said = play(
        installed, playbooks, "distributed-load.yml", forks=2, allow_live=True,
        results=str(tmp_path / "whole"), **given,
    )  # fmt: skip
    assert status == 0, said
    (results,) = (one for one in (tmp_path / "whole").iterdir() if (one / "merged.json").exists())
    parts = [
        json.loads((results / f"{host.name}.json").read_text()) for host in installed.hosts[:3]
    ]
    adds_up(parts, json.loads((results / "merged.json").read_text()))


@needs_fleet
def test_a_stripe_that_is_lost_fails_the_load_and_is_named(
    installed: Fleet, playbooks: Path, tmp_path: Path
) -> None:
    target = installed.hosts[3].address
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps(load_plan(target)))
    status, _, said = play(
        installed, playbooks, "distributed-load.yml", limit="web1,web3,localhost",
        plan=str(plan), allow_target=target, nginx_tune=str(BIN / "nginx-tune"),
        results=str(tmp_path / "results"),
    )  # fmt: skip
    assert status != 0
    assert "part of the load is lost: of seed 1, stripes 1 of 3 are missing" in said
    assert "not measured: web2" in said
    (results,) = (tmp_path / "results").iterdir()
    merged = json.loads((results / "merged.json").read_text())
    assert [one["stripe"]["index"] for one in merged["agents"]] == [0, 2]
