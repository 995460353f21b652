"""What else takes a plan: audit and validate; and plan's own test by nginx."""

import base64
import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from command_line import RunCli
from planned_files import as_json, planned_file
from recorded_hosts import facts_file
from rows import each_row
from tiers import dice

from nginx_tune.cli.experiments import _without_length

FACTS = facts_file("raid10-4hdd")

CONF = """\
user root;
worker_processes 2; events {{
    multi_accept on;
}}
http {{
    access_log off;
    include {include};
    server {{ listen 127.0.0.1:18966; root {root}; location = /x {{ return 200 x; }} }}
}}
"""


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    root = tmp_path / "www"
    root.mkdir()
    for number in range(4):
        (root / f"f{number}").write_bytes(dice(number).randbytes(2000))
    included = tmp_path / "more.conf"
    included.write_text("tcp_nodelay on;\n")
    file = tmp_path / "nginx.conf"
    file.write_text(CONF.format(root=root, include=included))
    tmp_path.chmod(0o755)
    return file


@pytest.fixture
def planned(run_cli: RunCli, conf: Path, tmp_path: Path) -> Path:
    plan = tmp_path / "plan.json"
    made = run_cli("plan", conf, "--facts", FACTS, "--only", "accept", "-f", "json", "-o", plan)
    assert made.returncode == 0, made.stderr
    return plan


def changed(plan: Path, old: str, new: str) -> None:
    """Have a plan write other text, and show it."""
    document = json.loads(plan.read_text())
    [file] = document["files"]
    content = base64.b64decode(file["content"]).replace(old.encode(), new.encode())
    whole = planned_file(file["path"], Path(file["path"]).read_bytes(), content)
    plan.write_text(json.dumps(document | {"files": [as_json(whole)]}))


def rules(run: subprocess.CompletedProcess[str]) -> list[str]:
    return [finding["rule"] for finding in json.loads(run.stdout)["findings"]]


def test_audit_sees_the_configuration_as_planned(
    run_cli: RunCli, conf: Path, planned: Path
) -> None:
    changed(planned, "access_log off;", "tcp_nopush on;")
    args = ("--facts", "none", "--select", "io-nopush-no-sendfile", "-f", "json")
    assert rules(run_cli("audit", conf, *args)) == []
    assert rules(run_cli("audit", "--plan", planned, *args)) == ["io-nopush-no-sendfile"]
    both = run_cli("audit", conf, "--plan", planned)
    assert (both.returncode, len(both.stderr.splitlines())) == (2, 1)


def test_a_plan_that_changes_nothing_is_told_as_that(
    run_cli: RunCli, conf: Path, planned: Path
) -> None:
    """It exits by what is found all the same: a pipeline without a change to make goes on."""
    document = json.loads(planned.read_text())
    planned.write_text(json.dumps({**document, "files": [], "reads": {}}))
    said = f"{planned}: the plan changes no file, so the result is for {conf} as it is now"
    words = ["audit", "--plan", planned, "--facts", "none", "--fail-on", "info"]
    words += ["--select", "io-nopush-no-sendfile"]
    for old, new, status in ("", "", 0), ("access_log off;", "tcp_nopush on;", 1):
        conf.write_text(conf.read_text().replace(old, new))
        run = run_cli(*words)
        assert (run.returncode, said in run.stderr) == (status, True), run.stderr
    assert said not in run_cli("-q", *words).stderr
    planned.write_text(json.dumps({**document, "conf_path": ""}))
    for command in ("audit", "validate", "apply"):
        given = [command, planned] if command == "apply" else [command, "--plan", planned]
        run = run_cli("-q", *given)
        assert (run.returncode, len(run.stderr.splitlines())) == (2, 1)
        assert "it names no configuration (make it again: nginx-tune plan)" in run.stderr


@pytest.mark.parametrize("command", ["audit", "validate"])
@pytest.mark.parametrize("name", ["nginx.conf", "more.conf"])
def test_a_plan_that_is_out_of_date_is_refused(
    run_cli: RunCli, conf: Path, planned: Path, command: str, name: str
) -> None:
    file = conf.parent / name
    file.write_text(file.read_text() + "# new\n")
    run = run_cli(command, "--plan", planned)
    assert (run.returncode, len(run.stderr.splitlines())) == (2, 1)
    assert f"{file} has changed since the plan was made (make it again" in run.stderr


def test_validate_takes_a_plan_or_two_configurations(run_cli: RunCli, planned: Path) -> None:
    run = run_cli("validate", "/x.conf", "--plan", planned)
    assert (run.returncode, len(run.stderr.splitlines())) == (2, 1)
    assert "--plan names both" in run.stderr


