"""``plan`` from the command line, and ``apply`` of what it wrote."""

import base64
import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from recorded_hosts import facts_file
from situations import load

from nginx_tune.documents.base import encode

FACTS = facts_file("raid10-4hdd")
RunCli = Callable[..., "subprocess.CompletedProcess[str]"]
CONF = """\
events {
    multi_accept on;  # it was fast once
}
http {
    access_log off;
    server { listen 127.0.0.1:18961; root /srv; }
}
"""


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    file = tmp_path / "nginx.conf"
    file.write_text(CONF)
    return file


def test_the_diff_says_what_why_and_where(run_cli: RunCli, conf: Path) -> None:
    run = run_cli("plan", conf, "--facts", FACTS)
    assert run.returncode == 0, run.stderr
    assert re.search(r"^# accept, \w+ confidence \(nginx.conf:2\): ", run.stdout, re.MULTILINE)
    assert "-    multi_accept on;  # it was fast once\n" in run.stdout
    assert "+    multi_accept off;  # it was fast once\n" in run.stdout
    assert conf.read_text() == CONF


def test_a_map_says_where_a_checkout_has_what_it_includes(run_cli: RunCli, tmp_path: Path) -> None:
    conf, there = tmp_path / "nginx.conf", tmp_path / "extra"
    there.mkdir()
    (there / "events.conf").write_text("multi_accept on;")
    conf.write_text("events { include /opt/extra/*.conf; } http { access_log off; }")
    run = run_cli("plan", conf, "--facts", FACTS, "--map", f"/opt/extra={there}")
    assert run.returncode == 0, run.stderr
    assert f"+++ b{there}/events.conf\n" in run.stdout
    assert "multi_accept" not in run_cli("plan", conf, "--facts", FACTS).stdout
    decided = run_cli(
        "-v", "recommend", "-c", conf, "--facts", FACTS, "--map", f"/opt/extra={there}"
    )
    assert f"{there}/events.conf:1" in decided.stdout
    assert run_cli("recommend", "--facts", FACTS, "--map", f"/opt/extra={there}").returncode == 2


def test_a_checkout_is_not_completed_by_files_of_this_machine(
    run_cli: RunCli, tmp_path: Path
) -> None:
    """With facts of another host its main file stands for that host's."""
    machine, conf = tmp_path / "machine", tmp_path / "tree/nginx.conf"
    for folder, line in ((tmp_path / "tree/conf.d", "multi_accept off;"), (machine, "nonsense;")):
        folder.mkdir(parents=True)
        (folder / "a.conf").write_text(line)
    away = f"include {machine}/*.conf;"
    included = f"events {{ include /etc/nginx/conf.d/*.conf; {away} }}"
    conf.write_text(CONF.replace(CONF.partition("http")[0], included))
    recorded = run_cli("plan", conf, "--facts", FACTS)
    assert recorded.returncode == 4
    assert "multi_accept" not in recorded.stdout, "it stands in the file that /etc/nginx means"
    lost = f"not found here, so not read: {conf}:1: include {machine}/*.conf"
    assert (
        f"nginx-tune: {lost} (--accept-missing '{machine}/*.conf' accepts that it is "
        in recorded.stderr
    )
    assert f"# {lost}\n" in recorded.stdout
    live = run_cli("-q", "plan", conf)
    assert live.returncode == 4
    assert (
        f"{conf}:1: include /etc/nginx/conf.d/*.conf, {conf}:1: include {machine}/" in live.stderr
    )
    assert "--map /etc/nginx=" in live.stderr
    accepted = ("--accept-missing", f"{machine}/*")
    taken = run_cli("plan", conf, "--facts", FACTS, *accepted)
    assert (taken.returncode, "not read" in taken.stderr) == (0, False)
    assert f"# {lost}\n" in taken.stdout
    whole, part = tmp_path / "whole.json", tmp_path / "part.json"
    for file, options in ((whole, accepted), (part, ())):
        run_cli("plan", conf, "--facts", FACTS, *options, "-f", "json", "-o", file)
    refused = run_cli("apply", part, "--no-reload", "--state-dir", tmp_path / "state")
    assert (refused.returncode, lost in refused.stderr) == (4, True)
    for command in ("validate", "rehearse"):
        mixed = run_cli(command, "--plan", whole)
        assert mixed.returncode == 4
        assert "made for a checkout, and the set of files that nginx reads here" in mixed.stderr


