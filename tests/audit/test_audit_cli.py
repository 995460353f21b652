"""``nginx-tune audit`` as a user runs it."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from command_line import RunCli
from rows import each_row

from nginx_tune.audit.rule import linux
from nginx_tune.documents.base import encode
from nginx_tune.documents.facts import Facts

PLAIN = """
error_log logs/error.log;
events {}
http { sendfile on; server { listen 8000; location / { root /srv/media; %s } } }
"""


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    path = tmp_path / "nginx.conf"
    path.write_text(PLAIN % "")
    return path


@pytest.fixture
def facts(tmp_path: Path) -> Path:
    ports = {"net.ipv4.ip_local_port_range": "32768\t60999"}
    media = {"/srv/media": ("sda", "hdd")}
    host = linux(datasets={"/srv/media": (256, 0.1)}, disks=media, sysctls=ports)
    return _write_facts(tmp_path, host)


def _write_facts(directory: Path, facts: Facts) -> Path:
    path = directory / "facts.json"
    path.write_bytes(encode(facts))
    return path


def test_a_file_from_a_repository_says_nothing_about_this_host(run_cli: RunCli, conf: Path) -> None:
    run = run_cli("audit", conf)
    assert run.returncode == 0
    assert run.stdout.startswith("no findings in 1 file")
    assert "io-no-pool-cold-dataset" in run_cli("-v", "audit", conf).stdout
    assert "nginx-tune inspect --dataset /srv/media" in run.stdout
    assert run.stderr.count("\n") == 1
    assert "--facts live" in run.stderr
    assert run_cli("-q", "audit", conf).stderr == ""


def test_facts_of_a_file(run_cli: RunCli, conf: Path, facts: Path) -> None:
    run = run_cli("audit", conf, "--facts", facts)
    assert run.returncode == 0, "a warning is below --fail-on error"
    assert f"{conf}:4: warning[io-no-pool-cold-dataset]" in run.stdout
    assert "256.0 GiB" in run.stdout
    assert run.stderr == ""
    for level, status in (("warning", 1), ("advice", 1), ("never", 0)):
        assert run_cli("audit", conf, "--facts", facts, "--fail-on", level).returncode == status


def test_json_is_the_findings_document_and_the_same_everywhere(
    run_cli: RunCli, conf: Path, facts: Path, tmp_path: Path
) -> None:
    run = run_cli("audit", "-c", "nginx.conf", "--facts", facts, "-f", "json", cwd=tmp_path)
    document = json.loads(run.stdout)
    assert document["schema"] == "nginx-tune/findings/1"
    assert document["files_parsed"] == ["nginx.conf"]
    places = {finding["rule"]: finding["line"] for finding in document["findings"]}
    assert places["io-no-pool-cold-dataset"] == 4
    assert str(tmp_path) not in run.stdout
    out = tmp_path / "out.json"
    run_cli("audit", "nginx.conf", "--facts", facts, f"-fjson={out}", cwd=tmp_path)
    assert out.read_text() == run.stdout


def test_require_facts(run_cli: RunCli, conf: Path, facts: Path) -> None:
    assert run_cli("audit", conf, "--require-facts").returncode == 4
    assert run_cli("audit", conf, "--facts", facts, "--require-facts").returncode == 0


def test_errors_fail_and_an_unparsed_file_outranks_them(run_cli: RunCli, conf: Path) -> None:
    conf.write_text(PLAIN % "aio threads=nope;")
    assert run_cli("audit", conf).returncode == 1
    conf.write_text("include broken.conf;\n" + PLAIN % "sendfile_max_chunk 0;")
    conf.with_name("broken.conf").write_text("events {\n")
    run = run_cli("audit", conf, "--fail-on", "warning", "--require-facts")
    assert run.returncode == 3
    assert f"{conf.with_name('broken.conf')}:2: not parsed: unexpected end of file" in run.stdout
    assert "io-chunk-unlimited" in run.stdout
    assert "1 warning in 1 file, 1 not parsed" in run.stdout
    quiet = run_cli("-q", "audit", conf, f"-fsarif={conf}.sarif")
    assert "broken.conf:2: not parsed: unexpected end of file" in quiet.stderr
    conf.write_text("{{ templated }}\n")
    nothing = run_cli("audit", conf, "--require-facts")
    assert nothing.returncode == 3
    assert nothing.stdout.endswith("\n\nno findings in 0 files, 1 not parsed\n")


@each_row(
    ("options", "shown"),
    [((), 10), (("--fail-on", "warning"), 10), (("--fail-on", "never"), 10), (("-f", "github"), 0)],
)
def test_where_the_report_is_a_file_the_faults_that_fail_are_shown(
    run_cli: RunCli, conf: Path, options: tuple[str, ...], shown: int
) -> None:
    faults = "".join(f"location /{number} {{ sendfile yes; }}\n" for number in range(11))
    conf.write_text(PLAIN % f"sendfile_max_chunk 0; {faults}")
    run = run_cli("audit", conf, "-f", f"sarif={conf}.sarif", *options)
    assert run.stderr.count(": error[") == shown, run.stderr
    left = 2 if "warning" in options else 1
    assert (f"nginx-tune: {left} more in {conf}.sarif\n" in run.stderr) is bool(shown)
    assert (f"11 errors, 1 warning in 1 file (see {conf}.sarif)\n" in run.stderr) is bool(shown)
    assert (f"{conf}:4: error[cf-value-invalid] " in run.stderr) is bool(shown)


@each_row(
    ("arguments", "says"),
    [
        (["none.conf"], "none.conf: cannot read"),
        (["."], "cannot read"),
        (["nginx.conf", "-c", "nginx.conf"], "not both"),
        (["nginx.conf", "--facts", "none.json"], "none.json: cannot read"),
        (["nginx.conf", "--facts", "nginx.conf"], "not JSON"),
        (["nginx.conf", "--fail-on", "fatal"], "--fail-on"),
        (["nginx.conf", "-f", "yaml"], "unknown format"),
        (["nginx.conf", "--nginx", "/bin/true", "--facts", "live"], "not nginx"),
    ],
)
def test_wrong_usage(run_cli: RunCli, conf: Path, arguments: list[str], says: str) -> None:
    run = run_cli("audit", *arguments, cwd=conf.parent)
    assert run.returncode == 2
    assert run.stdout == ""
    assert run.stderr.count("\n") == 1
    assert says in run.stderr


def test_live_facts_read_the_dataset_and_the_main_error_log(
    run_cli: RunCli, conf: Path, tmp_path: Path
) -> None:
    (tmp_path / "www").mkdir()
    (tmp_path / "www" / "a").write_bytes(bytes(9000))
    log = tmp_path / "error.log"
    line = '2026/11/20 14:23:40 [error] 1#1: thread pool "default" queue overflow: 1 tasks waiting'
    log.write_text(f"{line}\n" * 3)
    conf.write_text(
        f"error_log {log};\n" + (PLAIN % "aio threads;").replace("/srv/media", f"{tmp_path}/www")
    )
    run = run_cli("audit", conf, "--facts", "live", "-f", "json")
    found = {one["rule"]: one for one in json.loads(run.stdout)["findings"]}
    assert run.returncode == 1
    assert found["io-pool-overflow-seen"]["evidence"][0]["value"] == 3
    assert "io-no-pool-cold-dataset" not in found


@pytest.mark.needs("root", "packaged-nginx")
def test_without_a_name_it_takes_the_hosts_own() -> None:
    # Among its own processes: no nginx runs, whatever the host runs.
    command = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-m", "nginx_tune"]
    run = subprocess.run(
        [*command, "audit", "--nginx", "/usr/sbin/nginx", "-f", "json"],
        capture_output=True, check=False,
    )  # fmt: skip
    assert run.returncode in {0, 1}
    document = json.loads(run.stdout)
    assert "/etc/nginx/nginx.conf" in document["files_parsed"]
    assert document["files_unparsed"] == []


def test_terminal_escapes_of_a_configuration_do_not_reach_the_terminal(
    run_cli: RunCli, conf: Path
) -> None:
    conf.write_text(PLAIN % 'aio "threads=\x1b[2Jx";')
    run = run_cli("audit", conf)
    assert run.returncode == 1
    assert "\x1b" not in run.stdout
    assert "\\x1b[2Jx" in run.stdout


def test_nothing_is_written_and_no_nginx_test_is_run(
    run_cli: RunCli, conf: Path, tmp_path: Path
) -> None:
    fake = tmp_path / "nginx"
    fake.write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\necho "nginx version: nginx/1.22.1" >&2\n'
    )
    fake.chmod(0o755)
    before = set(tmp_path.iterdir())
    run_cli("audit", conf, "--facts", "live", "--nginx", fake, "--trust")
    assert set(tmp_path.iterdir()) == {*before, tmp_path / "calls"}
    assert set((tmp_path / "calls").read_text().split("\n")) == {"-V", ""}


def test_a_pipe_is_read_and_one_without_a_writer_is_named(
    run_cli: RunCli, conf: Path, tmp_path: Path
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    bad = "http { sendfil on; }"
    writer = threading.Thread(target=pipe.write_text, args=(bad,), daemon=True)
    writer.start()
    run = run_cli("audit", pipe)
    writer.join(5)
    assert run.returncode == 1
    assert "cf-directive-unknown" in run.stdout
    assert "cf-events-missing" in run.stdout
    for option in ("--test", "--diff-base=HEAD"):
        refused = run_cli("audit", pipe, option)
        assert refused.returncode == 2
        assert "is a pipe" in refused.stderr
    conf.write_text(f"events {{}} http {{ include {pipe}; }}")
    run = run_cli("audit", conf)
    assert run.returncode == 3
    assert f"include {pipe}: cannot read: a FIFO, not a file" in run.stdout
    tested = run_cli("audit", conf, "--test", "-f", "json")
    assert (tested.returncode, json.loads(tested.stdout)["nginx_test"]) == (3, None)
    assert "nginx -t was not run" in tested.stderr


@pytest.mark.needs("root", "nginx")
def test_fixes_that_nginx_refuses_are_left_out(run_cli: RunCli, conf: Path, tmp_path: Path) -> None:
    """The directive that is added may stand in a file of which only nginx knows."""
    conf.write_text(
        "events { accept_mutex on; }\nhttp { server { listen 127.0.0.1:8000 reuseport; "
        "return 204; } }\n"
    )
    run = run_cli("audit", conf, "--facts", "none", "--test", "--fix-diff")
    assert "-events { accept_mutex on; }" in run.stdout
    assert "nginx -t accepts it" in run.stderr
    unasked = run_cli("audit", conf, "--facts", "none", "--fix-diff")
    assert unasked.stdout == run.stdout
    assert "nginx -t accepts it" in unasked.stderr, "it is tried without --test too"
    untried = run_cli("audit", conf, "--facts", "none", "--fix-diff", "--no-test")
    assert untried.stdout == run.stdout
    assert "not tried with this tree: --no-test" in untried.stderr
    other = ("--nginx-version", "1.31.1", "--fix-diff")
    assert (
        "the facts have nginx 1.31.1, but this host has 1." in run_cli("audit", conf, *other).stderr
    )
    dump = f"# configuration file {conf}:\n{conf.read_text()}"
    dumped = run_cli("audit", "-", "--fix-diff", stdin=dump)
    assert "not tried with this tree: a dump has no files here" in dumped.stderr


def test_a_finding_knows_the_block_it_stands_in(run_cli: RunCli, tmp_path: Path) -> None:
    """Not that of the file which includes it: no line of its own file says where that begins."""
    (tmp_path / "more.conf").write_text("root /srv;\nkeepalive 4;\nindex a;\n")
    conf = tmp_path / "nginx.conf"
    conf.write_text(
        "events {}\nworker_shutdown_timeout 5s;\nhttp {\n  root /x;\n  upstream a {\n"
        "    server 127.0.0.1:1;\n    root /srv;\n    include more.conf;\n  }\n}\nroot /y;\n"
    )
    select = ("--facts", "none", "--select", "cf-directive-misplaced")
    run = run_cli("audit", conf, *select, "-f", "json")
    places = {
        (Path(one["file"]).name, one["line"]): one["block_line"]
        for one in json.loads(run.stdout)["findings"]
    }
    assert places == {
        ("nginx.conf", 7): 5,
        ("nginx.conf", 11): 0,
        ("more.conf", 1): 0,
        ("more.conf", 3): 0,
    }