@pytest.mark.needs("nginx", "root")
@pytest.mark.parametrize("form", ["diff", "md", "json"])
def test_plan_says_what_nginx_says(run_cli: RunCli, conf: Path, form: str) -> None:
    run = run_cli("plan", conf, "--facts", FACTS, "--only", "accept", "--test", "-f", form)
    assert run.returncode == 0, run.stderr
    if form == "json":
        assert json.loads(run.stdout)["nginx_test"]["accepted"] is True
    else:
        assert "nginx -t on the changed files, in the sandbox: accepted" in run.stdout


@pytest.mark.needs("nginx", "root")
def test_a_plan_that_nginx_refuses_says_so_and_ends_with_3(run_cli: RunCli, conf: Path) -> None:
    conf.write_text(conf.read_text().replace("tcp_nodelay", "tcp_nodela", 1))
    conf.write_text(conf.read_text().replace("access_log off;", "access_lag off;"))
    run = run_cli("plan", conf, "--facts", FACTS, "--only", "accept", "--test")
    assert run.returncode == 3
    assert "sandbox: REFUSED" in run.stdout
    assert 'unknown directive "access_lag"' in run.stdout
    assert "+    multi_accept off;" in run.stdout


def validated(run_cli: RunCli, *args: object) -> subprocess.CompletedProcess[str]:
    return run_cli(
        "validate", *args, "--pairs", "1", "--duration", "1s", "--warmup", "0.2s",
        "--no-store", "--accept-inconclusive", "-f", "json",
    )  # fmt: skip


@pytest.mark.needs("nginx", "root", "probe")
def test_validate_runs_just_the_planned_bytes(run_cli: RunCli, conf: Path, planned: Path) -> None:
    """What the plan serves no longer is lost: so its bytes were run, and the host's were not."""
    before = conf.read_bytes()
    fine = validated(run_cli, "--plan", planned)
    # On a busy machine the one pair may be discarded, and it is said; what is lost was seen before.
    is_discarded = "1 of 1 pairs discarded" in json.loads(fine.stdout)["reason"]
    assert fine.returncode in ({4} if is_discarded else {0, 1}), fine.stderr
    assert not lost(fine)
    changed(planned, "location = /x { return 200 x; }", "location = /x { return 404; }")
    worse = validated(run_cli, "--plan", planned)
    assert worse.returncode == 1, worse.stderr
    assert any("/x" in one for one in lost(worse))
    assert conf.read_bytes() == before
    changed(planned, "location = /x", "location = = /x")
    refused = validated(run_cli, "--plan", planned)
    assert refused.returncode == 3
    assert "nginx.conf" in refused.stderr


@pytest.mark.needs("nginx", "root", "probe")
def test_a_proof_of_a_plan_is_listed_by_what_the_plan_changes(
    run_cli: RunCli, conf: Path, planned: Path
) -> None:
    run = run_cli("-q", "validate", "--plan", planned, "--pairs", "1", "--duration", "500ms",
                  "--warmup", "200ms", "--accept-inconclusive")  # fmt: skip
    assert run.returncode in {0, 1, 4}, run.stderr
    newest = json.loads(run_cli("runs", "list", "-f", "json").stdout)["runs"][0]
    decisions = {
        hunk["decision"] for file in json.loads(planned.read_text())["files"]
        for hunk in file["hunks"]
    }  # fmt: skip
    path, _, named = newest["name"].partition(": ")
    assert path == str(conf)
    assert set(named.split(", ")) == decisions


@each_row(
    ("typed", "left"),
    [
        ("validate --plan p.json --pairs 1", "validate --plan p.json"),
        ("validate --max-time=5min --plan p.json", "validate --plan p.json"),
        ("-v validate 'a b.conf' --max-time 5min --pairs 6 -q", "-v validate 'a b.conf' -q"),
    ],
)
def test_the_command_that_measures_longer_is_the_one_that_was_typed(typed: str, left: str) -> None:
    assert _without_length(shlex.split(typed)) == f"nginx-tune {left}"


def lost(run: subprocess.CompletedProcess[str]) -> list[Any]:
    return list(json.loads(run.stdout)["lost"])


@pytest.mark.needs("nginx", "root", "probe")
def test_a_settled_plan_runs_as_an_experiment(
    run_cli: RunCli, planned: Path, tmp_path: Path
) -> None:
    experiment = tmp_path / "experiment.toml"
    run_cli("validate", "--plan", planned, "--pairs", "1", "--dry-run", "-o", experiment)
    assert f'plan = "{planned}"' in experiment.read_text()
    run = run_cli("scenario", "run", experiment, "--pairs", "1", "--duration", "1s", "--no-store")
    assert "hot" in run.stdout, run.stderr