def test_files_are_named_as_their_main_file_was_typed(
    run_cli: RunCli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a checkout all names are of the checkout, as of audit and check."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "etc/conf.d").mkdir(parents=True)
    (tmp_path / "etc/conf.d/a.conf").write_text(
        "server { listen 80; root /srv; location / { sendfile off; } include /opt/gone; }"
    )
    (tmp_path / "etc/nginx.conf").write_text(
        "worker_processes 1;\nevents { multi_accept on; }\nhttp { include conf.d/*.conf; }"
    )
    for line in ("", "sendfile maybe;", "sendfile"):
        (tmp_path / "etc/conf.d/b.conf").write_text(line)
        for words in (("audit",), ("check",), ("recommend", "-c"), ("plan",)):
            run = run_cli("-v", *words, "etc/nginx.conf", "--facts", FACTS)
            said = run.stdout + run.stderr
            assert f"etc/conf.d/{'b' if line == 'sendfile' else 'a'}.conf:1" in said, words
            assert f"{tmp_path}" not in said, (words, said)


def test_it_is_about_the_files_that_the_configuration_serves(
    run_cli: RunCli, conf: Path, tmp_path: Path
) -> None:
    """Its own directories are read, none that a default names; of this host only if it is meant."""
    for place, size in (("a", 70_000), ("b/c", 30_000), ("unserved", 1)):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "file").write_bytes(bytes(size))
    served = f"root {tmp_path}/a; location /b/ {{ alias {tmp_path}/b/; }}"
    conf.write_text(CONF.replace("root /srv;", served))
    for command in (["recommend", "-c", conf], ["plan", conf]):
        run = run_cli(*command, "--facts", "live", "-f", "json")
        assert run.returncode == 0, run.stderr
        assert "/var/www/html" not in run.stdout
    named = ("--root", tmp_path / "a")
    for options, size in ((("--facts", "live"), 100_000), (named, 70_000), ((), None)):
        run = run_cli("recommend", "-c", conf, *options, "-f", "json")
        decisions = json.loads(run.stdout)["decisions"]
        (pools,) = (one for one in decisions if one["id"] == "thread-pools")
        figures = {one["fact"]: one["value"] for one in pools["evidence"]}
        assert figures.get("workload.dataset.bytes") == size
        assert (
            "the size of its data is not known (give its host with --facts FILE" in run.stderr
        ) is (size is None)


def test_only_and_except_choose_and_unknown_names_are_told(run_cli: RunCli, conf: Path) -> None:
    several = f"worker_processes auto; {CONF}"
    alone = run_cli("plan", conf, "--facts", FACTS, "--only", "accept")
    assert "multi_accept" not in alone.stdout, "one worker, which stays, takes all anyhow"
    conf.write_text(several)
    only = run_cli("plan", conf, "--facts", FACTS, "--only", "accept", "-f", "json")
    plan = json.loads(only.stdout)
    [file] = plan["files"]
    assert [hunk["decision"] for hunk in file["hunks"]] == ["accept"]
    new = base64.b64decode(file["content"]).decode()
    assert new == several.replace("multi_accept on;", "multi_accept off;")
    but = run_cli("plan", conf, "--facts", FACTS, "--except", "accept")
    assert "multi_accept off" not in but.stdout
    wrong = run_cli("plan", conf, "--facts", FACTS, "--only", "acept")
    assert (wrong.returncode, len(wrong.stderr.splitlines())) == (2, 1)
    assert "no decision or rule is named 'acept' (is accept meant?)" in wrong.stderr


def test_safe_fixes_of_the_audit_are_in_it_and_chosen_by_rule(run_cli: RunCli, conf: Path) -> None:
    slow = CONF.replace("access_log off;", "access_log off;\n    lingering_close off;")
    conf.write_text(f"worker_processes auto; {slow}")
    every = run_cli("plan", conf, "--facts", FACTS)
    assert "\n# cn-lingering-off, high confidence (nginx.conf:6): " in every.stdout
    assert "-    lingering_close off;\n" in every.stdout
    assert "multi_accept off" in every.stdout
    alone = run_cli("plan", conf, "--facts", FACTS, "--only", "cn-lingering-off")
    assert "-    lingering_close off;\n" in alone.stdout
    assert "multi_accept off" not in alone.stdout
    for name in ("cn-lingering-off", "cn", "*-*"):
        but = run_cli("plan", conf, "--facts", FACTS, "--except", name)
        assert "-    lingering_close" not in but.stdout
        assert "multi_accept off" in but.stdout
    fixes = run_cli("plan", conf, "--facts", FACTS, "--only", "*-*", "--only", "cn")
    assert fixes.stdout == alone.stdout, fixes.stderr
    both = run_cli("plan", conf, "--facts", FACTS, "--only", "accept", "--only", "cn", "-f", "md")
    assert "2 lines in 1 file." in both.stdout


def test_a_file_that_links_have_included_twice_is_changed_once(
    run_cli: RunCli, conf: Path, tmp_path: Path
) -> None:
    real = tmp_path / "real"
    real.write_text("lingering_close off;\n")
    for name in ("a", "b"):
        (tmp_path / f"{name}.inc").symlink_to(real)
    server = "server {{ listen unix:/tmp/{0}; include {0}.inc; location / {{ root /srv; }} }}"
    servers = "\n".join(server.format(name) for name in ("a", "b"))
    conf.write_text(f"events {{}} http {{ {servers} }}\n")
    run = run_cli("plan", conf, "--facts", FACTS, "--only", "cn-lingering-off", "-f", "json")
    plan = json.loads(run.stdout)
    assert [one["path"] for one in plan["files"]] == [str(tmp_path / "a.inc")]
    assert base64.b64decode(plan["files"][0]["content"]) == b"lingering_close on;\n"


def test_a_plan_holds_secrets_so_its_file_is_private(
    run_cli: RunCli, conf: Path, tmp_path: Path
) -> None:
    run_cli("plan", conf, "--facts", FACTS, "-f", "json", "-o", tmp_path / "plan.json")
    assert (tmp_path / "plan.json").stat().st_mode & 0o777 == 0o600


def test_what_was_not_parsed_is_refused(run_cli: RunCli, conf: Path) -> None:
    conf.write_text(CONF + "}")
    run = run_cli("plan", conf, "--facts", FACTS)
    assert run.returncode == 3
    assert len(run.stderr.splitlines()) == 1


def test_a_configuration_that_nginx_refuses_is_named(run_cli: RunCli, conf: Path) -> None:
    conf.write_text(CONF.replace("http {", "http { frobnicate on;"))
    run = run_cli("plan", conf, "--facts", FACTS)
    assert run.returncode == 3
    assert f'nginx does not start: {conf}:4: "frobnicate"' in run.stderr
    assert "+    multi_accept off;" in run.stdout


def test_a_changed_plan_is_not_applied(run_cli: RunCli, conf: Path, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    run_cli("plan", conf, "--facts", FACTS, "-f", "json", "-o", file)
    plan = json.loads(file.read_text())
    plan["files"][0]["content"] = base64.b64encode(b"events {}").decode()
    file.write_text(json.dumps(plan))
    run = run_cli("apply", file, "--state-dir", tmp_path / "state", "--no-reload")
    assert run.returncode == 2
    assert "is not what was planned" in run.stderr
    assert conf.read_text() == CONF


def test_what_the_audit_finds_only_then_is_said(run_cli: RunCli, conf: Path) -> None:
    """The pool that a configuration names is used no more where the plan takes another."""
    text = CONF.replace("root /srv;", "root /srv; aio threads=old;")
    conf.write_text(f"thread_pool old threads=4;\n{text}")
    facts = facts_file("three-disk-node")
    plan = json.loads(run_cli("plan", conf, "--facts", facts, "-f", "json").stdout)
    [brought] = plan["brings"]
    assert (brought["rule"], brought["line"]) == ("io-pool-unused", 1)
    said = f"{conf}:{brought['line']}: {brought['severity']}[io-pool-unused] "
    diff = run_cli("plan", conf, "--facts", facts)
    assert f"# findings of the audit afterwards: {said}" in diff.stdout
    said = f"`{conf}:{brought['line']}`: {brought['severity']}[io-pool-unused] "
    assert f"- {said}" in run_cli("plan", conf, "--facts", facts, "-f", "md").stdout
    few = run_cli("plan", conf, "--facts", facts, "--only", "accept")
    assert "findings of the audit afterwards" not in few.stdout


def test_a_site_of_files_that_passes_some_requests_on_keeps_those_connections_too(
    run_cli: RunCli, conf: Path, tmp_path: Path
) -> None:
    conf.write_text(
        """events {}
http {
    upstream app { server 10.0.0.1:9001; }
    server {
        listen 18961;
        root /srv;
        location / { try_files $uri =404; }
        location /api/ { proxy_pass http://app; }
    }
}
"""
    )
    workload = tmp_path / "workload.json"
    workload.write_bytes(encode(load("static", data_bytes=10**8, file_bytes=10**4, peak=40)))
    run = run_cli("plan", conf, "--facts", FACTS, "--workload", workload)
    assert run.returncode == 0, run.stderr
    added = [line[1:].strip() for line in run.stdout.splitlines() if line.startswith("+")]
    assert any("upstream app {" in line and "keepalive 1" in line for line in added), added
    passed = next(line for line in added if "location /api/" in line)
    assert 'proxy_http_version 1.1; proxy_set_header Connection "";' in passed
    assert not [line for line in added if "location / " in line]
    # A file written anew serves files alone: it has nobody to keep a connection to.
    site = tmp_path / "site.toml"
    site.write_text('[[upstreams]]\nname = "app"\nservers = ["127.0.0.1:9001"]\n')
    made = run_cli("generate", "--facts", FACTS, "--kind", "static", "--site", site)
    assert made.returncode == 0, made.stderr
    assert "proxy_" not in made.stdout


@pytest.mark.needs("root")
def test_a_plan_says_what_apply_would_refuse_as_root(run_cli: RunCli, tmp_path: Path) -> None:
    conf = tmp_path / "nginx.conf"
    conf.write_text(
        "events { worker_connections 64; }\nhttp { server { listen 127.0.0.1:8099;\n"
        "    location / { root /srv; } } }\n"
    )
    conf.chmod(0o666)
    told = run_cli("plan", conf, "-f", "json", "--kind", "static")
    assert json.loads(told.stdout)["files"]
    assert "apply would refuse this plan" in told.stderr
    assert "can be written by everyone" in told.stderr
    # The fault may be that of /tmp, which must stay everybody's: not its rights are to change.
    assert "keep it, owned by root, in directories that only root may write" in told.stderr
    assert "or give apply --trust" in told.stderr
    assert run_cli("-q", "plan", conf, "-f", "json", "--kind", "static").stderr == ""
    conf.chmod(0o644)
    shown = run_cli("plan", conf, "--kind", "static").stderr
    assert f"next: nginx-tune plan -f json=plan.json {conf} --kind static\n" in shown
    after = run_cli("plan", "--kind", "static", "--", conf).stderr
    assert f"next: nginx-tune plan -f json=plan.json --kind static -- {conf}\n" in after
    odd = conf.rename(tmp_path / "\udcff.conf")
    odd_run = run_cli("plan", odd, "--kind", "static")
    assert odd_run.returncode == 0
    assert "next: " not in odd_run.stderr
    assert "next: nginx-tune plan" not in told.stderr


@pytest.mark.parametrize(("target", "is_buffered"), [("/dev/stdout", False), ("b.log", True)])
def test_a_log_that_is_a_link_to_a_stream_takes_no_buffer(
    run_cli: RunCli, conf: Path, tmp_path: Path, target: str, *, is_buffered: bool
) -> None:
    """As /var/log/nginx/access.log is in nginx's own images."""
    (tmp_path / "a.log").symlink_to("c.log")
    (tmp_path / "c.log").symlink_to(target)
    conf.write_text(CONF.replace("access_log off", f"access_log {tmp_path}/a.log"))
    run = run_cli("plan", conf)
    assert run.returncode == 0, run.stderr
    assert ("buffer=" in run.stdout) is is_buffered


@pytest.mark.parametrize("is_relative", [False, True])
def test_a_log_that_is_a_pipe_takes_no_buffer(
    run_cli: RunCli, conf: Path, tmp_path: Path, *, is_relative: bool
) -> None:
    """Buffers of several workers tear each other's lines there: PIPE_BUF, pipe(7)."""
    log = "a.log" if is_relative else f"{tmp_path}/a.log"
    conf.write_text(CONF.replace("access_log off", f"access_log {log}"))
    plan = ("plan", conf, "-p", tmp_path)
    assert "buffer=" in run_cli(*plan).stdout
    os.mkfifo(tmp_path / "a.log")
    run = run_cli(*plan)
    assert run.returncode == 0, run.stderr
    assert "buffer=" not in run.stdout
    # With the facts of a file too, unless they say what the log is there.
    assert "buffer=" not in run_cli(*plan, "--facts", FACTS).stdout
    facts = json.loads(FACTS.read_text())
    for is_file in (True, False):
        facts["access_logs"] = [{"path": f"{tmp_path}/a.log", "is_file": is_file}]
        (tmp_path / "facts.json").write_text(json.dumps(facts))
        run = run_cli(*plan, "--facts", tmp_path / "facts.json")
        assert ("buffer=" in run.stdout) is is_file
        assert "must be a plain file" not in run.stdout


def test_a_log_that_nobody_looked_at_is_named_as_one_that_must_be_a_file(
    run_cli: RunCli, conf: Path, tmp_path: Path
) -> None:
    """In the official images it is a link to /dev/stdout, where a buffer tears lines."""
    conf.write_text(CONF.replace("access_log off", f"access_log {tmp_path}/a.log"))
    risk = f"{tmp_path}/a.log must be a regular file"
    elsewhere = run_cli("plan", conf, "--facts", FACTS).stdout
    assert "buffer=" in elsewhere
    assert elsewhere.count(risk) == 1
    assert risk not in run_cli("plan", conf, "--facts", "live").stdout
    assert risk in run_cli("plan", conf).stdout, "another host's configuration, until it is said"
    facts = json.loads(FACTS.read_text())
    facts["nginx"]["running"] = {"pid": 9, "other_mount_namespace": True}
    (tmp_path / "facts.json").write_text(json.dumps(facts))
    in_container = run_cli("plan", conf, "--facts", tmp_path / "facts.json")
    assert in_container.returncode == 0, in_container.stderr
    assert "buffer=" not in in_container.stdout


@pytest.mark.parametrize(
    ("flags", "log"),
    [
        (["--error-log-path=/var/log/nginx/error.log"], "/usr/local/nginx/logs/access.log"),
        (["--prefix=/opt/n", "--error-log-path=/e/error.log"], "/opt/n/logs/access.log"),
        (["--prefix=/opt/n", "--http-log-path=/l/a.log"], "/l/a.log"),
    ],
)
def test_the_log_of_the_build_stays_where_it_is(
    run_cli: RunCli, conf: Path, tmp_path: Path, flags: list[str], log: str
) -> None:
    facts = json.loads(FACTS.read_text())
    facts["nginx"]["flags"] = flags
    error_logs = [one.partition("=")[2] for one in flags if one.startswith("--error")]
    facts["nginx"]["error_log_path"] = next(iter(error_logs), "/l/error.log")
    (tmp_path / "facts.json").write_text(json.dumps(facts))
    conf.write_text(CONF.replace("access_log off;", ""))
    run = run_cli("plan", conf, "--facts", tmp_path / "facts.json")
    assert f"+    access_log {log} combined buffer=" in run.stdout, run.stderr


@pytest.mark.parametrize(
    "command",
    [("validate", "nginx.conf", "--against", "b.conf"), ("rehearse", "nginx.conf", "b.conf")],
)
def test_a_checkout_is_not_run_with_what_this_machine_includes(
    run_cli: RunCli, tmp_path: Path, command: tuple[str, ...]
) -> None:
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d/a.conf").write_text("server { listen 80; }")
    for name in ("nginx.conf", "b.conf"):
        (tmp_path / name).write_text("events {} http { include /opt/site/conf.d/*.conf; }")
    run = run_cli(*command, cwd=tmp_path)
    assert run.returncode == 4
    assert f"mount --bind {tmp_path} /opt/site && nginx-tune {command[0]} …" in run.stderr
    (tmp_path / "conf.d/a.conf").unlink()  # nothing that it could mean: it is what nginx reads
    assert "mount --bind" not in run_cli(*command, cwd=tmp_path).stderr


@pytest.mark.needs("patch")
@pytest.mark.parametrize("link", ["../available/a", "/opt/site/available/a"])
def test_what_ci_systems_show_is_at_the_file_behind_a_link(
    run_cli: RunCli, tmp_path: Path, link: str
) -> None:
    """Also behind one that dangles in a checkout, where the map says what it means."""
    (tmp_path / "available").mkdir()
    (tmp_path / "enabled").mkdir()
    (tmp_path / "available" / "a").write_text("server {\n    lingering_close off;\n}\n")
    (tmp_path / "enabled" / "a").symlink_to(link)
    (tmp_path / "nginx.conf").write_text("events {} http { include /opt/site/enabled/*; }")
    forms = ['sarif:"uri": "', 'gitlab:"path": "', "github:::warning file="]
    for form, before in (one.split(":", 1) for one in forms):
        call = ("audit", "nginx.conf", "--map", "/opt/site=.", "-f", form)
        run = run_cli(*call, cwd=tmp_path)
        assert f"{before}available/a" in run.stdout, run.stderr
        assert f"{before}enabled/a" not in run.stdout
    run = run_cli("plan", "nginx.conf", "--facts", FACTS, "--map", "/opt/site=.", cwd=tmp_path)
    assert "+++ b/available/a\n" in run.stdout, run.stderr
    assert "nginx-tune: patch -p1 applies the diff\n" in run.stderr
    form = ("--map", "/opt/site=.", "-f", "md")
    page = run_cli("plan", "nginx.conf", "--facts", FACTS, *form, cwd=tmp_path)
    assert "+++ b/available/a\n" in page.stdout, page.stderr
    patch = ["patch", "-p1", "--quiet"]
    subprocess.run(patch, input=run.stdout, text=True, check=True, cwd=tmp_path)
    assert "lingering_close on" in (tmp_path / "available" / "a").read_text()
    assert (tmp_path / "enabled" / "a").is_symlink()


@pytest.mark.parametrize("command", [["plan", "--facts", FACTS], ["audit", "--fix-diff"]])
def test_the_diff_names_the_file_behind_a_link(
    run_cli: RunCli, tmp_path: Path, command: list[str | Path]
) -> None:
    """As sites-enabled has them on Debian: patch and git apply refuse to follow one."""
    (tmp_path / "available").mkdir()
    (tmp_path / "enabled").mkdir()
    site = "server {\n    listen 127.0.0.1:18961;\n    lingering_close off;\n    root /srv;\n}\n"
    (tmp_path / "available" / "a").write_text(site)
    (tmp_path / "enabled" / "a").symlink_to("../available/a")
    main = tmp_path / "nginx.conf"
    main.write_text(f"events {{}}\nhttp {{ access_log off; include {tmp_path}/enabled/*; }}\n")
    run = run_cli(command[0], main, *command[1:])
    diff = tmp_path / "diff"
    diff.write_text(run.stdout)
    assert f"--- a{tmp_path}/available/a\n" in run.stdout, run.stderr
    apply = ["git", "apply", "--unsafe-paths", "--directory=/", diff]
    subprocess.run(apply, check=True, cwd=tmp_path)
    assert "lingering_close on" in (tmp_path / "available" / "a").read_text()
    assert (tmp_path / "enabled" / "a").is_symlink()
